//! The pass that applies a [`DTypePolicy`]: which operations compute in its narrow type, and where
//! values are converted.
//!
//! What a program does between its border and its border is three things. *Products* (dots,
//! convolutions) take narrow operands and sum in `f32`. *Plain* operations, elementwise or moving
//! elements, follow their operands: between two products they are narrow. All else is *wide*: sums,
//! exponentials, and what mixes with their results; so norms and softmax are wide as a whole.
//!
//! The result of a product is narrowed too, unless it is *wanted exactly*: if it flows, through
//! plain operations and sums within a sample, into an exponential or logarithm, a sum of everything
//! (a loss, a metric), or the border (the gradient of a weight, on its way to the update).
//!
//! Scans are seen through: what a scan stacks is stacked in the type that its body made it in, and
//! a scan over it takes it in that type. Widening and stacking can change places without changing a
//! bit, so what is kept of each turn for the way back takes no more memory than it would without
//! the scan. What is carried keeps its type, for it may be a sum over all turns; what gradients
//! keep of it, the state as each turn found it, is rounded to `bf16` unless they want it exactly.
//! Checkpoints are dissolved: to all but gradients they are as if their nodes stood in their place.

use halite_core::{DType, DTypePolicy, HostArray, Narrowing, TensorType};

use super::{dead_code, map_regions, without_checkpoints};
use crate::{Binary, Graph, Literal, Node, Op, Reduction, Unary, Value, Window};

const MADE_BEFORE: &str = "operands of a valid graph are made before they are used";

/// A graph with the same types at its border, which computes as `policy` says inside. Under
/// [`DTypePolicy::F32`] it is the same graph.
///
/// ```
/// use halite_core::{DType, DTypePolicy, Narrowing, TensorType};
/// use halite_ir::{Dot, Graph, Op, with_precision};
///
/// let mut graph = Graph::new();
/// let x = graph.input(TensorType::new(DType::F32, [8, 3]));
/// let w = graph.input(TensorType::new(DType::F32, [3, 2]));
/// let dot = Dot { left_batch: vec![], right_batch: vec![], left_contract: vec![1], right_contract: vec![0], result: DType::F32 };
/// let y = graph.push(Op::Dot(dot), &[x, w], None).unwrap()[0];
/// graph.set_outputs(vec![y]);
///
/// let mixed = with_precision(graph.clone(), &DTypePolicy::BF16_MIXED, &Narrowing::EVERYWHERE);
/// let names: Vec<&str> = mixed.nodes().iter().map(|node| node.op.name()).collect();
/// assert_eq!(names, ["convert", "convert", "dot"]); // of bf16 to f32
/// assert_eq!(mixed.output_types(), graph.output_types());
/// ```
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn with_precision(graph: Graph, policy: &DTypePolicy, narrowing: &Narrowing) -> Graph {
    if policy.is_identity() {
        graph
    } else {
        between_borders(&without_checkpoints(&graph), policy, narrowing)
    }
}

/// The pass, on a graph whose border keeps its types.
fn between_borders(graph: &Graph, policy: &DTypePolicy, narrowing: &Narrowing) -> Graph {
    let given = |input: &Value| Given {
        dtype: graph.ty(*input).dtype(),
        origin: Origin::Leaf,
    };
    let outputs = vec![
        Taken {
            as_traced: true,
            exact: true,
            kept: false
        };
        graph.outputs().len()
    ];
    Pass::new(graph, policy, narrowing, &outputs)
        .run(graph.inputs().iter().map(given).collect(), &outputs)
        .graph
}

