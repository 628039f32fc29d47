//! A backend of an accelerator that runs one program at a time on each device.

use std::{fmt, sync::Arc};

use halite_core::{
    Arg, Backend, Buffer, Capabilities, CompileOptions, Device, DeviceId, Error, ErrorKind, Event,
    Executable, HostBytes, Launch, Launched, MemoryStats, OnFetched, Placement, Platform, Program,
    Result, Signature, TensorType,
};
use halite_stablehlo::Module;

use crate::{DeviceQueue, SignalEvent, check, parse};

/// An accelerator: memory, a compiler, and programs that run to their end. [`QueuedBackend`] makes
/// a [`Backend`] of it.
///
/// Devices have the indices 0 to n - 1. Functions are called from any thread, at the same time; the
/// programs of one device run one after the other, when the blocks of their inputs are written.
///
/// ```
/// use halite_core::{Client, MemoryStats, Platform, Result};
/// use halite_plugin::{Driver, QueuedBackend};
/// use halite_stablehlo::Module;
/// use std::sync::Mutex;
///
/// /// A device whose programs return their first argument.
/// #[derive(Debug)]
/// struct First;
///
/// impl Driver for First {
///     type Block = Mutex<Vec<u8>>;
///     type Code = ();
///
///     fn allocate(&self, _device: usize, _bytes: u64) -> Result<Self::Block> {
///         Ok(Mutex::default())
///     }
///     fn write(&self, block: &Self::Block, bytes: &[u8]) -> Result<()> {
///         *block.lock().unwrap() = bytes.to_vec();
///         Ok(())
///     }
///     fn read(&self, block: &Self::Block) -> Result<Vec<u8>> {
///         Ok(block.lock().unwrap().clone())
///     }
///     fn memory(&self, _device: usize) -> Result<MemoryStats> {
///         Ok(MemoryStats::default())
///     }
///     fn compile(&self, _module: &Module) -> Result<()> {
///         Ok(())
///     }
///     fn run(&self, _: usize, _: &(), inputs: &[&Self::Block], outputs: &[&Self::Block])
///     -> Result<()> {
///         self.write(outputs[0], &self.read(inputs[0])?)
///     }
/// }
///
/// let platform = Platform { name: "first".into(), version: "1".into() };
/// let client = Client::new(QueuedBackend::new(platform, "first", 2, First)?);
/// assert_eq!(client.devices().len(), 2);
/// # Result::<()>::Ok(())
/// ```
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// A block of device memory. Dropping it frees the memory.
    type Block: fmt::Debug + Send + Sync + 'static;
    /// A compiled program.
    type Code: fmt::Debug + Send + Sync + 'static;

    /// What it runs itself, where halite uses the backend directly; by default nothing is known.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Allocates a block of `bytes` bytes. It is read only after it was written.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the device has too little memory left.
    fn allocate(&self, device: usize, bytes: u64) -> Result<Self::Block>;

    /// Copies bytes of the host, as many as the block has, to the device.
    ///
    /// # Errors
    /// If the copy fails.
    fn write(&self, block: &Self::Block, bytes: &[u8]) -> Result<()>;

    /// Copies a block to the host.
    ///
    /// # Errors
    /// If the copy fails.
    fn read(&self, block: &Self::Block) -> Result<Vec<u8>>;

    /// Memory of a device in use.
    ///
    /// # Errors
    /// If it is not known.
    fn memory(&self, device: usize) -> Result<MemoryStats>;

    /// Compiles a [verified](Module::verify) program of one partition.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an operation or a type that the accelerator does not have.
    fn compile(&self, module: &Module) -> Result<Self::Code>;

    /// Runs a program to its end. `inputs` and `outputs` are the blocks of its arguments and
    /// results, in order.
    ///
    /// # Errors
    /// If it fails: the error of the results.
    fn run(
        &self,
        device: usize,
        code: &Self::Code,
        inputs: &[&Self::Block],
        outputs: &[&Self::Block],
    ) -> Result<()>;
}

/// The backend of a [`Driver`], with a [`DeviceQueue`] for each device. A copy, a program and a
/// transfer to the host are jobs in it; memory is allocated when they are queued.
#[derive(Debug)]
pub struct QueuedBackend<D> {
    platform: Platform,
    accelerator: Arc<Accelerator<D>>,
}

