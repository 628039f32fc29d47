//! StableHLO programs as data.
//!
//! A [`Module`] is a program: functions of [`Operation`]s, whose [`OpKind`] has the attributes of
//! the specification (<https://openxla.org/stablehlo/spec>), without MLIR's generality.
//! [`Module::read`] reads text and portable artifacts, [`Module::verify`] checks what an executor
//! relies on, [`Module::to_bytecode`] writes artifacts, and [`Module::to_text`] writes text.
//!
//! Text and portable artifacts (VHLO) name the attributes of an operation alike once nested ones
//! are flattened. [`OpKind::from_attributes`] and [`OpKind::to_attributes`] convert between these
//! and the fields of [`OpKind`].
#![forbid(unsafe_code)]

mod attribute;
mod build;
mod bytecode;
mod chlo;
mod code;
mod inline;
mod interface;
mod module;
mod ops;
mod print;
pub mod rules;
mod sharding;
mod text;
mod types;
mod verify;
mod version;
mod vhlo;

pub use attribute::{Attribute, Attributes, Dense};
pub use code::ProgramModule;
pub use interface::{Interface, InterfaceTensor};
pub use module::{Function, Module, Operation, Position, Region, SourceLine, ValueId, ValueIds};
pub use ops::{
    BinaryOp, CollectiveAttributes, ComparisonDirection, ComparisonOrder, ConvolutionAttributes,
    ConvolutionDims, CustomCallAttributes, DotAttributes, FftKind, GatherAttributes,
    ManualAttributes, OpKind, PropagationDirection, RngAlgorithm, RngDistribution,
    ScatterAttributes, Transposition, UnaryOp, WindowAttributes,
};
pub use sharding::{ShardyAxis, ShardyDim, ShardyMesh, ShardySharding};
pub use types::{ElementClass, ElementType, RankedType, Type};
pub use version::Version;
