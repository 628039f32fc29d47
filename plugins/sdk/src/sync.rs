//! Locks of `promise.rs`, which `tests/interleavings.rs` compiles against loom's.

pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
