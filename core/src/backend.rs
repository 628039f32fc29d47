//! The contract between halite and a driver of accelerators: the traits that a driver implements.
//!
//! [`Backend`] with [`Device`], [`Buffer`], [`Executable`] and [`Event`] is PJRT as a family of
//! safe Rust traits: a backend compiles StableHLO programs, holds buffers, and launches executables
//! asynchronously. Programs do not use it directly: they hold a [`Client`](crate::Client), which
//! erases the types. `halite-pjrt` implements it for every PJRT plugin, and [`Null`](crate::Null)
//! is the smallest implementation.
//!
//! # Asynchrony
//!
//! A method returns as soon as its work is queued, except those that say that they block. (A
//! backend may run short work inside the call, as XLA's CPU plugin does.) Work on one device runs
//! in the order in which it was queued. Errors of queued work are reported by the events and reads
//! of its results.
//!
//! # Differences from PJRT
//!
//! - **Data is dense and row-major.** Device layouts (minor-to-major order, tiles) are the
//!   driver's; uploads and reads never expose them.
//! - **A donated argument is moved.** PJRT lists the arguments *not* to donate with each launch;
//!   here [`Arg::Donate`] owns the buffer, so that it cannot be used afterwards.
//! - **Arguments are checked.** Plugins trust their callers and may abort the process. A backend
//!   returns an error for arguments of another type, device or client, and queues nothing.
//! - **Types are declared.** A [`Program`] has a [`Signature`], against which a backend checks what
//!   it compiled or deserialized.
//! - **Compile options are names and values**, not a protobuf; replicas and partitions belong to
//!   the program.
//! - **Host memory has two ownerships**, [`HostBytes::Borrowed`] and [`HostBytes::Shared`], instead
//!   of `PJRT_HostBufferSemantics`.
//! - **Not part of the contract:** topologies without devices, chunked transfers, raw buffers.
//!   Custom calls and key-value stores have a registry and a trait of their own
//!   ([`custom_call`](crate::custom_call), [`KeyValueStore`](crate::KeyValueStore)). A driver answers
//!   what it does not support with [`ErrorKind::Unsupported`].
//! - **Nothing is measured here.** Telemetry observes the client: see
//!   [`Observer`](crate::Observer).

mod code;
mod program;

use std::{fmt, sync::Arc};

pub use self::{
    code::{Code, ModuleCode},
    program::{CompileOptions, FlagValue, Interpreted, Program, ProgramMemory, Signature},
};
use crate::{
    AlignedBytes, Capabilities, DTypePolicy, DeviceId, DeviceSpec, Error, ErrorKind, HloSharding,
    HostBytes, MemoryKind, MemoryStats, PinnedMemory, Placement, Platform, ProgramKey, Result,
    TensorType,
};

/// A driver of one kind of accelerator: the family of types that belong together.
///
/// It corresponds to `PJRT_Client`. [Conformance
/// tests](https://docs.rs/halite-conformance) check the promises of
/// these traits on any implementation, through a [`Client`](crate::Client).
pub trait Backend: fmt::Debug + Send + Sync + Sized + 'static {
    /// A device.
    type Device: Device;
    /// Data on one device.
    type Buffer: Buffer<Event = Self::Event>;
    /// A compiled program, loaded on its devices.
    type Executable: Executable<Self>;
    /// Completion event of asynchronous work.
    type Event: Event;

    /// Name and version of the driver.
    fn platform(&self) -> &Platform;

    /// Every device of the job in id order, those of other processes included.
    fn devices(&self) -> &[Self::Device];

    /// What the backend runs itself, which decides how programs for it are lowered; by default
    /// nothing is known.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Queues a copy of host data of type `ty` to a device.
    ///
    /// # Errors
    /// If the number of bytes is not that of `ty`, or the device or its memory does not exist.
    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<Self::Buffer>;

    /// Allocates `bytes` zero bytes of host memory or more, aligned to
    /// [`AlignedBytes::ALIGNMENT`], that devices read directly: page-locked memory. A
    /// [shared](HostBytes::Shared) upload from it needs no copy by the driver. Allocating it is slow
    /// on GPUs, so that it is worth reusing. Blocks.
    ///
    /// `None`, the default, where the driver has no such memory.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the host has too little memory; if the driver cannot lock it.
    fn pinned_memory(&self, _bytes: usize) -> Result<Option<Box<dyn PinnedMemory>>> {
        Ok(None)
    }

    /// Compiles for the devices that `options` names. Blocks.
    ///
    /// # Errors
    /// If the compiler rejects the program, the signature is not the program's, or the devices do
    /// not exist.
    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<Self::Executable>;

    /// Loads what [`Executable::serialize`] returned on this platform and version, for a program of
    /// this signature, on the devices that `options` names. Blocks. `name` is used in messages, as
    /// [`Program::name`] is.
    ///
    /// # Errors
    /// If the bytes are damaged, or of another platform or version: the implementation checks that
    /// before its driver reads them. [`ErrorKind::Unsupported`], the default, where the driver
    /// cannot.
    fn load(
        &self,
        _serialized: &[u8],
        name: &Arc<str>,
        _signature: &Signature,
        _options: &CompileOptions,
    ) -> Result<Self::Executable> {
        let message = format!("`{name}`: this backend does not serialize programs");
        Err(Error::new(ErrorKind::Unsupported, "load", message).on(&self.platform().name))
    }

    /// A digest of everything that the result of [`compile`](Self::compile) depends on: the program
    /// without its source locations, the options as sent to the driver, the driver's build, the
    /// devices. Processes that get the same key may use each other's executables.
    ///
    /// `None`, the default, if the executable must not be cached.
    fn program_key(&self, _program: &Program, _options: &CompileOptions) -> Option<ProgramKey> {
        None
    }
}

