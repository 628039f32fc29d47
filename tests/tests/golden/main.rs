//! Golden values: forward and backward of every operation, layer, loss and optimizer, compared with what JAX computed.
//! The values are in `tests/golden`, with the script that makes them; the tables here say which function each case is of.

mod contractions;
mod control;
mod elementwise;
mod indexing;
mod networks;
mod randomness;
mod reductions;
mod shapes;

use std::collections::BTreeSet;

use halite_tests::golden::{Named, cases, check_group};

fn functions() -> Vec<Named> {
    [
        contractions::FUNCTIONS,
        control::FUNCTIONS,
        elementwise::FUNCTIONS,
        indexing::FUNCTIONS,
        networks::FUNCTIONS,
        randomness::FUNCTIONS,
        reductions::FUNCTIONS,
        shapes::FUNCTIONS,
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
    unary_f32 unary_f64 unary_f16 unary_bf16 unary_integers
    binary_f32 binary_f64 binary_f16 binary_bf16 binary_integers broadcasting
    compare choose convert
    shapes indexing scatter sort
    dot convolution convolution_groups
    reduce statistics windows cumulative
    random control activations layers losses optimizers
}

#[test]
fn every_case_is_of_a_function_and_every_function_has_a_case() {
    let written: BTreeSet<&str> = functions().iter().map(|(name, _)| *name).collect();
    let stored: BTreeSet<&str> = cases().iter().map(|case| case.function.as_str()).collect();
    assert_eq!(written.len(), functions().len(), "a function is in two tables");
    assert_eq!(written.difference(&stored).collect::<Vec<_>>(), Vec::<&&str>::new(), "functions without cases");
    assert_eq!(stored.difference(&written).collect::<Vec<_>>(), Vec::<&&str>::new(), "cases without functions");
}

#[test]
fn every_group_is_run() {
    let run: BTreeSet<&str> = GROUPS.iter().copied().collect();
    let stored: BTreeSet<&str> = cases().iter().map(|case| case.group.as_str()).collect();
    assert_eq!(run, stored);
}
