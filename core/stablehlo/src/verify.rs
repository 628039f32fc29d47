//! Checks of programs: the constraints of the specification that executors rely on.
//!
//! [`infer`](infer::infer) computes the types of an operation's results from its operands,
//! attributes and regions, by the [`rules`](crate::rules), and so checks those; [`Walk`] checks definitions and uses of values, and
//! compares the computed types with the declared ones. `calls` checks what functions call.

mod calls;
mod collective;
mod control;
mod infer;
mod linalg;
mod reduce;
mod sharding;
mod typed;

use std::fmt;

use halite_core::{Error, Result};

use crate::{
    Attribute, Function, Module, OpKind, Operation, Region, Type, ValueId,
    rules::{Check, ensure},
};

pub(crate) use self::sharding::check as check_sharding;
use self::{
    calls::CallSite,
    typed::{Functions, Typed, check_dense, check_size, check_types},
};

impl Module {
    /// Largest nesting of a program: regions and calls along any path from `main`.
    pub const MAX_NESTING: usize = 256;

    /// Largest number of operations of a function that calls others, with theirs at each call: a
    /// few functions that call each other twice have any number.
    pub const MAX_OPERATIONS: usize = 1 << 20;

    /// Largest number of devices of a program: its partitions times its replicas.
    pub const MAX_DEVICES: usize = 1 << 20;

    /// Largest number of dimensions of a tensor.
    pub const MAX_RANK: usize = 64;

    /// Checks the constraints of the specification (<https://openxla.org/stablehlo/spec>).
    ///
    /// After it succeeds, an executor may rely on the numbers and types of operands, results and
    /// regions, on attributes that fit them, on values that are defined before they are used, on
    /// sizes whose products fit `isize`, and on calls that end, at most
    /// [`MAX_NESTING`](Self::MAX_NESTING) deep, and expand to at most
    /// [`MAX_OPERATIONS`](Self::MAX_OPERATIONS) operations. It may index without further checks, as
    /// long as it clamps or skips what operands determine: start indices, the index of `case`.
    ///
    /// Where the specification leaves freedom, these rules hold:
    /// - The operands and the result of `dot_general` and of `convolution` may have different
    ///   element types, as JAX emits them (`i32` times `f32`); the result's can hold the operands'.
    /// - The element types of a reduction's operands, initial values and region are the same.
    /// - `gather` takes no elements from an empty operand.
    /// - `scatter` skips an update whose window is partly outside of the operand as a whole, as XLA
    ///   does; the specification skips the elements that are outside.
    /// - Groups of replicas with all of their partitions, those of a reduction with a channel and
    ///   without `use_global_device_ids`, have replicas outermost, as in XLA.
    /// - The region of a manual computation uses no values of enclosing regions.
    /// - The dimensions of `rng` are those of its result; the operand `shape` is not read.
    /// - Operands and results of `custom_call` have any types: an executor that knows the target
    ///   checks them.
    ///
    /// # Errors
    /// [`InvalidArgument`](halite_core::ErrorKind::InvalidArgument) with the operation, its
    /// position in the program and the user's source line.
    pub fn verify(&self) -> Result<()> {
        self.main()?;
        check_devices(self)?;
        let mut functions = Functions::with_capacity(self.functions.len());
        for function in &self.functions {
            let place = Place::Function(function);
            if functions.insert(&function.name, function).is_some() {
                return Err(place.invalid("two functions have this name"));
            }
            check_header(self, function).map_err(|message| place.invalid(message))?;
        }
        let mut sites = Vec::with_capacity(self.functions.len());
        for function in &self.functions {
            sites.push(Walk::new(self, &functions, function).run()?);
        }
        calls::check(self, &sites)
    }
}

const OP: &str = "program";

/// Checks the numbers of partitions and replicas, and the meshes.
pub(crate) fn check_devices(module: &Module) -> Result<()> {
    let checked = check_processes(module).and_then(|()| sharding::check_meshes(module));
    checked.map_err(|message| Error::invalid(OP, message))
}

/// Where an error occurred.
#[derive(Clone, Copy)]
enum Place<'a> {
    Function(&'a Function),
    Operation(&'a Operation),
}

impl Place<'_> {
    fn invalid(self, message: impl fmt::Display) -> Error {
        Error::invalid(OP, format!("{self}: {message}"))
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Function(function) => write!(f, "function `{}`", function.name),
            Place::Operation(operation) => operation.fmt(f),
        }
    }
}

/// Checks the numbers of partitions and replicas.
fn check_processes(module: &Module) -> Check {
    for name in ["mhlo.num_partitions", "mhlo.num_replicas"] {
        match module.attributes.get(name) {
            None => {}
            Some(&Attribute::Int(count, _)) if count > 0 => {}
            Some(other) => {
                return Err(format!(
                    "`{name}` is {other:?}; it must be an integer from 1"
                ));
            }
        }
    }
    let (partitions, replicas) = (module.partitions(), module.replicas());
    let devices = partitions.checked_mul(replicas);
    ensure!(
        devices.is_some_and(|devices| devices <= Module::MAX_DEVICES),
        "it has {partitions} partitions in each of {replicas} replicas; their product must not \
         exceed {}",
        Module::MAX_DEVICES
    );
    Ok(())
}

