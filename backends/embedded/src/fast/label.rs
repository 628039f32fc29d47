//! What profiles call the units of a plan.

use std::collections::BTreeMap;

use halite_kernels::{Axis, Instruction, Operation, Program, Reduction};
use halite_stablehlo::RankedType;

use super::plan::Unit;

impl Unit {
    /// The kind of the unit, for profiles.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Unit::Group(_) => "group",
            Unit::Product { .. } => "product",
            Unit::Reduce { .. } => "reduce",
            Unit::Direct { kernel, .. } => kernel.name(),
            Unit::Loop { .. } => "loop",
            Unit::Branch { .. } => "branch",
            Unit::Number { .. } => "number",
            Unit::Manual { .. } => "manual computation",
            Unit::Collective { .. } => "collective",
            Unit::Oracle { .. } => "interpreted",
        }
    }

    /// Sizes and operations of the unit, for profiles.
    pub(super) fn sizes(&self, types: &[RankedType]) -> String {
        match self {
            Unit::Group(group) => of_program(&group.program),
            Unit::Product { product, .. } => {
                let sizes = [&product.rows, &product.left_terms, &product.columns].map(Axis::len);
                format!("{} of {sizes:?}", product.batches.len())
            }
            Unit::Reduce { sizes, .. } => {
                let Reduction {
                    outer,
                    reduced,
                    inner,
                    op,
                } = sizes;
                format!("{op:?} of [{outer}, {reduced}, {inner}]")
            }
            Unit::Oracle { call, .. } => call.slow.to_string(),
            _ => {
                let all = |bases: Vec<_>| {
                    let each = bases.into_iter().map(|base: usize| types[base].to_string());
                    each.collect::<Vec<_>>().join(", ")
                };
                format!("({}) -> ({})", all(self.reads()), all(self.writes()))
            }
        }
    }

    /// Bytes of the operands and results.
    pub(super) fn bytes(&self, types: &[RankedType]) -> usize {
        let values = self.reads().into_iter().chain(self.writes());
        values.map(|base| types[base].bytes()).sum()
    }
}

/// Sizes of a group, and how often it has each operation.
fn of_program(program: &Program) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for instruction in &program.code {
        let name = match instruction {
            Instruction::Load { .. } => "load".to_owned(),
            Instruction::Store { .. } => "store".to_owned(),
            Instruction::Apply { op, .. } => name(*op),
        };
        *counts.entry(name).or_default() += 1;
    }
    let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    format!("[{}, {}]: {counts}", program.rows, program.columns)
}

fn name(op: Operation) -> String {
    match op {
        Operation::Unary(op) => format!("{op:?}"),
        Operation::Binary(op) => format!("{op:?}"),
        Operation::Compare(op) => format!("{op:?}"),
        Operation::Odd(op) => format!("{op:?}"),
        Operation::OddBinary(op) => format!("{op:?}"),
        Operation::Convert(op) => format!("{op:?}"),
        Operation::Widen(op) => format!("{op:?}"),
        Operation::Shorten(op) => format!("{op:?}"),
        Operation::Select => "Select".to_owned(),
        Operation::Broadcast => "Broadcast".to_owned(),
        Operation::Reduce { op, .. } => format!("rows {op:?}"),
    }
}
