//! Devices of a client, their descriptions and memories.

use std::{fmt, sync::Arc};

use halite_core::{
    DTypePolicy, Device, DeviceId, Error, ErrorKind, MemoryKind, MemoryStats, Result,
};
use halite_pjrt_sys::{client::*, device::*, memory::*};

use crate::{
    handle::Handle,
    quirks::default_policy,
    table::Table,
    value::{OptionValue, Options, from_named, slice_of, text_of},
};

/// A device of a plugin's client.
pub struct PjrtDevice {
    description: DeviceDescription,
    table: &'static Table,
    device: Handle<PJRT_Device>,
    addressable: bool,
    local_hardware_id: Option<i32>,
    /// Kinds and the plugin's memories; the default one first.
    memories: Vec<(MemoryKind, Handle<PJRT_Memory>)>,
    kinds: Vec<MemoryKind>,
    platform: Arc<str>,
}

/// Description of a device, present or not.
#[derive(Clone, Debug)]
pub struct DeviceDescription {
    /// Id, unique in the job.
    pub id: DeviceId,
    /// The process that drives it.
    pub process: u32,
    /// The model, as the vendor spells it.
    pub kind: String,
    /// Debug string.
    pub debug: String,
    /// `coords`, `device_memory_bytes_limit` and the like.
    pub attributes: Vec<(String, OptionValue)>,
}

impl DeviceDescription {
    /// The slice of the job that it is in, by its attribute `slice_index`; 0 if it has none.
    pub fn slice(&self) -> usize {
        let index = self
            .attributes
            .iter()
            .find(|(name, _)| name == "slice_index")
            .map(|(_, value)| value);
        match index {
            Some(OptionValue::Int(index)) => usize::try_from(*index).unwrap_or(0),
            _ => 0,
        }
    }
}

impl PjrtDevice {
    /// The description.
    pub fn description(&self) -> &DeviceDescription {
        &self.description
    }

    /// The hardware's own number, such as CUDA's.
    pub fn local_hardware_id(&self) -> Option<i32> {
        self.local_hardware_id
    }

    pub(crate) fn device_id(&self) -> DeviceId {
        self.description.id
    }

    pub(crate) fn process_index(&self) -> u32 {
        self.description.process
    }

    pub(crate) fn is_addressable(&self) -> bool {
        self.addressable
    }

    pub(crate) fn raw(&self) -> *mut PJRT_Device {
        self.device.as_ptr()
    }

    pub(crate) fn memory_of(&self, kind: MemoryKind) -> Option<*mut PJRT_Memory> {
        self.memories
            .iter()
            .find(|(known, _)| *known == kind)
            .map(|(_, memory)| memory.as_ptr())
    }

    pub(crate) fn kinds(&self) -> &[MemoryKind] {
        &self.kinds
    }
}

impl fmt::Debug for PjrtDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PjrtDevice({} {})",
            self.description.id.0, self.description.kind
        )
    }
}

impl Device for PjrtDevice {
    fn id(&self) -> DeviceId {
        self.description.id
    }

    fn process(&self) -> u32 {
        self.description.process
    }

    fn is_local(&self) -> bool {
        self.is_addressable()
    }

    fn kind(&self) -> &str {
        &self.description.kind
    }

    fn memories(&self) -> &[MemoryKind] {
        self.kinds()
    }

    fn slice(&self) -> usize {
        self.description.slice()
    }

    fn default_policy(&self) -> DTypePolicy {
        default_policy(&self.platform, &self.attributes())
    }

    fn attributes(&self) -> Vec<(String, String)> {
        self.description
            .attributes
            .iter()
            .map(|(name, value)| (name.clone(), value.to_string()))
            .collect()
    }

    fn memory(&self) -> Result<MemoryStats> {
        const OP: &str = "device memory";
        let mut args = args!(PJRT_Device_MemoryStats_Args, device: self.raw());
        // SAFETY: the device lives as long as the client, which holds this.
        unsafe { self.table.call(OP, &mut args) }.map_err(|error| error.on(&self.platform))?;
        let bytes = |value: i64, is_set: bool| is_set.then(|| value.max(0) as u64);
        Ok(MemoryStats {
            in_use: args.bytes_in_use.max(0) as u64,
            peak: bytes(args.peak_bytes_in_use, args.peak_bytes_in_use_is_set),
            limit: bytes(args.bytes_limit, args.bytes_limit_is_set),
        })
    }
}

/// All devices of a client, in id order.
pub(crate) fn list_devices(
    table: &'static Table,
    client: Handle<PJRT_Client>,
    platform: &Arc<str>,
) -> Result<Vec<PjrtDevice>> {
    const OP: &str = "list devices";
    let mut args = args!(PJRT_Client_Devices_Args, client: client.as_ptr());
    // SAFETY: the client is alive, and so is its list of devices.
    let raw = unsafe {
        table.call(OP, &mut args)?;
        slice_of(table.name(), args.devices, args.num_devices)?
    };
    let mut devices = Vec::with_capacity(raw.len());
    for &device in raw {
        let device = Handle::from_plugin(OP, device)?;
        let mut args = args!(PJRT_Device_GetDescription_Args, device: device.as_ptr());
        // SAFETY: the device lives as long as the client, and its description as long as the
        // device.
        let description = unsafe {
            table.call(OP, &mut args)?;
            describe(table, Handle::from_plugin(OP, args.device_description)?)?
        };
        // SAFETY: as above.
        devices.push(unsafe { PjrtDevice::of(table, device, description, platform)? });
    }
    devices.sort_by_key(PjrtDevice::device_id);
    if let Some(pair) = devices
        .windows(2)
        .find(|pair| pair[0].device_id() == pair[1].device_id())
    {
        let message = format!("the plugin lists device {} twice", pair[0].device_id().0);
        return Err(Error::new(ErrorKind::Internal, OP, message));
    }
    Ok(devices)
}

