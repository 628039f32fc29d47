//! Evaluation of regions, and control flow.

use std::collections::HashMap;

use halite_core::{Error, ErrorKind, Result};
use halite_stablehlo::{
    Function, Module, OpKind, Operation, Position, Region, RngDistribution, Type, ValueId,
};

use super::{
    custom,
    last_uses::LastUses,
    operation::{compute, exactly, tensor_types, tensors},
    random,
    reduce::{self, Reducer, operator},
    sort::{Order, sort},
    tensor::{Tensor, Value, unexpected},
    world::{LAUNCH, Scope, World},
};

/// A process: one replica's run of one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process<'r> {
    pub(super) module: &'r Module,
    pub(super) world: &'r World,
    pub(super) replica: usize,
    pub(super) partition: usize,
    pub(super) scope: &'r Scope<'r>,
}

impl Process<'_> {
    /// Its number among all processes.
    pub(super) fn number(&self) -> usize {
        self.replica * self.world.partitions + self.partition
    }
}

/// Runs the function `main` as one process.
pub(crate) fn run_main(
    module: &Module,
    world: &World,
    process: [usize; 2],
    inputs: Vec<Value>,
) -> Result<Vec<Value>> {
    let [replica, partition] = process;
    let process = Process {
        module,
        world,
        replica,
        partition,
        scope: &LAUNCH,
    };
    let main = module.main()?;
    Frame::new(process, main).body(inputs)
}

/// An operation that another executor leaves to the interpreter.
pub(crate) struct Single<'r> {
    pub(crate) module: &'r Module,
    pub(crate) world: &'r World,
    /// `[replica, partition]`.
    pub(crate) process: [usize; 2],
    /// The partitions that run the manual computation around it; `None` outside of any.
    pub(crate) shards: Option<&'r [usize]>,
    /// The function that has the operation.
    pub(crate) function: &'r Function,
    pub(crate) operation: &'r Operation,
    /// Values of enclosing regions that its regions use.
    pub(crate) captures: &'r [ValueId],
}

impl Single<'_> {
    /// The manual computation around it.
    pub(super) fn scope(&self) -> Option<Scope<'static>> {
        self.shards.map(Scope::of_shards)
    }

    /// An activation of the function. `scope` is that of [`scope`](Self::scope).
    pub(super) fn frame<'f>(&'f self, scope: Option<&'f Scope<'static>>) -> Frame<'f> {
        let [replica, partition] = self.process;
        let process = Process {
            module: self.module,
            world: self.world,
            replica,
            partition,
            scope: scope.unwrap_or(&LAUNCH),
        };
        Frame::new(process, self.function)
    }
}

/// Runs one operation. `operands` are its own, and then the values of the captures.
pub(crate) fn run_operation(single: &Single<'_>, mut operands: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let scope = single.scope();
    let mut frame = single.frame(scope.as_ref());
    let captured = operands
        .split_off(single.operation.operands.len())
        .into_iter()
        .map(Value::Tensor);
    let captures = single.captures.iter().copied();
    frame.values.extend(captures.zip(captured));
    let operands = operands.into_iter().map(Value::Tensor).collect();
    let results = frame
        .operation(single.operation, operands)
        .map_err(|e| locate(e, single.operation))?;
    results
        .into_iter()
        .map(|value| value.tensor().cloned())
        .collect()
}

/// An activation of a function.
pub(super) struct Frame<'r> {
    pub(super) process: Process<'r>,
    pub(super) function: &'r Function,
    values: HashMap<ValueId, Value>,
    last_uses: LastUses,
}

impl<'r> Frame<'r> {
    pub(super) fn new(process: Process<'r>, function: &'r Function) -> Self {
        Frame {
            process,
            function,
            values: HashMap::new(),
            last_uses: LastUses::default(),
        }
    }

    /// Evaluates the body of the function, and returns its results.
    fn body(self, arguments: Vec<Value>) -> Result<Vec<Value>> {
        let function = self.function;
        self.outermost(&function.body, arguments)
    }

