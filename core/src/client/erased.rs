//! Type erasure of backends: object-safe twins of the contract's traits, and the checked downcast
//! of launch arguments. Nothing else in the crate converts between the two.

use std::{any::Any, fmt::Debug, sync::Arc};

use super::{DeviceBuffers, session::Session};
use crate::{
    AlignedBytes, Arg, Backend, Buffer, CompileOptions, Device, DeviceId, Error, ErrorKind, Event,
    Executable, HloSharding, HostBytes, Interpreted, Launch, OnFetched, OnFilled, OnReady,
    PinnedMemory, Placement, Platform, Program, ProgramKey, ProgramMemory, Result, Signature,
    TensorType,
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

pub(crate) trait AnyBuffer {
    fn tensor_type(&self) -> &TensorType;
    fn placement(&self) -> Placement;
    fn ready(&self) -> Result<Box<dyn AnyEvent>>;
    fn copy_to(&self, place: Placement) -> Result<Box<dyn AnyBuffers>>;
    fn read(&self, into: &mut [u8]) -> Result<()>;
    fn fetch(&self, then: OnFetched);
    fn fetch_into(&self, memory: AlignedBytes, then: OnFilled);
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
    fn copy_to(&self, place: Placement) -> Result<Box<dyn AnyBuffers>> {
        Ok(one(Buffer::copy_to(self, place)?))
    }
    fn read(&self, into: &mut [u8]) -> Result<()> {
        Buffer::read(self, into)
    }
    fn fetch(&self, then: OnFetched) {
        Buffer::fetch(self, then);
    }
    fn fetch_into(&self, memory: AlignedBytes, then: OnFilled) {
        Buffer::fetch_into(self, memory, then);
    }
}

/// Buffers of one backend. They are erased together, so that a launch over many devices downcasts
/// and allocates once for each array, not for each of its buffers.
pub(crate) trait AnyBuffers: Any + Send + Sync {
    fn len(&self) -> usize;
    fn get(&self, index: usize) -> Option<&dyn AnyBuffer>;
    /// Moves the buffers of `more` to the end; `false` if they belong to another backend.
    fn append(&mut self, more: Box<dyn AnyBuffers>) -> bool;
    /// Each buffer for itself.
    fn split(self: Box<Self>) -> Vec<Box<dyn AnyBuffers>>;
}

struct TypedBuffers<B>(Vec<B>);

/// Erases one buffer.
fn one<B: Buffer>(buffer: B) -> Box<dyn AnyBuffers> {
    Box::new(TypedBuffers(vec![buffer]))
}

impl<B: Buffer> AnyBuffers for TypedBuffers<B> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, index: usize) -> Option<&dyn AnyBuffer> {
        self.0.get(index).map(|buffer| buffer as &dyn AnyBuffer)
    }
    fn append(&mut self, more: Box<dyn AnyBuffers>) -> bool {
        let more = (more as Box<dyn Any>).downcast::<Self>();
        more.map(|mut more| self.0.append(&mut more.0)).is_ok()
    }
    fn split(self: Box<Self>) -> Vec<Box<dyn AnyBuffers>> {
        self.0.into_iter().map(one).collect()
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
    ) -> Result<Box<dyn AnyBuffers>>;
    fn pinned_memory(&self, bytes: usize) -> Result<Option<Box<dyn PinnedMemory>>>;
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
    ) -> Result<Box<dyn AnyBuffers>> {
        Ok(one(Backend::upload(self, bytes, ty, to)?))
    }
    fn pinned_memory(&self, bytes: usize) -> Result<Option<Box<dyn PinnedMemory>>> {
        Backend::pinned_memory(self, bytes)
    }
    fn compile(
        &self,
        program: &Program,
        options: &CompileOptions,
    ) -> Result<Box<dyn AnyExecutable>> {
        Ok(Box::new(Typed::<B> {
            platform: Backend::platform(self).name.clone(),
            name: program.name.clone(),
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
        Ok(Box::new(Typed::<B> {
            platform: Backend::platform(self).name.clone(),
            name: name.clone(),
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
        args: Vec<Arg<'_, DeviceBuffers>>,
        session: &Arc<Session>,
    ) -> Result<Vec<DeviceBuffers>>;
    fn serialize(&self) -> Result<Vec<u8>>;
    fn memory(&self) -> Result<ProgramMemory>;
    fn cost(&self) -> Result<Vec<(String, f64)>>;
    fn output_shardings(&self) -> Result<Vec<Option<HloSharding>>>;
    fn interpreted(&self) -> Vec<Interpreted>;
    fn optimized(&self) -> Result<(String, Vec<u8>)>;
}

#[derive(Debug)]
struct Typed<B: Backend> {
    platform: Arc<str>,
    /// The program's name, for messages.
    name: Arc<str>,
    executable: B::Executable,
}

impl<B: Backend> Typed<B> {
    /// Adds the buffers of an argument, or of a part of it, to the `rows` of their devices. Returns
    /// the empty list of a donated one.
    fn add<'a>(
        &self,
        arg: Arg<'a, DeviceBuffers>,
        rows: &mut [Vec<Arg<'a, B::Buffer>>],
    ) -> Result<Option<Box<TypedBuffers<B::Buffer>>>> {
        match arg {
            Arg::Borrow(buffers) => {
                let buffers: Option<&TypedBuffers<_>> =
                    (&*buffers.buffers as &dyn Any).downcast_ref();
                let buffers = buffers.ok_or_else(|| self.foreign())?;
                for (row, buffer) in rows.iter_mut().zip(&buffers.0) {
                    row.push(Arg::Borrow(buffer));
                }
                Ok(None)
            }
            Arg::Donate(buffers) => {
                let buffers = (buffers.buffers as Box<dyn Any>).downcast();
                let mut buffers: Box<TypedBuffers<_>> = buffers.map_err(|_| self.foreign())?;
                for (row, buffer) in rows.iter_mut().zip(buffers.0.drain(..)) {
                    row.push(Arg::Donate(buffer));
                }
                Ok(Some(buffers))
            }
        }
    }

    #[cold]
    fn foreign(&self) -> Error {
        let message = format!(
            "an argument of `{}` is a buffer of another backend; this program runs on {}",
            self.name, self.platform
        );
        Error::invalid("launch", message).on(&self.platform)
    }

    #[cold]
    fn refuse_count(&self, given: usize, devices: usize) -> Error {
        let message = format!(
            "an argument of `{}` has {given} buffers, expected one for each of {devices} devices",
            self.name
        );
        Error::invalid("launch", message).on(&self.platform)
    }

    #[cold]
    fn refuse_results(&self, launched: &[Vec<B::Buffer>], expected: usize) -> Error {
        let given: Vec<_> = launched.iter().map(Vec::len).collect();
        let message = format!(
            "`Executable::launch` of `{}` returned {given:?} results per device, expected \
             {expected} on each of {} devices",
            self.name,
            self.executable.devices().len()
        );
        Error::new(ErrorKind::Internal, "launch", message).on(&self.platform)
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
        args: Vec<Arg<'_, DeviceBuffers>>,
        session: &Arc<Session>,
    ) -> Result<Vec<DeviceBuffers>> {
        let (devices, outputs) = (
            self.executable.devices().len(),
            self.executable.signature().outputs.len(),
        );
        let mut rows: Vec<_> = (0..devices)
            .map(|_| Vec::with_capacity(args.len()))
            .collect();
        // The lists of donated arrays become those of the results.
        let mut lists = Vec::with_capacity(outputs);
        let mut device = 0;
        for arg in args {
            let (first, given) = (device, arg.buffer().len());
            device += given;
            if device > devices {
                return Err(self.refuse_count(device, devices));
            }
            lists.extend(self.add(arg, &mut rows[first..device])?);
            device %= devices;
        }
        if device != 0 {
            return Err(self.refuse_count(device, devices));
        }
        let launched = self.executable.launch(Launch { args: rows })?.outputs;
        let fits = |row: &Vec<_>| row.len() == outputs;
        if devices == 0 || launched.len() != devices || !launched.iter().all(fits) {
            return Err(self.refuse_results(&launched, outputs));
        }
        let empty = || Box::new(TypedBuffers(Vec::with_capacity(devices)));
        lists.resize_with(outputs, empty);
        for row in launched {
            for (list, buffer) in lists.iter_mut().zip(row) {
                list.0.push(buffer);
            }
        }
        let erase = |buffers: Box<TypedBuffers<_>>| DeviceBuffers {
            buffers,
            session: session.clone(),
        };
        Ok(lists.into_iter().map(erase).collect())
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
    fn interpreted(&self) -> Vec<Interpreted> {
        self.executable.interpreted()
    }
    fn optimized(&self) -> Result<(String, Vec<u8>)> {
        self.executable.optimized()
    }
}