/// A device of a [`QueuedBackend`].
#[derive(Debug)]
pub struct QueuedDevice<D> {
    id: DeviceId,
    kind: Arc<str>,
    driver: Arc<D>,
    queue: DeviceQueue,
}

/// All devices, which buffers and executables share.
#[derive(Debug)]
struct Accelerator<D> {
    driver: Arc<D>,
    devices: Vec<QueuedDevice<D>>,
}

/// A buffer of a [`QueuedBackend`].
pub struct QueuedBuffer<D: Driver> {
    accelerator: Arc<Accelerator<D>>,
    /// Index of the device.
    device: usize,
    ty: TensorType,
    block: Arc<D::Block>,
    /// Ready when the block is written.
    written: SignalEvent,
}

/// A program of a [`QueuedBackend`].
#[derive(Debug)]
pub struct QueuedExecutable<D: Driver> {
    name: Arc<str>,
    code: Arc<D::Code>,
    signature: Signature,
    accelerator: Arc<Accelerator<D>>,
    /// Devices of a launch, by id and by index.
    ids: Vec<DeviceId>,
    indices: Vec<usize>,
}

impl<D: Driver> QueuedBackend<D> {
    /// A backend of `count` devices, which are all of this `kind`. The platform needs a name of its
    /// own: under that of another one, JAX lowers programs for it.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the system cannot create a thread for each device.
    pub fn new(platform: Platform, kind: &str, count: usize, driver: D) -> Result<Self> {
        let (driver, kind) = (Arc::new(driver), Arc::<str>::from(kind));
        let device = |id: u32| {
            Ok(QueuedDevice {
                id: DeviceId(id),
                kind: kind.clone(),
                driver: driver.clone(),
                queue: DeviceQueue::new(format!("{} device {id}", platform.name))?,
            })
        };
        let devices = (0..).take(count).map(device).collect::<Result<_>>()?;
        Ok(QueuedBackend {
            accelerator: Arc::new(Accelerator { driver, devices }),
            platform,
        })
    }
}

impl<D: Driver> Device for QueuedDevice<D> {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn kind(&self) -> &str {
        &self.kind
    }

    fn memory(&self) -> Result<MemoryStats> {
        self.driver.memory(self.id.0 as usize)
    }
}

impl<D: Driver> Backend for QueuedBackend<D> {
    type Device = QueuedDevice<D>;
    type Buffer = QueuedBuffer<D>;
    type Executable = QueuedExecutable<D>;
    type Event = SignalEvent;

    fn platform(&self) -> &Platform {
        &self.platform
    }

    fn devices(&self) -> &[QueuedDevice<D>] {
        &self.accelerator.devices
    }

    fn capabilities(&self) -> Capabilities {
        self.accelerator.driver.capabilities()
    }

    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<Self::Buffer> {
        let device = check::device(self.devices(), "upload", to)?;
        check::upload(bytes.as_ref(), ty)?;
        let bytes = match bytes {
            // Borrowed memory is valid during the call only.
            HostBytes::Borrowed(bytes) => Arc::new(bytes.to_vec()),
            HostBytes::Shared(bytes) => bytes,
        };
        let driver = self.accelerator.driver.clone();
        let write = move |block: &D::Block| driver.write(block, (*bytes).as_ref());
        self.accelerator.buffer(device, ty, write)
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<Self::Executable> {
        if program.partitions > 1 {
            let message = format!("`{}` has {} partitions", program.name, program.partitions);
            return Err(Error::new(ErrorKind::Unsupported, "compile", message));
        }
        check::no_flags(options)?;
        let ids = check::assignment(self.devices(), program, options)?;
        let index = |&id: &DeviceId| check::device(self.devices(), "compile", id.into());
        Ok(QueuedExecutable {
            name: program.name.clone(),
            code: Arc::new(self.accelerator.driver.compile(&parse(program)?)?),
            signature: program.signature.clone(),
            accelerator: self.accelerator.clone(),
            indices: ids.iter().map(index).collect::<Result<_>>()?,
            ids,
        })
    }
}

impl<D: Driver> Accelerator<D> {
    /// Allocates a buffer, and queues the job that writes it.
    fn buffer(
        self: &Arc<Self>,
        device: usize,
        ty: &TensorType,
        write: impl FnOnce(&D::Block) -> Result<()> + Send + 'static,
    ) -> Result<QueuedBuffer<D>> {
        let block = Arc::new(self.driver.allocate(device, ty.bytes() as u64)?);
        let target = block.clone();
        let written = self.devices[device].queue.push(move || write(&target));
        Ok(QueuedBuffer {
            accelerator: self.clone(),
            device,
            ty: ty.clone(),
            block,
            written,
        })
    }
}

impl<D: Driver> QueuedBuffer<D> {
    /// A function that reads the block once it is written.
    fn reader(&self) -> impl FnOnce() -> Result<Vec<u8>> + Send + use<D> {
        let (block, written) = (self.block.clone(), self.written.clone());
        let driver = self.accelerator.driver.clone();
        move || written.wait().and_then(|()| driver.read(&block))
    }
}

impl<D: Driver> Buffer for QueuedBuffer<D> {
    type Event = SignalEvent;

