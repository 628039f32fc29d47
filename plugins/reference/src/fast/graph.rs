//! A program as nodes over buffers: calls inlined, moves of elements as views.

use std::collections::{BTreeSet, HashMap};

use halite_core::{Error, ErrorKind, Result};
use halite_kernels::{Accumulate, Reduction};
use halite_stablehlo::{
    BinaryOp, Dense, ElementType, Function, Module, OpKind, Operation, RankedType, Region, ValueId,
    WindowAttributes,
};

use super::{
    contract::{Product, convolution, dot_general, padded_input},
    elementwise::{Elementwise, fits_register, is_word},
    place::{Base, Place},
    plan::Plan,
    rows::{gathers_rows, scatters_rows},
};
use crate::oracle::Tensor;

/// Number of elements of a window up to which it is expanded into slices.
const LARGEST_WINDOW: usize = 64;

/// Depth of calls and loops beyond which a program is left to the oracle.
const DEEPEST_CALL: usize = 64;

/// Number of operations, calls inlined, beyond which a program is left to the oracle: calls of calls
/// may double it at each step.
const MOST_OPERATIONS: usize = 1 << 20;

/// A program.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) bases: Vec<BaseInfo>,
    /// In an order of evaluation.
    pub(super) nodes: Vec<Node>,
    pub(super) inputs: Vec<Base>,
    /// Each is all of a buffer.
    pub(super) outputs: Vec<Base>,
}

/// A buffer.
#[derive(Debug)]
pub(super) struct BaseInfo {
    pub(super) ty: RankedType,
    /// The value, if it is a constant.
    pub(super) constant: Option<Tensor>,
    /// The node that computes it.
    pub(super) node: Option<usize>,
}

impl BaseInfo {
    /// The only element of a constant, as a word of a register.
    pub(super) fn scalar(&self) -> Option<u32> {
        let tensor = self.constant.as_ref().filter(|_| self.ty.elements() == 1)?;
        Some(match (self.ty.element, &tensor.bytes[..]) {
            (ElementType::S8, &[byte]) => byte as i8 as u32,
            (_, &[byte]) => byte.into(),
            (_, &[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
            _ => return None,
        })
    }
}

/// An operation, or some.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) operands: Vec<Place>,
    pub(super) results: Vec<Base>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Elementwise(Elementwise),
    Product(Box<Product>),
    Reduce {
        sizes: Reduction,
        initial: u32,
    },
    /// Copies rows of `bytes[operand]` from each operand in turn.
    Concatenate {
        bytes: Vec<usize>,
    },
    /// `while`: the operands are the state, and then the captures of both plans.
    Loop(Box<Loop>),
    /// Copies a slice of operand 0; its start is the other operands.
    DynamicSlice,
    /// A copy of operand 0 with operand 1 at a start, which is the other operands.
    DynamicUpdate,
    /// Rows of operand 0 at the indices of operand 1.
    GatherRows,
    /// Operand 0, with the rows of operand 2 added at the indices of operand 1.
    ScatterRows,
    Oracle(Box<OracleCall>),
}

/// The regions of a loop, as functions of the state and the captures.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) condition: Plan,
    pub(super) body: Plan,
}

/// An operation that the oracle computes.
#[derive(Debug)]
pub(super) struct OracleCall {
    /// Number of the function that has the operation.
    pub(super) function: usize,
    pub(super) operation: Operation,
    /// Values of enclosing regions that its regions use: the operands after its own.
    pub(super) captures: Vec<ValueId>,
}

impl Graph {
    /// The graph of a module. `None` if it has values that are not tensors.
    pub(super) fn new(module: &Module) -> Result<Option<Self>> {
        let mut builder = Builder::new(module);
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
        builder.graph.drop_unused();
        Ok(Some(builder.graph))
    }

    /// Removes nodes whose results nothing uses.
    fn drop_unused(&mut self) {
        let mut is_used = vec![false; self.bases.len()];
        self.outputs.iter().for_each(|&base| is_used[base] = true);
        let mut keeps = vec![false; self.nodes.len()];
        for (node, keep) in self.nodes.iter().zip(&mut keeps).rev() {
            let has_effects = match &node.kind {
                Kind::Oracle(call) => has_effects(&call.operation),
                // It may never end, or have collectives.
                Kind::Loop(_) => true,
                _ => false,
            };
            *keep = has_effects || node.results.iter().any(|&base| is_used[base]);
            if *keep {
                node.operands
                    .iter()
                    .for_each(|place| is_used[place.base] = true);
            }
        }
        let mut keeps = keeps.into_iter();
        self.nodes
            .retain(|_| keeps.next().expect("a flag for each node"));
        self.bases.iter_mut().for_each(|base| base.node = None);
        for (number, node) in self.nodes.iter().enumerate() {
            node.results
                .iter()
                .for_each(|&base| self.bases[base].node = Some(number));
        }
    }

