//! The real CPU plugin behind a backend in which compilers, devices and memory fail on request: a
//! plugin cannot be asked to do that at a chosen step.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use halite_backends::{
    Search,
    pjrt::{Pjrt, PjrtBuffer, PjrtDevice, PjrtEvent, PjrtExecutable, Plugin},
};
use halite_core::{
    Arg, Backend, Buffer, Capabilities, CompileOptions, DeviceId, Error, ErrorKind, Event,
    Executable, HostBytes, Launch, Launched, OnFetched, OnReady, Placement, Platform, Program,
    Result, Signature, TensorType,
};

use crate::never_lost::hanging::Gate;

/// The CPU plugin with faults.
pub(crate) struct Faulty {
    inner: Pjrt,
    on_compile: Box<dyn Fn(&str) + Send + Sync>,
    plan: Arc<Plan>,
}

/// Schedule of the faults.
struct Plan {
    /// Training steps launched.
    steps: AtomicU64,
    /// Results of later steps are never there.
    hangs_after: u64,
    gate: Gate,
    /// Up to this step no weight can be copied to the host.
    no_memory_until: u64,
}

impl Faulty {
    pub(crate) fn new() -> Self {
        let plan = Plan {
            steps: AtomicU64::new(0),
            hangs_after: u64::MAX,
            gate: Gate::default(),
            no_memory_until: 0,
        };
        let cache = halite_fetch::Cache::open(None).unwrap();
        let located = Search::cpu(&cache)
            .ensure(&mut halite_fetch::Quiet)
            .unwrap();
        let inner = Plugin::load(located.path).unwrap().client(vec![]).unwrap();
        Faulty {
            inner,
            on_compile: Box::new(|_| {}),
            plan: Arc::new(plan),
        }
    }

    /// Calls `on_compile` with the name of each program before it is compiled.
    pub(crate) fn on_compile(self, on_compile: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Faulty {
            on_compile: Box::new(on_compile),
            ..self
        }
    }

    /// Steps after this one never end; a thread stands at the gate then.
    pub(crate) fn hangs_after(mut self, step: u64, gate: &Gate) -> Self {
        let plan = Arc::get_mut(&mut self.plan).expect("it is not in use yet");
        (plan.hangs_after, plan.gate) = (step, gate.clone());
        self
    }

    /// Until this step is launched, the host has no memory for copies of the weights.
    pub(crate) fn no_memory_for_weights_until(mut self, step: u64) -> Self {
        Arc::get_mut(&mut self.plan)
            .expect("it is not in use yet")
            .no_memory_until = step;
        self
    }

