//! The operations, programs as graphs of them, and their StableHLO programs.
//!
//! An [`Op`] is an operation; [`infer()`] returns its result types, or why the operands do not fit;
//! a [`Graph`] is a function of operations; [`legalize()`] lowers it to a StableHLO module, and
//! [`program`] to a program of a backend, which carries the module.
//!
//! ```
//! use halite_core::{DType, TensorType};
//! use halite_ir::{BinaryOp, DotAttributes, Graph, Interface, Literal, Op, legalize, optimize, program, verify};
//!
//! # fn main() -> halite_core::Result<()> {
//! // relu(x @ w)
//! let mut graph = Graph::new();
//! let x = graph.input(TensorType::new(DType::F32, [8, 3]));
//! let w = graph.input(TensorType::new(DType::F32, [3, 2]));
//! let dot = DotAttributes { lhs_contracting: vec![1], rhs_contracting: vec![0], ..DotAttributes::default() };
//! let y = graph.push(Op::Dot(dot, DType::F32), &[x, w], None)?[0];
//! let zero = graph.push(Op::Constant(Literal::splat(0.0f32, [8, 2])), &[], None)?[0];
//! let y = graph.push(Op::Binary(BinaryOp::Maximum), &[y, zero], None)?[0];
//! graph.set_outputs(vec![y]);
//!
//! verify(&graph)?;
//! let graph = optimize(graph);
//! assert_eq!(
//!     legalize(&graph, &Interface::new("relu"))?.to_text(),
//!     "\
//! module @relu attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
//!   func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<3x2xf32>) -> (tensor<8x2xf32>) {
//!     %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x3xf32>, tensor<3x2xf32>) -> tensor<8x2xf32>
//!     %1 = stablehlo.constant dense<0.0> : tensor<8x2xf32>
//!     %2 = stablehlo.maximum %0, %1 : tensor<8x2xf32>
//!     return %2 : tensor<8x2xf32>
//!   }
//! }
//! "
//! );
//! let program = program(&graph, &Interface::new("relu"))?;       // for `Client::compile`
//! assert_eq!(program.signature.outputs[0].to_string(), "f32[8, 2]");
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! * The set of operations is closed: each property of operations (types, lowering, a gradient) is an
//!   exhaustive `match`, so that the compiler lists the places that a new one must extend.
//! * A graph built by [`Graph::push`] is valid; [`verify`] checks any graph and names the invalid
//!   node.
//! * The module is a pure function of the graph and its [`Interface`]: the same program has the same
//!   digest. Constants are bit-exact, including NaN and -0.
//! * Nothing here depends on gradients, devices or plugins.
#![forbid(unsafe_code)]

mod cost;
mod graph;
mod infer;
mod interface;
mod legalize;
mod literal;
mod op;
mod passes;
mod program;
mod rules;
mod samples;
mod scanned;
mod varying;
mod verify;

pub use cost::{Cost, cost};
pub use graph::{Graph, Node, Value};
pub use halite_core::custom_call::Attribute;
pub use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ConvolutionAttributes, ConvolutionDims, DotAttributes,
    GatherAttributes, ScatterAttributes, UnaryOp, WindowAttributes,
};
pub use infer::infer;
pub use interface::{Interface, Port};
pub use legalize::legalize;
pub use op::{
    Attachment, Axes, CustomCall, Extreme, Family, Groups, Literal, Op, Reduction, Remat, ShardMap,
    Triangular,
};
pub use passes::{
    ATTENTION, ATTENTION_GRADIENT, around_faults, choose_kernels, common_subexpressions, dead_code,
    has_checkpoint, identities, matrix_products, narrow_convolutions, narrow_matrices,
    one_function, optimize, unrolled, with_kernels, with_precision, with_signature,
    without_long_chains,
};
pub use program::{program, without_attribute};
pub use rules::{Linearity, Rules};
pub use samples::{Call, Meeting, Place, Samples, Shared, samples};
pub use scanned::scanned;
pub use varying::{Stuck, Varying, varying};
pub use verify::verify;
