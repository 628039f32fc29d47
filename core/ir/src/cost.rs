//! Cost model of graphs: floating point operations and bytes, counted from the operations.
//!
//! Compilers count too, but count the bodies of loops once, whatever the trip count.

use std::panic::Location;

use halite_core::{DType, TensorType};

use crate::{
    Binary, Convolution, Graph, Node, Op, Unary,
    op::{device_index_op, marker_op},
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
/// use halite_ir::{Dot, Graph, Op, cost};
///
/// let mut graph = Graph::new();
/// let a = graph.input(TensorType::new(DType::F32, [8, 16]));
/// let b = graph.input(TensorType::new(DType::F32, [16, 4]));
/// let dot = Dot {
///     left_batch: vec![],
///     right_batch: vec![],
///     left_contract: vec![1],
///     right_contract: vec![0],
///     result: DType::F32,
/// };
/// graph.push(Op::Dot(dot), &[a, b], None).unwrap();
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
    let operand = |index: usize| graph.ty(node.operands[index]);
    let result = |index: usize| graph.ty(node.results[index]);
    let elementwise = |count: f64| Cost {
        elementwise: count,
        ..Cost::default()
    };
    let mut cost = match &node.op {
        // Values computed where they are used, or not moved.
        Op::Constant(_)
        | Op::Iota { .. }
        | Op::Reshape { .. }
        | marker_op!()
        | device_index_op!() => {
            return Cost::default();
        }
        Op::Unary(unary) if is_transcendental(*unary) => Cost {
            transcendental: elements(result(0)),
            ..Cost::default()
        },
        Op::Binary(Binary::Power | Binary::Atan2) => Cost {
            transcendental: elements(result(0)),
            ..Cost::default()
        },
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Clamp
        | Op::Convert(_)
        | Op::ReducePrecision { .. } => elementwise(elements(result(0))),
        // Bytes alone.
        Op::BitcastConvert(_)
        | Op::Broadcast { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Concatenate { .. }
        | Op::Slice { .. }
        | Op::DynamicSlice { .. }
        | Op::DynamicUpdateSlice
        | Op::Pad { .. }
        | Op::Gather(_)
        | Op::AllGather { .. }
        | Op::AllToAll { .. }
        | Op::CollectivePermute { .. } => Cost::default(),
        Op::Scatter(scatter) => elementwise(if scatter.combine.is_some() {
            elements(operand(2))
        } else {
            0.0
        }),
        Op::Dot(dot) => {
            let depth: f64 = dot
                .left_contract
                .iter()
                .map(|&dim| operand(0).dims()[dim] as f64)
                .product();
            Cost {
                dot: 2.0 * elements(result(0)) * depth,
                ..Cost::default()
            }
        }
        Op::Convolution(convolution) => {
            let count = 2.0 * multiplications(convolution, operand(0), operand(1), result(0));
            Cost {
                convolution: count,
                ..Cost::default()
            }
        }
        Op::Reduce { .. } => elementwise(elements(operand(0)) - elements(result(0))),
        Op::ArgReduce { .. } => elementwise(2.0 * (elements(operand(0)) - elements(result(0)))),
        Op::ReduceWindow { window, .. } => {
            elementwise(elements(result(0)) * (window.sizes.iter().product::<usize>() as f64 - 1.0))
        }
        Op::SelectAndScatter { window, .. } => {
            elementwise(elements(operand(1)) * window.sizes.iter().product::<usize>() as f64)
        }
        Op::Sort { dim, .. } => {
            let length = operand(0).dims().get(*dim).copied().unwrap_or(1).max(2) as f64;
            elementwise(elements(operand(0)) * length.log2().ceil())
        }
        Op::AllReduce { .. } | Op::ReduceScatter { .. } => elementwise(elements(operand(0))),
        Op::While {
            condition, body, ..
        } => {
            let mut once = cost(condition);
            once.add(cost(body), 1.0);
            once.counted_once.push(node.origin);
            return once;
        }
        Op::Scan {
            carried,
            scanned,
            length,
            body,
            ..
        } => {
            let mut iterations = Cost::default();
            iterations.add(cost(body), *length as f64);
            // Slices are copied to the body, results of iterations to the stacked results.
            let sliced = node.operands[node.operands.len() - scanned..]
                .iter()
                .chain(&node.results[*carried..]);
            iterations.unfused_bytes += sliced
                .map(|&value| 2.0 * bytes(graph.ty(value)))
                .sum::<f64>();
            return iterations;
        }
        Op::Checkpoint { body, .. } => return cost(body),
        Op::Case { branches } => {
            let costs = branches.iter().map(cost);
            return costs
                .max_by(|a, b| a.flops().total_cmp(&b.flops()))
                .unwrap_or_default();
        }
        // The body is the work of one device.
        Op::ShardMap(map) => {
            let mut all = Cost::default();
            all.add(
                cost(&map.body),
                map.manual_axes()
                    .iter()
                    .map(|&(_, size)| size as f64)
                    .product(),
            );
            return all;
        }
        Op::CustomCall(call) => Cost {
            unknown: vec![call.target.clone()],
            ..Cost::default()
        },
    };
    let bytes: f64 = node
        .operands
        .iter()
        .chain(&node.results)
        .map(|&value| bytes(graph.ty(value)))
        .sum();
    cost.unfused_bytes = bytes;
    if matches!(node.op, Op::Dot(_) | Op::Convolution(_)) {
        cost.contraction_bytes = bytes;
        if matches!(operand(0).dtype(), DType::Bf16 | DType::F16) {
            cost.in_16_bits = cost.contractions();
        }
    }
    cost
}

fn elements(ty: &TensorType) -> f64 {
    ty.dims().iter().map(|&dim| dim as f64).product()
}

fn bytes(ty: &TensorType) -> f64 {
    elements(ty) * ty.dtype().size() as f64
}

fn is_transcendental(unary: Unary) -> bool {
    match unary {
        Unary::Cbrt
        | Unary::Cosine
        | Unary::Erf
        | Unary::Exponential
        | Unary::ExponentialMinusOne
        | Unary::Log
        | Unary::LogPlusOne
        | Unary::Logistic
        | Unary::Rsqrt
        | Unary::Sine
        | Unary::Sqrt
        | Unary::Tan
        | Unary::Tanh => true,
        Unary::Abs
        | Unary::Ceil
        | Unary::CountLeadingZeros
        | Unary::Floor
        | Unary::IsFinite
        | Unary::Negate
        | Unary::Not
        | Unary::PopulationCount
        | Unary::RoundNearestAfz
        | Unary::RoundNearestEven
        | Unary::Sign => false,
    }
}

/// Number of products of an element of `x` and one of the kernel.
fn multiplications(
    convolution: &Convolution,
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
