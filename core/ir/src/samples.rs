//! Dataflow analysis of samples: where those of a batch meet.
//!
//! A process of a job has a part of each batch. What it computes for each sample alone, and what
//! it adds up over samples, is the same for any division of the batch. Whatever else combines
//! samples (a product of their features, a sort, statistics of the batch) sees those of one
//! process, and depends on their number.

mod elementwise;
mod index;
mod shape;

use std::panic::Location;

use crate::{
    BinaryOp, CustomCall, DotAttributes, Graph, Linearity, Node, Op, Reduction,
    op::{collective_op, device_index_op, marker_op},
};

/// The samples in the dimension `dim` of a value: element `i` of it belongs to sample
/// `i / inner % samples`. Its size is `outer * samples * inner`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// The dimension.
    pub dim: usize,
    /// How often the samples repeat.
    pub outer: usize,
    /// Elements of a sample that are beside each other.
    pub inner: usize,
}

/// What a value of the program of one process has to do with its samples.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// The same in every process, apart from its rank.
    Shared(Shared),
    /// A part for each sample, which depends on that sample alone.
    Along(Place),
    /// A sum over the samples, which the processes can add up.
    Sum(Meeting),
    /// It depends on several samples of this process.
    Met(Meeting),
}

/// What a value contains that is computed from no sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shared {
    /// Places along which it counts: the number of a sample in this process, if there is one.
    pub counts: Vec<Place>,
    /// Whether it depends on the number of the process.
    pub rank: bool,
    /// Whether it is computed from values of all processes.
    pub exchanged: bool,
}

/// Where samples meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meeting {
    /// The operation that combines them.
    pub op: &'static str,
    /// What it does with them.
    pub how: &'static str,
    /// The line that recorded it.
    pub origin: Option<&'static Location<'static>>,
}

/// What a custom call does, for which this is not what its operations do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Call {
    /// Exchanges values: all processes get the same.
    Exchange,
    /// The number of the process.
    Rank,
    /// Its result is meant for the samples of one process.
    Marked,
}

/// For each output of `graph`, what it has to do with the samples, of which there are `samples`,
/// from what the inputs have. `call` knows custom calls that exchange values between processes.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_ir::{BinaryOp, Graph, Op, Place, Reduction, Samples, samples};
///
/// let mut graph = Graph::new();
/// let x = graph.input(TensorType::new(DType::F32, [4, 3]));
/// let twice = graph.push(Op::Binary(BinaryOp::Add), &[x, x], None)?[0];
/// let most = Op::Reduce { kind: Reduction::Max, dims: vec![0] };
/// let most = graph.push(most, &[x], None)?[0];
/// graph.set_outputs(vec![twice, most]);
///
/// let along = Samples::Along(Place { dim: 0, outer: 1, inner: 1 });
/// let found = samples(&graph, vec![along.clone()], 4, &|_| None);
/// assert_eq!(found[0], along);
/// assert!(matches!(&found[1], Samples::Met(meeting) if meeting.op == "reduce_max"));
/// # Ok::<(), halite_core::Error>(())
/// ```
pub fn samples(
    graph: &Graph,
    inputs: Vec<Samples>,
    samples: usize,
    call: &dyn Fn(&CustomCall) -> Option<Call>,
) -> Vec<Samples> {
    Walk { samples, call }.graph(graph, inputs)
}

impl Samples {
    /// The same in every process.
    pub const SHARED: Samples = Samples::Shared(Shared {
        counts: Vec::new(),
        rank: false,
        exchanged: false,
    });

    /// Of either of two values.
    fn or(self, other: Samples, at: Meeting) -> Samples {
        match (self, other) {
            (Samples::Met(meeting), _) | (_, Samples::Met(meeting)) => Samples::Met(meeting),
            (Samples::Shared(one), Samples::Shared(other)) => Samples::Shared(one.and(other)),
            (Samples::Shared(_), other) | (other, Samples::Shared(_)) => other,
            (one, other) if one == other => one,
            (Samples::Sum(sum), Samples::Sum(_)) => Samples::Sum(sum),
            _ => Samples::Met(at),
        }
    }
}

impl Shared {
    fn and(mut self, other: Shared) -> Shared {
        for place in other.counts {
            if !self.counts.contains(&place) {
                self.counts.push(place);
            }
        }
        Shared {
            rank: self.rank || other.rank,
            exchanged: self.exchanged || other.exchanged,
            ..self
        }
    }

    /// Without places.
    fn uncounted(self) -> Samples {
        Samples::Shared(Shared {
            counts: Vec::new(),
            ..self
        })
    }
}

/// An operation with the types of its operands and results.
struct At<'a> {
    graph: &'a Graph,
    node: &'a Node,
}