    /// Returns whether a place is all of a buffer that an elementwise node of as many elements
    /// computes, so that its value can stay in a register.
    pub(super) fn is_register(&self, place: &Place) -> bool {
        let info = &self.bases[place.base];
        let is_elementwise = |node: usize| matches!(self.nodes[node].kind, Kind::Elementwise(_));
        info.node.is_some_and(is_elementwise)
            && place.view.is_contiguous()
            && place.elements() == info.ty.elements()
    }
}

/// Operations that other processes, or the oracle's state, observe.
fn has_effects(operation: &Operation) -> bool {
    let inner = || {
        operation
            .regions
            .iter()
            .flat_map(|region| &region.operations)
    };
    match operation.kind {
        OpKind::CustomCall(_)
        | OpKind::AllReduce(_)
        | OpKind::AllGather { .. }
        | OpKind::AllToAll { .. }
        | OpKind::ReduceScatter { .. }
        | OpKind::CollectivePermute { .. }
        | OpKind::CollectiveBroadcast(_)
        | OpKind::ManualComputation(_)
        | OpKind::While
        | OpKind::Call { .. } => true,
        _ => inner().any(has_effects),
    }
}

fn tensor(function: &Function, id: ValueId) -> &RankedType {
    function
        .ty(id)
        .as_tensor()
        .expect("programs of other types are left to the oracle")
}

