//! Code for one device of a mesh, on the real CPU plugin with eight devices: values against what
//! each device computes, gradients against finite differences in f64.

mod arrays;
mod golden;
mod gradients;
mod support;
mod values;
