//! The operations, programs as graphs of them, and their StableHLO text.
//!
//! An [`Op`] says what is computed; [`infer()`] says which types come out, or why the operands do not fit; a [`Graph`] is
//! a function made of them.
#![forbid(unsafe_code)]

mod graph;
mod infer;
mod literal;
mod op;
mod passes;
mod print;
mod verify;

pub use graph::{Graph, Node, Value};
pub use infer::infer;
pub use op::{
    Attribute, Binary, Comparison, ConvDims, Convolution, CustomCall, Dot, Extreme, Gather, Groups, Literal, Op, Reduction,
    Scatter, Unary, Window,
};
pub use passes::{common_subexpressions, dead_code, identities, optimize};
pub use print::{Interface, Port, program, text};
pub use verify::verify;
