//! The nodes of functions and regions, calls inlined.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use halite_core::{Error, ErrorKind, Interpreted, Result};
use halite_stablehlo::{
    Attributes, Dense, ElementType, Function, Module, OpKind, Operation, RankedType, Region,
    ValueId, ValueIds,
};

use super::{
    super::{
        elementwise::{Elementwise, format},
        place::{Base, Place},
    },
    BaseInfo, Form, Graph, Kind, Links, Node, OracleCall, Running,
    capture::{captures, captures_of},
};
use crate::oracle::Tensor;

/// Depth of calls and loops beyond which a program is left to the oracle.
const DEEPEST_CALL: usize = 64;

/// Number of operations, calls inlined, beyond which a program is left to the oracle: each call may
/// double it.
const MOST_OPERATIONS: usize = 1 << 18;

/// Most bytes of constants that a plan computes: those that the program spells out are not counted.
/// What exceeds it is computed in each launch that uses it.
const MOST_CONSTANT_BYTES: usize = 1 << 28;

impl Graph {
    /// The graph of a module. `None` if it has values that are not tensors.
    pub(in super::super) fn new(module: &Module, form: Form) -> Result<Option<Self>> {
        let running = Running {
            form,
            counts: [module.replicas(), module.partitions()],
            partitions: Arc::new([0]),
            is_manual: false,
        };
        let mut builder = Builder::new(module, running);
        let index = (module.functions.iter()).position(|function| function.name == "main");
        let Some(index) = index else {
            return Ok(None);
        };
        let main = &module.functions[index];
        let has_tensors =
            |function: &Function| function.types.iter().all(|ty| ty.as_tensor().is_some());
        if !module.functions.iter().all(has_tensors) {
            return Ok(None);
        }
        let inputs = main
            .body
            .arguments
            .iter()
            .map(|&id| builder.input(tensor(main, id)));
        let inputs: Vec<_> = inputs.collect();
        builder.graph.inputs = inputs.iter().map(|place| place.base).collect();
        let Some(outputs) = builder.call(index, inputs, 0)? else {
            return Ok(None);
        };
        builder.graph.outputs = outputs
            .into_iter()
            .map(|place| builder.dense(place))
            .collect();
        builder.graph.links = builder.budget.links;
        builder.graph.drop_unused();
        Ok(Some(builder.graph))
    }
}

/// Why [`Graph::new`] makes no graph of a module.
pub(crate) fn why_interpreted(module: &Module) -> &'static str {
    let has_tensors =
        |function: &Function| function.types.iter().all(|ty| ty.as_tensor().is_some());
    if module.functions.iter().all(has_tensors) {
        "a program of more than 262,144 operations, or with calls more than 64 deep"
    } else {
        "a program with tokens or tuples"
    }
}

/// What reports say of an operation that the oracle computes.
pub(super) fn slow(function: &Function, operation: &Operation) -> Interpreted {
    let first = operation.operands.iter().chain(&operation.results).next();
    let ty = first.and_then(|&id| function.ty(id).as_tensor());
    let name = match &operation.kind {
        OpKind::CustomCall(call) => call.target.as_str(),
        kind => kind.to_attributes().0,
    };
    Interpreted {
        operation: name.into(),
        of: ty.map_or("no type", |ty| ty.element.name()).into(),
        count: 1,
        nanoseconds: Arc::default(),
    }
}

pub(super) fn tensor(function: &Function, id: ValueId) -> &RankedType {
    function
        .ty(id)
        .as_tensor()
        .expect("programs of other types are left to the oracle")
}

/// What a region uses of the values around it.
#[derive(Default)]
pub(super) struct Captures {
    /// Its inputs behind the arguments.
    pub(super) inputs: Vec<ValueId>,
    /// The value of the buffer of each, which is one in the region, too.
    pub(super) constants: Vec<(ValueId, Place, Tensor)>,
}

