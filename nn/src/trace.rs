//! Traces: programs recorded by running the code that describes them.
//!
//! A [`Trace`] records operations; a [`Tensor`] is a `Copy` handle on one of its values. There is
//! no hidden graph and no thread-local: a tensor knows its trace and cannot outlive it. Recorded
//! operations never change; later code only appends.
//!
//! A mistake does not stop the trace. It is recorded with the user's file and line and yields an
//! *error tensor*, which later operations propagate silently, so one trace finds all root causes.

mod inspect;
mod mistake;
mod recording;
mod states;

use std::{
    cell::{Cell, RefCell},
    fmt,
    panic::Location,
    sync::Arc,
};

use halite_core::{Result, TensorType};
use halite_ir::{Graph, Literal, Op, infer};

use crate::Tensor;

pub use mistake::Mistake;
pub(crate) use mistake::mistakes_error;
pub(crate) use recording::{Hyperparameter, Id, Recorded, Recording, Region, capture, captured};

/// Recorder of a program. The first argument of every traced function, by convention named `cx`.
#[derive(Default)]
pub struct Trace {
    pub(crate) recording: RefCell<Recording>,
    /// The user's call of the layer that is being traced, if any.
    site: Cell<Option<&'static Location<'static>>>,
    states: states::States,
}

impl Trace {
    /// Creates an empty trace without a mode. [`Jit`](crate::Jit) creates traces itself; use this
    /// to inspect programs.
    pub fn new() -> Self {
        Trace::default()
    }