/// Reads a description; properties that a plugin does not report are left empty.
///
/// # Safety
///
/// * `description` is alive.
pub(crate) unsafe fn describe(
    table: &Table,
    description: Handle<PJRT_DeviceDescription>,
) -> Result<DeviceDescription> {
    const OP: &str = "describe device";
    let device_description = description.as_ptr();
    let mut id = args!(PJRT_DeviceDescription_Id_Args, device_description);
    let mut process = args!(PJRT_DeviceDescription_ProcessIndex_Args, device_description);
    let mut kind = args!(PJRT_DeviceDescription_Kind_Args, device_description);
    let mut debug = args!(PJRT_DeviceDescription_DebugString_Args, device_description);
    let mut attributes = args!(PJRT_DeviceDescription_Attributes_Args, device_description);
    // SAFETY: this function's condition; texts and attributes live as long as the description.
    unsafe {
        table.call(OP, &mut id)?;
        let process = table
            .call(OP, &mut process)
            .map_or(0, |()| process.process_index.max(0) as u32);
        let name = table.name();
        let kind = match table.call(OP, &mut kind) {
            Ok(()) => text_of(name, kind.device_kind, kind.device_kind_size)?,
            Err(_) => String::new(),
        };
        let debug = match table.call(OP, &mut debug) {
            Ok(()) => text_of(name, debug.debug_string, debug.debug_string_size)?,
            Err(_) => String::new(),
        };
        let attributes = match table.call(OP, &mut attributes) {
            Ok(()) => from_named(name, attributes.attributes, attributes.num_attributes)?,
            Err(_) => Options::new(),
        };
        Ok(DeviceDescription {
            id: device_id(OP, id.id)?,
            process,
            kind,
            debug,
            attributes,
        })
    }
}

fn device_id(op: &'static str, id: i32) -> Result<DeviceId> {
    let id = u32::try_from(id).map_err(|_| {
        let message = format!("the plugin gave a device the id {id}, expected 0 or more");
        Error::new(ErrorKind::Internal, op, message)
    })?;
    Ok(DeviceId(id))
}

impl PjrtDevice {
    /// # Safety
    ///
    /// * `device` lives as long as the result.
    unsafe fn of(
        table: &'static Table,
        device: Handle<PJRT_Device>,
        description: DeviceDescription,
        platform: &Arc<str>,
    ) -> Result<PjrtDevice> {
        const OP: &str = "list devices";
        let raw = device.as_ptr();
        let mut addressable = args!(PJRT_Device_IsAddressable_Args, device: raw);
        let mut hardware = args!(PJRT_Device_LocalHardwareId_Args, device: raw);
        let mut memories = args!(PJRT_Device_AddressableMemories_Args, device: raw);
        let mut default = args!(PJRT_Device_DefaultMemory_Args, device: raw);
        // SAFETY: the device is alive, and its memories live as long as it.
        unsafe {
            table.call(OP, &mut addressable)?;
            let local_hardware_id = table
                .call(OP, &mut hardware)
                .ok()
                .map(|()| hardware.local_hardware_id);
            let mut it = PjrtDevice {
                description,
                table,
                device,
                addressable: addressable.is_addressable,
                local_hardware_id: local_hardware_id.filter(|id| *id >= 0),
                memories: Vec::new(),
                kinds: vec![MemoryKind::Device],
                platform: platform.clone(),
            };
            if !it.addressable {
                return Ok(it);
            }
            // Whatever the plugin calls it, the default memory is what `MemoryKind::Device` means.
            if table.call(OP, &mut default).is_ok()
                && let Ok(memory) = Handle::from_plugin(OP, default.memory)
            {
                it.memories.push((MemoryKind::Device, memory));
            }
            if table.call(OP, &mut memories).is_ok() {
                for &memory in slice_of(table.name(), memories.memories, memories.num_memories)? {
                    it.add_memory(Handle::from_plugin(OP, memory)?)?;
                }
            }
            Ok(it)
        }
    }

    /// # Safety
    ///
    /// * `memory` is a memory of this device.
    unsafe fn add_memory(&mut self, memory: Handle<PJRT_Memory>) -> Result<()> {
        let mut args = args!(PJRT_Memory_Kind_Args, memory: memory.as_ptr());
        // SAFETY: this function's condition; the text lives as long as the memory.
        let name = unsafe {
            match self.table.call("memory kind", &mut args) {
                Ok(()) => text_of(self.table.name(), args.kind, args.kind_size)?,
                Err(_) => return Ok(()),
            }
        };
        if let Some(kind) = memory_kind(&name)
            && self
                .memories
                .iter()
                .all(|(known, known_memory)| *known != kind && *known_memory != memory)
        {
            self.memories.push((kind, memory));
            if kind != MemoryKind::Device {
                self.kinds.push(kind);
            }
        }
        Ok(())
    }
}

/// The kind with this name in the API.
pub(crate) fn memory_kind(name: &str) -> Option<MemoryKind> {
    match name {
        "device" => Some(MemoryKind::Device),
        "pinned_host" => Some(MemoryKind::PinnedHost),
        "unpinned_host" => Some(MemoryKind::UnpinnedHost),
        _ => None,
    }
}