    fn tensor_type(&self) -> &TensorType {
        &self.ty
    }

    fn placement(&self) -> Placement {
        self.accelerator.devices[self.device].id.into()
    }

    fn ready(&self) -> Result<SignalEvent> {
        Ok(self.written.clone())
    }

    fn copy_to(&self, place: Placement) -> Result<Self> {
        let device = check::device(&self.accelerator.devices, "copy", place)?;
        let (read, driver) = (self.reader(), self.accelerator.driver.clone());
        let copy = move |block: &D::Block| driver.write(block, &read()?);
        self.accelerator.buffer(device, &self.ty, copy)
    }

    fn read(&self, into: &mut [u8]) -> Result<()> {
        let bytes = self.reader()()?;
        if bytes.len() != into.len() {
            let message = format!("the driver read {} bytes of {}", bytes.len(), self.ty);
            return Err(Error::new(ErrorKind::Internal, "read", message));
        }
        into.copy_from_slice(&bytes);
        Ok(())
    }

    fn fetch(&self, then: OnFetched) {
        let read = self.reader();
        self.accelerator.devices[self.device].queue.push(move || {
            then(read());
            Ok(())
        });
    }
}

impl<D: Driver> fmt::Debug for QueuedBuffer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuedBuffer({} on device {})", self.ty, self.device)
    }
}

impl<D: Driver> Executable<QueuedBackend<D>> for QueuedExecutable<D> {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn devices(&self) -> &[DeviceId] {
        &self.ids
    }

    fn launch(&self, launch: Launch<'_, QueuedBuffer<D>>) -> Result<Launched<QueuedBuffer<D>>> {
        let is_own = |buffer: &QueuedBuffer<D>| Arc::ptr_eq(&buffer.accelerator, &self.accelerator);
        check::launch(&self.name, &self.signature, &self.ids, &launch, is_own)?;
        let rows = self.indices.iter().zip(&launch.args);
        let outputs = rows.map(|(&device, args)| self.launch_on(device, args));
        Ok(Launched {
            outputs: outputs.collect::<Result<_>>()?,
        })
    }
}

impl<D: Driver> QueuedExecutable<D> {
    /// Queues the program on one device. The job holds the blocks of its arguments and results.
    fn launch_on(
        &self,
        device: usize,
        args: &[Arg<'_, QueuedBuffer<D>>],
    ) -> Result<Vec<QueuedBuffer<D>>> {
        let driver = self.accelerator.driver.clone();
        let types = &self.signature.outputs;
        let allocate = |ty: &TensorType| driver.allocate(device, ty.bytes() as u64).map(Arc::new);
        let blocks = types.iter().map(allocate).collect::<Result<Vec<_>>>()?;
        let input = |arg: &Arg<'_, QueuedBuffer<D>>| {
            let buffer = arg.buffer();
            (buffer.block.clone(), buffer.written.clone())
        };
        let inputs: Vec<_> = args.iter().map(input).collect();
        let (code, outputs, driver) = (self.code.clone(), blocks.clone(), driver.clone());
        let written = self.accelerator.devices[device].queue.push(move || {
            inputs.iter().try_for_each(|(_, written)| written.wait())?;
            let inputs: Vec<&D::Block> = inputs.iter().map(|(block, _)| &**block).collect();
            let outputs: Vec<&D::Block> = outputs.iter().map(|block| &**block).collect();
            driver.run(device, &code, &inputs, &outputs)
        });
        let buffer = |(ty, block): (&TensorType, _)| QueuedBuffer {
            accelerator: self.accelerator.clone(),
            device,
            ty: ty.clone(),
            block,
            written: written.clone(),
        };
        Ok(types.iter().zip(blocks).map(buffer).collect())
    }
}
