//! A PJRT plugin for a toy accelerator, to start from.
//!
//! The accelerator has a memory of its own, and programs of `f32`, `i32` and `i1`. Replace, file by
//! file: `device` by calls of your driver, `program` and `kernel` by your compiler; `backend` and
//! `buffer` stay nearly as they are.
#![forbid(unsafe_code)]

mod backend;
mod buffer;
mod device;
mod kernel;
mod program;

use halite_core::{Backend, Result};
use halite_plugin::{Options, Traced};

use crate::backend::Toy;

halite_plugin::export_plugin!(open);

/// Opens the plugin, with a log of every call at the level `debug` of `tracing`.
///
/// # Errors
/// If an option is out of range, or the system cannot create a thread.
pub fn open(options: &mut Options) -> Result<impl Backend + use<>> {
    Toy::open(options).map(Traced::new)
}
