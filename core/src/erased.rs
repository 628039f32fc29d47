//! Type erasure of backends: object-safe twins of the contract's traits, and the checked downcast of
//! launch arguments. Nothing else in the crate converts between the two.

use std::{any::Any, fmt::Debug, sync::Arc};

use crate::{
    Arg, Backend, Buffer, CompileOptions, Device, DeviceBuffer, DeviceId, Error, Event, Executable,
    HloSharding, HostBytes, Launch, Launched, OnFetched, OnReady, Placement, Platform, Program,
    ProgramKey, ProgramMemory, Result, Signature, TensorType, client::Session,
};

pub(crate) trait AnyEvent: Send + Sync {
    fn is_ready(&self) -> bool;
    fn wait(&self) -> Result<()>;
    fn on_ready(&self, then: OnReady);
    fn notify_when_ready(&self, notify: OnReady);
    fn unfinished(&self) -> String;
}

impl<E: Event> AnyEvent for E {
    fn is_ready(&self) -> bool {
        Event::is_ready(self)
    }
    fn wait(&self) -> Result<()> {
        Event::wait(self)
    }
    fn on_ready(&self, then: OnReady) {
        Event::on_ready(self, then);
    }
    fn notify_when_ready(&self, notify: OnReady) {
        Event::notify_when_ready(self, notify);
    }
    fn unfinished(&self) -> String {
        Event::unfinished(self)
    }
}

pub(crate) trait AnyBuffer: Any + Debug + Send + Sync {
    fn tensor_type(&self) -> &TensorType;
    fn placement(&self) -> Placement;
    fn ready(&self) -> Result<Box<dyn AnyEvent>>;
    fn copy_to(&self, place: Placement) -> Result<Box<dyn AnyBuffer>>;
    fn read(&self, into: &mut [u8]) -> Result<()>;
    fn fetch(&self, then: OnFetched);
}

impl<B: Buffer> AnyBuffer for B {
    fn tensor_type(&self) -> &TensorType {
        Buffer::tensor_type(self)
    }
    fn placement(&self) -> Placement {
        Buffer::placement(self)
    }
    fn ready(&self) -> Result<Box<dyn AnyEvent>> {
        Ok(Box::new(Buffer::ready(self)?))
    }
    fn copy_to(&self, place: Placement) -> Result<Box<dyn AnyBuffer>> {
        Ok(Box::new(Buffer::copy_to(self, place)?))
    }
    fn read(&self, into: &mut [u8]) -> Result<()> {
        Buffer::read(self, into)
    }
    fn fetch(&self, then: OnFetched) {
        Buffer::fetch(self, then);
    }
}

