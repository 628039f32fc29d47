//! Import of programs into graphs, where they are differentiable.
//!
//! Calls are inlined, composites replaced by their decompositions (`chlo.erf` by the operation that
//! it names). Regions become the closed set of functions that the graph has: `reduce.rs` recognizes
//! them. Loops that count to a constant become scans, so that they have gradients.

mod ops;
mod reduce;
mod region;
mod scope;

use std::{panic::Location, rc::Rc};

use halite_core::{Error, ErrorKind, Result, TensorType, format_count};
use halite_ir::{Graph, Op, UnaryOp, Value};
use halite_nn::{Tensor, Trace};
use halite_stablehlo::{Module, OpKind, Operation, Region, Type, ValueId};

use self::scope::{Known, Scope};
use crate::{Artifact, ArtifactInput, ArtifactOutput};

/// Bound on the operations of an imported program: functions that call functions twice, and so on,
/// could otherwise describe a graph that is exponentially larger than the file.
const MOST_OPERATIONS: usize = 250_000;

/// Bound on the nesting of calls and regions.
const MOST_LEVELS: usize = 100;

/// An [`Artifact`] as a function of tensors, for use in a trace.
#[derive(Clone, Debug)]
pub struct ImportedFunction {
    graph: Graph,
    inputs: Vec<ArtifactInput>,
    outputs: Vec<ArtifactOutput>,
}

impl Artifact {
    /// Imports the program for use in a trace: it composes with other operations, is
    /// differentiable, and runs on any sharding.
    ///
    /// Values are those of the program but for rounding. Precision hints and sharding constraints
    /// are dropped. Gradients are those of the imported operations: a JAX function with its own
    /// derivative rule has the gradient of what it computes.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], with operation and position, if the program has operations
    /// without a counterpart in [`Op`]: FFTs, linear algebra, collectives, custom calls; or types
    /// without arrays. Such a program can be [compiled](Self::compile).
    pub fn function(&self) -> Result<ImportedFunction> {
        let graph = import(&self.clone().on_any_platform().module_for("cpu")?)?;
        Ok(ImportedFunction {
            graph,
            inputs: self.inputs().to_vec(),
            outputs: self.outputs().to_vec(),
        })
    }
}

impl ImportedFunction {
    /// The inputs, in order.
    pub fn inputs(&self) -> &[ArtifactInput] {
        &self.inputs
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> &[ArtifactOutput] {
        &self.outputs
    }

    /// The program as a graph, whose inputs are those that are used.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Records the function on these inputs, and returns its outputs in order.
    ///
    /// Inputs of another number or type are a mistake of the trace.
    #[track_caller]
    pub fn call<'t>(&self, cx: &'t Trace, inputs: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let _site = cx.called_from(Location::caller());
        let mut mistake = None;
        if inputs.len() != self.inputs.len() {
            let (given, expected) = (inputs.len(), self.inputs.len());
            mistake = Some(format!("{given} inputs given, it has {expected}"));
        }
        for (tensor, ArtifactInput { name, ty, .. }) in inputs.iter().zip(&self.inputs) {
            if tensor.ty() != *ty && !tensor.is_error() {
                let given = tensor.ty();
                mistake.get_or_insert_with(|| format!("input `{name}` is {ty}, got {given}"));
            }
        }
        let used: Vec<Tensor<'t>> = match mistake {
            // Error tensors make the results error tensors.
            Some(message) => {
                let error = cx.fail("imported function", message, None);
                vec![error; self.graph.inputs().len()]
            }
            None => (inputs.iter().zip(&self.inputs))
                .filter(|(_, input)| input.used)
                .map(|(tensor, _)| *tensor)
                .collect(),
        };
        cx.inline(&self.graph, &used)
    }
}

/// Imports `main` of a valid program.
pub(crate) fn import(module: &Module) -> Result<Graph> {
    let main = module.main()?;
    let mut importer = Importer {
        module,
        operations: 0,
        level: 0,
    };
    let mut scope = Scope::new(Rc::new(Known::of(main)));
    for &argument in &main.body.arguments {
        let input = scope.graph.input(main_type(main.ty(argument))?);
        scope.values.insert(argument, input);
    }
    let outputs = importer.region(&mut scope, &main.body)?;
    scope.graph.set_outputs(outputs);
    Ok(scope.graph)
}

