//! Compiled programs of any backend.

use std::{fmt, panic::Location, sync::Arc, time::Instant};

use super::{
    DeviceBuffers, LaunchObserver, QueuedLaunch,
    erased::AnyExecutable,
    session::{Producer, Session},
};
use crate::{
    Arg, DeviceId, Error, ErrorKind, HloSharding, Interpreted, LargeBuffer, ProgramMemory, Result,
    Sharding, Signature, TensorType,
};

/// A compiled program of any backend, loaded on its devices and ready to launch. It corresponds to
/// `PJRT_LoadedExecutable`.
pub struct Loaded {
    executable: Box<dyn AnyExecutable>,
    name: Arc<str>,
    observers: Vec<Box<dyn LaunchObserver>>,
    /// That of the client, and of the results: it names the program.
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
        self.observers = observers;
        let producer = Producer {
            name: self.name.clone(),
            largest,
        };
        self.session = Arc::new(Session {
            producer: Some(Arc::new(producer)),
            ..(*self.session).clone()
        });
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
            Err(error) => return Err(self.explain(error)),
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

    #[cold]
    fn explain(&self, error: Error) -> Error {
        let largest = self.session.producer.as_ref();
        let largest = largest.map_or(&[][..], |producer| &producer.largest);
        self.session.explain(error, &self.name, largest)
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

#[cfg(test)]
mod tests {
    use crate::{
        Client, CompileCause, CompileOptions, DType, Error, ErrorKind, LargeBuffer, Null, Program,
        Signature, TensorType,
    };

    #[test]
    fn error_of_a_result_names_tensors_and_users() {
        let client = Client::new(Null::new(1))
            .with_other_users(|| Some("4242 has the device open".to_owned()));
        let ty = TensorType::new(DType::F32, [1000, 1000]);
        let program = Program {
            name: "step".into(),
            code: Vec::new().into(),
            signature: Signature {
                outputs: vec![ty.clone()],
                ..Signature::default()
            },
            partitions: 1,
            replicas: 1,
        };
        let cause = CompileCause {
            largest: vec![LargeBuffer {
                what: "exponential".into(),
                ty,
                line: None,
            }],
            ..CompileCause::default()
        };
        let loaded = client
            .compile_because(&program, &CompileOptions::default(), cause)
            .unwrap();
        let results = loaded.launch(vec![]).unwrap();
        let session = &results[0].session;
        let error = |kind| {
            session
                .explain_queued(Error::new(kind, "fetch", "4 MB"))
                .to_string()
        };
        assert_eq!(
            error(ErrorKind::OutOfMemory),
            "fetch: 4 MB; `step`, or a program whose results it takes, needs more memory than there \
             is; `step`'s largest tensors: exponential f32[1000, 1000], 4.00 MB; what helps: a \
             smaller batch, more devices to share the model or the batch, `checkpoint` around \
             layers, bf16; 4242 has the device open"
        );
        assert_eq!(error(ErrorKind::Internal), "fetch: 4 MB");
        // Results can be used where the client's own buffers can.
        assert_eq!(results[0].client_id(), client.id());
    }
}
