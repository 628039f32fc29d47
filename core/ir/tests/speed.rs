//! Printing is a small part of a compile.

use std::time::Instant;

use halite_core::{DType, TensorType};
use halite_ir::{Binary, Dot, Graph, Interface, Literal, Op, Reduction, Unary, optimize, text, verify};

/// As many nodes as a training step of a small network, of the kinds that it has.
fn step(layers: usize) -> Graph {
    let here = Some(std::panic::Location::caller());
    let mut graph = Graph::new();
    let mut x = graph.input(TensorType::new(DType::F32, [128, 512]));
    for _ in 0..layers {
        let w = graph.input(TensorType::new(DType::F32, [512, 512]));
        let dot =
            Dot { left_batch: vec![], right_batch: vec![], left_contract: vec![1], right_contract: vec![0], result: DType::F32 };
        let y = graph.push(Op::Dot(dot), &[x, w], here).unwrap()[0];
        let sum = graph.push(Op::Reduce { kind: Reduction::Sum, dims: vec![1] }, &[y], here).unwrap()[0];
        let wide = Op::Broadcast { dims: vec![128, 512], mapping: vec![0] };
        let mean = graph.push(wide, &[sum], here).unwrap()[0];
        let centered = graph.push(Op::Binary(Binary::Subtract), &[y, mean], here).unwrap()[0];
        let scale = graph.push(Op::Constant(Literal::splat(0.125f32, [])), &[], here).unwrap()[0];
        let scale = graph.push(Op::Broadcast { dims: vec![128, 512], mapping: vec![] }, &[scale], here).unwrap()[0];
        let scaled = graph.push(Op::Binary(Binary::Multiply), &[centered, scale], here).unwrap()[0];
        x = graph.push(Op::Unary(Unary::Tanh), &[scaled], here).unwrap()[0];
    }
    graph.set_outputs(vec![x]);
    graph
}

#[test]
fn two_thousand_nodes_are_traced_verified_and_printed_in_milliseconds() {
    let mut best = [f64::INFINITY; 4];
    let mut size = 0;
    for _ in 0..5 {
        let start = Instant::now();
        let graph = step(250);
        let traced = Instant::now();
        verify(&graph).unwrap();
        let verified = Instant::now();
        let optimized = optimize(&graph);
        let passed = Instant::now();
        size = text(&graph, &Interface::new("step")).unwrap().len();
        let printed = Instant::now();
        assert!(optimized.nodes().len() < graph.nodes().len(), "the scales are one constant");
        let times = [traced - start, verified - traced, passed - verified, printed - passed];
        for (best, time) in best.iter_mut().zip(times) {
            *best = best.min(time.as_secs_f64() * 1e3);
        }
    }
    println!("2000 nodes, {size} bytes: trace, verify, optimize, print in ms: {best:.2?}");
    // Without optimization, on a busy machine; with it, each is about ten times faster.
    assert!(best.iter().sum::<f64>() < 100.0, "{best:?} ms");
}
