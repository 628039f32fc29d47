//! Custom calls: Rust functions that programs call by the name of their target.
//!
//! [`register`] adds a function to the process, as `jax.ffi.register_ffi_target` does in JAX.
//! Programs call it with `stablehlo.custom_call @target`, API version 4. Backends run it on the
//! thread of the device, on the device's buffers, once per device: XLA's CPU plugin, by the XLA
//! FFI, and the embedded executor. The memory of accelerators is out of reach of a Rust function.
//!
//! ```
//! use halite_core::custom_call;
//!
//! custom_call::register("scale", |call| {
//!     let factor = call.attributes().float("factor")? as f32;
//!     let ([x], [y]) = call.buffers()?;
//!     for (y, x) in y.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
//!         *y = factor * x;
//!     }
//!     Ok(())
//! })?;
//! assert!(custom_call::target("scale").is_some());
//! # halite_core::Result::<()>::Ok(())
//! ```

mod arguments;

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock},
};

pub use arguments::{Arguments, Attribute, Attributes, InputBuffer, OutputBuffer};

use crate::{Error, ErrorKind, Result, guard::panic_message};

/// Largest number of targets in a process. Drivers need a C function for each.
pub const MAX_TARGETS: usize = 256;

const OP: &str = "custom call";

/// Targets in the order of registration. None is ever removed: compiled programs call them.
static TARGETS: RwLock<Vec<Arc<Target>>> = RwLock::new(Vec::new());

/// Function of a target.
type Function = dyn Fn(&mut Arguments<'_>) -> Result<()> + Send + Sync;

/// A registered function, for backends.
pub struct Target {
    name: String,
    function: Box<Function>,
}

/// Registers `function` as the target `name` for the rest of the process.
///
/// It computes the outputs from the inputs and attributes of one call, and nothing else: programs
/// may drop, merge and repeat calls, unless these have side effects. Calls of several devices may
/// run at the same time, or one after the other. An error or a panic is the error of the launch,
/// with the name of the target. `function` must not wait for other work of the program.
///
/// # Errors
/// If the name is empty or already registered, or [`MAX_TARGETS`] are.
pub fn register(
    name: impl Into<String>,
    function: impl Fn(&mut Arguments<'_>) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let (name, mut targets) = (name.into(), write());
    if name.is_empty() {
        return Err(Error::invalid(OP, "the name of the target is empty"));
    }
    if targets.iter().any(|target| target.name == name) {
        let message = format!("the target `{name}` is already registered; choose another name");
        return Err(Error::invalid(OP, message));
    }
    if targets.len() == MAX_TARGETS {
        let message = format!(
            "the target `{name}` is one more than the {MAX_TARGETS} of a process; tell functions \
             apart by an attribute instead"
        );
        return Err(Error::invalid(OP, message));
    }
    let function = Box::new(function);
    targets.push(Arc::new(Target { name, function }));
    Ok(())
}

/// Registered targets, in the order of registration. The list only grows.
pub fn targets() -> Vec<Arc<Target>> {
    read().clone()
}

/// The target with this name, if it is registered.
pub fn target(name: &str) -> Option<Arc<Target>> {
    read().iter().find(|target| target.name == name).cloned()
}

/// The target at this position in the order of registration.
pub fn target_at(index: usize) -> Option<Arc<Target>> {
    read().get(index).cloned()
}

fn read() -> std::sync::RwLockReadGuard<'static, Vec<Arc<Target>>> {
    TARGETS.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> std::sync::RwLockWriteGuard<'static, Vec<Arc<Target>>> {
    TARGETS.write().unwrap_or_else(PoisonError::into_inner)
}

impl Target {
    /// Name that programs call it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs one call.
    ///
    /// # Errors
    /// The error of the function, or its panic as an [`ErrorKind::Internal`].
    pub fn run(&self, mut arguments: Arguments<'_>) -> Result<()> {
        // A function that panics leaves its own state behind, and outputs that nobody reads.
        let run = AssertUnwindSafe(|| (self.function)(&mut arguments));
        let (kind, message) = match catch_unwind(run) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => (error.kind(), error.message().to_owned()),
            Err(panic) => (
                ErrorKind::Internal,
                format!("panicked: {}", panic_message(&*panic)),
            ),
        };
        let message = format!("`{}`: {message}", self.name);
        Err(Error::new(kind, OP, message))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.name)
    }
}

#[cfg(test)]
mod tests;