/// The same graph, whose inputs and outputs of floats are of these types instead: converted behind
/// the inputs and before the outputs.
///
/// # Panics
/// If there are not as many types as inputs and outputs.
pub fn with_border(graph: Graph, inputs: &[DType], outputs: &[DType]) -> Graph {
    let are = |values: &[Value], dtypes: &[DType]| {
        assert_eq!(
            values.len(),
            dtypes.len(),
            "a type for each value of the border"
        );
        values
            .iter()
            .zip(dtypes)
            .all(|(&value, &dtype)| graph.ty(value).dtype() == dtype)
    };
    if are(graph.inputs(), inputs) && are(graph.outputs(), outputs) {
        return graph;
    }
    let mut new = Graph::new();
    let mut map: Vec<Option<Value>> = vec![None; graph.value_count()];
    let given: Vec<Value> = graph
        .inputs()
        .iter()
        .zip(inputs)
        .map(|(&old, &dtype)| new.input(graph.ty(old).with_dtype(dtype)))
        .collect();
    for (&old, value) in graph.inputs().iter().zip(given) {
        map[old.index()] = Some(convert(&mut new, value, graph.ty(old).dtype()));
    }
    for node in graph.nodes() {
        let operands = node
            .operands
            .iter()
            .map(|operand| map[operand.index()].expect(MADE_BEFORE))
            .collect();
        let types = node
            .results
            .iter()
            .map(|&result| graph.ty(result).clone())
            .collect();
        let results = new
            .push_typed(node.op.clone(), operands, types, node.origin)
            .to_vec();
        for (old, value) in node.results.iter().zip(results) {
            map[old.index()] = Some(value);
        }
    }
    let given = graph
        .outputs()
        .iter()
        .zip(outputs)
        .map(|(old, &dtype)| (map[old.index()].expect(MADE_BEFORE), dtype));
    let given = given
        .collect::<Vec<_>>()
        .into_iter()
        .map(|(value, dtype)| convert(&mut new, value, dtype))
        .collect();
    new.set_outputs(given);
    new
}

fn convert(graph: &mut Graph, value: Value, dtype: DType) -> Value {
    let ty = graph.ty(value).clone();
    if ty.dtype() == dtype {
        return value;
    }
    graph.push_typed(
        Op::Convert(dtype),
        vec![value],
        vec![ty.with_dtype(dtype)],
        None,
    )[0]
}

/// How an operation behaves towards precision.
enum Class {
    /// Narrow operands, sums in `f32`.
    Product,
    /// Elementwise, or moves elements: as narrow as its operands.
    Plain,
    /// As plain, and of a leaf still a leaf: it does not matter on which side of it a conversion
    /// stands.
    Moves,
    /// The result is of another kind than the operands, which may be narrow: comparisons.
    Asks,
    /// Wide; a small error of an operand is a large one of the result.
    Sensitive,
    /// Wide; errors of the operand average out, unless the sum is within a sample.
    Sum {
        /// Whether many samples, or many places, are summed.
        over_samples: bool,
    },
    /// As [`Plain`](Class::Plain), each result from the operand of the same place.
    Passes,
    /// Operands and results have the types that they were traced with.
    Exact,
}

/// What a value is made of.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Origin {
    /// Known while tracing, or exact in any float: it may go with narrow values.
    Constant,
    /// Of the border, and moved.
    Leaf,
    /// Of the border, repeated by a broadcast, as a bias is: it may go with narrow values.
    Repeated,
    /// Computed in the narrow type.
    Narrow,
    /// Computed in the wide type.
    Wide,
}

/// What an input is.
#[derive(Clone, Copy)]
struct Given {
    dtype: DType,
    origin: Origin,
}

/// What becomes of an output.
#[derive(Clone, Copy)]
struct Taken {
    /// It has the type that it was traced with; else that which it is made in.
    as_traced: bool,
    /// It is wanted exactly.
    exact: bool,
    /// It is kept for the way back alone, which does not want it exactly: it is rounded.
    kept: bool,
}

/// What the pass makes of a graph.
struct Passed {
    graph: Graph,
    /// Of the outputs.
    origins: Vec<Origin>,
}

struct Pass<'a> {
    old: &'a Graph,
    policy: &'a DTypePolicy,
    narrowing: &'a Narrowing,
    new: Graph,
    /// For each value of the old graph, what it is in the new one, by element type. The first is
    /// what it was made as.
    forms: Vec<Vec<(DType, Value)>>,
    origins: Vec<Origin>,
    /// Whether a value of the old graph is wanted exactly.
    exact: Vec<bool>,
}

