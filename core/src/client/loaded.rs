//! Compiled programs of any backend.

use std::{fmt, panic::Location, sync::Arc, time::Instant};

use super::Session;
use crate::{
    Arg, DeviceBuffers, DeviceId, Error, ErrorKind, HloSharding, Interpreted, LargeBuffer,
    LaunchObserver, ProgramMemory, QueuedLaunch, Result, Sharding, Signature, TensorType,
    erased::AnyExecutable,
};

/// A compiled program of any backend, loaded on its devices and ready to launch. It corresponds to
/// `PJRT_LoadedExecutable`.
pub struct Loaded {
    executable: Box<dyn AnyExecutable>,
    name: Arc<str>,
    largest: Vec<LargeBuffer>,
    observers: Vec<Box<dyn LaunchObserver>>,
    session: Arc<Session>,
}

impl Loaded {
    pub(super) fn new(
        executable: Box<dyn AnyExecutable>,
        name: Arc<str>,
        session: Arc<Session>,
    ) -> Self {
        Loaded {
            executable,
            name,
            largest: Vec::new(),
            observers: Vec::new(),
            session,
        }
    }

    /// Sets the observers of its launches, and the tensors that out-of-memory errors list.
    pub(super) fn observe(
        &mut self,
        observers: Vec<Box<dyn LaunchObserver>>,
        largest: Vec<LargeBuffer>,
    ) {
        (self.observers, self.largest) = (observers, largest);
    }

    /// The program's name, for messages.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Types of arguments and results, per device.
    pub fn signature(&self) -> &Signature {
        self.executable.signature()
    }

    /// The devices it runs on, in the order of an argument's buffers.
    pub fn devices(&self) -> &[DeviceId] {
        self.executable.devices()
    }

    /// Queues one run. Each argument and each result has a buffer for each of
    /// [`devices`](Self::devices), in that order. The buffers of one argument may be given in
    /// several parts, one after another.
    ///
    /// # Errors
    /// If an argument has another number of buffers, type, device or backend than the program
    /// expects, or is donated and the signature does not list it. Nothing is queued then, but
    /// donated arguments are lost.
    #[track_caller]
    pub fn launch(&self, args: Vec<Arg<'_, DeviceBuffers>>) -> Result<Vec<DeviceBuffers>> {
        let _span = tracing::trace_span!("launch", program = %self.name).entered();
        let started = Instant::now();
        let outputs = match self.executable.launch(args, &self.session) {
            Ok(outputs) => outputs,
            Err(error) => return Err(self.session.explain(error, &self.name, &self.largest)),
        };
        if !self.observers.is_empty() {
            let launch = QueuedLaunch {
                started,
                queued: Instant::now(),
                caller: Location::caller(),
                outputs: &outputs,
            };
            self.observers
                .iter()
                .for_each(|observer| observer.launched(&launch));
        }
        if self.session.blocking_launches {
            wait_for(&outputs)?;
        }
        Ok(outputs)
    }

    /// Serializes the executable, for [`Client::load`](crate::Client::load).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver cannot.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        self.executable.serialize()
    }

    /// Memory that the program needs on each device, as planned by the compiler.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not report it.
    pub fn memory(&self) -> Result<ProgramMemory> {
        self.executable.memory()
    }

    /// The optimized program: its format, such as `hlo_with_config`, and its bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not provide it.
    pub fn optimized(&self) -> Result<(String, Vec<u8>)> {
        self.executable.optimized()
    }

    /// The compiler's cost estimates, as (name, value).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not report them.
    pub fn cost(&self) -> Result<Vec<(String, f64)>> {
        self.executable.cost()
    }

    /// The sharding of each result as the compiler chose it. `None` where the driver does not
    /// report that of one result.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not report them.
    pub fn output_shardings(&self) -> Result<Vec<Option<HloSharding>>> {
        self.executable.output_shardings()
    }

    /// Operations for which the backend has no kernel, so that an interpreter computes them.
    pub fn interpreted(&self) -> Vec<Interpreted> {
        self.executable.interpreted()
    }

    /// Checks that the compiler sharded each result as requested. `expected` has for each result
    /// its name, its global type and its sharding. A sharding that the driver does not report is
    /// taken to be right.
    ///
    /// # Errors
    /// The first result that differs, with both shardings.
    pub fn check_outputs<'a>(
        &self,
        expected: impl IntoIterator<Item = (&'a str, &'a TensorType, &'a Arc<Sharding>)>,
    ) -> Result<()> {
        if self.signature().outputs.is_empty() {
            return Ok(());
        }
        let reported = match self.output_shardings() {
            Ok(reported) => reported,
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
            Err(error) => return Err(error),
        };
        for (i, ((name, ty, sharding), reported)) in expected.into_iter().zip(reported).enumerate()
        {
            let expected = sharding.hlo_sharding(ty.rank());
            if let Some(reported) = reported.filter(|reported| *reported != expected) {
                let name = if name.is_empty() {
                    String::new()
                } else {
                    format!(" (`{name}`)")
                };
                let message = format!(
                    "output {i}{name}, {ty}: requested {sharding}, which is {expected}; the \
                     compiler chose {reported}. Please report it"
                );
                return Err(Error::new(ErrorKind::Internal, "check outputs", message));
            }
        }
        Ok(())
    }
}

/// Blocks until every result is ready.
#[cold]
fn wait_for(outputs: &[DeviceBuffers]) -> Result<()> {
    let mut buffers = outputs.iter().flat_map(DeviceBuffers::iter);
    buffers.try_for_each(|buffer| buffer.ready()?.wait())
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signature = self.signature();
        write!(
            f,
            "Loaded(`{}`, {} inputs, {} outputs, {} devices)",
            self.name,
            signature.inputs.len(),
            signature.outputs.len(),
            self.devices().len()
        )
    }
}
