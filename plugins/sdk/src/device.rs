//! Devices and memories of a client.

use std::sync::Arc;

use halite_core::{Client as Core, DeviceId, MemoryKind, Placement};
use halite_pjrt_sys::{device::*, memory::*};

use crate::{
    abi::{Function, Given, Shared, getters, int},
    handle::{find, objects, pointer, publish, reserve},
    options::NamedValues,
    serialized::delete,
    status::{Outcome, Status},
    text,
    value::Value,
};

/// A device of a client.
pub(crate) struct Device {
    core: Core,
    pub(crate) id: DeviceId,
    pub(crate) process: u32,
    pub(crate) local: bool,
    /// Index in `Backend::devices`.
    pub(crate) index: usize,
    /// Its handle as a number.
    pub(crate) number: usize,
    description: Shared<*mut PJRT_DeviceDescription>,
    memories: Shared<Box<[*mut PJRT_Memory]>>,
}

/// A memory of one device.
pub(crate) struct Memory {
    id: usize,
    pub(crate) place: Placement,
    /// Its handle as a number.
    pub(crate) number: usize,
    devices: Shared<[*mut PJRT_Device; 1]>,
    debug: String,
}

objects! {
    Device => PJRT_Device,
    Memory => PJRT_Memory,
}

impl Device {
    pub(crate) fn new(
        core: &Core,
        device: &dyn halite_core::Device,
        index: usize,
        number: usize,
        description: *mut PJRT_DeviceDescription,
        memories: &[Arc<Memory>],
    ) -> Self {
        Device {
            core: core.clone(),
            id: device.id(),
            process: device.process(),
            local: device.is_local(),
            index,
            number,
            description: Shared(description),
            memories: Shared(memories.iter().map(|memory| memory.handle()).collect()),
        }
    }

    pub(crate) fn handle(&self) -> *mut PJRT_Device {
        pointer(self.number)
    }

    /// Calls `use_device` with the device of the backend.
    fn of_backend<T>(&self, use_device: impl FnOnce(&dyn halite_core::Device) -> T) -> Outcome<T> {
        match self.core.devices().get(self.index) {
            Some(device) if device.id() == self.id => Ok(use_device(*device)),
            _ => Err(Status::internal(format!(
                "`Backend::devices` has no device {} any more; the list is constant",
                self.id.0
            ))),
        }
    }
}

impl Memory {
    pub(crate) fn new(id: usize, place: Placement, device: usize, platform: &str) -> Self {
        Memory {
            id,
            place,
            number: reserve(),
            devices: Shared([pointer(device)]),
            debug: format!(
                "{} of {platform}:{}",
                kind_name(place.memory),
                place.device.0
            ),
        }
    }

    pub(crate) fn handle(&self) -> *mut PJRT_Memory {
        pointer(self.number)
    }
}

/// The name of a kind of memory in the C API.
pub(crate) fn kind_name(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Device => "device",
        MemoryKind::PinnedHost => "pinned_host",
        MemoryKind::UnpinnedHost => "unpinned_host",
    }
}

getters! {
    PJRT_Device_GetDescription_Args(device: Device) =>
        |out| out.device_description = device.description.0;
    PJRT_Device_IsAddressable_Args(device: Device) => |out| out.is_addressable = device.local;
    PJRT_Device_LocalHardwareId_Args(device: Device) =>
        |out| out.local_hardware_id = if device.local { int(device.index) } else { -1 };
    PJRT_Device_AddressableMemories_Args(device: Device) => |out| {
        let memories = &device.memories.0;
        (out.memories, out.num_memories) = (memories.as_ptr(), memories.len());
    };
    PJRT_Device_DefaultMemory_Args(device: Device) => |out| {
        let first = device.memories.0.first().copied();
        out.memory = first.ok_or_else(|| {
            Status::invalid(format!("device {} is not of this process", device.id.0))
        })?;
    };
}

impl Function for PJRT_Device_MemoryStats_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let device = find::<Device>(args.device)?;
        let stats = device.of_backend(|device| device.memory())??;
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        *out = PJRT_Device_MemoryStats_Args {
            struct_size: args.struct_size,
            extension_start: args.extension_start,
            device: args.device,
            bytes_in_use: bytes(stats.in_use),
            peak_bytes_in_use: stats.peak.map_or(0, bytes),
            peak_bytes_in_use_is_set: stats.peak.is_some(),
            bytes_limit: stats.limit.map_or(0, bytes),
            bytes_limit_is_set: stats.limit.is_some(),
            ..PJRT_Device_MemoryStats_Args::new()
        };
        Ok(())
    }
}

getters! {
    PJRT_Device_GetAttributes_Args(device: Device) => |out| {
        let attributes = device.of_backend(|device| device.attributes())?;
        let texts = attributes
            .into_iter()
            .map(|(name, value)| (name, Value::Text(value)));
        let values = Arc::new(NamedValues::new(texts));
        (out.attributes, out.num_attributes) = values.raw();
        out.device_attributes = publish(values);
        out.attributes_deleter = Some(delete::<NamedValues>);
    };
    PJRT_Memory_Id_Args(memory: Memory) => |out| out.id = int(memory.id);
    PJRT_Memory_Kind_Args(memory: Memory) =>
        |out| (out.kind, out.kind_size) = text(kind_name(memory.place.memory));
    PJRT_Memory_Kind_Id_Args(memory: Memory) => |out| out.kind_id = memory.place.memory as i32;
    PJRT_Memory_DebugString_Args(memory: Memory) =>
        |out| (out.debug_string, out.debug_string_size) = text(&memory.debug);
    PJRT_Memory_ToString_Args(memory: Memory) =>
        |out| (out.to_string, out.to_string_size) = text(&memory.debug);
    PJRT_Memory_AddressableByDevices_Args(memory: Memory) =>
        |out| (out.devices, out.num_devices) = (memory.devices.0.as_ptr(), 1);
}
