//! Backward analysis: which values must stay in full precision.

use std::collections::HashMap;

use halite_core::{DType, Narrowing};

use super::{Cast, rules::cast_rule};
use crate::{
    Graph, Node, Op, Value,
    rules::{CastRule, Conditioning, Terms},
};

/// What the users of a value demand of its precision. A lattice: a chain from the bottom up, whose
/// join is the larger element.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Demand {
    /// The value may be rounded to the compute dtype.
    #[default]
    Any,
    /// The value must stay in full precision, except a [saved state](Demands::rounds_saved_state).
    /// If it is a sum of many terms, these may be rounded: their errors average out. Gradients on
    /// their way to the update.
    Full,
    /// The value must stay in full precision, and so must the terms of the sums that it is made of:
    /// what is computed from it amplifies errors, or it is part of a scalar, such as the loss.
    FullTerms,
}

/// The demand on each value of a graph.
pub(super) struct Demands {
    values: Vec<Demand>,
    /// Those of the bodies of scans, by the position of the scan among the nodes.
    bodies: HashMap<usize, Demands>,
}

impl Demands {
    /// Analyzes a graph whose outputs must stay in full precision.
    pub(super) fn of_region(cast: Cast<'_>, graph: &Graph) -> Self {
        Self::new(cast, graph, &vec![Demand::Full; graph.outputs().len()])
    }

    /// Analyzes a graph with this demand on each output.
    fn new(cast: Cast<'_>, graph: &Graph, outputs: &[Demand]) -> Self {
        let mut demands = Demands {
            values: vec![Demand::Any; graph.value_count()],
            bodies: HashMap::new(),
        };
        for (&output, &demand) in graph.outputs().iter().zip(outputs) {
            demands.join(output, demand);
        }
        for (position, node) in graph.nodes().iter().enumerate().rev() {
            match &node.op {
                Op::Scan { carried, body, .. } => {
                    let inside = demands.scan(cast, node, *carried, body);
                    demands.bodies.insert(position, inside);
                }
                _ => {
                    let rule = cast_rule(cast, graph, node);
                    for (place, &operand) in node.operands.iter().enumerate() {
                        demands.join(operand, demands.transfer(rule, graph, node, place));
                    }
                }
            }
        }
        demands
    }

    /// The demand on a value.
    pub(super) fn of(&self, value: Value) -> Demand {
        self.values[value.index()]
    }

    /// The demand on the results of a node: the join of those on each.
    pub(super) fn on_results(&self, node: &Node) -> Demand {
        (node.results.iter().map(|&result| self.of(result)))
            .max()
            .unwrap_or_default()
    }

    /// The demands inside the scan that is the node at this position.
    pub(super) fn body(&self, position: usize) -> &Demands {
        &self.bodies[&position]
    }

    /// Whether the state that a forward scan saves for its backward pass is rounded to `bf16`: a
    /// residual that is a carried value as each iteration finds it, unless what reads it amplifies
    /// its error. (In `f16` a state may be infinite.)
    pub(super) fn rounds_saved_state(
        &self,
        cast: Cast<'_>,
        graph: &Graph,
        node: &Node,
        at: usize,
    ) -> bool {
        let Op::Scan {
            carried,
            residuals,
            body,
            ..
        } = &node.op
        else {
            return false;
        };
        let (result, output) = (node.results[at], body.outputs()[at]);
        at >= node.results.len() - residuals
            && body.inputs()[..*carried].contains(&output)
            && graph.ty(result).dtype() == DType::F32
            && cast.policy.compute == DType::Bf16
            && *cast.narrowing == Narrowing::Everywhere
            && self.of(result) < Demand::FullTerms
            && !graph.outputs().contains(&result)
    }

    fn join(&mut self, value: Value, demand: Demand) {
        let old = &mut self.values[value.index()];
        *old = demand.max(*old);
    }

    /// Transfer function: the demand of a node on the operand at `place`.
    fn transfer(&self, rule: CastRule, graph: &Graph, node: &Node, place: usize) -> Demand {
        match rule {
            CastRule::Contract
            | CastRule::Predicate
            | CastRule::FullPrecision(Conditioning::Damps) => Demand::Any,
            CastRule::FollowInputs | CastRule::FullRange | CastRule::DataMovement => {
                self.on_results(node)
            }
            CastRule::PerOperand => self.of(node.results[place]),
            CastRule::FullPrecision(Conditioning::Keeps) => Demand::Full,
            CastRule::FullPrecision(Conditioning::Amplifies) | CastRule::Unchanged => {
                Demand::FullTerms
            }
            CastRule::Reduce(terms) => {
                let is_scalar = graph.ty(node.results[0]).rank() == 0;
                match (self.on_results(node), terms) {
                    (Demand::FullTerms, _) => Demand::FullTerms,
                    (Demand::Full, _) if is_scalar => Demand::FullTerms,
                    (demand, Terms::Few) => demand,
                    (Demand::Full | Demand::Any, Terms::Many) => Demand::Any,
                }
            }
        }
    }

    /// Transfer function of a scan: sweeps its body until the demands on what is carried into an
    /// iteration are those on what the previous one carries out.
    fn scan(&mut self, cast: Cast<'_>, node: &Node, carried: usize, body: &Graph) -> Demands {
        let mut outputs: Vec<Demand> = (node.results.iter())
            .map(|&result| self.of(result))
            .collect();
        let inside = loop {
            let inside = Demands::new(cast, body, &outputs);
            let mut is_fixed_point = true;
            for (output, &input) in outputs[..carried].iter_mut().zip(body.inputs()) {
                is_fixed_point &= inside.of(input) <= *output;
                *output = inside.of(input).max(*output);
            }
            if is_fixed_point {
                break inside;
            }
        };
        for (&operand, &input) in node.operands.iter().zip(body.inputs()) {
            self.join(operand, inside.of(input));
        }
        inside
    }
}
