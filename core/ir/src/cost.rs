//! Cost model of graphs: floating point operations and bytes, counted from the operations.
//!
//! Compilers count too, but count the bodies of loops once, whatever the trip count.

use std::panic::Location;

use halite_core::{DType, TensorType};

use crate::{
    ConvolutionAttributes, Graph, Node, Op, WindowAttributes,
    op::{collective_op, device_index_op, local_op, marker_op},
    rules::Work,
};

/// Cost of one run over all devices. Counts are floats because they may exceed 64-bit integers.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Cost {
    /// Floating point operations of [`Op::Dot`]; a multiplication and an addition are two.
    pub dot: f64,
    /// The same for [`Op::Convolution`]. Padding and gaps of dilation do not count.
    pub convolution: f64,
    /// The part of `dot` and `convolution` with operands of 16-bit floats.
    pub in_16_bits: f64,
    /// One for each element of an elementwise result, each step of a reduction, each comparison of
    /// a sort.
    pub elementwise: f64,
    /// Elements of exponentials, logarithms, roots, trigonometric functions: counted apart, for
    /// devices do them apart.
    pub transcendental: f64,
    /// Bytes that dots and convolutions read and write: they meet memory however much the compiler
    /// fuses, unless they fit a cache.
    pub contraction_bytes: f64,
    /// Bytes that all operations would read and write if nothing were fused: an upper bound, often
    /// several times too high.
    pub unfused_bytes: f64,
    /// Lines of loops with a dynamic trip count, whose bodies are counted once.
    pub counted_once: Vec<Option<&'static Location<'static>>>,
    /// Names of custom calls, whose cost is unknown and not counted.
    pub unknown: Vec<String>,
}

impl Cost {
    /// Floating point operations of all kinds except transcendental ones.
    pub fn flops(&self) -> f64 {
        self.dot + self.convolution + self.elementwise
    }

    /// Floating point operations of matrix multiplications and convolutions, to which peak rates of
    /// devices refer.
    pub fn contractions(&self) -> f64 {
        self.dot + self.convolution
    }

    fn add(&mut self, other: Cost, times: f64) {
        self.dot += times * other.dot;
        self.convolution += times * other.convolution;
        self.in_16_bits += times * other.in_16_bits;
        self.elementwise += times * other.elementwise;
        self.transcendental += times * other.transcendental;
        self.contraction_bytes += times * other.contraction_bytes;
        self.unfused_bytes += times * other.unfused_bytes;
        self.counted_once.extend(other.counted_once);
        for name in other.unknown {
            if !self.unknown.contains(&name) {
                self.unknown.push(name);
            }
        }
    }
}

/// Computes the cost of one run of the graph. The branch with the most operations counts.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_ir::{DotAttributes, Graph, Op, cost};
///
/// let mut graph = Graph::new();
/// let a = graph.input(TensorType::new(DType::F32, [8, 16]));
/// let b = graph.input(TensorType::new(DType::F32, [16, 4]));
/// let dot = DotAttributes {
///     lhs_contracting: vec![1],
///     rhs_contracting: vec![0],
///     ..DotAttributes::default()
/// };
/// graph.push(Op::Dot(dot, DType::F32), &[a, b], None).unwrap();
/// assert_eq!(cost(&graph).dot, 2.0 * 8.0 * 16.0 * 4.0);
/// ```
pub fn cost(graph: &Graph) -> Cost {
    let mut sum = Cost::default();
    for node in graph.nodes() {
        sum.add(of_node(graph, node), 1.0);
    }
    sum
}

fn of_node(graph: &Graph, node: &Node) -> Cost {
    let operand = |index: usize| elements(graph.ty(node.operands[index]));
    let result = || elements(graph.ty(node.results[0]));
    let mut cost = Cost::default();
    match node.op.rules().work {
        Work::Nothing => return cost,
        Work::Regions => return of_regions(graph, node),
        Work::Copy => {}
        Work::Elementwise => cost.elementwise = result(),
        Work::Transcendental => cost.transcendental = result(),
        Work::EachOfFirst => cost.elementwise = operand(0),
        Work::Counted => count(&mut cost, graph, node),
    }
    let values = node.operands.iter().chain(&node.results);
    cost.unfused_bytes = values.map(|&value| bytes(graph.ty(value))).sum();
    if matches!(node.op, Op::Dot(..) | Op::Convolution(..)) {
        cost.contraction_bytes = cost.unfused_bytes;
        let operand = graph.ty(node.operands[0]);
        if matches!(operand.dtype(), DType::Bf16 | DType::F16) {
            cost.in_16_bits = cost.contractions();
        }
    }
    cost
}

