//! Integration tests of `halite-train`, in one executable: each links all of its dependencies.

mod callbacks;
mod checkpoints;
mod full_disk;
mod golden;
mod kill;
mod lower;
mod never_lost;
mod observing;
mod processes;
mod rates;
mod saving;
mod signals;
mod strategy;
mod words;

/// What several of the modules train.
mod shared {
    pub(crate) mod plane;
    pub(crate) mod regression;
    pub(crate) mod scored;
    #[cfg(target_os = "linux")]
    pub(crate) mod small_disk;
    pub(crate) mod specified;
}