/// The graph of a region, as a function of its arguments and of `captures`. `None` if it cannot be
/// one.
fn region_graph(
    module: &Module,
    function: usize,
    region: &Region,
    captures: &[ValueId],
    depth: usize,
) -> Result<Option<Graph>> {
    let mut builder = Builder::new(module);
    let of = &module.functions[function];
    let ids = || region.arguments.iter().chain(captures);
    let inputs: Vec<_> = ids().map(|&id| builder.input(tensor(of, id))).collect();
    builder.graph.inputs = inputs.iter().map(|place| place.base).collect();
    let values = ids().copied().zip(inputs).collect();
    let Some(outputs) = builder.region(function, region, values, depth)? else {
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
type Values = HashMap<ValueId, Place>;

struct Builder<'m> {
    module: &'m Module,
    graph: Graph,
    /// Copies of views.
    dense: HashMap<Place, Base>,
    /// Number of operations so far.
    operations: usize,
}

impl<'m> Builder<'m> {
    fn new(module: &'m Module) -> Self {
        Builder {
            module,
            graph: Graph::default(),
            dense: HashMap::new(),
            operations: 0,
        }
    }

    fn base(&mut self, ty: &RankedType, constant: Option<Tensor>) -> Base {
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
    fn node(&mut self, kind: Kind, operands: Vec<Place>, ty: &RankedType) -> Place {
        let base = self.base(ty, None);
        self.nodes_of(kind, operands, vec![base]);
        Place::whole(base, ty)
    }

    fn nodes_of(&mut self, kind: Kind, operands: Vec<Place>, results: Vec<Base>) {
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

    /// The same value as all of a buffer.
    fn whole(&mut self, place: &Place) -> Place {
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
            self.operations += 1;
            if self.operations > MOST_OPERATIONS {
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

    fn value(&self, values: &Values, id: ValueId) -> Result<Place> {
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
            OpKind::OptimizationBarrier => return Ok(Some(operands)),
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
            OpKind::Constant(dense) => return Ok(Some(vec![self.constant(dense)?])),
            OpKind::While => {
                let results = self.run_loop(function, operation, &operands, values, depth)?;
                if let Some(results) = results {
                    return Ok(Some(results));
                }
            }
            _ => {}
        }
        if let &[result] = &operation.results[..] {
            let of = &self.module.functions[function];
            if let Some(place) = self.known(of, operation, &operands, tensor(of, result))? {
                return Ok(Some(vec![place]));
            }
        }
        self.oracle(function, operation, operands, values).map(Some)
    }

    fn constant(&mut self, dense: &Dense) -> Result<Place> {
        if dense.is_splat() && fits_register(dense.ty.element) {
            let ty = RankedType::new(dense.ty.element, []);
            let tensor = Tensor::new(ty.clone(), dense.bytes.to_vec());
            let base = self.base(&ty, Some(tensor));
            return Ok(Place::splat(base, &dense.ty));
        }
        let tensor = Tensor::constant(dense)?;
        Ok(Place::whole(self.base(&dense.ty, Some(tensor)), &dense.ty))
    }

    /// The result of an operation that has a kernel or is a view. `None` if neither.
    fn known(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
        ty: &RankedType,
    ) -> Result<Option<Place>> {
        let kind = &operation.kind;
        let fits =
            fits_register(ty.element) && operands.iter().all(|place| fits_register(place.element));
        if !fits {
            return Ok(None);
        }
        Ok(match (kind, operands) {
            (OpKind::Iota { dim }, []) => Some(self.iota(*dim, ty)?),
            (OpKind::Pad { .. }, [x, value]) => {
                let fill = self.scalar(value);
                Place::moved(x, kind, ty, fill).or_else(|| {
                    let x = self.whole(x);
                    Place::moved(&x, kind, ty, fill)
                })
            }
            (
                OpKind::BroadcastInDim { .. }
                | OpKind::Reshape
                | OpKind::Transpose { .. }
                | OpKind::Reverse { .. }
                | OpKind::Slice { .. },
                [x],
            ) => Place::moved(x, kind, ty, None).or_else(|| {
                let x = self.whole(x);
                Place::moved(&x, kind, ty, None)
            }),
            (OpKind::Concatenate { dim }, parts) => Some(self.concatenate(parts, *dim, ty)),
            (OpKind::DotGeneral(attributes), [x, y]) if has_floats(operands, ty) => {
                let (x, y) = (self.without_gaps(x), self.without_gaps(y));
                let product = dot_general(&x, &y, attributes);
                product.map(|product| self.node(Kind::Product(Box::new(product)), vec![x, y], ty))
            }
            (OpKind::Convolution(attributes), [x, kernel]) if has_floats(operands, ty) => {
                let (x, kernel) = (self.without_gaps(x), self.without_gaps(kernel));
                let x = match padded_input(&x, attributes) {
                    Some(padded) => self.whole(&padded),
                    None => x,
                };
                let result = convolution(&x, &kernel, attributes, ty);
                result.map(|(product, order)| {
                    let permuted: Vec<_> = order.iter().map(|&dim| ty.dims[dim]).collect();
                    let permuted = RankedType::new(ty.element, permuted);
                    let operands = vec![x, kernel];
                    let mut result =
                        self.node(Kind::Product(Box::new(product)), operands, &permuted);
                    let dims = result.view.dims.clone();
                    order
                        .iter()
                        .zip(dims)
                        .for_each(|(&dim, of)| result.view.dims[dim] = of);
                    result
                })
            }
            (OpKind::Reduce { dims }, [x, initial]) => {
                let op = operator(function, &operation.regions);
                self.reduce(op, x, initial, dims, ty)
            }
            (OpKind::ReduceWindow(attributes), [x, initial]) => {
                let op = operator(function, &operation.regions);
                self.reduce_window(op, x, initial, attributes, ty)
            }
            (OpKind::Gather(attributes), [x, indices])
                if is_word(indices.element)
                    && gathers_rows(attributes, &x.ty(), &indices.ty(), ty) =>
            {
                let operands = operands.iter().map(|place| self.whole(place)).collect();
                Some(self.node(Kind::GatherRows, operands, ty))
            }
            (OpKind::Scatter(attributes), [x, indices, updates])
                if has_floats(&[x.clone(), updates.clone()], ty)
                    && is_word(indices.element)
                    && operator(function, &operation.regions) == Some(BinaryOp::Add)
                    && scatters_rows(attributes, &x.ty(), &indices.ty(), &updates.ty()) =>
            {
                let operands = operands.iter().map(|place| self.whole(place)).collect();
                Some(self.node(Kind::ScatterRows, operands, ty))
            }
            (OpKind::DynamicSlice { .. }, _) => {
                let operands = operands.iter().map(|place| self.whole(place)).collect();
                Some(self.node(Kind::DynamicSlice, operands, ty))
            }
            (OpKind::DynamicUpdateSlice, _) => {
                let operands = operands.iter().map(|place| self.whole(place)).collect();
                Some(self.node(Kind::DynamicUpdate, operands, ty))
            }
            (_, [first, ..]) => {
                let from = if *kind == OpKind::Select {
                    ty.element
                } else {
                    first.element
                };
                let op = Elementwise::new(kind, from, ty.element);
                op.map(|op| self.elementwise(op, operands, ty))
            }
            _ => None,
        })
    }

    fn elementwise(&mut self, op: Elementwise, operands: &[Place], ty: &RankedType) -> Place {
        let spread = |x: &Place| {
            // Scalar predicates and limits are broadcast.
            let is_scalar = x.view.dims.len() != ty.rank();
            let kind = OpKind::BroadcastInDim {
                mapping: Vec::new(),
            };
            let spread = is_scalar
                .then(|| Place::moved(x, &kind, &RankedType::new(x.element, &ty.dims[..]), None));
            spread.flatten().unwrap_or_else(|| x.clone())
        };
        let operands: Vec<_> = operands.iter().map(spread).collect();
        if let (Elementwise::Clamp(maximum, minimum), [low, x, high]) = (op, &operands[..]) {
            let parts = vec![x.clone(), low.clone()];
            let lower = self.node(Kind::Elementwise(Elementwise::Binary(maximum)), parts, ty);
            let parts = vec![lower, high.clone()];
            return self.node(Kind::Elementwise(Elementwise::Binary(minimum)), parts, ty);
        }
        self.node(Kind::Elementwise(op), operands, ty)
    }

    /// The value of a constant scalar.
    fn scalar(&self, place: &Place) -> Option<u32> {
        self.graph.bases[place.base]
            .scalar()
            .filter(|_| !place.view.has_gaps())
    }

    fn without_gaps(&mut self, place: &Place) -> Place {
        if place.view.has_gaps() {
            self.whole(place)
        } else {
            place.clone()
        }
    }

    /// Counts along one dimension, as a view of a line.
    fn iota(&mut self, dim: usize, ty: &RankedType) -> Result<Place> {
        let size = ty.dims.get(dim).copied().unwrap_or(0);
        let line = RankedType::new(ty.element, [size]);
        let mut bytes = crate::oracle::allocate(line.bytes())?;
        for at in 0..size {
            match ty.element {
                ElementType::F32 => bytes.extend_from_slice(&(at as f32).to_le_bytes()),
                element => bytes.extend_from_slice(&at.to_le_bytes()[..element.size()]),
            }
        }
        let base = self.base(&line, Some(Tensor::new(line.clone(), bytes)));
        let mut place = Place::whole(base, ty);
        for (at, of) in place.view.dims.iter_mut().enumerate() {
            of.stride = isize::from(at == dim);
        }
        Ok(place)
    }

    fn concatenate(&mut self, parts: &[Place], dim: usize, ty: &RankedType) -> Place {
        let behind: usize = ty.dims[dim + 1..].iter().product();
        let row = |part: &Place| part.view.dims[dim].size * behind * ty.element.size();
        let bytes = parts.iter().map(row).collect();
        let parts = parts.iter().map(|part| self.whole(part)).collect();
        self.node(Kind::Concatenate { bytes }, parts, ty)
    }

    fn reduce(
        &mut self,
        op: Option<BinaryOp>,
        x: &Place,
        initial: &Place,
        dims: &[usize],
        ty: &RankedType,
    ) -> Option<Place> {
        let op = accumulate(op?, x.element)?;
        let initial = self.scalar(initial)?;
        let rank = x.view.dims.len();
        let is_reduced = |dim: usize| dims.contains(&dim);
        let size = |range: std::ops::Range<usize>| -> usize {
            range.map(|dim| x.view.dims[dim].size).product()
        };
        let first = (0..rank).find(|&dim| is_reduced(dim)).unwrap_or(rank);
        let last = (0..rank)
            .rfind(|&dim| is_reduced(dim))
            .map_or(rank, |dim| dim + 1);
        let (x, outer, reduced, inner) = if (first..last).all(is_reduced) {
            (
                x.clone(),
                size(0..first),
                size(first..last),
                size(last..rank),
            )
        } else {
            // What is reduced comes last.
            let mut permutation: Vec<_> = (0..rank).filter(|&dim| !is_reduced(dim)).collect();
            permutation.extend((0..rank).filter(|&dim| is_reduced(dim)));
            let sizes: Vec<_> = permutation
                .iter()
                .map(|&dim| x.view.dims[dim].size)
                .collect();
            let moved = RankedType::new(x.element, sizes);
            let kind = OpKind::Transpose { permutation };
            let x = Place::moved(x, &kind, &moved, None)?;
            (
                x,
                ty.elements(),
                dims.iter().map(|&dim| size(dim..dim + 1)).product(),
                1,
            )
        };
        let x = self.whole(&x);
        let sizes = Reduction {
            outer,
            reduced,
            inner,
            op,
        };
        Some(self.node(Kind::Reduce { sizes, initial }, vec![x], ty))
    }

    /// A reduction over small windows, as elementwise operations on slices.
    fn reduce_window(
        &mut self,
        op: Option<BinaryOp>,
        x: &Place,
        initial: &Place,
        attributes: &WindowAttributes,
        ty: &RankedType,
    ) -> Option<Place> {
        let WindowAttributes {
            sizes,
            strides,
            base_dilations,
            window_dilations,
            padding,
        } = attributes;
        let op = op?;
        let kernel = Elementwise::new(&OpKind::Binary(op), ty.element, ty.element)?;
        let fill = self.scalar(initial)?;
        let count = sizes
            .iter()
            .try_fold(1usize, |all, &size| all.checked_mul(size))?;
        // The initial value is combined with each window, unless that changes nothing.
        let changes_nothing = match (op, ty.element) {
            (BinaryOp::Maximum, ElementType::F32) => fill == f32::NEG_INFINITY.to_bits(),
            (BinaryOp::Minimum, ElementType::F32) => fill == f32::INFINITY.to_bits(),
            (BinaryOp::Add, _) => fill == 0,
            _ => false,
        };
        if !(1..=LARGEST_WINDOW).contains(&count) || !changes_nothing {
            return None;
        }
        let is_padded = padding.iter().any(|&padding| padding != (0, 0))
            || base_dilations.iter().any(|&dilation| dilation > 1);
        let mut source = self.without_gaps(x);
        if is_padded {
            let low: Vec<_> = padding.iter().map(|padding| padding.0).collect();
            let interior: Vec<_> = (0..ty.rank())
                .map(|dim| base_dilations.get(dim).map_or(0, |it| it - 1))
                .collect();
            let dims: Option<Vec<usize>> = (source.view.dims.iter().enumerate())
                .map(|(dim, of)| {
                    let (low, high) = padding.get(dim).copied().unwrap_or_default();
                    let filled = of.size + of.size.saturating_sub(1) * interior[dim];
                    usize::try_from(filled as i64 + low + high).ok()
                })
                .collect();
            let padded = source.padded(&low, &interior, &dims?, fill);
            source = self.whole(&padded);
        }
        let mut result: Option<Place> = None;
        for number in 0..count {
            let mut slice = source.clone();
            let mut rest = number;
            for dim in (0..ty.rank()).rev() {
                let of = &mut slice.view.dims[dim];
                let within = rest % sizes[dim] * window_dilations.get(dim).copied().unwrap_or(1);
                rest /= sizes[dim];
                slice.view.offset += within as isize * of.stride;
                of.stride *= strides.get(dim).copied().unwrap_or(1) as isize;
                of.size = ty.dims[dim];
            }
            result = Some(match result {
                None => slice,
                Some(before) => self.node(Kind::Elementwise(kernel), vec![before, slice], ty),
            });
        }
        result
    }

    /// A loop. `None` if its regions cannot be plans.
    fn run_loop(
        &mut self,
        function: usize,
        operation: &Operation,
        state: &[Place],
        values: &Values,
        depth: usize,
    ) -> Result<Option<Vec<Place>>> {
        let [condition, body] = &operation.regions[..] else {
            return Ok(None);
        };
        let captures = captures(operation);
        let plan = |region| -> Result<Option<Plan>> {
            let graph = region_graph(self.module, function, region, &captures, depth + 1)?;
            Ok(graph.map(Plan::of))
        };
        let (Some(condition), Some(body)) = (plan(condition)?, plan(body)?) else {
            return Ok(None);
        };
        let mut operands = state.to_vec();
        for &id in &captures {
            operands.push(self.value(values, id)?);
        }
        let operands: Vec<_> = operands.iter().map(|place| self.whole(place)).collect();
        let types: Vec<_> = state.iter().map(Place::ty).collect();
        let results: Vec<_> = types.iter().map(|ty| self.base(ty, None)).collect();
        self.nodes_of(
            Kind::Loop(Box::new(Loop { condition, body })),
            operands,
            results.clone(),
        );
        let whole = |(base, ty)| Place::whole(base, ty);
        Ok(Some(results.into_iter().zip(&types).map(whole).collect()))
    }

    /// Leaves an operation to the oracle.
    fn oracle(
        &mut self,
        function: usize,
        operation: &Operation,
        operands: Vec<Place>,
        values: &Values,
    ) -> Result<Vec<Place>> {
        let captures = captures(operation);
        let mut operands = operands;
        for &id in &captures {
            operands.push(self.value(values, id)?);
        }
        let operands = operands.iter().map(|place| self.whole(place)).collect();
        let of = &self.module.functions[function];
        let types: Vec<_> = operation.results.iter().map(|&id| tensor(of, id)).collect();
        let results: Vec<_> = types.iter().map(|ty| self.base(ty, None)).collect();
        let call = OracleCall {
            function,
            operation: operation.clone(),
            captures,
        };
        self.nodes_of(Kind::Oracle(Box::new(call)), operands, results.clone());
        Ok(results
            .into_iter()
            .zip(types)
            .map(|(base, ty)| Place::whole(base, ty))
            .collect())
    }
}

fn has_floats(operands: &[Place], ty: &RankedType) -> bool {
    operands
        .iter()
        .map(|place| place.element)
        .chain([ty.element])
        .all(|it| it == ElementType::F32)
}

/// The operation that a region `(accumulator, element) -> accumulator op element` consists of.
fn operator(function: &Function, regions: &[Region]) -> Option<BinaryOp> {
    let [region] = regions else {
        return None;
    };
    let [operation] = &region.operations[..] else {
        return None;
    };
    let OpKind::Binary(op) = operation.kind else {
        return None;
    };
    let [x, y] = region.arguments[..] else {
        return None;
    };
    let is_whole = operation.operands == [x, y] && operation.results == region.results;
    (is_whole && function.ty(x) == function.ty(y)).then_some(op)
}

fn accumulate(op: BinaryOp, element: ElementType) -> Option<Accumulate> {
    if !is_word(element) {
        return None;
    }
    let is_signed = element == ElementType::S32;
    Some(match op {
        BinaryOp::Add if element == ElementType::F32 => Accumulate::AddF,
        BinaryOp::Multiply if element == ElementType::F32 => Accumulate::MultiplyF,
        BinaryOp::Maximum if element == ElementType::F32 => Accumulate::MaximumF,
        BinaryOp::Minimum if element == ElementType::F32 => Accumulate::MinimumF,
        _ if element == ElementType::F32 => return None,
        BinaryOp::Add => Accumulate::Add,
        BinaryOp::Multiply => Accumulate::Multiply,
        BinaryOp::Maximum if is_signed => Accumulate::MaximumS,
        BinaryOp::Minimum if is_signed => Accumulate::MinimumS,
        BinaryOp::Maximum => Accumulate::MaximumU,
        BinaryOp::Minimum => Accumulate::MinimumU,
        BinaryOp::And => Accumulate::And,
        BinaryOp::Or => Accumulate::Or,
        BinaryOp::Xor => Accumulate::Xor,
        _ => return None,
    })
}

/// The values of enclosing regions that the regions of an operation use.
fn captures(operation: &Operation) -> Vec<ValueId> {
    let mut captures = BTreeSet::new();
    operation
        .regions
        .iter()
        .for_each(|region| capture(region, &mut captures));
    captures.into_iter().collect()
}

/// Adds the values that a region uses and does not compute.
fn capture(region: &Region, captured: &mut BTreeSet<ValueId>) {
    let mut used = BTreeSet::from_iter(region.results.iter().copied());
    let mut computed = BTreeSet::from_iter(region.arguments.iter().copied());
    for operation in &region.operations {
        used.extend(&operation.operands);
        operation
            .regions
            .iter()
            .for_each(|inner| capture(inner, &mut used));
        computed.extend(&operation.results);
    }
    captured.extend(used.difference(&computed));
}
