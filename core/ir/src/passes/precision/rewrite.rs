//! The rewrite: builds the graph that the analyses decided on.

use halite_core::{DType, HostArray, TensorType};

use super::{
    Cast,
    demand::Demands,
    rules::cast_rule,
    signature::convert,
    source::{Source, Sources},
};
use crate::{
    Graph, Literal, Node, Op, Value,
    passes::{dead_code, map_regions},
    rules::CastRule,
};

const IN_ORDER: &str = "nodes of a valid graph are in topological order";

/// The dtype of an output.
#[derive(Clone, Copy)]
pub(super) enum OutputDType {
    /// The one that it was traced with.
    Declared,
    /// The one that the rewritten graph makes it in.
    AsComputed,
    /// The compute dtype.
    Rounded,
}

/// The dtypes of a node whose operands and results are all cast alike.
#[derive(Clone, Copy)]
enum Target {
    /// The compute dtype, where the policy casts the declared one.
    Compute,
    /// The full-precision dtype.
    Full,
    /// The dtypes that the node was traced with.
    Declared,
}

/// The rewrite of one graph.
pub(super) struct Rewrite<'a> {
    cast: Cast<'a>,
    old: &'a Graph,
    demands: &'a Demands,
    sources: &'a Sources,
    new: Graph,
    /// For each value of the old graph, its copies in the new one, by dtype. The first is the one
    /// that it was computed as; converts start from it. It has the compute dtype if the value's
    /// source is [`Source::Compute`], and otherwise only if it was stored or rounded so.
    copies: Vec<Vec<(DType, Value)>>,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(
        cast: Cast<'a>,
        old: &'a Graph,
        demands: &'a Demands,
        sources: &'a Sources,
    ) -> Self {
        let copies = vec![Vec::new(); old.value_count()];
        Rewrite {
            cast,
            old,
            demands,
            sources,
            new: Graph::new(),
            copies,
        }
    }

    /// Rewrites the graph with these dtypes of its inputs and outputs.
    pub(super) fn run(mut self, inputs: &[DType], outputs: &[OutputDType]) -> Graph {
        for (&input, &dtype) in self.old.inputs().iter().zip(inputs) {
            let value = self.new.input(self.old.ty(input).with_dtype(dtype));
            self.copies[input.index()].push((dtype, value));
        }
        // Converts of inputs come first, so that they are in one place in the program's text.
        for &input in self.old.inputs() {
            if let Some(compute) = self.cast.compute_dtype(self.declared(input)) {
                self.copy(input, compute);
            }
        }
        for (position, node) in self.old.nodes().iter().enumerate() {
            self.node(position, node);
        }
        let mut values = Vec::with_capacity(outputs.len());
        for (&output, dtype) in self.old.outputs().iter().zip(outputs) {
            let dtype = match dtype {
                OutputDType::Rounded => self.cast.policy.compute,
                OutputDType::Declared => self.declared(output),
                OutputDType::AsComputed => self.computed_dtype(output),
            };
            values.push(self.copy(output, dtype));
        }
        self.new.set_outputs(values);
        dead_code(self.new)
    }

    fn node(&mut self, position: usize, node: &Node) {
        if let Op::Scan { body, .. } = &node.op {
            return self.scan(position, node, body);
        }
        match cast_rule(self.cast, self.old, node) {
            CastRule::Contract => self.contract(node),
            CastRule::DataMovement if self.sources.moves_input(node) => self.move_input(node),
            CastRule::DataMovement | CastRule::FollowInputs | CastRule::Predicate => {
                let (sources, demands) = (self.sources, self.demands);
                let target = match sources.follows_into_compute(self.cast, self.old, demands, node)
                {
                    true => Target::Compute,
                    false => Target::Full,
                };
                self.uniform(node, target);
            }
            CastRule::PerOperand => self.per_operand(node),
            CastRule::FullPrecision(_) | CastRule::FullRange | CastRule::Reduce(_) => {
                self.uniform(node, Target::Full)
            }
            CastRule::Unchanged => self.uniform(node, Target::Declared),
        }
    }

    fn scan(&mut self, position: usize, node: &Node, body: &Graph) {
        let Op::Scan {
            carried,
            scanned,
            length,
            reverse,
            residuals,
            ..
        } = node.op
        else {
            return;
        };
        let mut operands = Vec::with_capacity(node.operands.len());
        let mut inputs = Vec::with_capacity(node.operands.len());
        for (place, &operand) in node.operands.iter().enumerate() {
            let dtype = match place < carried {
                true => self.declared(operand),
                false => self.computed_dtype(operand),
            };
            operands.push(self.copy(operand, dtype));
            inputs.push(dtype);
        }
        let output = |at| {
            if self
                .demands
                .rounds_saved_state(self.cast, self.old, node, at)
            {
                OutputDType::Rounded
            } else if at < carried {
                OutputDType::Declared
            } else {
                OutputDType::AsComputed
            }
        };
        let outputs: Vec<OutputDType> = (0..node.results.len()).map(output).collect();
        let (demands, sources) = (self.demands.body(position), self.sources.body(position));
        let body = Rewrite::new(self.cast, body, demands, sources).run(&inputs, &outputs);
        let types = (node.results.iter().zip(body.outputs()))
            .map(|(&result, &output)| self.old.ty(result).with_dtype(body.ty(output).dtype()))
            .collect();
        let op = Op::Scan {
            carried,
            scanned,
            length,
            reverse,
            residuals,
            body: Box::new(body),
        };
        self.push(node, op, operands, types);
    }

    fn contract(&mut self, node: &Node) {
        let [left, right, result] = [node.operands[0], node.operands[1], node.results[0]];
        let Some(compute) = self.cast.contraction_dtype(self.old, node) else {
            return self.uniform(node, Target::Full);
        };
        let full = self.cast.full_dtype(self.declared(result));
        let operands = vec![self.copy(left, compute), self.copy(right, compute)];
        let ty = self.old.ty(result).with_dtype(full);
        let op = with_result_dtype(&node.op, full);
        let mut value = self
            .new
            .push_typed(op, operands, vec![ty.clone()], node.origin)[0];
        let mut dtype = full;
        if self.cast.rounds_result(self.demands.on_results(node)) {
            dtype = compute;
            let types = vec![ty.with_dtype(compute)];
            value = self
                .new
                .push_typed(Op::Convert(compute), vec![value], types, node.origin)[0];
        }
        self.copies[result.index()].push((dtype, value));
    }

    /// Moves elements of an input, or makes a constant: in both dtypes, as it is not known yet
    /// which are used. Dead-code elimination removes the other.
    fn move_input(&mut self, node: &Node) {
        self.uniform(node, Target::Full);
        let result = node.results[0];
        let Some(compute) = self.cast.compute_dtype(self.declared(result)) else {
            return;
        };
        let (op, operands) = match &node.op {
            Op::Constant(literal) => match rounded(literal, compute) {
                Some(literal) => (Op::Constant(literal), vec![]),
                None => return,
            },
            Op::Convert(_) => {
                let from = self.declared(node.operands[0]);
                let operand = self.copy(node.operands[0], from);
                if from == compute {
                    self.copies[result.index()].insert(0, (compute, operand));
                    return;
                }
                (Op::Convert(compute), vec![operand])
            }
            other => {
                let operands = node
                    .operands
                    .iter()
                    .map(|&operand| self.copy(operand, compute));
                (other.clone(), operands.collect())
            }
        };
        // Then the copy in the compute dtype is the original.
        let are_operands_narrow = !node.operands.is_empty()
            && (node.operands.iter()).all(|&operand| self.computed_dtype(operand) == compute);
        let types = vec![self.old.ty(result).with_dtype(compute)];
        let value = self.new.push_typed(op, operands, types, node.origin)[0];
        let copies = &mut self.copies[result.index()];
        let place = if are_operands_narrow { 0 } else { copies.len() };
        copies.insert(place, (compute, value));
    }

    fn per_operand(&mut self, node: &Node) {
        let mut operands = Vec::with_capacity(node.operands.len());
        for &operand in &node.operands {
            let declared = self.declared(operand);
            let dtype = match self.sources.of(operand) {
                Source::Compute => self.cast.compute_dtype(declared),
                _ => None,
            };
            operands.push(self.copy(operand, dtype.unwrap_or(self.cast.full_dtype(declared))));
        }
        let types = operands
            .iter()
            .map(|&operand| self.new.ty(operand).clone())
            .collect();
        self.push(node, node.op.clone(), operands, types);
    }

    /// The node with all operands and results in one kind of dtype.
    fn uniform(&mut self, node: &Node, target: Target) {
        let cast = self.cast;
        let dtype = |declared: DType| match target {
            Target::Compute => cast.compute_dtype(declared).unwrap_or(declared),
            Target::Full => cast.full_dtype(declared),
            Target::Declared => declared,
        };
        let operands: Vec<Value> = (node.operands.iter())
            .map(|&operand| self.copy(operand, dtype(self.declared(operand))))
            .collect();
        let types: Vec<TensorType> = (node.results.iter())
            .map(|&result| self.old.ty(result).with_dtype(dtype(self.declared(result))))
            .collect();
        let op = match &node.op {
            Op::Convert(_) => {
                let (to, from) = (types[0].dtype(), self.new.ty(operands[0]).dtype());
                if to == from {
                    self.copies[node.results[0].index()].push((to, operands[0]));
                    return;
                }
                Op::Convert(to)
            }
            Op::Iota { dim, .. } => Op::Iota {
                ty: types[0].clone(),
                dim: *dim,
            },
            Op::Constant(literal) if literal.ty() != &types[0] => {
                let Some(literal) = rounded(literal, types[0].dtype()) else {
                    return self.convert_constant(node, literal, types[0].dtype());
                };
                Op::Constant(literal)
            }
            contract @ (Op::Dot(..) | Op::Convolution(..)) => {
                with_result_dtype(contract, types[0].dtype())
            }
            other => {
                let mut op = other.clone();
                map_regions(&mut op, |region| cast.region(&region));
                op
            }
        };
        self.push(node, op, operands, types);
    }

    /// A constant that `dtype` cannot hold is converted when the program runs.
    fn convert_constant(&mut self, node: &Node, literal: &Literal, dtype: DType) {
        let types = vec![literal.ty().clone()];
        let value = self
            .new
            .push_typed(node.op.clone(), vec![], types, node.origin)[0];
        let value = convert(&mut self.new, value, dtype);
        self.copies[node.results[0].index()].push((dtype, value));
    }

    fn push(&mut self, node: &Node, op: Op, operands: Vec<Value>, types: Vec<TensorType>) {
        let dtypes: Vec<DType> = types.iter().map(TensorType::dtype).collect();
        let results = self.new.push_typed(op, operands, types, node.origin);
        for ((old, &value), dtype) in node.results.iter().zip(results).zip(dtypes) {
            self.copies[old.index()].push((dtype, value));
        }
    }

    /// The dtype of a value of the old graph.
    fn declared(&self, old: Value) -> DType {
        self.old.ty(old).dtype()
    }

    /// The dtype that the value was computed in: copies in others are converted from it.
    fn computed_dtype(&self, old: Value) -> DType {
        self.copies[old.index()].first().expect(IN_ORDER).0
    }

    /// The value in this dtype.
    fn copy(&mut self, old: Value, dtype: DType) -> Value {
        let copies = &self.copies[old.index()];
        if let Some((_, value)) = copies.iter().find(|(known, _)| *known == dtype) {
            return *value;
        }
        let first = copies.first().expect(IN_ORDER).1;
        let value = convert(&mut self.new, first, dtype);
        self.copies[old.index()].push((dtype, value));
        value
    }
}