impl At<'_> {
    /// Dimensions of an operand.
    fn dims(&self, operand: usize) -> &[usize] {
        self.graph.ty(self.node.operands[operand]).dims()
    }

    /// Dimensions of the first result.
    fn result(&self) -> &[usize] {
        self.graph.ty(self.node.results[0]).dims()
    }

    fn meeting(&self, how: &'static str) -> Meeting {
        Meeting {
            op: self.node.op.name(),
            how,
            origin: self.node.origin,
        }
    }

    fn met(&self, how: &'static str) -> Samples {
        Samples::Met(self.meeting(how))
    }
}

const COMBINES: &str = "combines different samples of the batch";
const ORDER: &str = "depends on the order of the samples in the batch";
const SUMMED: &str = "uses a sum over samples as more than a term of a sum";
const COUNTED: &str = "depends on the number of a sample in the batch";
const UNKNOWN: &str = "may combine different samples of the batch";

struct Walk<'a> {
    /// Samples of a batch of one process.
    samples: usize,
    call: &'a dyn Fn(&CustomCall) -> Option<Call>,
}

impl Walk<'_> {
    fn graph(&self, graph: &Graph, inputs: Vec<Samples>) -> Vec<Samples> {
        let mut known: Vec<Samples> = vec![Samples::SHARED; graph.value_count()];
        for (input, samples) in graph.inputs().iter().zip(inputs) {
            known[input.index()] = samples;
        }
        for node in graph.nodes() {
            let operands = node.operands.iter();
            let operands: Vec<Samples> = operands
                .map(|operand| known[operand.index()].clone())
                .collect();
            let at = At { graph, node };
            let met = operands.iter().find_map(|operand| match operand {
                Samples::Met(meeting) => Some(*meeting),
                _ => None,
            });
            let is_end = |call: &CustomCall| (self.call)(call).is_some();
            let results = match (&node.op, met) {
                // The first place where samples meet counts, unless what it gives is marked.
                (Op::CustomCall(call), _) if is_end(call) => self.results(&at, operands),
                (_, Some(meeting)) => vec![Samples::Met(meeting); node.results.len()],
                _ => self.results(&at, operands),
            };
            for (result, samples) in node.results.iter().zip(results) {
                known[result.index()] = samples;
            }
        }
        let outputs = graph.outputs().iter();
        outputs
            .map(|output| known[output.index()].clone())
            .collect()
    }

    /// Of the results of an operation, from its operands, none of which is met.
    fn results(&self, at: &At<'_>, operands: Vec<Samples>) -> Vec<Samples> {
        let count = at.node.results.len();
        let one = match &at.node.op {
            Op::Constant(_) => Samples::SHARED,
            Op::Iota { ty, dim } => self.counted(ty.dims()[*dim], *dim),
            Op::Unary(unary) => elementwise::unary(at, *unary, operands),
            Op::Binary(binary) => elementwise::binary(at, *binary, operands),
            Op::Compare(_) | Op::Clamp | Op::BitcastConvert(_) => {
                elementwise::combined(at, operands)
            }
            Op::Select => elementwise::select(at, operands),
            Op::Convert(dtype) => elementwise::converted(at, dtype.is_float(), operands),
            Op::ReducePrecision { .. } | marker_op!() => return operands,
            Op::Broadcast { dims, mapping } => shape::broadcast(at, &operands[0], dims, mapping),
            Op::Reshape { dims } => self.reshape(at, &operands[0], dims),
            Op::Transpose { permutation } => shape::moved(&operands[0], |dim| {
                permutation.iter().position(|of| *of == dim)
            }),
            Op::Reverse { dims } => {
                shape::whole(at, &operands[0], |place| !dims.contains(&place.dim))
            }
            Op::Concatenate { dim } => shape::concatenate(at, operands, *dim),
            Op::Slice {
                starts,
                limits,
                strides,
            } => self.slice(at, &operands[0], [starts, limits, strides]),
            Op::DynamicSlice { sizes } => shape::dynamic_slice(at, operands, sizes),
            Op::DynamicUpdateSlice => shape::dynamic_update_slice(at, operands),
            Op::Pad {
                low,
                high,
                interior,
            } => shape::pad(at, operands, [low, high], interior),
            Op::Gather(gather) => index::gather(at, operands, gather),
            Op::Scatter(scatter, combine) => index::scatter(at, operands, scatter, *combine),
            Op::Dot(dot, ..) => product(at, operands, dot),
            Op::Convolution(convolution, ..) => match &operands[..] {
                [Samples::Shared(x), Samples::Shared(kernel)] => {
                    x.clone().and(kernel.clone()).uncounted()
                }
                [Samples::Along(place), Samples::Shared(_)]
                    if place.dim == convolution.input.batch && convolution.batch_groups == 1 =>
                {
                    Samples::Along(Place {
                        dim: convolution.output.batch,
                        ..*place
                    })
                }
                _ => at.met(COMBINES),
            },
            Op::Reduce { kind, dims } => reduce(at, &operands[0], *kind, dims),
            Op::ArgReduce { dim, .. } => {
                let one = reduce(at, &operands[0], Reduction::Max, &[*dim]);
                return vec![one; count];
            }
            Op::ReduceWindow { window, .. } => shape::windows(at, operands, window),
            Op::SelectAndScatter { window, .. } => shape::windows(at, operands, window),
            Op::Sort { dim, .. } => {
                let one = elementwise::combined(at, operands);
                let one = shape::whole(at, &one, |place| place.dim != *dim);
                return vec![one; count];
            }
            Op::Cholesky { .. } | Op::TriangularSolve(_) => {
                let one = elementwise::combined(at, operands);
                let batch = at.dims(0).len() - 2;
                shape::whole(at, &one, |place| place.dim < batch)
            }
            Op::While {
                carried,
                condition,
                body,
            } => return self.while_loop(at, operands, *carried, [condition, body]),
            Op::Scan {
                carried,
                scanned,
                body,
                ..
            } => return self.scan(at, operands, [*carried, *scanned], body),
            Op::Checkpoint { body, .. } => return self.graph(body, operands),
            Op::Case { branches } => return self.case(at, operands, branches),
            Op::CustomCall(call) => return self.custom(at, operands, call),
            Op::ShardMap(_) | collective_op!() => return unknown(at, operands),
            device_index_op!() => Samples::SHARED,
        };
        vec![one]
    }

    /// A value that counts along a dimension.
    fn counted(&self, size: usize, dim: usize) -> Samples {
        // Any size is a multiple of one sample, whose number a dimension of one element has.
        let is_of_samples = match self.samples {
            1 => size == 1,
            samples => size > 0 && size.is_multiple_of(samples),
        };
        let place = is_of_samples.then(|| Place {
            dim,
            outer: 1,
            inner: size / self.samples,
        });
        Samples::Shared(Shared {
            counts: place.into_iter().collect(),
            ..Shared::default()
        })
    }

    fn custom(&self, at: &At<'_>, operands: Vec<Samples>, call: &CustomCall) -> Vec<Samples> {
        let shared = |shared| vec![Samples::Shared(shared); at.node.results.len()];
        match ((self.call)(call), &call.decomposition) {
            (Some(Call::Exchange), _) => shared(Shared {
                exchanged: true,
                ..Shared::default()
            }),
            (Some(Call::Rank), _) => shared(Shared {
                rank: true,
                ..Shared::default()
            }),
            (Some(Call::Marked), _) => shared(Shared::default()),
            (None, Some(graph)) => self.graph(graph, operands),
            (None, None) => unknown(at, operands),
        }
    }

    /// The fixed point over iterations of the carried values.
    fn while_loop(
        &self,
        at: &At<'_>,
        mut state: Vec<Samples>,
        carried: usize,
        [condition, body]: [&Graph; 2],
    ) -> Vec<Samples> {
        loop {
            let before = state.clone();
            let stops = self.graph(condition, state.clone()).remove(0);
            let stops = matches!(stops, Samples::Shared(_));
            let next = self.graph(body, state.clone());
            for (value, next) in state[..carried].iter_mut().zip(next) {
                *value = match stops {
                    true => value.clone().or(next, at.meeting(COMBINES)),
                    false => at.met(COMBINES),
                };
            }
            if state == before {
                state.truncate(carried);
                return state;
            }
        }
    }

    /// The fixed point over iterations of the carried values; stacked results follow from it.
    fn scan(
        &self,
        at: &At<'_>,
        mut state: Vec<Samples>,
        [carried, scanned]: [usize; 2],
        body: &Graph,
    ) -> Vec<Samples> {
        let first = state.len() - scanned;
        for value in &mut state[first..] {
            // A slice along the first dimension.
            *value = match value {
                Samples::Along(place) if place.dim == 0 => at.met(ORDER),
                _ => shape::moved(value, |dim| dim.checked_sub(1)),
            };
        }
        loop {
            let before = state.clone();
            let mut results = self.graph(body, state.clone());
            for (value, next) in state[..carried].iter_mut().zip(&results) {
                *value = value.clone().or(next.clone(), at.meeting(COMBINES));
            }
            if state == before {
                results[..carried].clone_from_slice(&state[..carried]);
                for stacked in &mut results[carried..] {
                    *stacked = shape::moved(stacked, |dim| Some(dim + 1));
                }
                return results;
            }
        }
    }

    /// Of any of the branches.
    fn case(&self, at: &At<'_>, operands: Vec<Samples>, branches: &[Graph]) -> Vec<Samples> {
        let (index, inputs) = (&operands[0], &operands[1..]);
        if !matches!(index, Samples::Shared(_)) {
            return vec![at.met(COMBINES); at.node.results.len()];
        }
        let results = branches
            .iter()
            .map(|branch| self.graph(branch, inputs.to_vec()));
        let either = |one: Vec<Samples>, other: Vec<Samples>| {
            let pairs = one.into_iter().zip(other);
            pairs
                .map(|(one, other)| one.or(other, at.meeting(COMBINES)))
                .collect()
        };
        results.reduce(either).unwrap_or_default()
    }
}

