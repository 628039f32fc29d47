//! What NVIDIA's driver says, before any plugin is loaded.
//!
//! The driver's library is loaded when it is first asked, by `cudarc`, so nothing is linked and a
//! machine without it is no error of the loader. `unsafe` is needed here because two of the
//! driver's questions have no safe form in `cudarc`.
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

/// The driver and the devices that it shows to this process, which `CUDA_VISIBLE_DEVICES` may have
/// chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Driver {
    /// The newest CUDA that it runs, as `(major, minor)`.
    pub cuda: (u32, u32),
    /// In the order of their numbers.
    pub devices: Vec<VisibleGpu>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct VisibleGpu {
    /// `NVIDIA H100 80GB HBM3`
    pub name: String,
    /// All of its memory, in bytes.
    pub memory: u64,
    /// `(9, 0)` for Hopper.
    pub compute_capability: (u32, u32),
}

/// Why the driver says nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NoDriver {
    /// There is no library.
    Missing,
    /// It has not answered for so long.
    Silent(Duration),
    /// It refused, in its own words.
    Refused(String),
}

/// Asks the driver, which may hang where a device does. Makes no context, so it takes no memory of
/// any device.
pub(crate) fn ask() -> Result<Driver, NoDriver> {
    /// A driver that has to start many devices takes some 20 s.
    const PATIENCE: Duration = Duration::from_secs(60);

    static ASKED: Asked = Asked::new();
    ASKED.ask(PATIENCE, ask_now)
}

/// A question that one thread asks at a time, and that others do not wait for once it was given up.
struct Asked {
    given_up: Mutex<Option<Receiver<Answer>>>,
}

type Answer = Result<Driver, NoDriver>;

impl Asked {
    const fn new() -> Self {
        Asked {
            given_up: Mutex::new(None),
        }
    }

    /// The answer of `question`, which runs on a thread of its own, or of one that was given up and
    /// has answered since.
    fn ask(
        &self,
        patience: Duration,
        question: impl FnOnce() -> Answer + Send + 'static,
    ) -> Answer {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(receive) = given_up.take() {
            return match receive.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Empty) => {
                    *given_up = Some(receive);
                    Err(NoDriver::Silent(patience))
                }
                Err(TryRecvError::Disconnected) => Err(panicked()),
            };
        }
        let (send, receive) = mpsc::channel();
        let spawned = thread::Builder::new()
            .name("cuda-driver".into())
            .spawn(move || {
                // Nobody may be waiting any more.
                _ = send.send(question());
            });
        if let Err(error) = spawned {
            return Err(NoDriver::Refused(format!(
                "no thread to ask it on: {error}"
            )));
        }
        match receive.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                *given_up = Some(receive);
                Err(NoDriver::Silent(patience))
            }
            Err(RecvTimeoutError::Disconnected) => Err(panicked()),
        }
    }
}

fn panicked() -> NoDriver {
    NoDriver::Refused("the thread that asked it panicked".into())
}

fn ask_now() -> Answer {
    // SAFETY: loads `libcuda` from the system's places and runs its initialisers, as opening any
    // CUDA device does.
    if !unsafe { sys::is_culib_present() } {
        return Err(NoDriver::Missing);
    }
    result::init().map_err(refused)?;
    let mut version = 0;
    // SAFETY: the driver is initialised, and writes one integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(refused)?;
    let count = result::device::get_count().map_err(refused)?;
    let devices = (0..count)
        .map(gpu)
        .collect::<Result<_, _>>()
        .map_err(refused)?;
    let version = version.unsigned_abs();
    Ok(Driver {
        cuda: (version / 1000, version % 1000 / 10),
        devices,
    })
}

fn gpu(ordinal: i32) -> Result<VisibleGpu, DriverError> {
    use sys::CUdevice_attribute as Attribute;

    let device = result::device::get(ordinal)?;
    // SAFETY: the device is the one that the driver gave.
    let ask = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    let major = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    // SAFETY: as above.
    let memory = unsafe { result::device::total_mem(device)? } as u64;
    let name = result::device::get_name(device)?;
    Ok(VisibleGpu {
        name,
        memory,
        compute_capability: (major.unsigned_abs(), minor.unsigned_abs()),
    })
}

fn refused(error: DriverError) -> NoDriver {
    let words = error.error_string().map_or_else(
        |_| format!("{error:?}"),
        |words| words.to_string_lossy().into_owned(),
    );
    NoDriver::Refused(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_driver_is_given_up_once() {
        static ASKED: Asked = Asked::new();
        let (wake, sleeping) = mpsc::channel::<()>();
        let short = Duration::from_millis(50);
        let silent = ASKED.ask(short, move || {
            _ = sleeping.recv();
            Err(NoDriver::Missing)
        });
        assert_eq!(silent, Err(NoDriver::Silent(short)));
        // Nobody waits for it again, nor is it asked again.
        assert_eq!(
            ASKED.ask(Duration::from_secs(3600), || unreachable!()),
            Err(NoDriver::Silent(Duration::from_secs(3600)))
        );
        drop(wake);
        let answer = loop {
            match ASKED.ask(short, || unreachable!()) {
                Err(NoDriver::Silent(_)) => thread::yield_now(),
                answer => break answer,
            }
        };
        assert_eq!(answer, Err(NoDriver::Missing));
        assert_eq!(
            ASKED.ask(Duration::from_secs(60), || Err(NoDriver::Refused(
                "no".into()
            ))),
            Err(NoDriver::Refused("no".into()))
        );
    }
}