impl<'a> Pass<'a> {
    fn new(
        old: &'a Graph,
        policy: &'a DTypePolicy,
        narrowing: &'a Narrowing,
        outputs: &[Taken],
    ) -> Self {
        let count = old.value_count();
        let mut pass = Pass {
            old,
            policy,
            narrowing,
            new: Graph::new(),
            forms: vec![Vec::new(); count],
            origins: vec![Origin::Wide; count],
            exact: vec![false; count],
        };
        let exact: Vec<Value> = old
            .outputs()
            .iter()
            .zip(outputs)
            .filter(|(_, is)| is.exact)
            .map(|(&output, _)| output)
            .collect();
        pass.exact = pass.wanted_exactly(&exact, false);
        pass
    }

    fn run(mut self, inputs: Vec<Given>, outputs: &[Taken]) -> Passed {
        for (&input, Given { dtype, origin }) in self.old.inputs().iter().zip(inputs) {
            let value = self.new.input(self.old.ty(input).with_dtype(dtype));
            self.forms[input.index()].push((dtype, value));
            self.origins[input.index()] = origin;
        }
        for &input in self.old.inputs() {
            self.both(input);
        }
        for node in self.old.nodes() {
            self.node(node);
        }
        let mut values = Vec::with_capacity(outputs.len());
        for (&output, taken) in self.old.outputs().iter().zip(outputs) {
            let dtype = match taken {
                Taken { kept: true, .. } => self.policy.compute,
                Taken {
                    as_traced: true, ..
                } => self.dtype(output),
                Taken {
                    as_traced: false, ..
                } => self.made_in(output),
            };
            values.push(self.form(output, dtype));
        }
        self.new.set_outputs(values);
        let origins = self
            .old
            .outputs()
            .iter()
            .map(|output| self.origins[output.index()])
            .collect();
        Passed {
            graph: dead_code(&self.new),
            origins,
        }
    }

    /// The type that values of this type are narrowed to.
    fn narrow(&self, dtype: DType) -> Option<DType> {
        let compute = self.policy.compute;
        let narrows = match dtype {
            DType::F32 => compute != DType::F32,
            DType::F64 => self.policy.double == compute && compute != DType::F32,
            _ => false,
        };
        narrows.then_some(compute)
    }

    /// The type that values of this type are computed in where they are not narrow.
    fn wide(&self, dtype: DType) -> DType {
        match dtype {
            DType::F64 if self.policy.double != DType::F64 => self.policy.reduce,
            other => other,
        }
    }

    fn dtype(&self, value: Value) -> DType {
        self.old.ty(value).dtype()
    }

    /// From these values backwards: which values are wanted exactly. On the way back, roots do not
    /// matter: a small error of what they are taken of is half as large after them.
    fn wanted_exactly(&self, from: &[Value], way_back: bool) -> Vec<bool> {
        let mut exact = vec![false; self.old.value_count()];
        from.iter().for_each(|value| exact[value.index()] = true);
        for node in self.old.nodes().iter().rev() {
            if let Op::Scan { carried, body, .. } = &node.op {
                let (inside, _) = self.inside(node, *carried, body, &exact);
                for (operand, input) in node.operands.iter().zip(body.inputs()) {
                    exact[operand.index()] |= inside.exact[input.index()];
                }
                continue;
            }
            let result_is = node.results.iter().any(|result| exact[result.index()]);
            let class = self.class(node);
            let is_root = matches!(node.op, Op::Unary(Unary::Cbrt | Unary::Rsqrt | Unary::Sqrt));
            for (place, operand) in node.operands.iter().enumerate() {
                exact[operand.index()] |= match class {
                    Class::Product | Class::Asks => false,
                    Class::Plain | Class::Moves => result_is,
                    Class::Passes => exact[node.results[place].index()],
                    Class::Sum { over_samples } => {
                        !over_samples && result_is || self.old.ty(node.results[0]).rank() == 0
                    }
                    Class::Sensitive if way_back && is_root => result_is,
                    Class::Sensitive | Class::Exact => true,
                };
            }
        }
        exact
    }

