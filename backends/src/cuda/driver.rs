//! Queries of NVIDIA's driver, before any plugin is loaded.
//!
//! `cudarc` loads the driver's library on first use, so that nothing is linked and a machine
//! without it is not an error of the loader. `unsafe` is needed because `cudarc` has no safe form
//! of two queries.
#![allow(unsafe_code)]

use std::{
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, TryRecvError},
    },
    thread,
    time::Duration,
};

use cudarc::driver::{DriverError, result, sys};

/// The driver and the devices that it shows to this process (see `CUDA_VISIBLE_DEVICES`).
#[derive(Clone, Debug, PartialEq)]
pub struct Driver {
    /// The newest CUDA version that it supports, as `(major, minor)`.
    pub cuda: (u32, u32),
    /// The devices by number.
    pub devices: Vec<VisibleGpu>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct VisibleGpu {
    /// The model: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Size of its memory in bytes.
    pub memory: u64,
    /// The compute capability: `(9, 0)` for Hopper.
    pub compute_capability: (u32, u32),
}

/// Reasons why the driver cannot be queried.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NoDriver {
    /// The library is missing.
    Missing,
    /// The driver has not answered for this time.
    Silent(Duration),
    /// The driver returned an error, with its text.
    Failed(String),
}

/// Queries the driver, which may hang if a device does. Creates no context, so it allocates no
/// device memory.
pub(crate) fn query() -> Result<Driver, NoDriver> {
    /// Limit of the query. A driver takes about 20 s to start many devices.
    const PATIENCE: Duration = Duration::from_secs(60);

    static QUERY: Query = Query::new();
    QUERY.run(PATIENCE, query_driver)
}

/// A query that runs once at a time, and that callers do not wait for once it timed out.
struct Query {
    timed_out: Mutex<Option<Receiver<Answer>>>,
}

type Answer = Result<Driver, NoDriver>;

impl Query {
    const fn new() -> Self {
        Query {
            timed_out: Mutex::new(None),
        }
    }

    /// Runs `query` on a new thread, or returns the answer of an earlier query that timed out and
    /// has answered since.
    fn run(&self, patience: Duration, query: impl FnOnce() -> Answer + Send + 'static) -> Answer {
        let mut timed_out = self
            .timed_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(receive) = timed_out.take() {
            return match receive.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Empty) => {
                    *timed_out = Some(receive);
                    Err(NoDriver::Silent(patience))
                }
                Err(TryRecvError::Disconnected) => Err(panicked()),
            };
        }
        let (send, receive) = mpsc::channel();
        let spawned = thread::Builder::new()
            .name("cuda-driver".into())
            .spawn(move || {
                // The receiver may be gone after a timeout.
                _ = send.send(query());
            });
        if let Err(error) = spawned {
            return Err(NoDriver::Failed(format!(
                "cannot create a thread to query it: {error}"
            )));
        }
        match receive.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                *timed_out = Some(receive);
                Err(NoDriver::Silent(patience))
            }
            Err(RecvTimeoutError::Disconnected) => Err(panicked()),
        }
    }
}

fn panicked() -> NoDriver {
    NoDriver::Failed("the thread that queried it panicked".into())
}

fn query_driver() -> Answer {
    // SAFETY: loads `libcuda` from the system's places and runs its initialisers, as opening any
    // CUDA device does.
    if !unsafe { sys::is_culib_present() } {
        return Err(NoDriver::Missing);
    }
    result::init().map_err(driver_error)?;
    let mut version = 0;
    // SAFETY: the driver is initialised, and writes one integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(driver_error)?;
    let count = result::device::get_count().map_err(driver_error)?;
    let devices = (0..count)
        .map(gpu)
        .collect::<Result<_, _>>()
        .map_err(driver_error)?;
    let version = version.unsigned_abs();
    Ok(Driver {
        cuda: (version / 1000, version % 1000 / 10),
        devices,
    })
}

fn gpu(ordinal: i32) -> Result<VisibleGpu, DriverError> {
    use sys::CUdevice_attribute as Attribute;

    let device = result::device::get(ordinal)?;
    // SAFETY: the driver returned this device.
    let attribute = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    // SAFETY: as above.
    let memory = unsafe { result::device::total_mem(device)? } as u64;
    let name = result::device::get_name(device)?;
    Ok(VisibleGpu {
        name,
        memory,
        compute_capability: (major.unsigned_abs(), minor.unsigned_abs()),
    })
}

fn driver_error(error: DriverError) -> NoDriver {
    let message = error.error_string().map_or_else(
        |_| format!("{error:?}"),
        |message| message.to_string_lossy().into_owned(),
    );
    NoDriver::Failed(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_driver_is_timed_out_once() {
        static QUERY: Query = Query::new();
        let (wake, sleeping) = mpsc::channel::<()>();
        let short = Duration::from_millis(50);
        let silent = QUERY.run(short, move || {
            _ = sleeping.recv();
            Err(NoDriver::Missing)
        });
        assert_eq!(silent, Err(NoDriver::Silent(short)));
        // Later callers neither wait for it nor start another query.
        assert_eq!(
            QUERY.run(Duration::from_secs(3600), || unreachable!()),
            Err(NoDriver::Silent(Duration::from_secs(3600)))
        );
        drop(wake);
        let answer = loop {
            match QUERY.run(short, || unreachable!()) {
                Err(NoDriver::Silent(_)) => thread::yield_now(),
                answer => break answer,
            }
        };
        assert_eq!(answer, Err(NoDriver::Missing));
        assert_eq!(
            QUERY.run(Duration::from_secs(60), || Err(NoDriver::Failed(
                "no".into()
            ))),
            Err(NoDriver::Failed("no".into()))
        );
    }
}
