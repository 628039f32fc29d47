//! Golden values: forward and backward of operations, layers, losses and optimizers, compared with
//! what JAX computed; elementwise operations are in `edge_values`. The values are in `tests/golden`, with the script that makes them; the tables
//! here say which function each case is of.

mod contractions;
mod control;
mod indexing;
mod networks;
mod randomness;
mod reductions;
mod shapes;
mod transformers;

use std::collections::BTreeSet;

use halite_ir::{Family, Op};
use halite_tests::golden::{Named, cases, check_group, operations};

pub(crate) fn functions() -> Vec<Named> {
    [
        contractions::FUNCTIONS,
        control::FUNCTIONS,
        indexing::FUNCTIONS,
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
    dot convolution convolution_groups
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
    let names: Vec<&str> = seen.into_keys().collect();
    assert_eq!(names, OPERATIONS);
}

/// Names of all operations that have golden values, of JAX or in the table `edge_values`.
#[rustfmt::skip]
const OPERATIONS: &[&str] = &[
    "abs", "add", "and", "argmax", "argmin", "atan2", "bitcast_convert", "broadcast", "case", "cbrt", "ceil",
    "checkpoint", "clamp", "compare", "concatenate", "constant", "convert", "convolution", "cosine",
    "count_leading_zeros", "custom_call", "divide", "dot", "dynamic_slice", "dynamic_update_slice", "erf",
    "exponential", "exponential_minus_one", "floor", "gather", "iota", "is_finite", "log", "log_plus_one", "logistic", "maximum",
    "minimum", "multiply", "negate", "not", "optimization_barrier", "or", "pad", "popcnt", "power",
    "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_precision", "reduce_product", "reduce_sum",
    "reduce_window", "remainder", "reshape", "reverse", "round_nearest_afz", "round_nearest_even", "rsqrt", "scan",
    "scatter", "select", "select_and_scatter", "shift_left", "shift_right_arithmetic", "shift_right_logical",
    "sign", "sine", "slice", "sort", "sqrt", "stop_gradient", "subtract", "tan", "tanh", "transpose", "while", "xor",
];

/// Whether an operation is in [`OPERATIONS`].
fn has_golden_values(op: &Op) -> bool {
    match op.family() {
        Family::Local | Family::Marker | Family::Region => {
            !matches!(op, Op::ShardMap(_) | Op::ShardingConstraint(_))
        }
        // For several devices, or known to a plugin by name: `ir_ops` runs them.
        Family::Collective | Family::DeviceIndex | Family::CustomCall => false,
    }
}