/// The graph of a region, as a function of its arguments and of captures. `None` if it cannot be
/// one.
pub(super) fn region_graph(
    module: &Module,
    running: Running,
    function: usize,
    region: &Region,
    captures: &Captures,
    depth: usize,
    budget: &mut Budget,
) -> Result<Option<Graph>> {
    let mut builder = Builder::new(module, running);
    builder.budget = std::mem::take(budget);
    let of = &module.functions[function];
    let ids = || region.arguments.iter().chain(&captures.inputs);
    let inputs: Vec<_> = ids().map(|&id| builder.input(tensor(of, id))).collect();
    builder.graph.inputs = inputs.iter().map(|place| place.base).collect();
    let mut values: Values = ids().copied().zip(inputs).collect();
    for (id, place, tensor) in &captures.constants {
        let base = builder.base(&tensor.ty, Some(tensor.clone()));
        let place = Place {
            base,
            ..place.clone()
        };
        values.insert(*id, place);
    }
    let outputs = builder.region(function, region, values, depth)?;
    *budget = std::mem::take(&mut builder.budget);
    let Some(outputs) = outputs else {
        return Ok(None);
    };
    builder.graph.outputs = outputs
        .into_iter()
        .map(|place| builder.dense(place))
        .collect();
    builder.graph.drop_unused();
    Ok(Some(builder.graph))
}

/// Values of a function by their ids.
pub(super) type Values = HashMap<ValueId, Place>;

/// What a plan has used of its limits, and what was found in it, with all regions.
#[derive(Default)]
pub(super) struct Budget {
    /// Number of operations, against [`MOST_OPERATIONS`].
    operations: usize,
    /// Bytes of computed constants, against [`MOST_CONSTANT_BYTES`].
    constant_bytes: usize,
    pub(super) links: Links,
}

/// A graph that grows by the nodes of operations.
pub(super) struct Builder<'m> {
    pub(super) module: &'m Module,
    pub(super) running: Running,
    pub(super) graph: Graph,
    /// Copies of views.
    dense: HashMap<Place, Base>,
    /// All elements of buffers, as other types.
    pub(super) converted: HashMap<(Base, ElementType), Base>,
    pub(super) budget: Budget,
}

impl<'m> Builder<'m> {
    fn new(module: &'m Module, running: Running) -> Self {
        Builder {
            module,
            running,
            graph: Graph::default(),
            dense: HashMap::new(),
            converted: HashMap::new(),
            budget: Budget::default(),
        }
    }

    /// Accounts for a constant of this type. Returns false if the plan has no room for it.
    pub(super) fn has_room(&mut self, ty: &RankedType) -> bool {
        let sizes = ty.dims.iter().copied().chain([ty.element.size()]);
        let bytes = sizes.fold(1, usize::saturating_mul);
        let all = self.budget.constant_bytes.saturating_add(bytes);
        if all > MOST_CONSTANT_BYTES {
            return false;
        }
        self.budget.constant_bytes = all;
        true
    }

    pub(super) fn base(&mut self, ty: &RankedType, constant: Option<Tensor>) -> Base {
        self.graph.bases.push(BaseInfo {
            ty: ty.clone(),
            constant,
            node: None,
        });
        self.graph.bases.len() - 1
    }

    fn input(&mut self, ty: &RankedType) -> Place {
        Place::whole(self.base(ty, None), ty)
    }

    /// Adds a node with one result.
    pub(super) fn node(&mut self, kind: Kind, operands: Vec<Place>, ty: &RankedType) -> Place {
        let base = self.base(ty, None);
        self.nodes_of(kind, operands, vec![base]);
        Place::whole(base, ty)
    }

    pub(super) fn nodes_of(&mut self, kind: Kind, operands: Vec<Place>, results: Vec<Base>) {
        let number = self.graph.nodes.len();
        results
            .iter()
            .for_each(|&base| self.graph.bases[base].node = Some(number));
        self.graph.nodes.push(Node {
            kind,
            operands,
            results,
        });
    }

    /// A buffer whose elements are those of the place, in its order.
    fn dense(&mut self, place: Place) -> Base {
        let info = &self.graph.bases[place.base];
        let is_whole = place.view.is_contiguous()
            && place.elements() == info.ty.elements()
            && place.element == info.ty.element;
        if is_whole && place.ty() == info.ty {
            return place.base;
        }
        if let Some(&copy) = self.dense.get(&place) {
            return copy;
        }
        let ty = place.ty();
        let copy = self.node(
            Kind::Elementwise(Elementwise::Copy),
            vec![place.clone()],
            &ty,
        );
        self.dense.insert(place, copy.base);
        copy.base
    }

