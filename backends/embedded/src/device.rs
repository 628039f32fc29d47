//! Virtual devices: a queue, a thread that runs it in order, and a count of the memory in use.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
        mpsc::{self, Sender},
    },
    thread,
};

use halite_core::{Device, DeviceId, Error, ErrorKind, MemoryKind, MemoryStats, Result};

use crate::oracle::{STACK, guarded, no_thread};

/// Work of a device, or a callback.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Starts a thread that runs jobs in order. It ends when the sender is dropped. A panic, which the
/// panic hook reports, ends its job only.
pub(crate) fn start_queue(name: String) -> Result<Sender<Job>> {
    let (send, receive) = mpsc::channel::<Job>();
    let run_all = move || {
        for job in receive {
            let _: Result<()> = guarded(|| {
                job();
                Ok(())
            });
        }
    };
    let thread = thread::Builder::new().name(name).stack_size(STACK);
    thread.spawn(run_all).map_err(no_thread)?;
    Ok(send)
}

/// A virtual device of the embedded executor.
#[derive(Debug)]
pub struct EmbeddedDevice {
    id: DeviceId,
    process: u32,
    /// `None` for a device of another process.
    queue: Option<Sender<Job>>,
    /// Jobs that are queued or run.
    jobs: Arc<AtomicUsize>,
    pub(crate) memory: Arc<Meter>,
}

impl EmbeddedDevice {
    pub(crate) fn start(id: u32, process: u32) -> Result<Self> {
        Ok(EmbeddedDevice {
            queue: Some(start_queue(format!("halite-device-{id}"))?),
            ..Self::remote(id, process)
        })
    }

    /// A device of another process.
    pub(crate) fn remote(id: u32, process: u32) -> Self {
        EmbeddedDevice {
            id: DeviceId(id),
            process,
            queue: None,
            jobs: Arc::default(),
            memory: Arc::default(),
        }
    }

    /// Queues work.
    pub(crate) fn enqueue(&self, job: impl FnOnce() + Send + 'static) {
        /// Counts a job until it is dropped, also by a panic.
        struct Count(Arc<AtomicUsize>);
        impl Drop for Count {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Release);
            }
        }
        self.jobs.fetch_add(1, Relaxed);
        let count = Count(self.jobs.clone());
        let queue = self
            .queue
            .as_ref()
            .expect("work is queued on devices of this process");
        // The thread lives as long as the client. If it did not, the work would be dropped, and
        // its promises would be errors.
        let _ = queue.send(Box::new(move || {
            let _count = count;
            job();
        }));
    }

    /// Returns whether no work is queued or runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.load(Acquire) == 0
    }
}

impl Device for EmbeddedDevice {
    fn id(&self) -> DeviceId {
        self.id
    }
    fn process(&self) -> u32 {
        self.process
    }
    fn is_local(&self) -> bool {
        self.queue.is_some()
    }
    fn kind(&self) -> &str {
        "embedded"
    }
    fn memories(&self) -> &[MemoryKind] {
        &[MemoryKind::Device]
    }

    /// Bytes of the buffers on the device. Intermediate values of programs are not counted.
    fn memory(&self) -> Result<MemoryStats> {
        if !self.is_local() {
            let message = format!("device {} belongs to process {}", self.id.0, self.process);
            return Err(Error::new(ErrorKind::Unsupported, "device memory", message));
        }
        Ok(MemoryStats {
            in_use: self.memory.in_use.load(Relaxed),
            peak: Some(self.memory.peak.load(Relaxed)),
            limit: None,
        })
    }
}

/// Bytes of the buffers of a device.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    in_use: AtomicU64,
    peak: AtomicU64,
}

impl Meter {
    /// Counts `bytes` as used until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Charge {
        // The peak first, so that it is never seen below the use.
        let after = self.in_use.load(Relaxed) + bytes;
        self.peak.fetch_max(after, Relaxed);
        let after = self.in_use.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(after, Relaxed);
        Charge {
            meter: self.clone(),
            bytes,
        }
    }
}

/// Memory in use.
#[derive(Debug)]
pub(crate) struct Charge {
    meter: Arc<Meter>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.in_use.fetch_sub(self.bytes, Relaxed);
    }
}