pub(crate) trait AnyBackend: Debug + Send + Sync {
    fn platform(&self) -> &Platform;
    fn devices(&self) -> Vec<&dyn Device>;
    fn upload(
        &self,
        bytes: HostBytes<'_>,
        ty: &TensorType,
        to: Placement,
    ) -> Result<Box<dyn AnyBuffer>>;
    fn compile(
        &self,
        program: &Program,
        options: &CompileOptions,
    ) -> Result<Box<dyn AnyExecutable>>;
    fn load(
        &self,
        serialized: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<Box<dyn AnyExecutable>>;
    fn program_key(&self, program: &Program, options: &CompileOptions) -> Option<ProgramKey>;
}

impl<B: Backend> AnyBackend for B {
    fn platform(&self) -> &Platform {
        Backend::platform(self)
    }
    fn devices(&self) -> Vec<&dyn Device> {
        Backend::devices(self)
            .iter()
            .map(|device| device as &dyn Device)
            .collect()
    }
    fn upload(
        &self,
        bytes: HostBytes<'_>,
        ty: &TensorType,
        to: Placement,
    ) -> Result<Box<dyn AnyBuffer>> {
        Ok(Box::new(Backend::upload(self, bytes, ty, to)?))
    }
    fn compile(
        &self,
        program: &Program,
        options: &CompileOptions,
    ) -> Result<Box<dyn AnyExecutable>> {
        let platform = Backend::platform(self).name.clone();
        Ok(Box::new(Typed::<B> {
            platform,
            executable: Backend::compile(self, program, options)?,
        }))
    }
    fn load(
        &self,
        serialized: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<Box<dyn AnyExecutable>> {
        let platform = Backend::platform(self).name.clone();
        Ok(Box::new(Typed::<B> {
            platform,
            executable: Backend::load(self, serialized, name, signature, options)?,
        }))
    }
    fn program_key(&self, program: &Program, options: &CompileOptions) -> Option<ProgramKey> {
        Backend::program_key(self, program, options)
    }
}

pub(crate) trait AnyExecutable: Debug + Send + Sync {
    fn signature(&self) -> &Signature;
    fn devices(&self) -> &[DeviceId];
    /// Queues one run, whose results belong to `session`.
    fn launch(
        &self,
        launch: Launch<'_, DeviceBuffer>,
        session: &Arc<Session>,
    ) -> Result<Launched<DeviceBuffer>>;
    fn serialize(&self) -> Result<Vec<u8>>;
    fn memory(&self) -> Result<ProgramMemory>;
    fn cost(&self) -> Result<Vec<(String, f64)>>;
    fn output_shardings(&self) -> Result<Vec<Option<HloSharding>>>;
    fn optimized(&self) -> Result<(String, Vec<u8>)>;
}

#[derive(Debug)]
struct Typed<B: Backend> {
    platform: Arc<str>,
    executable: B::Executable,
}

impl<B: Backend> Typed<B> {
    fn downcast<'a>(&self, arg: Arg<'a, DeviceBuffer>) -> Result<Arg<'a, B::Buffer>> {
        match arg {
            Arg::Borrow(buffer) => (&*buffer.buffer as &dyn Any)
                .downcast_ref()
                .map(Arg::Borrow),
            Arg::Donate(buffer) => (buffer.buffer as Box<dyn Any>)
                .downcast()
                .map(|buffer| Arg::Donate(*buffer))
                .ok(),
        }
        .ok_or_else(|| self.foreign())
    }

    #[cold]
    fn foreign(&self) -> Error {
        let message = format!(
            "an argument is a buffer of another backend; this program runs on {}",
            self.platform
        );
        Error::invalid("launch", message).on(&self.platform)
    }
}

impl<B: Backend> AnyExecutable for Typed<B> {
    fn signature(&self) -> &Signature {
        self.executable.signature()
    }
    fn devices(&self) -> &[DeviceId] {
        self.executable.devices()
    }
    fn launch(
        &self,
        launch: Launch<'_, DeviceBuffer>,
        session: &Arc<Session>,
    ) -> Result<Launched<DeviceBuffer>> {
        // `collect` reuses the allocation if the backend's buffers are not larger than handles.
        let downcast = |row: Vec<_>| row.into_iter().map(|arg| self.downcast(arg)).collect();
        let args = launch
            .args
            .into_iter()
            .map(downcast)
            .collect::<Result<_>>()?;
        let launched = self.executable.launch(Launch { args })?;
        let erase = |buffer| DeviceBuffer {
            buffer: Box::new(buffer),
            session: session.clone(),
        };
        Ok(Launched {
            outputs: launched
                .outputs
                .into_iter()
                .map(|row| row.into_iter().map(erase).collect())
                .collect(),
        })
    }
    fn serialize(&self) -> Result<Vec<u8>> {
        self.executable.serialize()
    }
    fn memory(&self) -> Result<ProgramMemory> {
        self.executable.memory()
    }
    fn cost(&self) -> Result<Vec<(String, f64)>> {
        self.executable.cost()
    }
    fn output_shardings(&self) -> Result<Vec<Option<HloSharding>>> {
        self.executable.output_shardings()
    }
    fn optimized(&self) -> Result<(String, Vec<u8>)> {
        self.executable.optimized()
    }
}
