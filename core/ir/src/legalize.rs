//! Lowers a graph to a StableHLO program as data.
//!
//! The graph decides which values are computed, and their types; lowering decides which operations
//! of StableHLO compute them. Nothing here infers types, optimizes, or writes text.

mod collectives;
mod constants;
mod custom_calls;
mod functions;
mod loops;
mod ops;
mod reductions;
mod sharding;

use std::{collections::HashMap, panic::Location, sync::Arc};

use halite_core::{DType, Error, MeshShape, Result};
use halite_stablehlo::{
    Attributes, BinaryOp, ComparisonDirection, ComparisonOrder, ElementClass, ElementType, Module,
    OpKind, Operation, Position, RankedType, Region, SourceLine, Type, ValueId, ValueIds,
};

use crate::{Graph, Interface, Node, interface::check};

/// Lowers the graph to a StableHLO program.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_ir::{Graph, Interface, Op, UnaryOp, legalize};
///
/// let mut graph = Graph::new();
/// let x = graph.input(TensorType::new(DType::F32, [2]));
/// let y = graph.push(Op::Unary(UnaryOp::Tanh), &[x], None).unwrap()[0];
/// graph.set_outputs(vec![y]);
/// let module = legalize(&graph, &Interface::new("activation")).unwrap();
/// assert_eq!(module.main().unwrap().body.operations.len(), 1);
/// ```
///
/// # Errors
/// If the interface does not fit the graph: another number of inputs or outputs, a spec that names
/// no axis of the mesh, an alias of two tensors that differ. If the graph has an operation that
/// does not fit the interface: a collective whose groups name replicas that are not there.
pub fn legalize(graph: &Graph, interface: &Interface) -> Result<Module> {
    check(graph, interface)?;
    let builder = Builder {
        interface,
        types: Vec::new(),
        regions: Vec::new(),
        line: None,
        lines: HashMap::new(),
        last_line: None,
        manual: None,
        channels: 0,
    };
    builder.module(graph)
}

/// A function under construction.
struct Builder<'a> {
    interface: &'a Interface,
    /// Types of the function's values, by number.
    types: Vec<Type>,
    /// Regions that are not complete, the innermost last.
    regions: Vec<Region>,
    /// Source line of the node being lowered.
    line: Option<Arc<SourceLine>>,
    /// Source lines by address: one call site has one `Location`.
    lines: HashMap<*const Location<'static>, Arc<SourceLine>>,
    /// The call site that was looked up last.
    last_line: Option<(&'static Location<'static>, Arc<SourceLine>)>,
    /// Inside a `shard_map` over several devices: whether all axes of the mesh are manual.
    manual: Option<bool>,
    /// Number of collectives between partitions so far.
    channels: i64,
}

/// The node being lowered.
#[derive(Clone, Copy)]
struct Cx<'a> {
    graph: &'a Graph,
    node: &'a Node,
    operands: &'a [ValueId],
}

impl Cx<'_> {
    fn result(self, i: usize) -> RankedType {
        self.graph.ty(self.node.results[i]).into()
    }

    fn results(self) -> impl Iterator<Item = RankedType> {
        (0..self.node.results.len()).map(move |i| self.result(i))
    }
}

impl<'a> Builder<'a> {
    /// Lowers the nodes of `graph` on these inputs. Returns its outputs.
    fn nodes(&mut self, graph: &Graph, inputs: &[ValueId]) -> Result<ValueIds> {
        let outer = self.line.take();
        let mut values = vec![ValueId(u32::MAX); graph.value_count()];
        for (input, &value) in graph.inputs().iter().zip(inputs) {
            values[input.index()] = value;
        }
        self.types.reserve(graph.value_count());
        if let Some(region) = self.regions.last_mut() {
            region.operations.reserve(graph.nodes().len());
        }
        let mut operands = Vec::new();
        for node in graph.nodes() {
            operands.clear();
            operands.extend(node.operands.iter().map(|operand| values[operand.index()]));
            self.line = self.line_of(node.origin);
            let results = self.node(Cx {
                graph,
                node,
                operands: &operands,
            });
            let results = results.map_err(|error| located(error, node.origin))?;
            for (result, value) in node.results.iter().zip(results) {
                values[result.index()] = value;
            }
        }
        self.line = outer;
        let outputs = graph.outputs().iter();
        Ok(outputs.map(|output| values[output.index()]).collect())
    }

    fn line_of(&mut self, origin: Option<&'static Location<'static>>) -> Option<Arc<SourceLine>> {
        let origin = origin.filter(|_| self.interface.locations)?;
        // Consecutive nodes often are of one line.
        if let Some((last, line)) = &self.last_line
            && std::ptr::eq(*last, origin)
        {
            return Some(line.clone());
        }
        let line = self.lines.entry(origin).or_insert_with(|| {
            Arc::new(SourceLine {
                file: origin.file().to_owned(),
                line: origin.line(),
                column: origin.column(),
            })
        });
        self.last_line = Some((origin, line.clone()));
        Some(line.clone())
    }