/// Checks of a function what calls of it and its own operations rely on.
fn check_header(module: &Module, function: &Function) -> Check {
    for ty in &function.types {
        check_size(ty)?;
    }
    let inputs = &function.body.arguments;
    let outputs = &function.body.results;
    for (what, values, attributes) in [
        ("inputs", inputs, &function.input_attributes),
        ("outputs", outputs, &function.output_attributes),
    ] {
        ensure!(
            attributes.len() == values.len(),
            "it has {} {what}, and attributes of {}",
            values.len(),
            attributes.len()
        );
        for (&value, attributes) in values.iter().zip(attributes) {
            let ty = known_type(function, value)?;
            sharding::check_attributes(module, attributes, &[ty])?;
        }
    }
    Ok(())
}

/// The type of a value that may not exist.
fn known_type(function: &Function, value: ValueId) -> Check<&Type> {
    (function.types.get(value.0 as usize)).ok_or_else(|| {
        format!(
            "value {} does not exist; the function has {} values",
            value.0,
            function.types.len()
        )
    })
}

/// State of a value while its function is checked.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Undefined,
    /// Defined in a region within this number of manual computations.
    Visible(usize),
    /// Defined in a region that has ended.
    OutOfScope,
}

/// Walk over the operations of a function in their order.
struct Walk<'a> {
    module: &'a Module,
    functions: &'a Functions<'a>,
    function: &'a Function,
    /// By [`ValueId`].
    states: Vec<State>,
    /// Values that are visible, in the order of their definitions.
    visible: Vec<ValueId>,
    /// Number of manual computations around the current region.
    manual: usize,
    calls: Vec<CallSite<'a>>,
}

impl<'a> Walk<'a> {
    fn new(module: &'a Module, functions: &'a Functions<'a>, function: &'a Function) -> Self {
        Walk {
            module,
            functions,
            function,
            states: vec![State::Undefined; function.types.len()],
            visible: Vec::new(),
            manual: 0,
            calls: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Vec<CallSite<'a>>> {
        self.region(&self.function.body, Place::Function(self.function), 0)?;
        Ok(self.calls)
    }

    fn region(&mut self, region: &'a Region, place: Place<'a>, nesting: usize) -> Result<()> {
        let outer = self.visible.len();
        for &argument in &region.arguments {
            self.define(argument)
                .map_err(|error| place.invalid(error))?;
        }
        for op in &region.operations {
            self.operation(op, nesting)?;
        }
        for &result in &region.results {
            self.check_visible(result)
                .map_err(|error| place.invalid(error))?;
        }
        for value in self.visible.drain(outer..) {
            self.states[value.0 as usize] = State::OutOfScope;
        }
        Ok(())
    }

    fn operation(&mut self, op: &'a Operation, nesting: usize) -> Result<()> {
        let place = Place::Operation(op);
        let invalid = |message| place.invalid(message);
        for &operand in &op.operands {
            self.check_visible(operand).map_err(invalid)?;
        }
        if !op.regions.is_empty() && nesting >= Module::MAX_NESTING {
            return Err(place.invalid(too_deep()));
        }
        let is_manual = usize::from(matches!(op.kind, OpKind::ManualComputation(_)));
        self.manual += is_manual;
        for region in &op.regions {
            self.region(region, place, nesting + 1)?;
        }
        self.manual -= is_manual;
        for &result in &op.results {
            self.define(result).map_err(invalid)?;
        }
        let typed = Typed::new(self.module, self.functions, self.function, op);
        check_results(&typed).map_err(invalid)?;
        sharding::check_attributes(self.module, &op.attributes, &typed.results())
            .map_err(invalid)?;
        self.calls.extend(calls::sites(op, nesting));
        Ok(())
    }

    fn define(&mut self, value: ValueId) -> Check {
        known_type(self.function, value)?;
        let state = &mut self.states[value.0 as usize];
        ensure!(
            *state == State::Undefined,
            "value {} is defined twice",
            value.0
        );
        *state = State::Visible(self.manual);
        self.visible.push(value);
        Ok(())
    }

    fn check_visible(&self, value: ValueId) -> Check {
        known_type(self.function, value)?;
        match self.states[value.0 as usize] {
            State::Visible(manual) if manual == self.manual => Ok(()),
            State::Visible(_) => Err(format!(
                "value {} is defined outside of the manual computation that uses it; it must be \
                 an operand of it",
                value.0
            )),
            State::Undefined => Err(format!("value {} is used before its definition", value.0)),
            State::OutOfScope => Err(format!(
                "value {} is used outside of the region that defines it",
                value.0
            )),
        }
    }
}

fn too_deep() -> String {
    format!(
        "regions and calls are nested more than {} deep",
        Module::MAX_NESTING
    )
}

/// Checks an operation, and its results against the types that follow from the rest of it.
fn check_results(op: &Typed<'_>) -> Check {
    if let OpKind::Constant(value) = op.kind() {
        check_dense(value)?;
    }
    let inferred = infer::infer(op)?;
    check_types("result", &op.results(), &inferred)
}