    /// The pass over the body of a scan, and what becomes of the outputs: what is carried from turn
    /// to turn may be a sum over all of them, so it keeps its type. It is wanted exactly where the
    /// next turn wants it so.
    fn inside<'b>(
        &self,
        node: &Node,
        carried: usize,
        body: &'b Graph,
        exact: &[bool],
    ) -> (Pass<'b>, Vec<Taken>)
    where
        'a: 'b,
    {
        let results = node.results.iter().enumerate();
        let taken = |(at, result): (usize, &Value)| Taken {
            as_traced: at < carried,
            exact: exact[result.index()],
            kept: false,
        };
        let mut taken: Vec<Taken> = results.map(taken).collect();
        loop {
            let inside = Pass::new(body, self.policy, self.narrowing, &taken);
            let is_exact = |at: &usize| inside.exact[body.inputs()[*at].index()];
            let more: Vec<usize> = (0..carried)
                .filter(|at| is_exact(at) && !taken[*at].exact)
                .collect();
            if more.is_empty() {
                return (inside, taken);
            }
            more.into_iter().for_each(|at| taken[at].exact = true);
        }
    }

    /// Whether this result of a scan is what gradients keep of a state: the state as each turn
    /// found it, which only scans the other way take; and none of them wants it exactly. In `f16` a
    /// state may be infinite.
    fn is_kept(&self, node: &Node, at: usize) -> bool {
        let Op::Scan {
            carried,
            reverse,
            body,
            ..
        } = &node.op
        else {
            return false;
        };
        let (result, output) = (node.results[at], body.outputs()[at]);
        let is_state = at >= *carried
            && body.inputs()[..*carried].contains(&output)
            && self.dtype(result) == DType::F32;
        if !is_state
            || self.policy.compute != DType::Bf16
            || !self.narrowing.between
            || self.old.outputs().contains(&result)
        {
            return false;
        }
        let mut users = self
            .old
            .nodes()
            .iter()
            .filter(|user| user.operands.contains(&result))
            .peekable();
        users.peek().is_some()
            && users.all(|user| {
                let Op::Scan {
                    scanned,
                    reverse: back,
                    body,
                    ..
                } = &user.op
                else {
                    return false;
                };
                let first = user.operands.len() - scanned;
                let inside = Pass::new(body, self.policy, self.narrowing, &[]);
                let exact = inside.wanted_exactly(&[], true);
                let is_fine =
                    |(place, &input): (usize, &Value)| place >= first && !exact[input.index()];
                let places = body
                    .inputs()
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| user.operands[*place] == result);
                back != reverse && places.into_iter().all(is_fine)
            })
    }

    fn node(&mut self, node: &Node) {
        if matches!(node.op, Op::Scan { .. }) {
            return self.scan(node);
        }
        match self.class(node) {
            Class::Product => self.product(node),
            Class::Plain | Class::Asks | Class::Passes => self.plain(node),
            Class::Moves => self.moves(node),
            Class::Sensitive | Class::Sum { .. } => {
                self.uniform(node, |pass, dtype| pass.wide(dtype))
            }
            Class::Exact => self.uniform(node, |_, dtype| dtype),
        }
    }

    fn scan(&mut self, node: &Node) {
        let Op::Scan {
            carried,
            scanned,
            length,
            reverse,
            body,
        } = &node.op
        else {
            return;
        };
        let mut operands = Vec::with_capacity(node.operands.len());
        let mut inputs = Vec::with_capacity(node.operands.len());
        for (place, &operand) in node.operands.iter().enumerate() {
            let given = match place < *carried {
                true => Given {
                    dtype: self.dtype(operand),
                    origin: Origin::Leaf,
                },
                false => Given {
                    dtype: self.made_in(operand),
                    origin: self.origins[operand.index()],
                },
            };
            operands.push(self.form(operand, given.dtype));
            inputs.push(given);
        }
        let (inside, mut taken) = self.inside(node, *carried, body, &self.exact);
        for (at, taken) in taken.iter_mut().enumerate() {
            taken.kept = self.is_kept(node, at);
        }
        let passed = inside.run(inputs, &taken);
        let made = passed
            .graph
            .outputs()
            .iter()
            .map(|&output| passed.graph.ty(output).dtype());
        let types = node
            .results
            .iter()
            .zip(made)
            .map(|(&result, dtype)| self.old.ty(result).with_dtype(dtype))
            .collect();
        for (result, origin) in node.results.iter().zip(passed.origins).skip(*carried) {
            if origin == Origin::Narrow {
                self.origins[result.index()] = Origin::Narrow;
            }
        }
        let body = Box::new(passed.graph);
        let op = Op::Scan {
            carried: *carried,
            scanned: *scanned,
            length: *length,
            reverse: *reverse,
            body,
        };
        self.made(node, op, operands, types);
    }

    fn product(&mut self, node: &Node) {
        let [left, right, result] = [node.operands[0], node.operands[1], node.results[0]];
        let both = [left, right].map(|operand| self.narrow(self.dtype(operand)));
        let ([Some(narrow), Some(_)], true) = (both, self.pays(node)) else {
            return self.uniform(node, |pass, dtype| pass.wide(dtype));
        };
        let sum = self.wide(self.dtype(result));
        let op = match &node.op {
            Op::Dot(dot) => Op::Dot(crate::Dot {
                result: sum,
                ..dot.clone()
            }),
            Op::Convolution(conv) => Op::Convolution(crate::Convolution {
                result: sum,
                ..conv.clone()
            }),
            other => other.clone(),
        };
        let operands = vec![self.form(left, narrow), self.form(right, narrow)];
        let ty = self.old.ty(result).with_dtype(sum);
        let value = self
            .new
            .push_typed(op, operands, vec![ty.clone()], node.origin)[0];
        let exact = self.exact[result.index()];
        let rounds = if exact {
            self.policy.output == narrow
        } else {
            self.narrowing.between
        };
        if !rounds {
            self.forms[result.index()].push((sum, value));
            return;
        }
        let value = self.new.push_typed(
            Op::Convert(narrow),
            vec![value],
            vec![ty.with_dtype(narrow)],
            node.origin,
        )[0];
        self.forms[result.index()].push((narrow, value));
        if !exact {
            self.origins[result.index()] = Origin::Narrow;
        }
    }

    /// Whether the operands are worth converting.
    fn pays(&self, node: &Node) -> bool {
        let elements = |value: Value| self.old.ty(value).elements() as u64;
        let (left, result) = (elements(node.operands[0]), elements(node.results[0]));
        let contracted = match &node.op {
            Op::Dot(dot) => dot
                .left_contract
                .iter()
                .map(|&dim| self.old.ty(node.operands[0]).dims()[dim] as u64)
                .product(),
            // Each result sums over a kernel's window and input features.
            Op::Convolution(conv) => {
                elements(node.operands[1])
                    / (self.old.ty(node.operands[1]).dims()[conv.kernel.batch] as u64).max(1)
            }
            _ => left,
        };
        result.saturating_mul(contracted) >= self.narrowing.least_work
    }

    fn plain(&mut self, node: &Node) {
        let floats: Vec<Value> = node
            .operands
            .iter()
            .copied()
            .filter(|&operand| self.narrow(self.dtype(operand)).is_some())
            .collect();
        if matches!(node.op, Op::OptimizationBarrier) {
            return self.passes(node);
        }
        let is_narrow = |&value: &Value| self.origins[value.index()] == Origin::Narrow;
        let may_be =
            |&value: &Value| !matches!(self.origins[value.index()], Origin::Wide | Origin::Leaf);
        let exact = node.results.iter().any(|result| self.exact[result.index()]);
        if exact || !floats.iter().any(is_narrow) || !floats.iter().all(may_be) {
            return self.uniform(node, |pass, dtype| pass.wide(dtype));
        }
        self.uniform(node, |pass, dtype| pass.narrow(dtype).unwrap_or(dtype));
        for &result in &node.results {
            if self.narrow(self.dtype(result)).is_some() {
                self.origins[result.index()] = Origin::Narrow;
            }
        }
    }

    /// Of leaves, both forms are made, and what is not used is dropped at the end.
    fn moves(&mut self, node: &Node) {
        let result = node.results[0];
        let origin = |pass: &Self, operand: &Value| pass.origins[operand.index()];
        let is_leaf = |origin| matches!(origin, Origin::Constant | Origin::Leaf | Origin::Repeated);
        if !node
            .operands
            .iter()
            .all(|operand| is_leaf(origin(self, operand)))
        {
            return self.plain(node);
        }
        self.uniform(node, |pass, dtype| pass.wide(dtype));
        let repeats = node.operands.first().is_some_and(|&operand| {
            let (x, y) = (self.old.ty(operand), self.old.ty(result));
            matches!(node.op, Op::Broadcast { .. }) && x.elements() < y.elements()
        });
        let worst = |worst, operand: &Value| match (worst, origin(self, operand)) {
            (Origin::Constant, next) | (next, Origin::Constant) => next,
            (Origin::Leaf, _) | (_, Origin::Leaf) => Origin::Leaf,
            _ => Origin::Repeated,
        };
        let made_of = node.operands.iter().fold(Origin::Constant, worst);
        self.origins[result.index()] = if repeats && made_of == Origin::Leaf {
            Origin::Repeated
        } else {
            made_of
        };
        let Some(narrow) = self.narrow(self.dtype(result)) else {
            return;
        };
        let op = match &node.op {
            Op::Constant(literal) => match narrowed(literal, narrow) {
                Some(literal) => Op::Constant(literal),
                None => {
                    self.origins[result.index()] = Origin::Leaf;
                    return;
                }
            },
            Op::Convert(_) => Op::Convert(narrow),
            other => other.clone(),
        };
        let operands = match &node.op {
            Op::Convert(_) => {
                let from = self.dtype(node.operands[0]);
                let operand = self.form(node.operands[0], from);
                if from == narrow {
                    self.forms[result.index()].insert(0, (narrow, operand));
                    return;
                }
                vec![operand]
            }
            _ => node
                .operands
                .iter()
                .map(|&operand| self.form(operand, narrow))
                .collect(),
        };
        let ty = self.old.ty(result).with_dtype(narrow);
        let value = self.new.push_typed(op, operands, vec![ty], node.origin)[0];
        let was_narrow = !node.operands.is_empty()
            && node
                .operands
                .iter()
                .all(|&operand| self.made_in(operand) == narrow);
        let forms = &mut self.forms[result.index()];
        forms.insert(if was_narrow { 0 } else { forms.len() }, (narrow, value));
    }

    fn passes(&mut self, node: &Node) {
        let mut operands = Vec::with_capacity(node.operands.len());
        for (&operand, &result) in node.operands.iter().zip(&node.results) {
            let dtype = self.dtype(operand);
            let narrow = self
                .narrow(dtype)
                .filter(|_| self.origins[operand.index()] == Origin::Narrow);
            operands.push(self.form(operand, narrow.unwrap_or(self.wide(dtype))));
            if narrow.is_some() {
                self.origins[result.index()] = Origin::Narrow;
            }
        }
        let types = operands
            .iter()
            .map(|&operand| self.new.ty(operand).clone())
            .collect();
        self.made(node, node.op.clone(), operands, types);
    }

    /// The node with operands and results of the types that `as_type` says of those they were
    /// traced with.
    fn uniform(&mut self, node: &Node, as_type: impl Fn(&Self, DType) -> DType) {
        let operands: Vec<Value> = node
            .operands
            .iter()
            .map(|&operand| self.form(operand, as_type(self, self.dtype(operand))))
            .collect();
        let types: Vec<TensorType> = (node.results.iter())
            .map(|&result| {
                self.old
                    .ty(result)
                    .with_dtype(as_type(self, self.dtype(result)))
            })
            .collect();
        let op = match &node.op {
            Op::Convert(_) => {
                let (to, from) = (types[0].dtype(), self.new.ty(operands[0]).dtype());
                if to == from {
                    self.forms[node.results[0].index()].push((to, operands[0]));
                    return;
                }
                Op::Convert(to)
            }
            Op::Iota { dim, .. } => Op::Iota {
                ty: types[0].clone(),
                dim: *dim,
            },
            Op::Constant(literal) if literal.ty() != &types[0] => {
                // A constant that has no exact form is converted in the program.
                match narrowed(literal, types[0].dtype()) {
                    Some(literal) => Op::Constant(literal),
                    None => {
                        let ty = literal.ty().clone();
                        let value =
                            self.new
                                .push_typed(node.op.clone(), vec![], vec![ty], node.origin)[0];
                        let value = convert(&mut self.new, value, types[0].dtype());
                        self.forms[node.results[0].index()].push((types[0].dtype(), value));
                        return;
                    }
                }
            }
            Op::Dot(dot) => Op::Dot(crate::Dot {
                result: types[0].dtype(),
                ..dot.clone()
            }),
            Op::Convolution(conv) => Op::Convolution(crate::Convolution {
                result: types[0].dtype(),
                ..conv.clone()
            }),
            other => map_regions(other, &|region| {
                between_borders(region, self.policy, self.narrowing)
            }),
        };
        self.made(node, op, operands, types);
    }

    fn made(&mut self, node: &Node, op: Op, operands: Vec<Value>, types: Vec<TensorType>) {
        let dtypes: Vec<DType> = types.iter().map(TensorType::dtype).collect();
        let results = self
            .new
            .push_typed(op, operands, types, node.origin)
            .to_vec();
        for ((old, value), dtype) in node.results.iter().zip(results).zip(dtypes) {
            self.forms[old.index()].push((dtype, value));
        }
    }

    /// Both forms of an input.
    fn both(&mut self, input: Value) {
        if let Some(narrow) = self.narrow(self.dtype(input)) {
            self.form(input, narrow);
        }
    }

    /// The type that the value was made in: its other forms are converted from it.
    fn made_in(&self, old: Value) -> DType {
        self.forms[old.index()].first().expect(MADE_BEFORE).0
    }

    /// The value in this element type.
    fn form(&mut self, old: Value, dtype: DType) -> Value {
        let forms = &self.forms[old.index()];
        if let Some((_, value)) = forms.iter().find(|(known, _)| *known == dtype) {
            return *value;
        }
        let first = forms.first().expect(MADE_BEFORE).1;
        let value = convert(&mut self.new, first, dtype);
        self.forms[old.index()].push((dtype, value));
        value
    }

    fn class(&self, node: &Node) -> Class {
        let over_samples = |dims: &[usize]| dims.contains(&0);
        let of = |kind: &Reduction, over_samples: bool| match kind {
            Reduction::Sum | Reduction::Product => Class::Sum { over_samples },
            // What comes out is one of what went in.
            Reduction::Min | Reduction::Max | Reduction::And | Reduction::Or => Class::Plain,
        };
        match &node.op {
            Op::Dot(_) | Op::Convolution(_) => Class::Product,
            Op::Constant(_)
            | Op::Broadcast { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Reverse { .. } => Class::Moves,
            Op::AllGather { .. } | Op::ShardingConstraint(_) | Op::StopGradient => Class::Moves,
            Op::Unary(unary) => match unary {
                Unary::Abs
                | Unary::Erf
                | Unary::Logistic
                | Unary::Negate
                | Unary::Not
                | Unary::Sign
                | Unary::Tanh => Class::Plain,
                Unary::IsFinite => Class::Asks,
                Unary::Cbrt
                | Unary::Ceil
                | Unary::Cosine
                | Unary::CountLeadingZeros
                | Unary::Exponential
                | Unary::ExponentialMinusOne
                | Unary::Floor
                | Unary::Log
                | Unary::LogPlusOne
                | Unary::PopulationCount
                | Unary::RoundNearestAfz
                | Unary::RoundNearestEven
                | Unary::Rsqrt
                | Unary::Sine
                | Unary::Sqrt
                | Unary::Tan => Class::Sensitive,
            },
            Op::Binary(binary) => match binary {
                Binary::Add
                | Binary::And
                | Binary::Divide
                | Binary::Maximum
                | Binary::Minimum
                | Binary::Multiply
                | Binary::Or
                | Binary::Subtract
                | Binary::Xor
                | Binary::ShiftLeft
                | Binary::ShiftRightArithmetic
                | Binary::ShiftRightLogical => Class::Plain,
                Binary::Atan2 | Binary::Power | Binary::Remainder => Class::Sensitive,
            },
            Op::Compare(_) => Class::Asks,
            Op::Convert(dtype) => match (self.dtype(node.operands[0]), dtype) {
                // 0 and 1 are exact in every float, and what is narrow already is so too.
                (DType::Bool, to) if to.is_float() => Class::Moves,
                (from, to) if Some(from) == self.narrow(*to) => Class::Moves,
                (from, to) if self.narrow(from).is_some() && self.narrow(*to).is_some() => {
                    Class::Plain
                }
                _ => Class::Sensitive,
            },
            Op::Select
            | Op::Clamp
            | Op::ReducePrecision { .. }
            | Op::Concatenate { .. }
            | Op::Slice { .. }
            | Op::DynamicSlice { .. }
            | Op::DynamicUpdateSlice
            | Op::Pad { .. }
            | Op::Gather(_)
            | Op::AllToAll { .. }
            | Op::CollectivePermute { .. } => Class::Plain,
            Op::OptimizationBarrier => Class::Passes,
            Op::Scatter(scatter) => match &scatter.combine {
                None => Class::Plain,
                Some(kind) => of(kind, true),
            },
            Op::Reduce { kind, dims } => of(kind, over_samples(dims)),
            Op::ReduceWindow { kind, window: _ } => of(kind, false),
            Op::SelectAndScatter { kind: _, window } if !overlap(window) => Class::Plain,
            Op::SelectAndScatter { .. } => Class::Sum {
                over_samples: false,
            },
            Op::AllReduce { kind, groups: _ } => of(kind, false),
            Op::ReduceScatter {
                kind,
                dim: _,
                groups: _,
            } => of(kind, false),
            Op::Iota { .. } | Op::ArgReduce { .. } | Op::Sort { .. } => Class::Sensitive,
            Op::BitcastConvert(_)
            | Op::While { .. }
            | Op::Scan { .. }
            | Op::Checkpoint { .. }
            | Op::Case { .. }
            | Op::CustomCall(_)
            | Op::ShardMap(_)
            | Op::AxisIndex(_)
            | Op::PartitionId
            | Op::ReplicaId => Class::Exact,
        }
    }
}

/// Whether an element can be in two windows.
fn overlap(window: &Window) -> bool {
    window
        .sizes
        .iter()
        .zip(&window.strides)
        .any(|(size, stride)| size > stride)
}

/// A float literal in another float type, rounded to nearest; `None` if a number would become 0 or
/// infinite, or there are none.
fn narrowed(literal: &Literal, dtype: DType) -> Option<Literal> {
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
    let kept = |(before, after): (&f64, &f64)| {
        (*before == 0.0) == (*after == 0.0) && before.is_finite() == after.is_finite()
    };
    if !before
        .as_slice::<f64>()
        .ok()?
        .iter()
        .zip(after.as_slice::<f64>().ok()?)
        .all(kept)
    {
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
