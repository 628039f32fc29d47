//! Every operation of the IR, printed, compiled by the real CPU plugin, run, and compared with
//! values computed here in the simplest way.

mod contract;
mod control;
mod devices;
pub(crate) mod draw;
mod elementwise;
mod index;
mod random;
mod reduce;
mod shape;
mod support;