/// Of an operation that may do anything with its operands.
fn unknown(at: &At<'_>, operands: Vec<Samples>) -> Vec<Samples> {
    let shared = operands
        .into_iter()
        .try_fold(Shared::default(), |all, operand| match operand {
            Samples::Shared(one) => Some(all.and(one)),
            _ => None,
        });
    let one = shared.map_or_else(|| at.met(UNKNOWN), Shared::uncounted);
    vec![one; at.node.results.len()]
}

/// Of a reduction.
fn reduce(at: &At<'_>, x: &Samples, kind: Reduction, dims: &[usize]) -> Samples {
    match x {
        Samples::Along(place) if dims.contains(&place.dim) => match kind {
            Reduction::Sum => Samples::Sum(at.meeting(SUMMED)),
            _ => at.met(COMBINES),
        },
        Samples::Sum(sum) => match kind {
            Reduction::Sum => Samples::Sum(*sum),
            _ => at.met(SUMMED),
        },
        _ => shape::moved(x, |dim| {
            let below = dims.iter().filter(|reduced| **reduced < dim).count();
            (!dims.contains(&dim)).then(|| dim - below)
        }),
    }
}

/// Of a product of matrices.
fn product(at: &At<'_>, operands: Vec<Samples>, dot: &DotAttributes) -> Samples {
    let batch = dot.lhs_batching.len();
    let free = |dims: &[usize], batch: &[usize], contract: &[usize], dim: usize| {
        let is_free = |dim: &usize| !batch.contains(dim) && !contract.contains(dim);
        (0..dims.len()).filter(is_free).position(|free| free == dim)
    };
    let left_free = |dim| free(at.dims(0), &dot.lhs_batching, &dot.lhs_contracting, dim);
    let right_free = |dim| free(at.dims(1), &dot.rhs_batching, &dot.rhs_contracting, dim);
    let frees = at.dims(0).len() - batch - dot.lhs_contracting.len();
    let position = |dims: &[usize], dim: usize| dims.iter().position(|of| *of == dim);
    let sum = || Samples::Sum(at.meeting(SUMMED));
    let moved = |place: Place, dim: usize| Samples::Along(Place { dim, ..place });
    match (&operands[0], &operands[1]) {
        (Samples::Shared(left), Samples::Shared(right)) => {
            left.clone().and(right.clone()).uncounted()
        }
        (Samples::Sum(sum), Samples::Shared(_)) | (Samples::Shared(_), Samples::Sum(sum)) => {
            Samples::Sum(*sum)
        }
        (Samples::Along(place), Samples::Shared(_)) => {
            let batch_dim = position(&dot.lhs_batching, place.dim);
            match batch_dim.or(left_free(place.dim).map(|free| batch + free)) {
                Some(dim) => moved(*place, dim),
                None => sum(),
            }
        }
        (Samples::Shared(_), Samples::Along(place)) => {
            let batch_dim = position(&dot.rhs_batching, place.dim);
            match batch_dim.or(right_free(place.dim).map(|free| batch + frees + free)) {
                Some(dim) => moved(*place, dim),
                None => sum(),
            }
        }
        (Samples::Along(left), Samples::Along(right)) => {
            let is_same = (left.outer, left.inner) == (right.outer, right.inner);
            let pair = |one: &[usize], other: &[usize]| {
                let at = position(one, left.dim).filter(|_| is_same);
                at.filter(|at| Some(*at) == position(other, right.dim))
            };
            match pair(&dot.lhs_batching, &dot.rhs_batching) {
                Some(dim) => moved(*left, dim),
                None if pair(&dot.lhs_contracting, &dot.rhs_contracting).is_some() => sum(),
                None => at.met(COMBINES),
            }
        }
        _ => at.met(SUMMED),
    }
}

/// Whether a sum may be an operand of this operation, beside values that are shared or sums.
fn is_linear(binary: BinaryOp, [left, right]: [&Samples; 2]) -> bool {
    let is_sum = |one: &Samples| matches!(one, Samples::Sum(_));
    match Op::Binary(binary).rules().linearity {
        Linearity::Together => is_sum(left) && is_sum(right),
        Linearity::Each => is_sum(left) != is_sum(right),
        Linearity::First => is_sum(left) && !is_sum(right),
        _ => false,
    }
}
