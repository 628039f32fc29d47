//! Numeric kernels on the host: slices in, slices out.
//!
//! [`multiply`] is a matrix product over any strides, [`Program`] a fused elementwise computation,
//! [`reduce`] a reduction along one axis. Nothing here knows a program, a device or an allocator of
//! tensors.
//!
//! Every result has the same bits for every number of [`Threads`]: work is split between threads
//! only where no sum is. Vector instructions are chosen at run time (AVX-512, AVX2, NEON), so that
//! bits may differ between processors.
#![forbid(unsafe_code)]

mod gemm;
mod math;
mod reduce;
mod threads;
mod tile;
mod view;

pub use gemm::{Axis, Operand, multiply, multiply_all};
pub use reduce::{Accumulate, Reduction, reduce};
pub use threads::Threads;
pub use tile::{Binary, Instruction, Program, Register, Source, Target, Unary};
pub use view::{Gap, View, ViewDim};
