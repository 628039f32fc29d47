//! Platforms, devices and memories by name, and the memory that a device has.

use std::sync::Arc;

/// Name and version of a backend.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Platform {
    /// `cpu`, `cuda`, `tpu`, `embedded`, `null`.
    pub name: Arc<str>,
    /// The driver's description of its version.
    pub version: String,
}

impl Platform {
    /// The name of the platform that a file calls `name`. Runs, compiled programs and artifacts keep
    /// the name that their platform had when they were written.
    pub fn current_name(name: &str) -> &str {
        match name {
            "halite" => "embedded",
            current => current,
        }
    }
}

/// Id of a device, unique in a job.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DeviceId(pub u32);

/// A kind of memory that a device can use.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum MemoryKind {
    /// Memory of the device itself.
    #[default]
    Device,
    /// Page-locked memory of the host, which the device can access.
    PinnedHost,
    /// Pageable memory of the host.
    UnpinnedHost,
}

/// A device and a kind of its memory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Placement {
    /// The device.
    pub device: DeviceId,
    /// The kind of memory.
    pub memory: MemoryKind,
}

impl From<DeviceId> for Placement {
    /// The memory of the device itself.
    fn from(device: DeviceId) -> Self {
        Placement {
            device,
            memory: MemoryKind::Device,
        }
    }
}

/// Memory of one device, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemoryStats {
    /// In use now.
    pub in_use: u64,
    /// Largest use so far.
    pub peak: Option<u64>,
    /// Limit of the use.
    pub limit: Option<u64>,
}
