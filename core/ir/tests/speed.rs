//! What is done to a graph before it is compiled takes little time.

use std::{sync::OnceLock, time::Instant};

use halite_core::{DType, TensorType};
use halite_ir::{
    BinaryOp, DotAttributes, Graph, Interface, Literal, Op, Reduction, UnaryOp, legalize, optimize,
    verify,
};

/// As many nodes as a training step of a small network, of the kinds that it has.
fn step(layers: usize) -> Graph {
    let here = Some(std::panic::Location::caller());
    let mut graph = Graph::new();
    let mut x = graph.input(TensorType::new(DType::F32, [128, 512]));
    for _ in 0..layers {
        let w = graph.input(TensorType::new(DType::F32, [512, 512]));
        let dot = DotAttributes {
            lhs_batching: vec![],
            rhs_batching: vec![],
            lhs_contracting: vec![1],
            rhs_contracting: vec![0],
            ..DotAttributes::default()
        };
        let y = graph.push(Op::Dot(dot, DType::F32), &[x, w], here).unwrap()[0];
        let sum = graph
            .push(
                Op::Reduce {
                    kind: Reduction::Sum,
                    dims: vec![1],
                },
                &[y],
                here,
            )
            .unwrap()[0];
        let wide = Op::Broadcast {
            dims: vec![128, 512],
            mapping: vec![0],
        };
        let mean = graph.push(wide, &[sum], here).unwrap()[0];
        let centered = graph
            .push(Op::Binary(BinaryOp::Subtract), &[y, mean], here)
            .unwrap()[0];
        let scale = graph
            .push(Op::Constant(Literal::splat(0.125f32, [])), &[], here)
            .unwrap()[0];
        let scale = graph
            .push(
                Op::Broadcast {
                    dims: vec![128, 512],
                    mapping: vec![],
                },
                &[scale],
                here,
            )
            .unwrap()[0];
        let scaled = graph
            .push(Op::Binary(BinaryOp::Multiply), &[centered, scale], here)
            .unwrap()[0];
        x = graph
            .push(Op::Unary(UnaryOp::Tanh), &[scaled], here)
            .unwrap()[0];
    }
    graph.set_outputs(vec![x]);
    graph
}

/// Processor time of this thread, in seconds. A busy machine lets a thread wait, which is not work
/// of ours. Where the system does not say, the time of day.
fn now() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let spent = spent.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    spent.map_or_else(
        || START.get_or_init(Instant::now).elapsed().as_secs_f64(),
        |nanoseconds| nanoseconds as f64 / 1e9,
    )
}

/// Mean time of three runs, in seconds, to trace, verify, optimize, lower and write a step of
/// `layers` layers.
fn seconds(layers: usize) -> f64 {
    const TIMES: u32 = 3;
    let start = now();
    for _ in 0..TIMES {
        let graph = step(layers);
        verify(&graph).unwrap();
        let optimized = optimize(graph.clone());
        assert!(
            optimized.nodes().len() < graph.nodes().len(),
            "the scales are one constant"
        );
        legalize(&graph, &Interface::new("step")).unwrap().to_text();
    }
    (now() - start) / f64::from(TIMES)
}

#[test]
fn passes_take_linear_time() {
    // Eight times as many nodes. What looks at every node for every node takes 64 times as long.
    let [few, many] = [125, 1000].map(seconds);
    println!(
        "1000 nodes take {:.1} ms, 8000 take {:.1} ms",
        few * 1e3,
        many * 1e3
    );
    assert!(
        many < 24.0 * few,
        "1000 nodes take {few:.3} s, 8000 take {many:.3} s"
    );
    // More than ten times what it took without optimization where this was written: no machine is
    // so slow.
    assert!(many < 2.0, "8000 nodes take {many:.3} s");
}
