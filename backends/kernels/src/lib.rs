//! Numeric kernels on the host: slices in, slices out.
//!
//! [`multiply`] is a matrix product over any strides, [`Convolution`] a convolution and
//! [`Attention`] an attention with their gradients, [`Program`] a fused elementwise computation
//! with reductions of rows and columns, [`reduce`] a reduction along one axis. Nothing here knows a
//! StableHLO program, a device or an allocator of tensors.
//!
//! Every result has the same bits for every number of [`Threads`], but for the sign of a NaN: work
//! is split between threads only where no sum is. Vector instructions are chosen at run time
//! (AVX-512, AVX2, NEON). Sums do not depend on the width of vectors, so that all processors with
//! fused multiply-add give the same bits; without it, those of products differ.
//!
//! A kernel for which the host has too little memory unwinds with [`CannotAllocate`].
//!
//! ```
//! use halite_kernels::{Axis, Operand, Threads, multiply};
//!
//! let (outer, inner) = (Axis::new(vec![0, 2]), Axis::new(vec![0, 1]));
//! let data = [1.0, 2.0, 3.0, 4.0];
//! let a = Operand { data: &data, offset: 0, rows: &outer, columns: &inner };
//! // The same matrix, transposed.
//! let b = Operand { data: &data, offset: 0, rows: &inner, columns: &outer };
//! let mut product = [0.0; 4];
//! multiply(&Threads::new(2)?, a, b, &mut product);
//! assert_eq!(product, [5.0, 11.0, 11.0, 25.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod attention;
mod combine;
mod conv;
mod element;
mod gemm;
mod math;
mod memory;
mod narrow;
mod reduce;
mod threads;
mod tile;
mod view;

pub use attention::{Attention, AttentionBackward, AttentionError, AttentionGeometry};
pub use combine::combine;
pub use conv::{ConvDim, ConvGeometry, Convolution, GeometryError, vector_bits};
pub use element::Element;
pub use gemm::{Axis, Number, Operand, multiply, multiply_all, multiply_plain};
pub use memory::{CannotAllocate, grow, host_memory, reserve};
pub use reduce::{Accumulate, Reduction, Word, reduce};
pub use threads::Threads;
pub use tile::{
    Binary, Compare, Convert, Extent, Format, Instruction, Kind, Odd, OddBinary, Operation, Output,
    Program, Register, Shorten, Source, Target, Unary, Widen,
};
pub use view::{Gap, View, ViewDim};

/// False if this crate was compiled with `opt-level = 0`, as in a debug build of a package that
/// depends on it: its kernels are then 10 to 100 times slower.
pub const OPTIMIZED: bool = cfg!(not(unoptimized));
