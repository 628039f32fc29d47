//! The embedded executor: a [`Backend`](halite_core::Backend) that runs StableHLO on the host.
//!
//! It has two modes. [`Mode::Fast`] runs a plan of fused kernels; [`Mode::Oracle`] runs every
//! operation in plain loops, rounds once, and adds floats in `f64`: results to compare other
//! executors with. Both need no accelerator, and have as many virtual devices as requested, so that
//! programs over several devices run anywhere.
//!
//! ```
//! use halite_core::{Client, DType, HostBytes, TensorType};
//! use halite_embedded::{Options, Embedded};
//!
//! let client = Client::new(Embedded::new(&Options { devices: 2, ..Options::default() })?);
//! let device = client.local_devices()[1];
//! let ty = TensorType::new(DType::U8, [3]);
//! let buffer = client.upload(HostBytes::Borrowed(&[1, 2, 3]), &ty, device.into())?;
//! let mut bytes = [0; 3];
//! buffer.first().read(&mut bytes)?;
//! assert_eq!(bytes, [1, 2, 3]);
//! # halite_core::Result::<()>::Ok(())
//! ```
#![forbid(unsafe_code)]

mod backend;
mod buffer;
mod client;
mod compile;
mod device;
mod executable;
mod failure;
mod fast;
mod interpret;
mod launch;
mod node;
mod options;
mod oracle;
mod ready;
mod shards;
mod slice;
mod slot;
mod source;
mod storage;

pub use buffer::{EmbeddedBuffer, EmbeddedEvent};
pub use client::Embedded;
pub use device::EmbeddedDevice;
pub use executable::EmbeddedExecutable;
pub use interpret::interpret;
pub use node::Node;
pub use options::{Mode, Options};
