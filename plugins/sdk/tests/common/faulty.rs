//! A backend on host memory whose programs return their first argument, with a fault in the method
//! that the option `fault` names: a panic, or a broken rule.

use std::sync::{
    Arc, Condvar, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use halite_core::{
    Arg, Backend, Buffer, CompileOptions, Device, DeviceId, Error, ErrorKind, Event, Executable,
    HostBytes, Launch, Launched, MemoryKind, MemoryStats, OnFetched, OnReady, Placement, Platform,
    Program, Result, Signature, TensorType,
};
use halite_plugin::{HostMemory, Options};

/// The name of the fault.
#[derive(Clone, Debug)]
pub(crate) struct Fault(Arc<str>);

impl Fault {
    fn is(&self, name: &str) -> bool {
        &*self.0 == name
    }

    /// Panics if this is the fault.
    fn panic_in(&self, method: &str) {
        if self.is(method) && !std::thread::panicking() {
            panic!("fault in {method}");
        }
    }
}

static RELEASED: Mutex<usize> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

/// Executables that were dropped under `drops are counted`, which one test uses.
pub(crate) static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Lets one thread of a fault that waits continue.
pub(crate) fn release() {
    *RELEASED.lock().unwrap() += 1;
    CHANGED.notify_all();
}

/// Runs `work` on another thread after the next [`release`].
fn when_released(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        let released = RELEASED.lock().unwrap();
        *CHANGED.wait_while(released, |count| *count == 0).unwrap() -= 1;
        work();
    });
}

#[derive(Debug)]
pub(crate) struct Faulty {
    platform: Platform,
    devices: Vec<FaultyDevice>,
    fault: Fault,
}

#[derive(Debug)]
pub(crate) struct FaultyDevice(DeviceId, Fault);

impl Faulty {
    pub(crate) fn open(options: &mut Options) -> Result<Self> {
        let fault = Fault(options.text("fault")?.unwrap_or_default().into());
        fault.panic_in("open");
        if fault.0.starts_with("host memory") {
            options.set_host_memory(Maps(fault.clone()));
        }
        let ids: &[u32] = match &*fault.0 {
            "device id twice" => &[0, 0],
            "no device" => &[],
            _ => &[0, 1],
        };
        Ok(Faulty {
            platform: Platform {
                name: "faulty".into(),
                version: "1".to_owned(),
            },
            devices: ids
                .iter()
                .map(|&id| FaultyDevice(DeviceId(id), fault.clone()))
                .collect(),
            fault,
        })
    }
}

/// Registrations of host memory, each with its address.
#[derive(Debug)]
struct Maps(Fault);

/// Calls of [`Maps`], which one test uses.
pub(crate) static MAPS: Mutex<Vec<(&str, usize, usize)>> = Mutex::new(Vec::new());

impl HostMemory for Maps {
    fn map(&self, address: usize, bytes: usize) -> Result<()> {
        self.0.panic_in("host memory: map");
        MAPS.lock().unwrap().push(("map", address, bytes));
        Ok(())
    }

    fn unmap(&self, address: usize, bytes: usize) -> Result<()> {
        if self.0.is("host memory: unmap") {
            return Err(Error::new(ErrorKind::Internal, "unmap", "the page is lost"));
        }
        MAPS.lock().unwrap().push(("unmap", address, bytes));
        Ok(())
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.fault.panic_in("Backend::drop");
    }
}

impl Backend for Faulty {
    type Device = FaultyDevice;
    type Buffer = Bytes;
    type Executable = First;
    type Event = Done;

    fn platform(&self) -> &Platform {
        self.fault.panic_in("Backend::platform");
        &self.platform
    }

    fn devices(&self) -> &[FaultyDevice] {
        self.fault.panic_in("Backend::devices");
        &self.devices
    }

    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<Bytes> {
        self.fault.panic_in("Backend::upload");
        let wrong = self.fault.is("upload to another type");
        if let (true, HostBytes::Shared(bytes)) =
            (self.fault.is("upload keeps the bytes and fails"), &bytes)
        {
            let bytes = bytes.clone();
            when_released(move || {
                assert_eq!((*bytes).as_ref()[..4], 1f32.to_ne_bytes());
            });
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                "upload",
                "no memory left",
            ));
        }
        Ok(Bytes {
            ty: if wrong {
                TensorType::scalar(ty.dtype())
            } else {
                ty.clone()
            },
            place: to,
            bytes: bytes.as_ref().into(),
            fault: self.fault.clone(),
        })
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<First> {
        self.fault.panic_in("Backend::compile");
        let mut signature = program.signature.clone();
        if self.fault.is("another signature") {
            signature.outputs.clear();
        }
        let devices = match self.fault.is("another device") {
            true => vec![DeviceId(1)],
            false => options.devices.clone(),
        };
        Ok(First {
            signature,
            devices,
            fault: self.fault.clone(),
        })
    }

    fn load(
        &self,
        serialized: &[u8],
        _: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<First> {
        self.fault.panic_in("Backend::load");
        if serialized != b"first" {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "load",
                "not a program of this backend",
            ));
        }
        Ok(First {
            signature: signature.clone(),
            devices: options.devices.clone(),
            fault: self.fault.clone(),
        })
    }
}

