//! Integration tests of `halite-cluster`, in one executable: each links all of its dependencies.

mod collectives;
mod failures;
mod hosts;
mod launchers;
mod store;

mod shared {
    pub(crate) mod child;
}