/// Adds the operations that depend on attributes and types, of [`Work::Counted`].
fn count(cost: &mut Cost, graph: &Graph, node: &Node) {
    let operand = |index: usize| graph.ty(node.operands[index]);
    let result = |index: usize| graph.ty(node.results[index]);
    let reduced = || elements(operand(0)) - elements(result(0));
    let places = |window: &WindowAttributes| window.sizes.iter().product::<usize>() as f64;
    match &node.op {
        Op::Scatter(..) => cost.elementwise = elements(operand(2)),
        Op::Reduce { .. } => cost.elementwise = reduced(),
        Op::ArgReduce { .. } => cost.elementwise = 2.0 * reduced(),
        Op::ReduceWindow { window, .. } => {
            cost.elementwise = elements(result(0)) * (places(window) - 1.0);
        }
        Op::SelectAndScatter { window, .. } => {
            cost.elementwise = elements(operand(1)) * places(window);
        }
        Op::Sort { dim, .. } => {
            let length = operand(0).dims().get(*dim).copied().unwrap_or(1).max(2) as f64;
            cost.elementwise = elements(operand(0)) * length.log2().ceil();
        }
        Op::Cholesky { .. } => {
            let size = operand(0).dims().last().map_or(0.0, |&size| size as f64);
            cost.elementwise = elements(operand(0)) * size / 3.0;
        }
        Op::TriangularSolve(_) => {
            let size = operand(0).dims().last().map_or(0.0, |&size| size as f64);
            cost.elementwise = elements(operand(1)) * size;
        }
        Op::Dot(dot, _) => {
            let depth = dot.lhs_contracting.iter();
            let depth: f64 = depth.map(|&dim| operand(0).dims()[dim] as f64).product();
            cost.dot = 2.0 * elements(result(0)) * depth;
        }
        Op::Convolution(convolution, _) => {
            let count = multiplications(convolution, operand(0), operand(1), result(0));
            cost.convolution = 2.0 * count;
        }
        Op::CustomCall(call) => cost.unknown = vec![call.target.clone()],
        _ => unreachable!("the table of rules has the work of {}", node.op.name()),
    }
}

/// Cost of an operation that runs graphs.
fn of_regions(graph: &Graph, node: &Node) -> Cost {
    let mut sum = Cost::default();
    match &node.op {
        Op::While {
            condition, body, ..
        } => {
            sum.add(cost(condition), 1.0);
            sum.add(cost(body), 1.0);
            sum.counted_once.push(node.origin);
        }
        Op::Scan {
            carried,
            scanned,
            length,
            body,
            ..
        } => {
            sum.add(cost(body), *length as f64);
            // Slices are copied to the body, results of iterations to the stacked results.
            let sliced = &node.operands[node.operands.len() - scanned..];
            let copied = sliced.iter().chain(&node.results[*carried..]);
            sum.unfused_bytes += copied
                .map(|&value| 2.0 * bytes(graph.ty(value)))
                .sum::<f64>();
        }
        Op::Case { branches } => {
            let costs = branches.iter().map(cost);
            let largest = costs.max_by(|a, b| a.flops().total_cmp(&b.flops()));
            sum.add(largest.unwrap_or_default(), 1.0);
        }
        // The body is the work of one device.
        Op::ShardMap(map) => {
            let devices = map
                .manual_axes()
                .iter()
                .map(|&(_, size)| size as f64)
                .product();
            sum.add(cost(&map.body), devices);
        }
        Op::Checkpoint { body, .. } => sum.add(cost(body), 1.0),
        Op::CustomCall(call) => {
            let decomposition = call.decomposition.iter();
            decomposition.for_each(|graph| sum.add(cost(graph), 1.0));
        }
        local_op!() | marker_op!() | collective_op!() | device_index_op!() => {}
    }
    sum
}

fn elements(ty: &TensorType) -> f64 {
    ty.dims().iter().map(|&dim| dim as f64).product()
}

fn bytes(ty: &TensorType) -> f64 {
    elements(ty) * ty.dtype().size() as f64
}

/// Number of products of an element of `x` and one of the kernel.
fn multiplications(
    convolution: &ConvolutionAttributes,
    x: &TensorType,
    kernel: &TensorType,
    result: &TensorType,
) -> f64 {
    let mut count = [convolution.output.batch, convolution.output.feature]
        .iter()
        .map(|&dim| result.dims()[dim] as f64)
        .product();
    count *= kernel.dims()[convolution.kernel.feature] as f64;
    for spatial in 0..convolution.strides.len() {
        let size = |dims: &[usize], ty: &TensorType| ty.dims()[dims[spatial]] as i64;
        let dilation = convolution.input_dilation[spatial] as i64;
        let end = (size(&convolution.input.spatial, x) - 1) * dilation;
        let mut meet = 0u64;
        for window in 0..size(&convolution.output.spatial, result) {
            let start =
                window * convolution.strides[spatial] as i64 - convolution.padding[spatial].0;
            for tap in 0..size(&convolution.kernel.spatial, kernel) {
                let at = start + tap * convolution.kernel_dilation[spatial] as i64;
                meet += u64::from((0..=end).contains(&at) && at % dilation == 0);
            }
        }
        count *= meet as f64;
    }
    count
}
