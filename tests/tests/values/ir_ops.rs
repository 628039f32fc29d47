//! Operations of the IR whose values are not in the table `edge_values`, since they have regions, need
//! several devices or have no operands; printed, compiled by the real CPU plugin, run, and compared
//! with values computed here in the simplest way. Also random graphs of all operations.

mod constants;
mod control;
mod devices;
pub(crate) mod draw;
mod random;
mod support;