impl Device for FaultyDevice {
    fn id(&self) -> DeviceId {
        self.1.panic_in("Device::id");
        self.0
    }
    fn process(&self) -> u32 {
        0
    }
    fn is_local(&self) -> bool {
        true
    }
    fn kind(&self) -> &str {
        "faulty"
    }
    fn memories(&self) -> &[MemoryKind] {
        if self.1.is("no memory") {
            &[]
        } else {
            &[MemoryKind::Device]
        }
    }
    fn attributes(&self) -> Vec<(String, String)> {
        vec![("speed".to_owned(), "0".to_owned())]
    }
    fn memory(&self) -> Result<MemoryStats> {
        self.1.panic_in("Device::memory");
        Ok(MemoryStats {
            in_use: 3,
            peak: Some(4),
            limit: None,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Bytes {
    ty: TensorType,
    place: Placement,
    bytes: Arc<[u8]>,
    fault: Fault,
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.fault.panic_in("Buffer::drop");
    }
}

impl Buffer for Bytes {
    type Event = Done;

    fn tensor_type(&self) -> &TensorType {
        &self.ty
    }
    fn placement(&self) -> Placement {
        self.place
    }
    fn ready(&self) -> Result<Done> {
        self.fault.panic_in("Buffer::ready");
        Ok(Done(self.fault.clone()))
    }
    fn copy_to(&self, place: Placement) -> Result<Self> {
        self.fault.panic_in("Buffer::copy_to");
        let stays = self.fault.is("copy stays");
        Ok(Bytes {
            ty: self.ty.clone(),
            place: if stays { self.place } else { place },
            bytes: self.bytes.clone(),
            fault: self.fault.clone(),
        })
    }
    fn read(&self, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(&self.bytes);
        Ok(())
    }
    fn fetch(&self, then: OnFetched) {
        self.fault.panic_in("Buffer::fetch");
        match &*self.fault.0 {
            "fetch drops its callback" => drop(then),
            "fetch returns too few bytes" => then(Ok(vec![0])),
            "fetch panics after it is queued" => {
                let bytes = self.bytes.to_vec();
                when_released(move || then(Ok(bytes)));
                panic!("the copy is queued");
            }
            _ => then(Ok(self.bytes.to_vec())),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Done(Fault);

impl Event for Done {
    fn is_ready(&self) -> bool {
        self.0.panic_in("Event::is_ready");
        !["event drops its callback", "Event::on_ready", "Event::wait"].contains(&&*self.0.0)
    }
    fn wait(&self) -> Result<()> {
        self.0.panic_in("Event::wait");
        match self.0.is("work fails") {
            true => Err(Error::new(
                ErrorKind::OutOfMemory,
                "compute",
                "no memory left",
            )),
            false => Ok(()),
        }
    }
    fn on_ready(&self, then: OnReady) {
        self.0.panic_in("Event::on_ready");
        match self.0.is("event drops its callback") {
            true => drop(then),
            false => then(self.wait()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct First {
    signature: Signature,
    devices: Vec<DeviceId>,
    fault: Fault,
}

impl Drop for First {
    fn drop(&mut self) {
        self.fault.panic_in("Executable::drop");
        if self.fault.is("drops are counted") {
            DROPPED.fetch_add(1, Relaxed);
        }
    }
}

impl Executable<Faulty> for First {
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn devices(&self) -> &[DeviceId] {
        &self.devices
    }
    fn launch(&self, launch: Launch<'_, Bytes>) -> Result<Launched<Bytes>> {
        self.fault.panic_in("Executable::launch");
        let place = |place: Placement| match self.fault.is("result on another device") {
            true => DeviceId(7).into(),
            false => place,
        };
        let first = |row: &Vec<Arg<'_, Bytes>>| {
            let first = row.first()?.buffer();
            Some(Bytes {
                ty: first.ty.clone(),
                place: place(first.place),
                bytes: first.bytes.clone(),
                fault: self.fault.clone(),
            })
        };
        let results = |row| {
            self.signature
                .outputs
                .iter()
                .filter_map(move |_| first(row))
        };
        let mut outputs: Vec<Vec<Bytes>> = launch
            .args
            .iter()
            .map(|row| results(row).collect())
            .collect();
        match &*self.fault.0 {
            "too few results" => outputs[0].clear(),
            "too many devices" => outputs.push(Vec::new()),
            _ => {}
        }
        Ok(Launched { outputs })
    }
    fn serialize(&self) -> Result<Vec<u8>> {
        self.fault.panic_in("Executable::serialize");
        Ok(b"first".to_vec())
    }
    fn cost(&self) -> Result<Vec<(String, f64)>> {
        self.fault.panic_in("Executable::cost");
        Ok(vec![("flops".to_owned(), 8.0)])
    }
}