    /// Adds an operation at the source line of the node, and returns its results.
    fn add(
        &mut self,
        kind: OpKind,
        operands: &[ValueId],
        types: impl IntoIterator<Item = RankedType>,
        regions: Vec<Region>,
    ) -> ValueIds {
        let results: ValueIds = types.into_iter().map(|ty| self.value(ty)).collect();
        self.push(kind, operands, results.clone(), regions);
        results
    }

    /// Adds an operation with one result and without regions, at the source line of the node.
    fn one(&mut self, kind: OpKind, operands: &[ValueId], ty: RankedType) -> ValueId {
        let result = self.value(ty);
        self.push(kind, operands, single(result), Vec::new());
        result
    }

    /// Adds an operation as [`one`](Self::one) without a source line.
    fn helper(&mut self, kind: OpKind, operands: &[ValueId], ty: RankedType) -> ValueId {
        let line = self.line.take();
        let result = self.one(kind, operands, ty);
        self.line = line;
        result
    }

    fn push(
        &mut self,
        kind: OpKind,
        operands: &[ValueId],
        results: ValueIds,
        regions: Vec<Region>,
    ) {
        let region = self.regions.last_mut();
        let region = region.expect("operations are added to an open region");
        region.operations.push(Operation {
            kind,
            operands: ValueIds::from_slice(operands),
            results,
            regions,
            attributes: Attributes::default(),
            position: Position::Unknown,
            location: self.line.clone(),
        });
    }

    fn value(&mut self, ty: RankedType) -> ValueId {
        let value = ValueId(u32::try_from(self.types.len()).expect("fewer than 2^32 values"));
        self.types.push(Type::Tensor(ty));
        value
    }

    fn ty(&self, value: ValueId) -> &RankedType {
        let ty = self.types[value.0 as usize].as_tensor();
        ty.expect("all values of a graph are tensors")
    }

    fn element(&self, value: ValueId) -> ElementType {
        self.ty(value).element
    }

    /// Begins a region with arguments of these types.
    fn open(&mut self, types: impl IntoIterator<Item = RankedType>) -> Vec<ValueId> {
        let arguments: Vec<ValueId> = types.into_iter().map(|ty| self.value(ty)).collect();
        self.regions.push(Region {
            arguments: arguments.clone(),
            ..Region::default()
        });
        arguments
    }

    /// Begins a region whose arguments are scalars of these types.
    fn open_on_scalars<const N: usize>(&mut self, elements: [ElementType; N]) -> [ValueId; N] {
        let arguments = self.open(elements.map(scalar));
        std::array::from_fn(|i| arguments[i])
    }

    /// Completes the region that was begun last.
    fn close(&mut self, results: &[ValueId]) -> Region {
        let mut region = self.regions.pop().expect("each region is completed once");
        region.results = results.to_vec();
        region
    }

    /// Converts `x` to this element type, unless it has it.
    fn convert(&mut self, x: ValueId, element: ElementType) -> ValueId {
        if self.element(x) == element {
            return x;
        }
        let ty = RankedType::new(element, &*self.ty(x).dims);
        self.one(OpKind::Convert, &[x], ty)
    }

    /// A binary operation of a region that lowering makes.
    fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        let ty = self.ty(a).clone();
        self.helper(OpKind::Binary(op), &[a, b], ty)
    }

    /// A comparison by value in a region that lowering makes.
    fn compare(&mut self, direction: ComparisonDirection, a: ValueId, b: ValueId) -> ValueId {
        let order = order(self.element(a));
        self.compare_in(order, direction, a, b)
    }

    fn compare_in(
        &mut self,
        order: ComparisonOrder,
        direction: ComparisonDirection,
        a: ValueId,
        b: ValueId,
    ) -> ValueId {
        let order = Some(order);
        let ty = RankedType::new(ElementType::Bool, &*self.ty(a).dims);
        self.helper(OpKind::Compare { direction, order }, &[a, b], ty)
    }

    /// The mesh of the program if it has more than one device.
    fn partitioned_mesh(&self) -> Option<&'a MeshShape> {
        let mesh = self.interface.mesh.as_ref();
        mesh.filter(|mesh| mesh.size() > 1)
    }
}

/// Order of comparisons by value.
fn order(element: ElementType) -> ComparisonOrder {
    match element.class() {
        ElementClass::Signed => ComparisonOrder::Signed,
        ElementClass::Bool | ElementClass::Unsigned => ComparisonOrder::Unsigned,
        ElementClass::Float | ElementClass::Complex => ComparisonOrder::Float,
    }
}

fn single(value: ValueId) -> ValueIds {
    ValueIds::from_slice(&[value])
}

fn scalar(element: ElementType) -> RankedType {
    RankedType::new(element, [])
}

/// The element type of a value of a graph.
fn dtype(element: ElementType) -> DType {
    let dtype = element.dtype();
    dtype.expect("graphs have the element types of arrays")
}

/// Adds the user's source line of the operation to an error.
pub(crate) fn located(error: Error, origin: Option<&'static Location<'static>>) -> Error {
    match origin {
        Some(origin) => Error::new(
            error.kind(),
            error.op().to_string(),
            format!("{} (at {origin})", error.message()),
        ),
        None => error,
    }
}