    /// Adds an input of the program. `name`, such as the path of a parameter, appears in messages.
    pub fn input(&self, ty: TensorType, name: impl Into<Arc<str>>) -> Tensor<'_> {
        let mut recording = self.recording.borrow_mut();
        self.tensor(recording.record(ty, false, Some(name.into())))
    }

    /// Records an operation and returns its results. Most operations have a method of [`Tensor`].
    ///
    /// Operands that do not fit are recorded as a mistake; the only result is then an error tensor.
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
            let message = format!("operand {stray} {STRAY}{}", names(operands));
            return vec![self.fail_at(origin, op.name(), message, None)];
        }
        match inferred {
            Ok(results) => {
                let mut recording = self.recording.borrow_mut();
                let results = recording.push(op, ids, results, origin);
                drop(recording);
                results.into_iter().map(|id| self.tensor(id)).collect()
            }
            Err(error) => {
                let name = error.op().to_string();
                let message = format!("{}{}", error.message(), names(operands));
                vec![self.fail_at(origin, name, message, types.first().cloned())]
            }
        }
    }

    /// Records an operation with one result.
    #[track_caller]
    pub fn push_one(&self, op: Op, operands: &[Tensor<'_>]) -> Tensor<'_> {
        self.push(op, operands)[0]
    }

    /// Records an operation with `count` results; returns `count` error tensors if the operands do
    /// not fit.
    #[track_caller]
    pub fn push_many(&self, op: Op, operands: &[Tensor<'_>], count: usize) -> Vec<Tensor<'_>> {
        let mut results = self.push(op, operands);
        while results.len() < count {
            results.push(self.error_like(None));
        }
        results
    }

    /// Records a mistake at the user's line and returns an error tensor.
    ///
    /// `like` is the most likely type of the result, so that code that reads its dimensions can
    /// continue.
    #[track_caller]
    pub fn fail(
        &self,
        op: &str,
        message: impl Into<String>,
        like: Option<TensorType>,
    ) -> Tensor<'_> {
        self.fail_at(self.origin(Location::caller()), op, message, like)
    }

    /// Attributes what is recorded until the guard is dropped to `caller`, unless an outer call
    /// already set a location.
    ///
    /// A layer's `forward` is `#[track_caller]` and begins with
    /// `let _site = x.trace().called_from(Location::caller());`, so that its operations name the
    /// user's line and not the layer's.
    pub fn called_from(&self, caller: &'static Location<'static>) -> CallSite<'_> {
        let outer = self.site.get();
        self.site.set(outer.or(Some(caller)));
        CallSite { trace: self, outer }
    }

    /// The mistakes so far, in the order they were made.
    pub fn mistakes(&self) -> Vec<Mistake> {
        self.recording.borrow().mistakes.clone()
    }

    /// The warnings so far, in the order they were made: code that is valid but hardly intended,
    /// such as parameters without a gradient. [`Jit`](crate::Jit) logs each of them once.
    pub fn warnings(&self) -> Vec<Mistake> {
        self.recording.borrow().warnings.clone()
    }

    /// Checks that no mistake was made so far.
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

    /// Returns the program that computes `outputs` from `inputs`.
    /// [Hyperparameters](Self::hyperparameter) are constants in it.
    ///
    /// # Errors
    /// All mistakes of the trace in one error; or if an output, or a value it depends on, belongs
    /// to the body of a loop or branch, or is an input of the trace that is missing in `inputs`.
    pub fn graph(&self, inputs: &[Tensor<'_>], outputs: &[Tensor<'_>]) -> Result<Graph> {
        self.check()?;
        let ids =
            |tensors: &[Tensor<'_>]| tensors.iter().map(|tensor| tensor.id).collect::<Vec<_>>();
        let (inputs, outputs) = (ids(inputs), ids(outputs));
        let recording = self.recording.borrow();
        recording.check_complete(&inputs, &outputs)?;
        Ok(recording.program(&inputs, &outputs))
    }

    /// Handle on the tensor with this number.
    pub(crate) fn tensor(&self, id: Id) -> Tensor<'_> {
        Tensor { trace: self, id }
    }

    /// The constant `literal`, recorded once per scope.
    #[track_caller]
    pub(crate) fn literal(&self, literal: Literal) -> Tensor<'_> {
        // Bodies of loops and branches have constants of their own, which compilers fold better
        // than values from outside.
        let key = (self.recording.borrow().scope(), literal);
        if let Some(&id) = self.recording.borrow().constants.get(&key) {
            return self.tensor(id);
        }
        let tensor = self.push_one(Op::Constant(key.1.clone()), &[]);
        self.recording.borrow_mut().constants.insert(key, tensor.id);
        tensor
    }

    /// Records `graph` on these inputs, with the locations of its nodes, and returns its outputs.
    ///
    /// Inputs that do not fit the graph are a mistake of the trace.
    ///
    /// # Panics
    /// If the graph uses a value before it computes it, which [`verify`](halite_ir::verify) finds,
    /// or has more inputs than are given.
    #[track_caller]
    pub fn inline<'t>(&'t self, graph: &Graph, inputs: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let mut values: Vec<Option<Tensor<'t>>> = vec![None; graph.value_count()];
        let computed = "operands of a valid graph are computed before they are used";
        for (value, &input) in graph.inputs().iter().zip(inputs) {
            values[value.index()] = Some(input);
        }
        for node in graph.nodes() {
            let operands: Vec<Tensor<'t>> = (node.operands.iter())
                .map(|operand| values[operand.index()].expect(computed))
                .collect();
            let _site = node.origin.map(|origin| self.located_at(origin));
            let results = self.push_many(node.op.clone(), &operands, node.results.len());
            for (value, result) in node.results.iter().zip(results) {
                values[value.index()] = Some(result);
            }
        }
        (graph.outputs().iter())
            .map(|output| values[output.index()].expect(computed))
            .collect()
    }

    /// Error tensor that results from a mistake recorded elsewhere.
    pub(crate) fn error_like(&self, ty: Option<TensorType>) -> Tensor<'_> {
        let ty = ty.unwrap_or_else(|| TensorType::scalar(halite_core::DType::F32));
        self.tensor(self.recording.borrow_mut().record(ty, true, None))
    }

    /// Like [`called_from`](Self::called_from), but overrides an outer location.
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

    /// Records a warning, unless an equal one is already recorded.
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

    /// Whether `tensor` belongs to this trace and to an open scope.
    pub(crate) fn can_use(&self, tensor: Tensor<'_>) -> bool {
        std::ptr::eq(self, tensor.trace) && self.recording.borrow().is_visible(tensor.id)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.recording.borrow())
    }
}

/// ` (operand 1 is `hidden.weight`)`, for operands with names.
pub(crate) fn names(operands: &[Tensor<'_>]) -> String {
    let named: Vec<String> = (operands.iter().enumerate())
        .filter_map(|(index, operand)| {
            let name = operand.name()?;
            Some(format!("operand {index} is `{name}`"))
        })
        .collect();
    if named.is_empty() {
        String::new()
    } else {
        format!(" ({})", named.join(", "))
    }
}

/// Guard that attributes recorded operations to a line of the user: see [`Trace::called_from`].
#[derive(Debug)]
pub struct CallSite<'t> {
    trace: &'t Trace,
    outer: Option<&'static Location<'static>>,
}

impl CallSite<'_> {
    /// Runs a closure of the caller within the function that set this site: what it records has its
    /// own lines.
    pub(crate) fn outside<R>(&self, body: impl FnOnce() -> R) -> R {
        let inner = self.trace.site.replace(self.outer);
        let result = body();
        self.trace.site.set(inner);
        result
    }
}

impl Drop for CallSite<'_> {
    fn drop(&mut self) {
        self.trace.site.set(self.outer);
    }
}

/// The problem with a tensor that cannot be used in the open scope.
pub(crate) const STRAY: &str = "belongs to another trace, or to the body of a loop or branch that \
    is closed; return it from the body instead";
