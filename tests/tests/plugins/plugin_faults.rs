//! Faults of XLA's CPU plugin (decision 0051): that programs are lowered around each, and that each
//! is still there. A test of the second kind fails with a plugin in which a fault is mended. And faults
//! of XLA's plugins for GPUs (decision 0054): that what they are lowered to is right.

mod accelerator;
mod convolutions;
mod elementwise;
mod equal_indices;
mod negative_padding;
mod nested_slices;
mod split_products;
mod split_windows;
mod strategies;
mod support;
mod swapped_operands;
