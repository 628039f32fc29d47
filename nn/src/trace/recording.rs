//! The data of a trace: tensors, operations in the order of recording, and regions.
//!
//! Operations are only appended. A gradient that needs residuals of a recorded operation puts one
//! with more results in its place, *widened*.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    panic::Location,
    sync::Arc,
};

use halite_core::{Error, TensorType};
use halite_ir::{Graph, Literal, Op, Value, infer};

use super::{Mistake, Trace};
use crate::Tensor;

/// Number of a tensor in its trace.
pub(crate) type Id = u32;

/// Number of a part of the program: 0 is the program itself, the others are regions.
pub(crate) type Scope = u32;

/// State of a [`Trace`].
#[derive(Default)]
pub(crate) struct Recording {
    tensors: Vec<Record>,
    /// The operations of all open scopes.
    pub(super) nodes: Vec<Arc<Recorded>>,
    /// The open regions, innermost last. The program itself is always open and is not in the list.
    open: Vec<Scope>,
    scopes: Scope,
    pub(crate) mistakes: Vec<Mistake>,
    pub(super) warnings: Vec<Mistake>,
    pub(super) constants: HashMap<(Scope, Literal), Id>,
    /// Hyperparameters that are not yet inputs; a graph contains them as constants.
    pub(crate) hyperparameters: Vec<Hyperparameter>,
}

/// A tensor.
pub(crate) struct Record {
    pub(crate) ty: TensorType,
    scope: Scope,
    /// Result of a mistake.
    pub(crate) error: bool,
    /// Path of a parameter or input, for messages.
    pub(crate) name: Option<Arc<str>>,
    /// The operation that computed it, while its scope is open.
    pub(super) maker: Option<Arc<Recorded>>,
}

/// A number that is an argument of the program, not a part of it.
pub(crate) struct Hyperparameter {
    pub(crate) name: Arc<str>,
    /// The value before rounding to the type of `literal`.
    pub(crate) value: f64,
    pub(crate) literal: Literal,
    pub(crate) id: Id,
    pub(crate) origin: &'static Location<'static>,
}

/// A recorded operation.
pub(crate) struct Recorded {
    pub(crate) op: Op,
    pub(crate) operands: Vec<Id>,
    pub(crate) results: Vec<Id>,
    pub(crate) scope: Scope,
    pub(crate) origin: &'static Location<'static>,
}

impl Recorded {
    pub(crate) fn new(
        op: Op,
        operands: Vec<Id>,
        results: Vec<Id>,
        scope: Scope,
        origin: &'static Location<'static>,
    ) -> Self {
        Recorded {
            op,
            operands,
            results,
            scope,
            origin,
        }
    }
}

/// A closed body of a loop, branch or other operation with regions.
pub(crate) struct Region {
    scope: Scope,
    nodes: Vec<Arc<Recorded>>,
    pub(crate) inputs: Vec<Id>,
    /// The outputs; empty until [`giving`](Self::giving).
    pub(crate) outputs: Vec<Id>,
}