fn main_type(ty: &Type) -> Result<TensorType> {
    array_type(ty).ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            "import",
            format!("an argument is {ty}, which has no arrays"),
        )
    })
}

fn array_type(ty: &Type) -> Option<TensorType> {
    ty.as_tensor()?.tensor_type()
}

struct Importer<'m> {
    module: &'m Module,
    /// Operations so far.
    operations: usize,
    /// Calls and regions around the current operation.
    level: usize,
}

impl<'m> Importer<'m> {
    /// Imports the operations of a region, and returns its results.
    fn region(&mut self, scope: &mut Scope<'m>, region: &'m Region) -> Result<Vec<Value>> {
        self.level += 1;
        if self.level > MOST_LEVELS {
            let message = format!("calls and regions are nested more than {MOST_LEVELS} levels");
            return Err(Error::new(ErrorKind::Unsupported, "import", message));
        }
        for operation in &region.operations {
            self.operation(scope, operation)?;
        }
        self.level -= 1;
        Ok(scope.values(&region.results))
    }

    fn operation(&mut self, scope: &mut Scope<'m>, operation: &'m Operation) -> Result<()> {
        self.operations += 1;
        if self.operations > MOST_OPERATIONS {
            let most = format_count(MOST_OPERATIONS as u64);
            let message = format!("more than {most} operations, with those of inlined calls");
            return Err(Error::new(ErrorKind::Unsupported, "import", message));
        }
        let results =
            (self.results(scope, operation)).map_err(|error| located(error, operation))?;
        for (&id, value) in operation.results.iter().zip(results) {
            let (declared, found) = (scope.ty(id), scope.graph.ty(value));
            if array_type(declared).as_ref() != Some(found) {
                let message =
                    format!("the result is {declared} in the program, {found} by its operands");
                return Err(located(
                    Error::new(ErrorKind::Unsupported, "import", message),
                    operation,
                ));
            }
            scope.values.insert(id, value);
        }
        Ok(())
    }

    fn results(&mut self, scope: &mut Scope<'m>, operation: &'m Operation) -> Result<Vec<Value>> {
        let operands = scope.values(&operation.operands);
        match &operation.kind {
            OpKind::Call { function } => self.call(scope, function, &operands),
            OpKind::Composite { name, .. } if name == "chlo.erf" && operands.len() == 1 => {
                scope.push(Op::Unary(UnaryOp::Erf), &operands)
            }
            OpKind::Composite { decomposition, .. } => self.call(scope, decomposition, &operands),
            OpKind::While => self.while_loop(scope, operation),
            OpKind::Case => {
                let branches: Vec<&Region> = operation.regions.iter().collect();
                self.case(scope, operands[0], &branches)
            }
            OpKind::If => {
                let index = Op::Convert(halite_core::DType::S32);
                let index = scope.push_one(index, &operands)?;
                let [on_true, on_false] = &operation.regions[..] else {
                    unreachable!("a valid `if` has two regions");
                };
                self.case(scope, index, &[on_false, on_true])
            }
            OpKind::Reduce { dims } => reduce::reduce(scope, operation, dims),
            OpKind::ReduceWindow(window) => reduce::reduce_window(scope, operation, window),
            OpKind::SelectAndScatter(window) => {
                reduce::select_and_scatter(scope, operation, window)
            }
            OpKind::Sort { dim, .. } => reduce::sort(scope, operation, *dim),
            OpKind::Scatter(attributes) => reduce::scatter(scope, operation, attributes),
            kind => {
                let op = ops::convert(scope, operation, kind)?;
                match op {
                    Some(op) => scope.push(op, &operands),
                    // The results are the operands.
                    None => Ok(operands),
                }
            }
        }
    }