    fn buffer(&self, inner: PjrtBuffer) -> FaultyBuffer {
        FaultyBuffer {
            inner,
            plan: self.plan.clone(),
            hangs: false,
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl Backend for Faulty {
    type Device = PjrtDevice;
    type Buffer = FaultyBuffer;
    type Executable = FaultyExecutable;
    type Event = FaultyEvent;

    fn platform(&self) -> &Platform {
        self.inner.platform()
    }

    fn devices(&self) -> &[PjrtDevice] {
        self.inner.devices()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<FaultyBuffer> {
        Ok(self.buffer(self.inner.upload(bytes, ty, to)?))
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<FaultyExecutable> {
        (self.on_compile)(&program.name);
        let inner = self.inner.compile(program, options)?;
        let is_step = &*program.name == "train step";
        Ok(FaultyExecutable {
            inner,
            is_step,
            plan: self.plan.clone(),
        })
    }

    fn load(
        &self,
        serialized: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<FaultyExecutable> {
        let inner = self.inner.load(serialized, name, signature, options)?;
        Ok(FaultyExecutable {
            inner,
            is_step: false,
            plan: self.plan.clone(),
        })
    }
}

pub(crate) struct FaultyBuffer {
    inner: PjrtBuffer,
    plan: Arc<Plan>,
    hangs: bool,
}

impl fmt::Debug for FaultyBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Buffer for FaultyBuffer {
    type Event = FaultyEvent;

    fn tensor_type(&self) -> &TensorType {
        self.inner.tensor_type()
    }

    fn placement(&self) -> Placement {
        self.inner.placement()
    }

    fn ready(&self) -> Result<FaultyEvent> {
        let hangs = self.hangs.then(|| self.plan.gate.clone());
        Ok(FaultyEvent {
            inner: self.inner.ready()?,
            hangs,
        })
    }

    fn copy_to(&self, place: Placement) -> Result<Self> {
        let inner = self.inner.copy_to(place)?;
        Ok(FaultyBuffer {
            inner,
            plan: self.plan.clone(),
            hangs: self.hangs,
        })
    }

    fn read(&self, into: &mut [u8]) -> Result<()> {
        if self.hangs {
            self.plan.gate.pass();
        }
        self.inner.read(into)
    }

    fn fetch(&self, then: OnFetched) {
        if self.hangs {
            let gate = self.plan.gate.clone();
            return self.inner.fetch(Box::new(move |bytes| {
                thread::spawn(move || {
                    gate.pass();
                    then(bytes);
                });
            }));
        }
        let is_weight = self.tensor_type().dims() == [2, 1];
        if is_weight && self.plan.steps.load(Ordering::SeqCst) < self.plan.no_memory_until {
            let message = "the host has no 8 bytes for f32[2, 1]";
            return then(Err(Error::new(ErrorKind::OutOfMemory, "fetch", message)));
        }
        self.inner.fetch(then);
    }
}

pub(crate) struct FaultyEvent {
    inner: PjrtEvent,
    hangs: Option<Gate>,
}

impl Event for FaultyEvent {
    fn is_ready(&self) -> bool {
        self.hangs.is_none() && self.inner.is_ready()
    }

    fn wait(&self) -> Result<()> {
        if let Some(gate) = &self.hangs {
            gate.pass();
        }
        self.inner.wait()
    }

    fn on_ready(&self, then: OnReady) {
        let Some(gate) = self.hangs.clone() else {
            return self.inner.on_ready(then);
        };
        self.inner.on_ready(Box::new(move |result| {
            thread::spawn(move || {
                gate.pass();
                then(result);
            });
        }));
    }
}

#[derive(Debug)]
pub(crate) struct FaultyExecutable {
    inner: PjrtExecutable,
    is_step: bool,
    plan: Arc<Plan>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan(hangs after {})", self.hangs_after)
    }
}

impl Executable<Faulty> for FaultyExecutable {
    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn devices(&self) -> &[DeviceId] {
        self.inner.devices()
    }

    fn launch(&self, launch: Launch<'_, FaultyBuffer>) -> Result<Launched<FaultyBuffer>> {
        let step = match self.is_step {
            true => self.plan.steps.fetch_add(1, Ordering::SeqCst) + 1,
            false => 0,
        };
        let hangs = launch.args.iter().flatten().any(|arg| arg.buffer().hangs);
        let args = launch
            .args
            .into_iter()
            .map(|row| row.into_iter().map(inner).collect());
        let launched = self.inner.launch(Launch {
            args: args.collect(),
        })?;
        let hangs = hangs || step > self.plan.hangs_after;
        let outer = |inner| FaultyBuffer {
            inner,
            plan: self.plan.clone(),
            hangs,
        };
        let outputs = launched.outputs.into_iter();
        Ok(Launched {
            outputs: outputs
                .map(|row| row.into_iter().map(outer).collect())
                .collect(),
        })
    }

    fn serialize(&self) -> Result<Vec<u8>> {
        self.inner.serialize()
    }
}

fn inner(arg: Arg<'_, FaultyBuffer>) -> Arg<'_, PjrtBuffer> {
    match arg {
        Arg::Borrow(buffer) => Arg::Borrow(&buffer.inner),
        Arg::Donate(buffer) => Arg::Donate(buffer.inner),
    }
}
