//! Recording a program by running the code that describes it.
//!
//! A [`Trace`] records operations; a [`Tensor`] is a `Copy` handle on one of its values. There is
//! no hidden graph and no thread-local: a tensor knows its trace, and cannot outlive it.
//!
//! A mistake does not stop the trace. It is recorded with the user's file and line, and yields an
//! *error tensor*, which later operations pass on in silence; so one trace finds all root causes.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    fmt,
    panic::Location,
    sync::Arc,
};

use halite_core::{Error, Result, TensorType};
use halite_ir::{Binary, Graph, Op, Unary, infer};

use crate::{Tensor, hyperparameter::Hyperparameter, shard_map::ManualAxes};

/// Records a program. The first argument of every traced function, by convention named `cx`.
#[derive(Default)]
pub struct Trace {
    pub(crate) recording: RefCell<Recording>,
    /// Where the user called the layer that is being traced, if one is.
    site: Cell<Option<&'static Location<'static>>>,
    pub(crate) context: crate::context::Context,
}

/// Number of a tensor in its trace.
pub(crate) type Id = u32;

/// A part of the program: 0 is the program itself, the others are bodies of loops and branches.
pub(crate) type Scope = u32;

#[derive(Default)]
pub(crate) struct Recording {
    tensors: Vec<Record>,
    pub(crate) nodes: Vec<Recorded>,
    /// The scopes that are open, innermost last; the program itself is always open and not in the
    /// list.
    open: Vec<Scope>,
    scopes: Scope,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
    constants: HashMap<(Scope, halite_ir::Literal), Id>,
    /// Those that are not inputs yet: in a graph, constants.
    pub(crate) hyperparameters: Vec<Hyperparameter>,
    /// In the body of a `shard_map`.
    manual: Option<ManualAxes>,
}

struct Record {
    ty: TensorType,
    scope: Scope,
    /// Comes from a mistake.
    error: bool,
    /// Path of a parameter or input, for messages.
    name: Option<Arc<str>>,
}

/// One operation of a trace.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub(crate) op: Op,
    pub(crate) operands: Vec<Id>,
    pub(crate) results: Vec<Id>,
    pub(crate) scope: Scope,
    pub(crate) origin: &'static Location<'static>,
    /// What the graphs in `op` were made from, in their order.
    pub(crate) regions: Vec<Region>,
}

/// A mistake found while tracing: where, in which operation, with which values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mistake {
    /// The user's line.
    pub location: &'static Location<'static>,
    /// The operation, as people call it.
    pub op: String,
    /// What does not fit, and what would.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line, column) = (
            self.location.file(),
            self.location.line(),
            self.location.column(),
        );
        write!(f, "{file}:{line}:{column}: {}: {}", self.op, self.message)
    }
}

impl Trace {
    /// An empty trace, whose mode is not set. [`Jit`](crate::Jit) makes traces for you; this is for
    /// looking at programs.
    pub fn new() -> Self {
        Trace::default()
    }

