//! Small programs as one function.

use halite_core::DType;
use halite_ir::{DotAttributes, Graph, Op, one_function, scanned, verify};

use crate::graphs::{f32, push};

/// A graph of a product of `f32` with these contracted dimensions.
fn product(left: &[usize], right: &[usize], contract: [usize; 2]) -> Graph {
    let mut graph = Graph::new();
    let operands = [graph.input(f32(left)), graph.input(f32(right))];
    let dot = Op::Dot(
        DotAttributes {
            lhs_batching: vec![],
            rhs_batching: vec![],
            lhs_contracting: vec![contract[0]],
            rhs_contracting: vec![contract[1]],
            ..DotAttributes::default()
        },
        DType::F32,
    );
    let result = push(&mut graph, dot, &operands);
    graph.set_outputs(vec![result]);
    graph
}

#[test]
fn dots_contract_the_last_with_the_first_dimension() {
    let names = |contract| {
        let graph = product(&[8, 8], &[8, 8], contract);
        let after = one_function(&graph, true).unwrap();
        verify(&after).unwrap();
        let (last, before) = after.nodes().split_last().unwrap();
        let Op::Dot(dot, ..) = &last.op else {
            panic!("{:?}", last.op)
        };
        assert_eq!(
            (&*dot.lhs_contracting, &*dot.rhs_contracting),
            (&[1][..], &[0][..])
        );
        let names = before.iter().map(|node| node.op.name());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names([1, 0]), "");
    assert_eq!(names([1, 1]), "transpose");
    assert_eq!(names([0, 0]), "transpose");
    assert_eq!(names([0, 1]), "transpose transpose");
}

#[test]
fn a_loop_of_small_dots_is_one_function() {
    let layers = |batch: usize, width: usize| {
        let graph = product(&[batch, width], &[width, width], [1, 0]);
        scanned(graph, 1, 0, 4).unwrap()
    };
    let is_one = |graph: &Graph| one_function(graph, false).is_some();
    assert!(is_one(&layers(8, 64)));
    assert!(!is_one(&layers(64, 64)), "a large product");
    assert!(!is_one(&layers(1, 200)), "a long contraction");
    let straight = product(&[8, 64], &[64, 64], [1, 0]);
    assert!(!is_one(&straight), "no loop");
    assert!(one_function(&straight, true).is_some());
}