/// One device of a [`Backend`].
pub trait Device: fmt::Debug + Send + Sync + 'static {
    /// The id, unique in the job.
    fn id(&self) -> DeviceId;

    /// The process that drives it; 0, the default, in a job of one process.
    fn process(&self) -> u32 {
        0
    }

    /// Returns whether this process can upload to it; by default it can.
    fn is_local(&self) -> bool {
        true
    }

    /// The model, as the vendor spells it: `TPU v5 lite`, `NVIDIA H200`.
    fn kind(&self) -> &str;

    /// The vendor's specification, if it is known: that of [`kind`](Self::kind) by default. Model
    /// FLOPs utilization refers to its peak rates.
    fn spec(&self) -> Option<DeviceSpec> {
        DeviceSpec::of_kind(self.kind())
    }

    /// The kinds of memory that a buffer of this device can be in. The first is
    /// [`MemoryKind::Device`], by default the only one.
    fn memories(&self) -> &[MemoryKind] {
        &[MemoryKind::Device]
    }

    /// The slice that it belongs to: a fast network connects the devices of a slice. 0 if all
    /// devices are in one slice.
    fn slice(&self) -> usize {
        0
    }

    /// The policy of programs for it, unless a user names one. By default programs are computed as
    /// they are written.
    fn default_policy(&self) -> DTypePolicy {
        DTypePolicy::F32
    }

    /// Further attributes that the driver reports, as (name, value).
    fn attributes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Memory in use now.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not count it.
    fn memory(&self) -> Result<MemoryStats>;
}

/// Callback of a fetch, called once with the bytes, on any thread.
pub type OnFetched = Box<dyn FnOnce(Result<Vec<u8>>) + Send>;

/// Callback of a fetch into memory of the caller, which gets the memory back with the bytes in it.
pub type OnFilled = Box<dyn FnOnce(Result<AlignedBytes>) + Send>;

/// Callback of an event, called once when the work is done, on any thread.
pub type OnReady = Box<dyn FnOnce(Result<()>) + Send>;

/// Data on one device. Dropping it frees the memory once queued work no longer needs it.
pub trait Buffer: fmt::Debug + Send + Sync + Sized + 'static {
    /// See [`Backend::Event`].
    type Event: Event;

    /// Element type and dimensions of the data on this device.
    fn tensor_type(&self) -> &TensorType;

    /// The device, and the kind of its memory.
    fn placement(&self) -> Placement;

    /// The completion event of the work that computes the contents.
    ///
    /// # Errors
    /// If the driver cannot provide it.
    fn ready(&self) -> Result<Self::Event>;

    /// Queues a copy to another device or kind of memory, or to the same; the two buffers are
    /// independent.
    ///
    /// # Errors
    /// If the device or its memory does not exist.
    fn copy_to(&self, place: Placement) -> Result<Self>;

    /// Blocks until the row-major bytes are in `into`, whose length is that of the type.
    ///
    /// # Errors
    /// If the computation of the contents failed.
    fn read(&self, into: &mut [u8]) -> Result<()>;

    /// Queues a copy to the host, and calls `then` with the row-major bytes when they arrive.
    /// `then` must neither block, launch nor read: it may run on a thread that the driver's work
    /// needs.
    fn fetch(&self, then: OnFetched);

    /// Like [`fetch`](Self::fetch), into `memory`, whose length is that of the type. Memory that was
    /// used before is written several times faster than new one, which the system has to map.
    ///
    /// The default fetches, and copies the bytes.
    fn fetch_into(&self, mut memory: AlignedBytes, then: OnFilled) {
        self.fetch(Box::new(move |bytes| {
            let copied = bytes.and_then(|bytes| {
                let into = memory.as_mut();
                if into.len() != bytes.len() {
                    let message =
                        format!("{} bytes arrived, {} are expected", bytes.len(), into.len());
                    return Err(Error::new(ErrorKind::Internal, "fetch", message));
                }
                into.copy_from_slice(&bytes);
                Ok(memory)
            });
            then(copied);
        }));
    }
}

