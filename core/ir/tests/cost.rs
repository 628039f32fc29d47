//! Costs against counts by hand.

use halite_core::{DType, TensorType};
use halite_ir::{
    BinaryOp, ComparisonDirection, ConvolutionAttributes, ConvolutionDims, Graph, Op, Reduction,
    Triangular, UnaryOp, Value, cost,
};

fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

/// `x` NHWC with a kernel HWIO of 3x3.
fn convolution(
    strides: usize,
    padding: (i64, i64),
    input_dilation: usize,
    feature_groups: usize,
) -> ConvolutionAttributes {
    let nhwc = ConvolutionDims {
        batch: 0,
        feature: 3,
        spatial: vec![1, 2],
    };
    ConvolutionAttributes {
        input: nhwc.clone(),
        kernel: ConvolutionDims {
            batch: 3,
            feature: 2,
            spatial: vec![0, 1],
        },
        output: nhwc,
        strides: vec![strides; 2],
        padding: vec![padding; 2],
        input_dilation: vec![input_dilation; 2],
        kernel_dilation: vec![1; 2],
        reversal: vec![false; 2],
        feature_groups,
        batch_groups: 1,
        precision: Vec::new(),
    }
}

fn of_convolution(convolution: ConvolutionAttributes, x: &[usize], kernel: &[usize]) -> f64 {
    let mut graph = Graph::new();
    let (x, kernel) = (graph.input(f32(x)), graph.input(f32(kernel)));
    graph
        .push(Op::Convolution(convolution, DType::F32), &[x, kernel], None)
        .unwrap();
    cost(&graph).convolution
}

#[test]
fn a_convolution_counts_where_its_window_is_on_the_image() {
    let (image, kernel) = ([2, 5, 5, 3], [3, 3, 3, 8]);
    // No padding: 3x3 places, 9 taps each, 3 features to 8, batch 2.
    assert_eq!(
        of_convolution(convolution(1, (0, 0), 1, 1), &image, &kernel),
        2.0 * 2.0 * 9.0 * 9.0 * 3.0 * 8.0
    );
    // Padded by one on both sides: along a dimension the first and last of 5 places lose a tap, so
    // 5 * 3 - 2 taps.
    assert_eq!(
        of_convolution(convolution(1, (1, 1), 1, 1), &image, &kernel),
        2.0 * 2.0 * 13.0 * 13.0 * 3.0 * 8.0
    );
    // Every other place: 3 of them, at 0, 2, 4; the first and the last lose a tap.
    assert_eq!(
        of_convolution(convolution(2, (1, 1), 1, 1), &image, &kernel),
        2.0 * 2.0 * 7.0 * 7.0 * 3.0 * 8.0
    );
    // Two groups of features: each result sees half of them.
    let grouped = of_convolution(convolution(1, (0, 0), 1, 2), &[2, 5, 5, 4], &[3, 3, 2, 8]);
    assert_eq!(grouped, 2.0 * 2.0 * 9.0 * 9.0 * 2.0 * 8.0);
    // The gradient of stride 2 by its image: zeros between elements are not multiplied. The places
    // along a dimension are those of the strided convolution turned around, so as many taps meet.
    let back = of_convolution(convolution(1, (1, 1), 2, 1), &[2, 3, 3, 8], &[3, 3, 8, 3]);
    assert_eq!(back, 2.0 * 2.0 * 7.0 * 7.0 * 8.0 * 3.0);
}

#[test]
fn counts_separate_elementwise_transcendental_bytes() {
    let mut graph = Graph::new();
    let x = graph.input(f32(&[4, 8]));
    let mut push = |op: Op, operands: &[Value]| graph.push(op, operands, None).unwrap()[0];
    let squared = push(Op::Binary(BinaryOp::Multiply), &[x, x]); // 32, 3 * 128 bytes
    let exponential = push(Op::Unary(UnaryOp::Exponential), &[squared]); // 32 apart, 2 * 128 bytes
    let sum = push(
        Op::Reduce {
            kind: Reduction::Sum,
            dims: vec![1],
        },
        &[exponential],
    ); // 28, 128 + 16 bytes
    push(Op::Reshape { dims: vec![2, 2] }, &[sum]); // nothing
    let cost = cost(&graph);
    assert_eq!(
        (cost.elementwise, cost.transcendental, cost.contractions()),
        (60.0, 32.0, 0.0)
    );
    assert_eq!((cost.unfused_bytes, cost.contraction_bytes), (784.0, 0.0));
    assert_eq!(cost.flops(), 60.0);
}

#[test]
fn while_body_counts_once_branches_count_maximum() {
    let scalar = f32(&[]);
    let branch = |count: usize| {
        let mut graph = Graph::new();
        let mut x = graph.input(scalar.clone());
        for _ in 0..count {
            x = graph
                .push(Op::Binary(BinaryOp::Add), &[x, x], None)
                .unwrap()[0];
        }
        graph.set_outputs(vec![x]);
        graph
    };
    let mut graph = Graph::new();
    let index = graph.input(TensorType::scalar(DType::S32));
    let x = graph.input(scalar.clone());
    graph
        .push(
            Op::Case {
                branches: vec![branch(1), branch(5), branch(2)],
            },
            &[index, x],
            None,
        )
        .unwrap();
    assert_eq!(cost(&graph).elementwise, 5.0);

    let mut condition = Graph::new();
    let at = condition.input(scalar.clone());
    let answer = condition
        .push(Op::Compare(ComparisonDirection::Lt), &[at, at], None)
        .unwrap()[0];
    condition.set_outputs(vec![answer]);
    let turning = Op::While {
        carried: 1,
        condition: Box::new(condition),
        body: Box::new(branch(3)),
    };
    graph.push(turning, &[x], None).unwrap();
    let cost = cost(&graph);
    assert_eq!(cost.elementwise, 5.0 + 1.0 + 3.0);
    assert_eq!(cost.counted_once.len(), 1);
}

#[test]
fn linear_algebra_counts_its_products() {
    let of = |op: Op, operands: &[&[usize]]| {
        let mut graph = Graph::new();
        let operands: Vec<Value> = operands.iter().map(|dims| graph.input(f32(dims))).collect();
        graph.push(op, &operands, None).unwrap();
        cost(&graph).elementwise
    };
    // A third of n³ for each matrix, and n² for each column.
    let cholesky = Op::Cholesky { lower: true };
    assert_eq!(of(cholesky, &[&[4, 6, 6]]), 4.0 * 6.0 * 6.0 * 6.0 / 3.0);
    let solve = Op::TriangularSolve(Triangular::default());
    assert_eq!(of(solve, &[&[4, 6, 6], &[4, 6, 2]]), 4.0 * 6.0 * 6.0 * 2.0);
}