    /// The same elements as all of a buffer, which may have other dimensions.
    pub(super) fn in_order(&mut self, place: &Place) -> Place {
        let ty = &self.graph.bases[place.base].ty;
        let is_whole = place.view.is_contiguous()
            && place.elements() == ty.elements()
            && place.element == ty.element;
        if is_whole {
            return Place::whole(place.base, ty);
        }
        self.whole(place)
    }

    /// The same value as all of a buffer.
    pub(super) fn whole(&mut self, place: &Place) -> Place {
        let ty = place.ty();
        Place::whole(self.dense(place.clone()), &ty)
    }

    /// Inlines a function. `None` if it cannot be.
    fn call(
        &mut self,
        function: usize,
        arguments: Vec<Place>,
        depth: usize,
    ) -> Result<Option<Vec<Place>>> {
        let module = self.module;
        let body = &module.functions[function].body;
        let values = body.arguments.iter().copied().zip(arguments).collect();
        self.region(function, body, values, depth)
    }

    /// Adds the nodes of a region. `None` if it cannot be inlined.
    fn region(
        &mut self,
        function: usize,
        body: &Region,
        mut values: Values,
        depth: usize,
    ) -> Result<Option<Vec<Place>>> {
        if depth > DEEPEST_CALL {
            return Ok(None);
        }
        for operation in &body.operations {
            self.budget.operations += 1;
            if self.budget.operations > MOST_OPERATIONS {
                return Ok(None);
            }
            let Some(results) = self.operation(function, operation, &values, depth)? else {
                return Ok(None);
            };
            values.extend(operation.results.iter().copied().zip(results));
        }
        let results = body.results.iter().map(|id| self.value(&values, *id));
        results.collect::<Result<Vec<_>>>().map(Some)
    }

    /// The operands of an operation and what its regions capture, each all of a buffer.
    pub(super) fn with_captures(
        &mut self,
        operands: &[Place],
        captures: &[ValueId],
        values: &Values,
    ) -> Result<Vec<Place>> {
        let captured = captures.iter().map(|&id| self.value(values, id));
        let captured: Vec<_> = captured.collect::<Result<_>>()?;
        let all = operands.iter().chain(&captured);
        Ok(all.map(|place| self.whole(place)).collect())
    }

    pub(super) fn value(&self, values: &Values, id: ValueId) -> Result<Place> {
        values.get(&id).cloned().ok_or_else(|| {
            let message = format!("value {} is used before it is computed", id.0);
            Error::new(ErrorKind::Internal, "compile", message)
        })
    }

    fn operation(
        &mut self,
        function: usize,
        operation: &Operation,
        values: &Values,
        depth: usize,
    ) -> Result<Option<Vec<Place>>> {
        let operands = operation.operands.iter().map(|&id| self.value(values, id));
        let operands: Vec<Place> = operands.collect::<Result<_>>()?;
        match &operation.kind {
            // Shardings say where elements are, not what they are.
            OpKind::OptimizationBarrier
            | OpKind::ShardingConstraint(_)
            | OpKind::PropagationBarrier(_) => return Ok(Some(operands)),
            OpKind::Call { function: name }
            | OpKind::Composite {
                decomposition: name,
                ..
            } => {
                let callee = self.module.functions.iter().position(|it| it.name == *name);
                return match callee {
                    Some(callee) => self.call(callee, operands, depth + 1),
                    None => Ok(None),
                };
            }
            OpKind::Constant(dense) => {
                if let Some(place) = self.constant(dense)? {
                    return Ok(Some(vec![place]));
                }
            }
            OpKind::If | OpKind::Case | OpKind::While => {
                if let Some(results) =
                    self.control(function, operation, &operands, values, depth)?
                {
                    return Ok(Some(results));
                }
            }
            OpKind::ManualComputation(attributes) => {
                let results = self.manual(function, operation, attributes, &operands, depth)?;
                if let Some(results) = results {
                    return Ok(Some(results));
                }
            }
            _ => {
                if let Some(results) = self.of_process(function, operation, &operands) {
                    return Ok(Some(results));
                }
            }
        }
        if let &[result] = &operation.results[..] {
            let of = &self.module.functions[function];
            if let Some(place) = self.known(of, operation, &operands, tensor(of, result))? {
                return Ok(Some(vec![place]));
            }
        }
        let of = &self.module.functions[function];
        let operation = &*self.closed(operation, values);
        if let Some(results) = self.unfused(of, operation, &operands)? {
            return Ok(Some(results));
        }
        self.oracle(function, operation, operands, values).map(Some)
    }