impl Region {
    /// Sets the outputs.
    pub(crate) fn giving(mut self, outputs: &[Tensor<'_>]) -> Self {
        self.outputs = outputs.iter().map(|output| output.id).collect();
        self
    }

    pub(crate) fn nodes(&self) -> &[Arc<Recorded>] {
        &self.nodes
    }

    /// The graph of this region, whose captured values are among its inputs.
    pub(crate) fn graph(&self, cx: &Trace) -> Graph {
        let recording = cx.recording.borrow();
        recording.subgraph(&self.nodes, &self.inputs, &self.outputs)
    }
}

/// Values of outer scopes that the regions use, each once, in the order of first use.
pub(crate) fn captured(cx: &Trace, regions: &[&Region]) -> Vec<Id> {
    let recording = cx.recording.borrow();
    let mut captured = Vec::new();
    let mut seen = HashSet::new();
    for region in regions {
        let operands = region.nodes.iter().flat_map(|node| &node.operands);
        for &id in operands.chain(&region.outputs) {
            if recording.tensor(id).scope != region.scope && seen.insert(id) {
                captured.push(id);
            }
        }
    }
    captured
}

/// Adds the values that the regions use from outside to the inputs of each, and returns them.
pub(crate) fn capture(cx: &Trace, regions: &mut [Region]) -> Vec<Id> {
    let captured = captured(cx, &regions.iter().collect::<Vec<_>>());
    for region in regions {
        region.inputs.extend(&captured);
    }
    captured
}

impl Trace {
    /// Runs `body` on new values of these types in a new scope, and returns the closed region.
    pub(crate) fn region<'t, R>(
        &'t self,
        types: &[TensorType],
        body: impl FnOnce(&[Tensor<'t>]) -> R,
    ) -> (Region, R) {
        let (scope, start) = self.recording.borrow_mut().open();
        let inputs: Vec<Tensor<'t>> = types
            .iter()
            .map(|ty| self.tensor(self.recording.borrow_mut().record(ty.clone(), false, None)))
            .collect();
        let result = body(&inputs);
        let region = Region {
            scope,
            nodes: self.recording.borrow_mut().close(scope, start),
            inputs: inputs.iter().map(|tensor| tensor.id).collect(),
            outputs: vec![],
        };
        (region, result)
    }
}

impl Recording {
    /// Adds an operation to the open scope and returns its results.
    pub(super) fn push(
        &mut self,
        op: Op,
        operands: Vec<Id>,
        results: Vec<TensorType>,
        origin: &'static Location<'static>,
    ) -> Vec<Id> {
        let scope = self.scope();
        let results: Vec<Id> = results
            .into_iter()
            .map(|ty| self.record_in(scope, ty, false, None))
            .collect();
        let node = self.made(Recorded::new(op, operands, results.clone(), scope, origin));
        self.nodes.push(node);
        results
    }

    /// The graph that computes `outputs` from `inputs` by `nodes`.
    pub(crate) fn subgraph(&self, nodes: &[Arc<Recorded>], inputs: &[Id], outputs: &[Id]) -> Graph {
        let mut builder = Builder::new(self, inputs);
        nodes.iter().for_each(|node| builder.push(node));
        builder.finish(outputs)
    }

    /// Puts `op`, which has the results of `node` and more, in the place of `node`. Returns the new
    /// results.
    ///
    /// # Errors
    /// If one of them is larger than any address space.
    pub(crate) fn widen(&mut self, node: &Recorded, op: Op) -> Result<Vec<Id>, Error> {
        let operands = node.operands.iter().map(|&id| &self.tensor(id).ty);
        let types = infer(&op, &operands.collect::<Vec<_>>())?;
        let new: Vec<Id> = types[node.results.len()..]
            .iter()
            .map(|ty| self.record_in(node.scope, ty.clone(), false, None))
            .collect();
        let place = self
            .nodes
            .iter()
            .rposition(|original| original.results.first() == node.results.first())
            .expect("a visible operation is recorded");
        let results = [&node.results[..], &new].concat();
        let widened = Recorded::new(op, node.operands.clone(), results, node.scope, node.origin);
        self.nodes[place] = self.made(widened);
        Ok(new)
    }

    /// Makes an operation the maker of its results.
    fn made(&mut self, node: Recorded) -> Arc<Recorded> {
        let node = Arc::new(node);
        for &id in &node.results {
            self.tensors[id as usize].maker = Some(node.clone());
        }
        node
    }

    /// Puts operations of the program in front of all others.
    pub(crate) fn prepend(&mut self, nodes: Vec<Recorded>) {
        self.nodes.splice(0..0, nodes.into_iter().map(Arc::new));
    }

    /// Adds a tensor to the open scope.
    pub(crate) fn record(&mut self, ty: TensorType, error: bool, name: Option<Arc<str>>) -> Id {
        self.record_in(self.scope(), ty, error, name)
    }

    /// Adds a tensor to `scope`.
    pub(crate) fn record_in(
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
            maker: None,
        });
        id
    }

    /// Opens a scope; returns it with the number of operations before it.
    fn open(&mut self) -> (Scope, usize) {
        self.scopes += 1;
        self.open.push(self.scopes);
        (self.scopes, self.nodes.len())
    }

