//! A wrapper of backends that logs every call.

use std::{fmt, sync::Arc, time::Instant};

use halite_core::{
    AlignedBytes, Arg, Backend, Buffer, Capabilities, CompileOptions, Executable, HloSharding,
    HostBytes, Interpreted, Launch, Launched, OnFetched, OnFilled, PinnedMemory, Placement,
    Platform, Program, ProgramKey, ProgramMemory, Result, Signature, TensorType,
};

/// A backend that logs each call of another one with its arguments, duration and error, as events
/// of `tracing` at the level `debug`.
///
/// ```
/// use halite_core::{Client, Null};
/// use halite_plugin::Traced;
///
/// let client = Client::new(Traced::new(Null::new(1)));
/// assert_eq!(client.devices().len(), 1);
/// ```
#[derive(Debug)]
pub struct Traced<B>(B);

impl<B> Traced<B> {
    /// Wraps a backend.
    pub fn new(backend: B) -> Self {
        Traced(backend)
    }
}

/// Runs a call, and logs it.
fn log<T>(call: &str, about: impl fmt::Display, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let result = run();
    let microseconds = started.elapsed().as_micros();
    match &result {
        Ok(_) => tracing::debug!(call, microseconds, "{about}"),
        Err(error) => tracing::debug!(call, microseconds, %error, "{about}"),
    }
    result
}

impl<B: Backend> Backend for Traced<B> {
    type Device = B::Device;
    type Buffer = TracedBuffer<B::Buffer>;
    type Executable = TracedExecutable<B>;
    type Event = B::Event;

    fn platform(&self) -> &Platform {
        self.0.platform()
    }

    fn devices(&self) -> &[B::Device] {
        self.0.devices()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<Self::Buffer> {
        let about = format_args!("{ty} to {:?} of device {}", to.memory, to.device.0);
        log("upload", about, || self.0.upload(bytes, ty, to)).map(TracedBuffer)
    }

    fn pinned_memory(&self, bytes: usize) -> Result<Option<Box<dyn PinnedMemory>>> {
        let about = format_args!("{bytes} bytes");
        log("pinned_memory", about, || self.0.pinned_memory(bytes))
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<Self::Executable> {
        let executable = log("compile", &program.name, || {
            self.0.compile(program, options)
        })?;
        Ok(TracedExecutable {
            executable,
            name: program.name.clone(),
        })
    }

    fn load(
        &self,
        serialized: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<Self::Executable> {
        let executable = log("load", name, || {
            self.0.load(serialized, name, signature, options)
        })?;
        Ok(TracedExecutable {
            executable,
            name: name.clone(),
        })
    }

    fn program_key(&self, program: &Program, options: &CompileOptions) -> Option<ProgramKey> {
        self.0.program_key(program, options)
    }
}

/// A buffer of [`Traced`].
#[derive(Debug)]
pub struct TracedBuffer<B>(B);

impl<B: Buffer> Buffer for TracedBuffer<B> {
    type Event = B::Event;

    fn tensor_type(&self) -> &TensorType {
        self.0.tensor_type()
    }

    fn placement(&self) -> Placement {
        self.0.placement()
    }

    fn ready(&self) -> Result<B::Event> {
        log("ready", self.tensor_type(), || self.0.ready())
    }

    fn copy_to(&self, place: Placement) -> Result<Self> {
        let about = format_args!("{} to device {}", self.tensor_type(), place.device.0);
        log("copy_to", about, || self.0.copy_to(place)).map(TracedBuffer)
    }

    fn read(&self, into: &mut [u8]) -> Result<()> {
        log("read", self.tensor_type(), || self.0.read(into))
    }

    fn fetch(&self, then: OnFetched) {
        _ = log("fetch", self.tensor_type(), || {
            self.0.fetch(then);
            Ok(())
        });
    }

    fn fetch_into(&self, memory: AlignedBytes, then: OnFilled) {
        _ = log("fetch_into", self.tensor_type(), || {
            self.0.fetch_into(memory, then);
            Ok(())
        });
    }
}

/// An executable of [`Traced`].
pub struct TracedExecutable<B: Backend> {
    executable: B::Executable,
    name: Arc<str>,
}

impl<B: Backend> fmt::Debug for TracedExecutable<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.executable.fmt(f)
    }
}

impl<B: Backend> Executable<Traced<B>> for TracedExecutable<B> {
    fn signature(&self) -> &Signature {
        self.executable.signature()
    }

    fn devices(&self) -> &[halite_core::DeviceId] {
        self.executable.devices()
    }

    fn launch(
        &self,
        launch: Launch<'_, TracedBuffer<B::Buffer>>,
    ) -> Result<Launched<TracedBuffer<B::Buffer>>> {
        fn inner<B>(arg: Arg<'_, TracedBuffer<B>>) -> Arg<'_, B> {
            match arg {
                Arg::Borrow(buffer) => Arg::Borrow(&buffer.0),
                Arg::Donate(buffer) => Arg::Donate(buffer.0),
            }
        }
        let args = launch.args.into_iter();
        let args = args
            .map(|row| row.into_iter().map(inner).collect())
            .collect();
        let launched = log("launch", &self.name, || {
            self.executable.launch(Launch { args })
        })?;
        let outputs = launched.outputs.into_iter();
        Ok(Launched {
            outputs: outputs
                .map(|row| row.into_iter().map(TracedBuffer).collect())
                .collect(),
        })
    }

    fn serialize(&self) -> Result<Vec<u8>> {
        log("serialize", &self.name, || self.executable.serialize())
    }

    fn memory(&self) -> Result<ProgramMemory> {
        log("memory", &self.name, || self.executable.memory())
    }

    fn output_shardings(&self) -> Result<Vec<Option<HloSharding>>> {
        log("output_shardings", &self.name, || {
            self.executable.output_shardings()
        })
    }

    fn cost(&self) -> Result<Vec<(String, f64)>> {
        log("cost", &self.name, || self.executable.cost())
    }

    fn interpreted(&self) -> Vec<Interpreted> {
        self.executable.interpreted()
    }

    fn optimized(&self) -> Result<(String, Vec<u8>)> {
        log("optimized", &self.name, || self.executable.optimized())
    }
}
