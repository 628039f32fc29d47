//! Integration tests of `halite-weights`, in one executable: each links all of its dependencies.

mod golden;
mod hostile;
mod names;
mod save;