/// A contraction with a result of another dtype.
fn with_result_dtype(op: &Op, result: DType) -> Op {
    match op {
        Op::Dot(dot, _) => Op::Dot(dot.clone(), result),
        Op::Convolution(conv, _) => Op::Convolution(conv.clone(), result),
        other => other.clone(),
    }
}

/// A float literal rounded to nearest in another float dtype; `None` if a number would become 0 or
/// infinite, or the literal is no float.
pub(super) fn rounded(literal: &Literal, dtype: DType) -> Option<Literal> {
    let host = match literal.as_splat() {
        Some(element) => {
            HostArray::from_bytes(element, TensorType::scalar(literal.ty().dtype())).ok()?
        }
        None => literal.to_host(),
    };
    let rounded = host.to_float(dtype).ok()?;
    let [before, after] = [
        host.to_float(DType::F64).ok()?,
        rounded.to_float(DType::F64).ok()?,
    ];
    let in_range = |(before, after): (&f64, &f64)| {
        (*before == 0.0) == (*after == 0.0) && before.is_finite() == after.is_finite()
    };
    let [before, after] = [
        before.as_slice::<f64>().ok()?,
        after.as_slice::<f64>().ok()?,
    ];
    if !before.iter().zip(after).all(in_range) {
        return None;
    }
    let ty = literal.ty().with_dtype(dtype);
    match literal.as_splat() {
        Some(_) => Some(Literal {
            ty,
            bytes: rounded.bytes().into(),
        }),
        None => Literal::from_bytes(rounded.bytes(), ty).ok(),
    }
}
