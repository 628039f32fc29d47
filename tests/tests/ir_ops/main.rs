//! Every operation of the IR, printed, compiled by the real CPU plugin, run, and compared with
//! values computed here in the simplest way.

mod contract;
mod control;
mod devices;
mod draw;
mod elementwise;
mod index;
mod random;
mod reduce;
mod shape;
mod support;

use halite_tests::eval::open;

#[test]
fn suite_passes_on_embedded() {
    halite_tests::embedded::rerun(&[]);
}