    /// Evaluates a region of which nothing else runs in this frame, and returns its results. Values
    /// are dropped after their last use.
    pub(super) fn outermost(
        mut self,
        region: &'r Region,
        arguments: Vec<Value>,
    ) -> Result<Vec<Value>> {
        self.last_uses.add(region);
        self.region(region, arguments)
    }

    /// Evaluates a region of the function, and returns its results.
    pub(super) fn region(
        &mut self,
        region: &'r Region,
        arguments: Vec<Value>,
    ) -> Result<Vec<Value>> {
        self.values
            .extend(region.arguments.iter().copied().zip(arguments));
        for operation in &region.operations {
            self.process.world.check()?;
            let operands = self.values_of(&operation.operands)?;
            let results = self
                .operation(operation, operands)
                .map_err(|e| locate(e, operation))?;
            self.values
                .extend(operation.results.iter().copied().zip(results));
            self.drop_values(address(operation));
        }
        let results = self.values_of(&region.results);
        self.drop_values(address(region));
        results
    }

    /// Drops the values whose last use is at this address.
    fn drop_values(&mut self, at: usize) {
        for id in self.last_uses.at(at) {
            self.values.remove(id);
        }
    }

    fn values_of(&self, ids: &[ValueId]) -> Result<Vec<Value>> {
        let value = |id| self.values.get(id).cloned();
        let values: Option<_> = ids.iter().map(value).collect();
        values.ok_or_else(|| unexpected("values that are computed before", &format!("{ids:?}")))
    }

    fn operation(&mut self, op: &'r Operation, operands: Vec<Value>) -> Result<Vec<Value>> {
        let types: Vec<&Type> = op.results.iter().map(|&id| self.function.ty(id)).collect();
        match &op.kind {
            OpKind::While => self.run_loop(op, operands),
            OpKind::If => {
                let holds = operands[0].tensor()?.int()? != 0;
                self.region(&op.regions[usize::from(!holds)], Vec::new())
            }
            OpKind::Case => {
                let last = op.regions.len() - 1;
                let index = usize::try_from(operands[0].tensor()?.int()?).unwrap_or(last);
                self.region(&op.regions[index.min(last)], Vec::new())
            }
            OpKind::Call { function } => self.call(function, operands),
            OpKind::Composite { decomposition, .. } => self.call(decomposition, operands),
            OpKind::CustomCall(attributes) => custom::call(self, op, attributes, operands, &types),
            OpKind::OptimizationBarrier => Ok(operands),
            OpKind::Tuple => Ok(vec![Value::Tuple(operands)]),
            OpKind::GetTupleElement { index } => match &operands[..] {
                [Value::Tuple(parts)] if *index < parts.len() => Ok(vec![parts[*index].clone()]),
                _ => Err(unexpected("a tuple", "another value")),
            },
            OpKind::AfterAll => Ok(vec![Value::Token]),
            OpKind::Rng { distribution } => self.rng(*distribution, &operands, &types),
            OpKind::Reduce { .. }
            | OpKind::ReduceWindow(_)
            | OpKind::SelectAndScatter(_)
            | OpKind::Scatter(_)
            | OpKind::Map { .. }
            | OpKind::Sort { .. } => self.with_region(op, &operands, &types),
            _ => match compute(&op.kind, &operands, &types)? {
                Some(results) => Ok(results),
                None => self.collective(op, operands, &types),
            },
        }
    }

    fn run_loop(&mut self, op: &'r Operation, mut state: Vec<Value>) -> Result<Vec<Value>> {
        let [condition, body] = &op.regions[..] else {
            return Err(unexpected(
                "2 regions",
                &format!("{} regions", op.regions.len()),
            ));
        };
        loop {
            let decision = self.region(condition, state.clone())?;
            if decision[0].tensor()?.int()? == 0 {
                return Ok(state);
            }
            state = self.region(body, state)?;
        }
    }