/// Completion event of asynchronous work: a launch or a copy.
pub trait Event: Send + Sync + 'static {
    /// Returns whether the work is done, successfully or not.
    fn is_ready(&self) -> bool;

    /// Blocks until the work is done.
    ///
    /// # Errors
    /// The error of the work, however long ago it failed. [`ErrorKind::DeadlineExceeded`] for a
    /// wait that takes longer than the backend allows.
    fn wait(&self) -> Result<()>;

    /// Runs `then` once, on any thread; at once if the work is done. `then` may launch, but must
    /// not wait for other work, which may need the thread that it runs on. The event may be dropped
    /// before.
    fn on_ready(&self, then: OnReady);

    /// Like [`on_ready`](Self::on_ready), for a callback that only signals and neither blocks,
    /// launches nor reads. It may run on a thread that the driver's work needs, which saves a
    /// thread switch.
    fn notify_when_ready(&self, notify: OnReady) {
        self.on_ready(notify);
    }

    /// Describes the multi-device launches that are not done, for the error of a wait that timed
    /// out: programs, start times, devices. Empty where the driver does not know.
    fn unfinished(&self) -> String {
        String::new()
    }
}

/// An argument of a launch.
#[derive(Debug)]
pub enum Arg<'a, Buf> {
    /// Read only; stays valid.
    Borrow(&'a Buf),
    /// Moved into the launch: the program may reuse its memory.
    Donate(Buf),
}

impl<Buf> Arg<'_, Buf> {
    /// The buffer, borrowed or donated.
    pub fn buffer(&self) -> &Buf {
        match self {
            Arg::Borrow(buffer) => buffer,
            Arg::Donate(buffer) => buffer,
        }
    }
}

/// Arguments of one launch as `[device][input]`, for the devices of [`Executable::devices`], in
/// that order.
#[derive(Debug)]
pub struct Launch<'a, Buf> {
    /// `args[device][input]`. An input that the signature does not list as donated must be
    /// borrowed. One that it lists may be borrowed, too; the device then copies it first.
    pub args: Vec<Vec<Arg<'a, Buf>>>,
}

/// Results of one launch as `[device][output]`. Their contents are computed when the event of
/// [`Buffer::ready`] is ready.
#[derive(Debug)]
pub struct Launched<Buf> {
    /// `outputs[device][output]`.
    pub outputs: Vec<Vec<Buf>>,
}

/// A compiled program, loaded on its devices. It corresponds to `PJRT_LoadedExecutable`.
pub trait Executable<B: Backend>: fmt::Debug + Send + Sync + 'static {
    /// Types of arguments and results, per device.
    fn signature(&self) -> &Signature;

    /// The devices it runs on, in the order of launches.
    fn devices(&self) -> &[DeviceId];

    /// Queues one run.
    ///
    /// # Errors
    /// If the number of devices or arguments is not that of the program, an argument has another
    /// type, device or client than it expects, or an input is donated that the signature does not
    /// list. Nothing is queued then, but donated buffers are lost.
    fn launch(&self, launch: Launch<'_, B::Buffer>) -> Result<Launched<B::Buffer>>;

    /// Serializes the executable, for [`Backend::load`]. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], the default, where the driver cannot.
    fn serialize(&self) -> Result<Vec<u8>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "serialize",
            "this backend does not serialize programs",
        ))
    }

    /// Memory that the program needs on each device, as planned by the compiler.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not report it.
    fn memory(&self) -> Result<ProgramMemory> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "program memory",
            "this backend does not report it",
        ))
    }

    /// The sharding of each result as the compiler chose it. `None` where the driver does not
    /// report that of one result.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not report it.
    fn output_shardings(&self) -> Result<Vec<Option<HloSharding>>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "output shardings",
            "this backend does not report them",
        ))
    }

    /// The compiler's cost estimates, as (name, value): `flops`, `bytes accessed`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not report it.
    fn cost(&self) -> Result<Vec<(String, f64)>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "program cost",
            "this backend does not report it",
        ))
    }

    /// Operations for which the backend has no kernel, so that an interpreter computes them: slow,
    /// and a fact to report. Empty, the default, where everything is compiled.
    fn interpreted(&self) -> Vec<Interpreted> {
        Vec::new()
    }

    /// The optimized program: its format, such as `hlo_with_config`, and its bytes. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not provide it.
    fn optimized(&self) -> Result<(String, Vec<u8>)> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "optimized program",
            "this backend does not provide it",
        ))
    }
}
