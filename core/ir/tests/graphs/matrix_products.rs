//! Products of matrices.

use expect_test::{Expect, expect};
use halite_core::DType;
use halite_ir::{DotAttributes, Graph, Op, matrix_products, optimize, verify};

use crate::graphs::{f32, push};

/// A graph of a dot with these contracted dimensions.
fn dot(left: &[usize], right: &[usize], batch: usize, pairs: &[(usize, usize)]) -> Graph {
    let mut graph = Graph::new();
    let operands = [graph.input(f32(left)), graph.input(f32(right))];
    let dot = Op::Dot(
        DotAttributes {
            lhs_batching: (0..batch).collect(),
            rhs_batching: (0..batch).collect(),
            lhs_contracting: pairs.iter().map(|pair| pair.0).collect(),
            rhs_contracting: pairs.iter().map(|pair| pair.1).collect(),
            ..DotAttributes::default()
        },
        DType::F32,
    );
    let result = push(&mut graph, dot, &operands);
    graph.set_outputs(vec![result]);
    graph
}

/// Checks the results of all nodes, and the contracted dimensions of the dot.
fn check(graph: Graph, expected: Expect) {
    let after = optimize(matrix_products(graph.clone()));
    verify(&after).unwrap();
    assert_eq!(after.output_types(), graph.output_types());
    assert_eq!(matrix_products(after.clone()), after);
    let lines: Vec<String> = (after.nodes().iter())
        .map(|node| {
            let contracted = match &node.op {
                Op::Dot(dot, ..) => {
                    format!(" {:?} x {:?}", dot.lhs_contracting, dot.rhs_contracting)
                }
                _ => String::new(),
            };
            let ty = after.ty(node.results[0]);
            format!("{}{contracted}: {ty}", node.op.name())
        })
        .collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn layer_on_sequences_is_one_product() {
    check(
        dot(&[8, 16, 32], &[32, 64], 0, &[(2, 0)]),
        expect![[r#"
        reshape: f32[128, 32]
        dot [1] x [0]: f32[128, 64]
        reshape: f32[8, 16, 64]"#]],
    );
}

#[test]
fn input_gradient_is_one_product() {
    check(
        dot(&[8, 16, 64], &[32, 64], 0, &[(2, 1)]),
        expect![[r#"
        reshape: f32[128, 64]
        dot [1] x [1]: f32[128, 32]
        reshape: f32[8, 16, 32]"#]],
    );
}

#[test]
fn weight_gradient_contracts_one_dimension() {
    let pairs = [(0, 0), (1, 1)];
    check(
        dot(&[8, 16, 32], &[8, 16, 64], 0, &pairs),
        expect![[r#"
        reshape: f32[128, 32]
        reshape: f32[128, 64]
        dot [0] x [0]: f32[32, 64]"#]],
    );
}

#[test]
fn order_of_contracted_pairs_does_not_matter() {
    let pairs = [(3, 1), (2, 0)];
    check(
        dot(&[2, 3, 4, 5], &[4, 5, 6, 7], 0, &pairs),
        expect![[r#"
        reshape: f32[6, 20]
        reshape: f32[20, 42]
        dot [1] x [0]: f32[6, 42]
        reshape: f32[2, 3, 6, 7]"#]],
    );
}

#[test]
fn empty_dimensions_have_products() {
    check(
        dot(&[0, 3, 4], &[4, 2], 0, &[(2, 0)]),
        expect![[r#"
        reshape: f32[0, 4]
        dot [1] x [0]: f32[0, 2]
        reshape: f32[0, 3, 2]"#]],
    );
}

#[test]
fn dots_without_matrix_form_are_unchanged() {
    for graph in [
        dot(&[8, 16], &[16, 4], 0, &[(1, 0)]),
        dot(&[8, 16, 32], &[8, 32, 64], 1, &[(2, 1)]),
        dot(&[8, 16, 32], &[16, 64], 0, &[(1, 0)]),
        dot(&[8, 16, 32], &[16, 8, 64], 0, &[(0, 1), (1, 0)]),
        dot(&[8, 16], &[8, 16], 0, &[(0, 0), (1, 1)]),
        dot(&[8, 16, 32], &[32], 0, &[(2, 0)]),
        dot(&[8, 2, 2], &[3, 3, 3], 0, &[]),
    ] {
        assert_eq!(matrix_products(graph.clone()), graph);
    }
}
