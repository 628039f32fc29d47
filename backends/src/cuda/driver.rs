//! What NVIDIA's driver says, before any plugin is loaded.
//!
//! The driver's library is loaded when it is first asked, by `cudarc`, so nothing is linked and a machine without it is no
//! error of the loader. `unsafe` is needed here because two of the driver's questions have no safe form in `cudarc`.
#![allow(unsafe_code)]

use cudarc::driver::{DriverError, result, sys};

/// The driver and the devices that it shows to this process, which `CUDA_VISIBLE_DEVICES` may have chosen.
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
    /// It refused, in its own words.
    Refused(String),
}

/// Asks the driver. Makes no context, so it takes no memory of any device.
pub(crate) fn ask() -> Result<Driver, NoDriver> {
    // SAFETY: loads `libcuda` from the system's places and runs its initialisers, as opening any CUDA device does.
    if !unsafe { sys::is_culib_present() } {
        return Err(NoDriver::Missing);
    }
    result::init().map_err(refused)?;
    let mut version = 0;
    // SAFETY: the driver is initialised, and writes one integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(refused)?;
    let count = result::device::get_count().map_err(refused)?;
    let devices = (0..count).map(gpu).collect::<Result<_, _>>().map_err(refused)?;
    let version = version.unsigned_abs();
    Ok(Driver { cuda: (version / 1000, version % 1000 / 10), devices })
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
    Ok(VisibleGpu { name, memory, compute_capability: (major.unsigned_abs(), minor.unsigned_abs()) })
}

fn refused(error: DriverError) -> NoDriver {
    let words = error.error_string().map_or_else(|_| format!("{error:?}"), |words| words.to_string_lossy().into_owned());
    NoDriver::Refused(words)
}
