//! Forward analysis: the precision that values come out in.

use std::collections::HashMap;

use super::{
    Cast,
    demand::{Demand, Demands},
    rewrite::rounded,
    rules::cast_rule,
};
use crate::{Graph, Node, Op, Value, rules::CastRule};

/// What a value is computed from. A lattice: a chain from the bottom up, whose join is the larger
/// element. An operation that follows its inputs is in the compute dtype if and only if the join
/// over its operands is [`Compute`](Source::Compute): operands below `Compute` are converted to it,
/// those above keep the operation in full precision.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Source {
    /// Constants alone, which the compute dtype can hold.
    Constant,
    /// An input repeated by a broadcast, as a bias is.
    BroadcastInput,
    /// Computed in the compute dtype.
    Compute,
    /// An input, moved only; or a constant outside of the compute dtype's range.
    Input,
    /// Computed in full precision.
    Full,
}

/// The source of each value of a graph.
pub(super) struct Sources {
    values: Vec<Source>,
    /// Those of the bodies of scans, by the position of the scan among the nodes.
    bodies: HashMap<usize, Sources>,
}

impl Sources {
    /// Analyzes a graph with these sources of its inputs.
    pub(super) fn new(cast: Cast<'_>, graph: &Graph, demands: &Demands, inputs: &[Source]) -> Self {
        let mut sources = Sources {
            values: vec![Source::Full; graph.value_count()],
            bodies: HashMap::new(),
        };
        for (&input, &source) in graph.inputs().iter().zip(inputs) {
            sources.values[input.index()] = source;
        }
        for (position, node) in graph.nodes().iter().enumerate() {
            match &node.op {
                Op::Scan { carried, body, .. } => {
                    let demands = demands.body(position);
                    let inside = sources.scan(cast, node, *carried, body, demands);
                    sources.bodies.insert(position, inside);
                }
                _ => {
                    for (place, &result) in node.results.iter().enumerate() {
                        sources.values[result.index()] =
                            sources.transfer(cast, graph, demands, node, place);
                    }
                }
            }
        }
        sources
    }

    /// The source of a value.
    pub(super) fn of(&self, value: Value) -> Source {
        self.values[value.index()]
    }

    /// The sources inside the scan that is the node at this position.
    pub(super) fn body(&self, position: usize) -> &Sources {
        &self.bodies[&position]
    }

    /// Whether an operation that follows its inputs computes in the compute dtype.
    pub(super) fn follows_into_compute(
        &self,
        cast: Cast<'_>,
        graph: &Graph,
        demands: &Demands,
        node: &Node,
    ) -> bool {
        let join = (node.operands.iter())
            .filter(|operand| cast.compute_dtype(graph.ty(**operand).dtype()).is_some())
            .map(|&operand| self.of(operand))
            .max();
        join == Some(Source::Compute) && demands.on_results(node) == Demand::Any
    }

    /// Whether a node only moves elements of inputs and constants, so that a convert can stand on
    /// either side of it.
    pub(super) fn moves_input(&self, node: &Node) -> bool {
        let stored = [Source::Constant, Source::BroadcastInput, Source::Input];
        (node.operands.iter()).all(|&operand| stored.contains(&self.of(operand)))
    }

    /// Transfer function: the source of the result at `place`.
    fn transfer(
        &self,
        cast: Cast<'_>,
        graph: &Graph,
        demands: &Demands,
        node: &Node,
        place: usize,
    ) -> Source {
        let result = node.results[place];
        let Some(compute) = cast.compute_dtype(graph.ty(result).dtype()) else {
            // The dtype is not one that is cast. Broadcasts of such values may become floats later.
            return match cast_rule(cast, graph, node) {
                CastRule::DataMovement if self.moves_input(node) => self.moved(graph, node),
                _ => Source::Full,
            };
        };
        let is_compute = match cast_rule(cast, graph, node) {
            CastRule::Contract => {
                let demand = demands.on_results(node);
                cast.contraction_dtype(graph, node).is_some()
                    && demand == Demand::Any
                    && cast.rounds_result(demand)
            }
            CastRule::DataMovement if self.moves_input(node) => {
                return match &node.op {
                    Op::Constant(literal) if rounded(literal, compute).is_none() => Source::Input,
                    _ => self.moved(graph, node),
                };
            }
            CastRule::FollowInputs | CastRule::DataMovement => {
                self.follows_into_compute(cast, graph, demands, node)
            }
            CastRule::PerOperand => self.of(node.operands[place]) == Source::Compute,
            CastRule::Predicate
            | CastRule::FullPrecision(_)
            | CastRule::FullRange
            | CastRule::Reduce(_)
            | CastRule::Unchanged => false,
        };
        if is_compute {
            Source::Compute
        } else {
            Source::Full
        }
    }

    /// The source of the moved elements of an input or a constant.
    fn moved(&self, graph: &Graph, node: &Node) -> Source {
        let Some(&operand) = node.operands.first() else {
            return Source::Constant;
        };
        let repeats = matches!(node.op, Op::Broadcast { .. })
            && graph.ty(operand).elements() < graph.ty(node.results[0]).elements();
        match self.of(operand) {
            Source::Input if repeats => Source::BroadcastInput,
            source => source,
        }
    }

    /// Transfer function of a scan. Carried values keep their dtype, and are inputs to the body.
    fn scan(
        &mut self,
        cast: Cast<'_>,
        node: &Node,
        carried: usize,
        body: &Graph,
        demands: &Demands,
    ) -> Sources {
        let inputs: Vec<Source> = (node.operands.iter().enumerate())
            .map(|(place, &operand)| {
                if place < carried {
                    Source::Input
                } else {
                    self.of(operand)
                }
            })
            .collect();
        let inside = Sources::new(cast, body, demands, &inputs);
        for (&result, &output) in node.results.iter().zip(body.outputs()).skip(carried) {
            if inside.of(output) == Source::Compute {
                self.values[result.index()] = Source::Compute;
            }
        }
        inside
    }
}
