//! Faults of XLA's CPU plugin (decision 0051): that programs are lowered around each, and that each
//! is still there. A test of the second kind fails with a plugin in which a fault is mended.

mod convolutions;
mod elementwise;
mod negative_padding;
mod split_products;
mod split_windows;
mod strategies;
mod support;
mod swapped_operands;
