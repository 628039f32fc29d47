//! Rates of uploads, in GB/s: `uploads [ACCELERATOR]` (default `cpu`) prints one line of JSON for
//! each size.
//!
//! `borrowed` copies the host's memory before the call returns, `shared` lends it to the device
//! until it has arrived, `pinned` lends page-locked memory ([`Client::pinned_memory`]), and
//! `staged` uploads into a buffer in page-locked memory and copies from there; the last two are
//! null where the backend has no such memory. `pin` is the rate of page-locking itself, which a
//! pool does once. `benches/hardware/uploads_torch.py` measures PyTorch's beside it.
#![forbid(unsafe_code)]

use std::{process::ExitCode, sync::Arc, time::Instant};

#[cfg(doc)]
use halite::Client;
use halite::{DType, Result, TensorType, backends::Accelerator};
use halite_benches::{Arguments, exit_code};
use halite_core::{DeviceBuffers, HostBytes, MemoryKind, Placement};

/// Bytes of the uploads: a batch of digits, of small images, of large images.
const SIZES: [usize; 3] = [1 << 20, 16 << 20, 128 << 20];
/// Bytes that each rate is measured over.
const MEASURED: usize = 1 << 30;

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let words = Arguments::read("uploads", &[])?.words(&["cpu"]);
    let client = words[0].parse::<Accelerator>()?.open()?;
    let device = client.local_devices()[0];
    let place = |memory| Placement { device, memory };
    for size in SIZES {
        let memory: Arc<Vec<u8>> = Arc::new((0..size).map(|place| place as u8).collect());
        let ty = TensorType::new(DType::U8, [size]);
        let upload = |bytes: HostBytes<'_>, to| client.upload(bytes, &ty, place(to));
        let borrowed = rate(size, || {
            upload(HostBytes::Borrowed(&memory), MemoryKind::Device)
        })?;
        let shared = rate(size, || {
            upload(HostBytes::Shared(memory.clone()), MemoryKind::Device)
        })?;
        let started = Instant::now();
        let pinned = client.pinned_memory(size)?;
        let pin = size as f64 / started.elapsed().as_secs_f64() / 1e9;
        let pin = pinned.is_some().then_some(pin);
        let pinned = pinned.map(|mut pinned| {
            pinned.as_mut().copy_from_slice(&memory);
            let pinned = Arc::new(pinned);
            rate(size, || {
                upload(HostBytes::Shared(pinned.clone()), MemoryKind::Device)
            })
        });
        let staged = rate(size, || {
            let staged = upload(HostBytes::Borrowed(&memory), MemoryKind::PinnedHost)?;
            staged.first().copy_to(place(MemoryKind::Device))
        });
        let [pinned, pin, staged] = [pinned.transpose()?, pin, staged.ok()]
            .map(|rate| rate.map_or("null".to_string(), |rate| format!("{rate:.2}")));
        println!(
            r#"{{"bytes": {size}, "borrowed": {borrowed:.2}, "shared": {shared:.2}, "pinned": {pinned}, "pin": {pin}, "staged": {staged}}}"#
        );
    }
    Ok(())
}

/// GB/s of `upload`, each of which arrives before the next begins.
fn rate(size: usize, upload: impl Fn() -> Result<DeviceBuffers>) -> Result<f64> {
    let once = || upload()?.first().ready()?.wait();
    once()?;
    let count = MEASURED / size;
    let started = Instant::now();
    for _ in 0..count {
        once()?;
    }
    Ok((count * size) as f64 / started.elapsed().as_secs_f64() / 1e9)
}
