//! Golden values: forward and backward of operations, layers, losses and optimizers, compared with
//! what JAX computed; elementwise operations are in `edge_values`. The values are in `tests/golden`, with the script that makes them; the tables
//! here say which function each case is of.

mod contractions;
mod control;
mod indexing;
mod linalg;
mod networks;
mod randomness;
mod reductions;
mod shapes;
mod transformers;

use std::collections::BTreeSet;

use halite_ir::{BinaryOp, Family, Op, UnaryOp};
use halite_tests::golden::{Named, cases, check_group, operations};

pub(crate) fn functions() -> Vec<Named> {
    [
        contractions::FUNCTIONS,
        control::FUNCTIONS,
        indexing::FUNCTIONS,
        linalg::FUNCTIONS,
        networks::FUNCTIONS,
        randomness::FUNCTIONS,
        reductions::FUNCTIONS,
        shapes::FUNCTIONS,
        transformers::FUNCTIONS,
    ]
    .concat()
}

macro_rules! groups {
    ($($group:ident)*) => {
        const GROUPS: &[&str] = &[$(stringify!($group)),*];
        $(#[test]
        fn $group() {
            check_group(stringify!($group), &functions());
        })*
    };
}
groups! {
    shapes indexing scatter sort
    dot convolution convolution_groups linalg
    reduce statistics windows cumulative
    random control layers losses optimizers transformers
}

#[test]
fn cases_cover_every_function() {
    let written: BTreeSet<&str> = functions().iter().map(|(name, _)| *name).collect();
    let stored: BTreeSet<&str> = cases().iter().map(|case| case.function.as_str()).collect();
    assert_eq!(
        written.len(),
        functions().len(),
        "a function is in two tables"
    );
    assert_eq!(
        written.difference(&stored).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "functions without cases"
    );
    assert_eq!(
        stored.difference(&written).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "cases without functions"
    );
}

#[test]
fn every_group_is_run() {
    let run: BTreeSet<&str> = GROUPS.iter().copied().collect();
    let stored: BTreeSet<&str> = cases().iter().map(|case| case.group.as_str()).collect();
    assert_eq!(run, stored);
}

#[test]
fn every_operation_is_in_a_case() {
    let mut seen = operations(&functions());
    seen.extend(crate::edge_values::operations());
    // On one device it is nothing.
    seen.retain(|_, op| !matches!(op, Op::ShardingConstraint(_)));
    let strange: Vec<&str> = seen
        .iter()
        .filter(|(_, op)| !has_golden_values(op))
        .map(|(name, _)| *name)
        .collect();
    assert!(
        strange.is_empty(),
        "run elsewhere, and here too: {strange:?}"
    );
    let elementwise = UnaryOp::ALL.iter().map(|op| op.name());
    let elementwise = elementwise.chain(BinaryOp::ALL.iter().map(|op| op.name()));
    // There are no complex numbers.
    let elementwise = elementwise.filter(|name| !["complex", "imag", "real"].contains(name));
    let expected: BTreeSet<&str> = elementwise.chain(OPERATIONS.iter().copied()).collect();
    let names: BTreeSet<&str> = seen.into_keys().collect();
    assert_eq!(names, expected);
}

/// Names of all other operations that have golden values, of JAX or in the table `edge_values`.
#[rustfmt::skip]
const OPERATIONS: &[&str] = &[
    "argmax", "argmin", "bitcast_convert", "broadcast", "case", "checkpoint", "cholesky", "clamp", "compare",
    "concatenate", "constant", "convert", "convolution", "custom_call", "dot", "dynamic_slice",
    "dynamic_update_slice", "gather", "iota", "optimization_barrier", "pad", "reduce_and", "reduce_max", "reduce_min",
    "reduce_or", "reduce_precision", "reduce_product", "reduce_sum", "reduce_window", "reshape", "reverse", "scan",
    "scatter", "select", "select_and_scatter", "slice", "sort", "stop_gradient", "transpose", "triangular_solve",
    "while",
];

/// Whether an operation has golden values.
fn has_golden_values(op: &Op) -> bool {
    match op.family() {
        Family::Local | Family::Marker | Family::Region => {
            !matches!(op, Op::ShardMap(_) | Op::ShardingConstraint(_))
        }
        // For several devices, or known to a plugin by name: `ir_ops` runs them.
        Family::Collective | Family::DeviceIndex | Family::CustomCall => false,
    }
}