    /// Calls a function of the module.
    pub(super) fn call(&self, name: &str, arguments: Vec<Value>) -> Result<Vec<Value>> {
        let module = self.process.module;
        let function = module.function(name).ok_or_else(|| {
            Error::invalid(
                "run",
                format!("the program has no function `{name}`, which it calls"),
            )
        })?;
        Frame::new(self.process, function).body(arguments)
    }

    fn rng(
        &mut self,
        distribution: RngDistribution,
        operands: &[Value],
        types: &[&Type],
    ) -> Result<Vec<Value>> {
        let [a, b, _] = exactly(&tensors(operands)?)?;
        let seed = self.process.world.draw(self.process.number());
        let ty = tensor_types(types)?[0];
        Ok(vec![Value::Tensor(random::rng(
            distribution,
            a,
            b,
            seed,
            ty,
        )?)])
    }

    fn with_region(
        &mut self,
        op: &'r Operation,
        operands: &[Value],
        types: &[&Type],
    ) -> Result<Vec<Value>> {
        let x = tensors(operands)?;
        let types = tensor_types(types)?;
        let results = match &op.kind {
            OpKind::Reduce { dims } => {
                let (inputs, initial) = x.split_at(x.len() / 2);
                self.reducer(&op.regions[0], |reducer| {
                    reduce::reduce(reducer, inputs, initial, dims, &types)
                })?
            }
            OpKind::ReduceWindow(attributes) => {
                let (inputs, initial) = x.split_at(x.len() / 2);
                self.reducer(&op.regions[0], |reducer| {
                    reduce::reduce_window(reducer, inputs, initial, attributes, &types)
                })?
            }
            OpKind::SelectAndScatter(attributes) => {
                let [x, source, initial] = exactly(&x)?;
                let pairs = self.reducer(&op.regions[0], |select| {
                    reduce::select(select, x, source, attributes)
                })?;
                self.reducer(&op.regions[1], |reducer| {
                    reduce::scatter_selected(reducer, source, initial, &pairs, types[0])
                })?
            }
            OpKind::Scatter(attributes) => {
                let (inputs, rest) = x.split_at((x.len() - 1) / 2);
                self.reducer(&op.regions[0], |reducer| {
                    reduce::scatter(reducer, inputs, rest[0], &rest[1..], attributes)
                })?
            }
            OpKind::Map { .. } => self.reducer(&op.regions[0], |reducer| {
                reduce::map(reducer.evaluate, &x, &types)
            })?,
            OpKind::Sort { dim, .. } => {
                let order = Order::of(&op.regions[0]);
                self.reducer(&op.regions[0], |reducer| {
                    sort(reducer.evaluate, order, &x, *dim)
                })?
            }
            _ => {
                return Err(unexpected(
                    "an operation with a region of scalars",
                    "another",
                ));
            }
        };
        Ok(results.into_iter().map(Value::Tensor).collect())
    }

    /// Calls `body` with an evaluator of a region on scalars.
    pub(super) fn reducer<T>(
        &mut self,
        region: &'r Region,
        body: impl FnOnce(&mut Reducer<'_>) -> Result<T>,
    ) -> Result<T> {
        let operator = operator(self.function, region);
        let mut evaluate = |arguments| self.region(region, arguments);
        body(&mut Reducer {
            operator,
            evaluate: &mut evaluate,
        })
    }
}

/// Identifies an operation or a region among those of a module that does not move.
pub(super) fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

/// Adds the place in the program to the error of an operation, unless an inner one has done so.
pub(super) fn locate(error: Error, op: &Operation) -> Error {
    let calls = matches!(op.kind, OpKind::Call { .. } | OpKind::Composite { .. });
    if calls || !op.regions.is_empty() || error.kind() == ErrorKind::Cancelled {
        return error;
    }
    let at = match (&op.location, op.position) {
        (Some(line), _) => format!("at {}:{}", line.file, line.line),
        (None, Position::Unknown) => return error,
        (None, position) => format!("at {position}"),
    };
    error.with_note(&at)
}