    /// Closes the innermost scope and takes out its operations, which are all at or after `start`.
    fn close(&mut self, scope: Scope, start: usize) -> Vec<Arc<Recorded>> {
        let closed = self.open.pop();
        assert_eq!(closed, Some(scope), "the innermost scope is closed first");
        let (inside, outside): (Vec<_>, Vec<_>) = self
            .nodes
            .split_off(start)
            .into_iter()
            .partition(|node| node.scope == scope);
        self.nodes.extend(outside);
        for &id in inside.iter().flat_map(|node| &node.results) {
            self.tensors[id as usize].maker = None;
        }
        inside
    }

    pub(super) fn tensor_count(&self) -> usize {
        self.tensors.len()
    }

    pub(crate) fn tensor(&self, id: Id) -> &Record {
        &self.tensors[id as usize]
    }

    pub(crate) fn scope(&self) -> Scope {
        self.open.last().copied().unwrap_or(0)
    }

    /// Whether the scope of a tensor is open.
    pub(super) fn is_visible(&self, id: Id) -> bool {
        let scope = self.tensor(id).scope;
        scope == 0 || self.open.contains(&scope)
    }

    /// The operations of all open scopes, in program order.
    pub(super) fn nodes(&self) -> impl DoubleEndedIterator<Item = &Recorded> {
        self.nodes.iter().map(|node| &**node)
    }

    /// The operations of one open scope, in program order.
    pub(super) fn nodes_in(&self, scope: Scope) -> impl Iterator<Item = &Recorded> {
        self.nodes().filter(move |node| node.scope == scope)
    }

    /// The graph of the program itself, with hyperparameters as constants.
    pub(super) fn program(&self, inputs: &[Id], outputs: &[Id]) -> Graph {
        let mut builder = Builder::new(self, inputs);
        for one in &self.hyperparameters {
            builder.constant(one);
        }
        self.nodes_in(0).for_each(|node| builder.push(node));
        builder.finish(outputs)
    }

    /// Description of a tensor for messages.
    pub(super) fn describe(&self, id: Id) -> String {
        let Record {
            ty, scope, name, ..
        } = self.tensor(id);
        match (name, scope) {
            (Some(name), _) => format!("`{name}` ({ty})"),
            (None, 0) => format!("a tensor {ty}"),
            (None, _) => format!("a tensor {ty} from the body of a loop or branch"),
        }
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, mistakes) = (self.nodes.len(), self.mistakes.len());
        write!(f, "Trace({nodes} nodes, {mistakes} mistakes)")
    }
}

/// Builder of a graph from recorded operations.
struct Builder<'a> {
    recording: &'a Recording,
    graph: Graph,
    /// By tensor.
    values: Vec<Option<Value>>,
}

impl<'a> Builder<'a> {
    fn new(recording: &'a Recording, inputs: &[Id]) -> Self {
        let mut graph = Graph::new();
        let mut values = vec![None; recording.tensor_count()];
        for &id in inputs {
            values[id as usize] = Some(graph.input(recording.tensor(id).ty.clone()));
        }
        Builder {
            recording,
            graph,
            values,
        }
    }

    fn constant(&mut self, one: &Hyperparameter) {
        let op = Op::Constant(one.literal.clone());
        let types = vec![one.literal.ty().clone()];
        let value = self.graph.push_typed(op, vec![], types, Some(one.origin))[0];
        self.values[one.id as usize] = Some(value);
    }

    fn push(&mut self, node: &Recorded) {
        let operands = node.operands.iter().map(|&id| self.value(id)).collect();
        let types = node
            .results
            .iter()
            .map(|&id| self.recording.tensor(id).ty.clone());
        let origin = Some(node.origin);
        let results = (self.graph).push_typed(node.op.clone(), operands, types.collect(), origin);
        for (&id, &value) in node.results.iter().zip(results) {
            self.values[id as usize] = Some(value);
        }
    }

    fn value(&self, id: Id) -> Value {
        self.values[id as usize]
            .unwrap_or_else(|| panic!("{} is computed", self.recording.describe(id)))
    }

    fn finish(mut self, outputs: &[Id]) -> Graph {
        let outputs = outputs.iter().map(|&id| self.value(id)).collect();
        self.graph.set_outputs(outputs);
        self.graph
    }
}