    /// The operation with the constants that its regions capture inside of them: compilers move
    /// them out, and a region that captures is no function of scalars.
    fn closed<'o>(&self, operation: &'o Operation, values: &Values) -> Cow<'o, Operation> {
        let mut closed = Cow::Borrowed(operation);
        for (number, region) in operation.regions.iter().enumerate() {
            let captured = captures_of(region);
            let constants = captured.into_iter().filter_map(|id| {
                let kind = OpKind::Constant(self.scalar_constant(values.get(&id)?)?);
                Some(Operation {
                    kind,
                    operands: ValueIds::new(),
                    results: ValueIds::from_slice(&[id]),
                    regions: Vec::new(),
                    attributes: Attributes::default(),
                    position: operation.position,
                    location: operation.location.clone(),
                })
            });
            let constants: Vec<Operation> = constants.collect();
            if !constants.is_empty() {
                let operations = &mut closed.to_mut().regions[number].operations;
                operations.splice(..0, constants);
            }
        }
        closed
    }

    /// The value of a scalar, if it is known.
    fn scalar_constant(&self, place: &Place) -> Option<Dense> {
        let constant = self.graph.bases[place.base].constant.as_ref()?;
        let is_scalar = place.view.dims.is_empty()
            && place.element == constant.ty.element
            && constant.ty.elements() == 1;
        is_scalar.then(|| Dense {
            ty: RankedType::new(place.element, []),
            bytes: constant.bytes.to_vec().into(),
        })
    }

    /// A constant. `None` if it would be expanded beyond the limits.
    fn constant(&mut self, dense: &Dense) -> Result<Option<Place>> {
        if dense.is_splat() && format(dense.ty.element).is_some() {
            let ty = RankedType::new(dense.ty.element, []);
            let tensor = Tensor::new(ty.clone(), dense.bytes.to_vec());
            let base = self.base(&ty, Some(tensor));
            return Ok(Some(Place::splat(base, &dense.ty)));
        }
        if dense.is_splat() && !self.has_room(&dense.ty) {
            return Ok(None);
        }
        let tensor = Tensor::constant(dense)?;
        let place = Place::whole(self.base(&dense.ty, Some(tensor)), &dense.ty);
        Ok(Some(place))
    }

    /// Leaves an operation to the oracle.
    fn oracle(
        &mut self,
        function: usize,
        operation: &Operation,
        operands: Vec<Place>,
        values: &Values,
    ) -> Result<Vec<Place>> {
        self.budget.links.needs_threads |= self.exchanges(operation);
        let captures = captures(operation);
        let operands = self.with_captures(&operands, &captures, values)?;
        let of = &self.module.functions[function];
        let types: Vec<_> = operation.results.iter().map(|&id| tensor(of, id)).collect();
        if let Some(tensors) = self.folded(of, operation, &operands)? {
            let constant = |tensor: Tensor| {
                let ty = tensor.ty.clone();
                Place::whole(self.base(&ty, Some(tensor)), &ty)
            };
            return Ok(tensors.into_iter().map(constant).collect());
        }
        let results: Vec<_> = types.iter().map(|ty| self.base(ty, None)).collect();
        let call = OracleCall {
            function,
            operation: operation.clone(),
            captures,
            shards: self.running.shards(),
            slow: slow(of, operation),
        };
        self.nodes_of(Kind::Oracle(Box::new(call)), operands, results.clone());
        Ok(results
            .into_iter()
            .zip(types)
            .map(|(base, ty)| Place::whole(base, ty))
            .collect())
    }
}