    /// Inlines a function of the program.
    fn call(
        &mut self,
        scope: &mut Scope<'m>,
        name: &str,
        operands: &[Value],
    ) -> Result<Vec<Value>> {
        let function = (self.module.function(name)).expect("a valid program has its functions");
        let body = &function.body;
        let mut inner = Scope {
            graph: std::mem::take(&mut scope.graph),
            known: Rc::new(Known::of(function)),
            values: (body.arguments.iter().copied())
                .zip(operands.iter().copied())
                .collect(),
        };
        let results = self.region(&mut inner, body);
        scope.graph = inner.graph;
        results
    }

    fn case(
        &mut self,
        scope: &mut Scope<'m>,
        index: Value,
        regions: &[&'m Region],
    ) -> Result<Vec<Value>> {
        if regions[0].results.is_empty() {
            return Ok(Vec::new());
        }
        let captured = region::captured(regions);
        let branches = (regions.iter())
            .map(|region| self.graph_of(scope, region, &captured))
            .collect::<Result<_>>()?;
        let operands = [vec![index], scope.values(&captured)].concat();
        scope.push(Op::Case { branches }, &operands)
    }

    /// The region as a graph, whose inputs are these values of the program.
    fn graph_of(
        &mut self,
        scope: &Scope<'m>,
        region: &'m Region,
        inputs: &[ValueId],
    ) -> Result<Graph> {
        let mut inner = Scope::new(scope.known.clone());
        for &id in inputs {
            let ty = main_type(scope.ty(id))?;
            let input = inner.graph.input(ty);
            inner.values.insert(id, input);
        }
        let outputs = self.region(&mut inner, region)?;
        inner.graph.set_outputs(outputs);
        Ok(inner.graph)
    }

    fn while_loop(
        &mut self,
        scope: &mut Scope<'m>,
        operation: &'m Operation,
    ) -> Result<Vec<Value>> {
        let [condition, body] = &operation.regions[..] else {
            unreachable!("a valid `while` has two regions");
        };
        let trips = region::trip_count(&scope.known, operation);
        let captured = region::captured(&[condition, body]);
        // Values that the body returns unchanged are invariant.
        let changes = |&index: &usize| body.results[index] != body.arguments[index];
        let all = 0..operation.operands.len();
        let mut carried: Vec<usize> = all.clone().filter(changes).collect();
        if carried.is_empty() {
            carried = all.clone().collect();
        }
        let invariant: Vec<usize> = all.filter(|index| !carried.contains(index)).collect();
        let order: Vec<usize> = [&carried[..], &invariant].concat();
        let pick = |ids: &[ValueId]| -> Vec<ValueId> {
            let picked = order.iter().map(|&index| ids[index]);
            picked.chain(captured.iter().copied()).collect()
        };
        let mut body_graph = self.graph_of(scope, body, &pick(&body.arguments))?;
        let next = carried.iter().map(|&index| body_graph.outputs()[index]);
        let next = next.collect();
        body_graph.set_outputs(next);
        let (count, body_graph) = (carried.len(), Box::new(body_graph));
        let op = match trips {
            Some(length) => Op::Scan {
                carried: count,
                scanned: 0,
                length,
                reverse: false,
                residuals: 0,
                body: body_graph,
            },
            None => Op::While {
                carried: count,
                condition: Box::new(self.graph_of(
                    scope,
                    condition,
                    &pick(&condition.arguments),
                )?),
                body: body_graph,
            },
        };
        let operands = scope.values(&pick(&operation.operands));
        let last = scope.push(op, &operands)?;
        let mut results = scope.values(&operation.operands);
        for (&index, value) in carried.iter().zip(last) {
            results[index] = value;
        }
        Ok(results)
    }
}

/// Adds operation and position to an error, unless it has them already.
fn located(error: Error, operation: &Operation) -> Error {
    if error.op().starts_with("import of") {
        return error;
    }
    let (name, _) = operation.kind.to_attributes();
    let mut place = operation.position.to_string();
    if let Some(line) = &operation.location {
        place = format!("{place} ({}:{})", line.file, line.line);
    }
    Error::new(
        error.kind(),
        format!("import of {name}"),
        format!("{place}: {}", error.message()),
    )
}

/// The error for operations and attributes that graphs do not have.
fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, "import", message.into())
        .with_note("compile the artifact to run it as it is")
}