    /// A value that the caller of the program gives. `name` is for messages: the path of a
    /// parameter.
    pub fn input(&self, ty: TensorType, name: impl Into<Arc<str>>) -> Tensor<'_> {
        self.tensor(self.record(ty, false, Some(name.into())))
    }

    /// Records an operation, and returns its results. Most have a method of [`Tensor`].
    ///
    /// If the operands do not fit, that is recorded as a mistake; the one result is then an error
    /// tensor.
    #[track_caller]
    pub fn push(&self, op: Op, operands: &[Tensor<'_>]) -> Vec<Tensor<'_>> {
        let origin = self.origin(Location::caller());
        let types: Vec<TensorType> = operands.iter().map(|operand| operand.ty()).collect();
        let inferred = infer(&op, &types.iter().collect::<Vec<_>>());
        if operands.iter().any(|operand| operand.is_error()) {
            return match inferred {
                Ok(results) => results
                    .into_iter()
                    .map(|ty| self.error_like(Some(ty)))
                    .collect(),
                Err(_) => vec![self.error_like(types.first().cloned())],
            };
        }
        let ids: Vec<Id> = operands.iter().map(|operand| operand.id).collect();
        if let Some(stray) = operands.iter().position(|operand| !self.can_use(*operand)) {
            let message = format!("operand {stray} {STRAY}{}", self.names(operands));
            return vec![self.fail_at(origin, op.name(), message, None)];
        }
        match inferred {
            Ok(results) => {
                let results: Vec<Id> = results
                    .into_iter()
                    .map(|ty| self.record(ty, false, None))
                    .collect();
                let mut recording = self.recording.borrow_mut();
                let scope = recording.scope();
                recording.nodes.push(Recorded {
                    op,
                    operands: ids,
                    results: results.clone(),
                    scope,
                    origin,
                    regions: vec![],
                });
                drop(recording);
                results.into_iter().map(|id| self.tensor(id)).collect()
            }
            Err(error) => {
                let name = error.op().to_string();
                let message = format!("{}{}", error.message(), self.names(operands));
                vec![self.fail_at(origin, name, message, types.first().cloned())]
            }
        }
    }

    /// Records an operation with one result.
    #[track_caller]
    pub fn push_one(&self, op: Op, operands: &[Tensor<'_>]) -> Tensor<'_> {
        self.push(op, operands)[0]
    }

    /// Records an operation with `count` results; `count` error tensors if the operands do not fit.
    #[track_caller]
    pub fn push_many(&self, op: Op, operands: &[Tensor<'_>], count: usize) -> Vec<Tensor<'_>> {
        let mut results = self.push(op, operands);
        while results.len() < count {
            results.push(self.error_like(None));
        }
        results
    }

    /// Records a mistake of the user, at the user's line, and returns an error tensor.
    ///
    /// `like` is the type the result would most likely have had, so that code which asks for its
    /// dimensions goes on.
    #[track_caller]
    pub fn fail(
        &self,
        op: &str,
        message: impl Into<String>,
        like: Option<TensorType>,
    ) -> Tensor<'_> {
        self.fail_at(self.origin(Location::caller()), op, message, like)
    }

    /// What is recorded until the guard is dropped is said to come from `caller`, unless an outer
    /// call says so already.
    ///
    /// A layer's `forward` is `#[track_caller]` and begins with
    /// `let _site = x.trace().called_from(Location::caller());`, so that its operations name the
    /// user's line and not the layer's.
    pub fn called_from(&self, caller: &'static Location<'static>) -> CallSite<'_> {
        let outer = self.site.get();
        self.site.set(outer.or(Some(caller)));
        CallSite { trace: self, outer }
    }

    /// The mistakes so far, in the order of their making.
    pub fn mistakes(&self) -> Vec<Mistake> {
        self.recording.borrow().mistakes.clone()
    }

    /// Warnings so far, in the order of their making: what is valid but hardly meant, such as
    /// parameters that get no gradient. [`Jit`](crate::Jit) logs each of them once.
    pub fn warnings(&self) -> Vec<Mistake> {
        self.recording.borrow().warnings.clone()
    }

    /// That there were no mistakes so far.
    ///
    /// # Errors
    /// All mistakes of the trace in one error.
    pub fn check(&self) -> Result<()> {
        let recording = self.recording.borrow();
        if recording.mistakes.is_empty() {
            Ok(())
        } else {
            Err(mistakes_error(&recording.mistakes))
        }
    }

    /// The program that computes `outputs` from `inputs`. [Hyperparameters](Self::hyperparameter)
    /// are constants in it.
    ///
    /// # Errors
    /// All mistakes of the trace in one error; or if an output, or what it is made from, belongs to
    /// the body of a loop or branch, or is an input of the trace that is not among `inputs`.
    pub fn graph(&self, inputs: &[Tensor<'_>], outputs: &[Tensor<'_>]) -> Result<Graph> {
        self.check()?;
        let ids =
            |tensors: &[Tensor<'_>]| tensors.iter().map(|tensor| tensor.id).collect::<Vec<_>>();
        let (inputs, outputs) = (ids(inputs), ids(outputs));
        self.check_complete(&inputs, &outputs)?;
        Ok(self.build(0, &inputs, &outputs))
    }

    /// That every value of the program is an input of it or made in it.
    fn check_complete(&self, inputs: &[Id], outputs: &[Id]) -> Result<()> {
        let recording = self.recording.borrow();
        let hyperparameters = recording.hyperparameters.iter().map(|one| one.id);
        let mut known: HashSet<Id> = inputs.iter().copied().chain(hyperparameters).collect();
        let missing = |known: &HashSet<Id>, id: Id| !known.contains(&id);
        for node in recording.nodes.iter().filter(|node| node.scope == 0) {
            if let Some(&id) = node.operands.iter().find(|&&id| missing(&known, id)) {
                let message = format!(
                    "{} is used at {}, and is no input of the program",
                    recording.describe(id),
                    node.origin
                );
                return Err(Error::invalid("trace", message));
            }
            known.extend(&node.results);
        }
        match outputs.iter().position(|&id| missing(&known, id)) {
            None => Ok(()),
            Some(output) => {
                let what = recording.describe(outputs[output]);
                Err(Error::invalid(
                    "trace",
                    format!(
                        "output {output}, {what}, is neither an input of the program nor made by it"
                    ),
                ))
            }
        }
    }

    /// What is known of the devices, in the body of a `shard_map`.
    pub(crate) fn manual(&self) -> Option<ManualAxes> {
        self.recording.borrow().manual.clone()
    }

    /// Says what is known of the devices from now on, and gives back what was.
    pub(crate) fn enter_manual(&self, manual: Option<ManualAxes>) -> Option<ManualAxes> {
        std::mem::replace(&mut self.recording.borrow_mut().manual, manual)
    }

    /// A handle on the tensor of this number.
    pub(crate) fn tensor(&self, id: Id) -> Tensor<'_> {
        Tensor { trace: self, id }
    }

    /// The constant `literal`, recorded once per program.
    #[track_caller]
    pub(crate) fn literal(&self, literal: halite_ir::Literal) -> Tensor<'_> {
        // Bodies of loops and branches have their own, which the compiler folds better than values
        // from outside.
        let scope = self.recording.borrow().scope();
        let key = (scope, literal);
        if let Some(&id) = self.recording.borrow().constants.get(&key) {
            return self.tensor(id);
        }
        let tensor = self.push_one(Op::Constant(key.1.clone()), &[]);
        self.recording.borrow_mut().constants.insert(key, tensor.id);
        tensor
    }

    /// Runs `body` on new values of these types, and closes over what it records.
    pub(crate) fn region<'t, R>(
        &'t self,
        types: &[TensorType],
        body: impl FnOnce(&[Tensor<'t>]) -> R,
    ) -> (Region, R) {
        let scope = {
            let mut recording = self.recording.borrow_mut();
            recording.scopes += 1;
            let scope = recording.scopes;
            recording.open.push(scope);
            scope
        };
        let inputs: Vec<Tensor<'t>> = types
            .iter()
            .map(|ty| self.tensor(self.record(ty.clone(), false, None)))
            .collect();
        let result = body(&inputs);
        let closed = self.recording.borrow_mut().open.pop();
        assert_eq!(
            closed,
            Some(scope),
            "scopes close in the order of their opening"
        );
        (
            Region {
                scope,
                inputs: inputs.iter().map(|tensor| tensor.id).collect(),
                outputs: vec![],
            },
            result,
        )
    }

    /// Values of outer scopes that the regions use, each once, in the order of first use.
    pub(crate) fn captured(&self, regions: &[&Region]) -> Vec<Id> {
        let recording = self.recording.borrow();
        let mut captured = Vec::new();
        let mut seen = HashSet::new();
        for region in regions {
            let inside = |id: Id| recording.tensors[id as usize].scope == region.scope;
            let nodes = recording
                .nodes
                .iter()
                .filter(|node| node.scope == region.scope);
            for &id in nodes.flat_map(|node| &node.operands).chain(&region.outputs) {
                if !inside(id) && seen.insert(id) {
                    captured.push(id);
                }
            }
        }
        captured
    }

    /// What the operations of a closed region, and its outputs, are made from.
    pub(crate) fn used_in(&self, region: &Region) -> HashSet<Id> {
        let nodes = self.nodes_of(region.scope);
        nodes
            .iter()
            .flat_map(|node| &node.operands)
            .chain(&region.outputs)
            .copied()
            .collect()
    }

    /// The graph of a closed region.
    pub(crate) fn region_graph(&self, region: &Region) -> Graph {
        self.build(region.scope, &region.inputs, &region.outputs)
    }

    /// Remembers which regions the graphs of the last operation were made from.
    pub(crate) fn made_from(&self, regions: Vec<Region>) {
        let mut recording = self.recording.borrow_mut();
        recording
            .nodes
            .last_mut()
            .expect("an operation with regions was just recorded")
            .regions = regions;
    }

    /// Records what a closed region records again, on these inputs, in the current scope. Unlike
    /// [`inline`](Self::inline) it keeps what the program does not say: where gradients stop.
    pub(crate) fn replay<'t>(&'t self, region: &Region, inputs: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let mut values = region
            .inputs
            .iter()
            .copied()
            .zip(inputs.iter().copied())
            .collect();
        self.replay_nodes(self.nodes_of(region.scope), &mut values);
        region.outputs.iter().map(|&id| values[&id]).collect()
    }

    /// Records again, of these nodes of one scope, what `wanted` are made from and is not in
    /// `values`, where it puts it.
    pub(crate) fn recompute<'t>(
        &'t self,
        nodes: &[Recorded],
        wanted: &[Id],
        values: &mut HashMap<Id, Tensor<'t>>,
    ) {
        let mut needed: HashSet<Id> = wanted.iter().copied().collect();
        let mut again = Vec::new();
        for node in nodes.iter().rev() {
            if node
                .results
                .iter()
                .any(|id| needed.contains(id) && !values.contains_key(id))
            {
                needed.extend(&node.operands);
                again.push(node.clone());
            }
        }
        again.reverse();
        let known = values.clone();
        self.replay_nodes(again, values);
        values.extend(known);
    }

    /// Records nodes again in the current scope, on `values`, to which it adds their results.
    pub(crate) fn replay_nodes<'t>(
        &'t self,
        nodes: Vec<Recorded>,
        values: &mut HashMap<Id, Tensor<'t>>,
    ) {
        for node in nodes {
            let operands: Vec<Tensor<'t>> = node.operands.iter().map(|&id| values[&id]).collect();
            let _site = self.located_at(node.origin);
            let results = self.push_many(node.op, &operands, node.results.len());
            if !node.regions.is_empty() && !results[0].is_error() {
                self.made_from(node.regions);
            }
            values.extend(node.results.into_iter().zip(results));
        }
    }

    /// Records the nodes of `graph` again, on these inputs, in the current scope.
    #[track_caller]
    pub(crate) fn inline<'t>(&'t self, graph: &Graph, inputs: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let mut values: HashMap<halite_ir::Value, Tensor<'t>> = graph
            .inputs()
            .iter()
            .copied()
            .zip(inputs.iter().copied())
            .collect();
        for node in graph.nodes() {
            let operands: Vec<Tensor<'t>> = node
                .operands
                .iter()
                .map(|operand| values[operand])
                .collect();
            let results = self.push_many(node.op.clone(), &operands, node.results.len());
            values.extend(node.results.iter().copied().zip(results));
        }
        graph
            .outputs()
            .iter()
            .map(|output| values[output])
            .collect()
    }

    /// The nodes that are visible from the current scope, in the order of their making.
    pub(crate) fn visible_nodes(&self) -> Vec<Recorded> {
        let recording = self.recording.borrow();
        recording
            .nodes
            .iter()
            .filter(|node| node.scope == 0 || recording.open.contains(&node.scope))
            .cloned()
            .collect()
    }

    /// The nodes of one scope, in the order of their making.
    pub(crate) fn nodes_of(&self, scope: Scope) -> Vec<Recorded> {
        self.recording
            .borrow()
            .nodes
            .iter()
            .filter(|node| node.scope == scope)
            .cloned()
            .collect()
    }

    /// The scope that is open.
    pub(crate) fn scope(&self) -> Scope {
        self.recording.borrow().scope()
    }

    /// Gives an operation that is recorded already another body, which gives these results beside
    /// those it has.
    pub(crate) fn extend(
        &self,
        node: &Recorded,
        op: Op,
        body: Region,
        more: Vec<TensorType>,
    ) -> Vec<Tensor<'_>> {
        let mut recording = self.recording.borrow_mut();
        let more: Vec<Id> = more
            .into_iter()
            .map(|ty| recording.record(node.scope, ty, false, None))
            .collect();
        let recorded = recording
            .nodes
            .iter_mut()
            .rev()
            .find(|recorded| recorded.results.first() == node.results.first());
        let recorded = recorded.expect("a node that is pulled through is recorded");
        assert_eq!(
            recorded.results, node.results,
            "an operation is pulled through as it is recorded"
        );
        recorded.op = op;
        recorded.regions = vec![body];
        recorded.results.extend(&more);
        drop(recording);
        more.into_iter().map(|id| self.tensor(id)).collect()
    }

    /// How many tensors there are: they are numbered below this.
    pub(crate) fn tensor_count(&self) -> usize {
        self.recording.borrow().tensors.len()
    }

    pub(crate) fn type_of(&self, id: Id) -> TensorType {
        self.recording.borrow().tensors[id as usize].ty.clone()
    }

    pub(crate) fn is_error(&self, id: Id) -> bool {
        self.recording.borrow().tensors[id as usize].error
    }

    pub(crate) fn name_of(&self, id: Id) -> Option<Arc<str>> {
        self.recording.borrow().tensors[id as usize].name.clone()
    }

    /// An error tensor that stands for something wrong elsewhere.
    pub(crate) fn error_like(&self, ty: Option<TensorType>) -> Tensor<'_> {
        let ty = ty.unwrap_or_else(|| TensorType::scalar(halite_core::DType::F32));
        self.tensor(self.record(ty, true, None))
    }

    /// As [`called_from`](Self::called_from), also within an outer call.
    pub(crate) fn located_at(&self, location: &'static Location<'static>) -> CallSite<'_> {
        CallSite {
            trace: self,
            outer: self.site.replace(Some(location)),
        }
    }

    pub(crate) fn origin(&self, caller: &'static Location<'static>) -> &'static Location<'static> {
        self.site.get().unwrap_or(caller)
    }

    pub(crate) fn fail_at(
        &self,
        location: &'static Location<'static>,
        op: impl Into<String>,
        message: impl Into<String>,
        like: Option<TensorType>,
    ) -> Tensor<'_> {
        let mistake = Mistake {
            location,
            op: op.into(),
            message: message.into(),
        };
        self.recording.borrow_mut().mistakes.push(mistake);
        self.error_like(like)
    }

    /// Records a warning, unless the same one is recorded already.
    pub(crate) fn warn_at(&self, location: &'static Location<'static>, op: &str, message: String) {
        let warning = Mistake {
            location,
            op: op.to_string(),
            message,
        };
        let warnings = &mut self.recording.borrow_mut().warnings;
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// The line that computed a tensor; `None` for inputs.
    pub(crate) fn made_at(&self, id: Id) -> Option<&'static Location<'static>> {
        let recording = self.recording.borrow();
        let made = recording
            .nodes
            .iter()
            .rev()
            .find(|node| node.results.contains(&id));
        made.map(|node| node.origin)
    }

    /// The name of the input whose elements, all or some, are the elements of a tensor.
    pub(crate) fn input_of(&self, id: Id) -> Option<Arc<str>> {
        let recording = self.recording.borrow();
        let mut id = id;
        loop {
            if let Some(name) = &recording.tensors[id as usize].name {
                return Some(name.clone());
            }
            let maker = recording
                .nodes
                .iter()
                .rev()
                .find(|node| node.results.contains(&id))?;
            let moves = matches!(
                maker.op,
                Op::Convert(_)
                    | Op::Reshape { .. }
                    | Op::Broadcast { .. }
                    | Op::Transpose { .. }
                    | Op::Slice { .. }
                    | Op::StopGradient
            );
            id = *maker.operands.first().filter(|_| moves)?;
        }
    }

    /// Which of `leaves` the tensor `of` is computed from through floats alone. Unlike in the
    /// backward pass, an operation whose derivative is zero everywhere, such as `floor`, counts as
    /// a path.
    pub(crate) fn depends_on(&self, of: Id, leaves: &[Tensor<'_>]) -> Vec<bool> {
        let recording = self.recording.borrow();
        let is_float = |id: Id| recording.tensors[id as usize].ty.dtype().is_float();
        let mut reached = HashSet::from([of]);
        for node in recording.nodes.iter().rev() {
            if let Op::StopGradient = node.op {
                continue;
            }
            let through: Vec<usize> = (0..node.results.len())
                .filter(|&index| reached.contains(&node.results[index]))
                .collect();
            if let Op::OptimizationBarrier = node.op {
                reached.extend(through.into_iter().map(|index| node.operands[index]));
            } else if through
                .into_iter()
                .any(|index| is_float(node.results[index]))
            {
                reached.extend(node.operands.iter().copied().filter(|&id| is_float(id)));
            }
        }
        leaves
            .iter()
            .map(|leaf| reached.contains(&leaf.id))
            .collect()
    }

    /// The tensors that stand for "no gradient", with the lines that took the gradients: those that
    /// [`grad`](crate::grad()) gave, and what was made of nothing but them by scaling, converting,
    /// rearranging or adding up.
    pub(crate) fn without_gradient(&self) -> HashMap<Id, &'static Location<'static>> {
        let mut none = self.context.no_gradient.borrow().clone();
        if none.is_empty() {
            return none;
        }
        for node in &self.recording.borrow().nodes {
            if let Op::OptimizationBarrier = node.op {
                for (&operand, &result) in node.operands.iter().zip(&node.results) {
                    none.get(&operand)
                        .copied()
                        .map(|line| none.insert(result, line));
                }
                continue;
            }
            let operand = |index: usize| {
                node.operands
                    .get(index)
                    .and_then(|id| none.get(id))
                    .copied()
            };
            let line = match &node.op {
                Op::Unary(Unary::Negate)
                | Op::Convert(_)
                | Op::ReducePrecision { .. }
                | Op::Broadcast { .. }
                | Op::Reshape { .. }
                | Op::Transpose { .. }
                | Op::ShardingConstraint(_)
                | Op::AllReduce { .. }
                | Op::Binary(Binary::Divide) => operand(0),
                Op::Binary(Binary::Multiply) => operand(0).or(operand(1)),
                Op::Binary(Binary::Add | Binary::Subtract) => operand(0).and(operand(1)),
                Op::Clamp => operand(1),
                Op::Select => operand(1).and(operand(2)),
                _ => None,
            };
            if let (Some(line), &[result]) = (line, &node.results[..]) {
                none.insert(result, line);
            }
        }
        none
    }

    fn record(&self, ty: TensorType, error: bool, name: Option<Arc<str>>) -> Id {
        let mut recording = self.recording.borrow_mut();
        let scope = recording.scope();
        recording.record(scope, ty, error, name)
    }

    pub(crate) fn can_use(&self, tensor: Tensor<'_>) -> bool {
        std::ptr::eq(self, tensor.trace)
            && self.is_open(self.recording.borrow().tensors[tensor.id as usize].scope)
    }

    fn is_open(&self, scope: Scope) -> bool {
        scope == 0 || self.recording.borrow().open.contains(&scope)
    }

    /// ` (operand 1 is `hidden.weight`)`, for operands that have names.
    pub(crate) fn names(&self, operands: &[Tensor<'_>]) -> String {
        let named: Vec<String> = (operands.iter().enumerate())
            .filter_map(|(index, operand)| {
                Some(format!(
                    "operand {index} is `{}`",
                    self.name_of(operand.id)?
                ))
            })
            .collect();
        if named.is_empty() {
            String::new()
        } else {
            format!(" ({})", named.join(", "))
        }
    }

    fn build(&self, scope: Scope, inputs: &[Id], outputs: &[Id]) -> Graph {
        let recording = self.recording.borrow();
        let value = |values: &HashMap<Id, halite_ir::Value>, id: Id| {
            *values
                .get(&id)
                .expect("a program uses its inputs and its own results")
        };
        let mut graph = Graph::new();
        let mut values = HashMap::new();
        for &id in inputs {
            values.insert(id, graph.input(recording.tensors[id as usize].ty.clone()));
        }
        for Hyperparameter {
            literal,
            id,
            origin,
            ..
        } in recording.hyperparameters.iter().filter(|_| scope == 0)
        {
            let constant = graph
                .push(Op::Constant(literal.clone()), &[], Some(origin))
                .expect("a constant has no operands");
            values.insert(*id, constant[0]);
        }
        for node in recording.nodes.iter().filter(|node| node.scope == scope) {
            let operands: Vec<_> = node.operands.iter().map(|&id| value(&values, id)).collect();
            let results = graph
                .push(node.op.clone(), &operands, Some(node.origin))
                .expect("checked when it was recorded");
            values.extend(node.results.iter().copied().zip(results.iter().copied()));
        }
        graph.set_outputs(outputs.iter().map(|&id| value(&values, id)).collect());
        graph
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recording = self.recording.borrow();
        write!(
            f,
            "Trace({} nodes, {} mistakes)",
            recording.nodes.len(),
            recording.mistakes.len()
        )
    }
}

impl Recording {
    /// Another tensor, of this scope.
    pub(crate) fn record(
        &mut self,
        scope: Scope,
        ty: TensorType,
        error: bool,
        name: Option<Arc<str>>,
    ) -> Id {
        let id = Id::try_from(self.tensors.len()).expect("fewer than 2^32 tensors in a trace");
        self.tensors.push(Record {
            ty,
            scope,
            error,
            name,
        });
        id
    }

    fn scope(&self) -> Scope {
        self.open.last().copied().unwrap_or(0)
    }

    /// A tensor, in a message.
    fn describe(&self, id: Id) -> String {
        let Record {
            ty, scope, name, ..
        } = &self.tensors[id as usize];
        match (name, scope) {
            (Some(name), _) => format!("`{name}` ({ty})"),
            (None, 0) => format!("a tensor {ty}"),
            (None, _) => format!("a tensor {ty} from the body of a loop or branch"),
        }
    }
}

/// A closed body of a loop or branch.
#[derive(Clone)]
pub(crate) struct Region {
    pub(crate) scope: Scope,
    /// What the body takes; values from outside that it uses are to be added.
    pub(crate) inputs: Vec<Id>,
    /// What it gives; to be set.
    pub(crate) outputs: Vec<Id>,
}

/// Until dropped, what is recorded comes from one line of the user: see [`Trace::called_from`].
#[derive(Debug)]
pub struct CallSite<'t> {
    trace: &'t Trace,
    outer: Option<&'static Location<'static>>,
}

impl Drop for CallSite<'_> {
    fn drop(&mut self) {
        self.trace.site.set(self.outer);
    }
}

/// What is wrong with a tensor that cannot be used here.
pub(crate) const STRAY: &str = "belongs to another trace, or to the body of a loop or branch that is closed; return it from the body instead";

/// All mistakes of a trace as one error.
pub(crate) fn mistakes_error(mistakes: &[Mistake]) -> Error {
    let lines: Vec<String> = mistakes
        .iter()
        .map(|mistake| format!("\n  {mistake}"))
        .collect();
    let count = if mistakes.len() == 1 {
        "1 mistake".to_string()
    } else {
        format!("{} mistakes", mistakes.len())
    };
    Error::invalid(
        "trace",
        format!("{count} in the traced code:{}", lines.concat()),
    )
}
