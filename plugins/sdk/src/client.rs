//! Clients: the devices and memories of a backend, and its topology, as handles.

mod host_maps;
mod topology;

use std::{collections::HashSet, sync::Arc};

use halite_core::{Client as Core, DeviceId, MemoryKind, Placement};
use halite_pjrt_sys::{
    base::{PJRT_Plugin_Attributes_Args, PJRT_Plugin_Initialize_Args},
    client::*,
    device::PJRT_Device,
    memory::PJRT_Memory,
    topology::PJRT_TopologyDescription,
};
use halite_stablehlo::Version;

use self::host_maps::HostMaps;
pub(crate) use self::topology::Topology;
use crate::{
    Options, Plugin,
    abi::{CallerStore, Function, Given, Shared, getters, int, named_values, room},
    device::{Device, Memory},
    handle::{find, objects, publish, publish_as, reserve, take},
    options::NamedValues,
    program,
    status::{Outcome, Status, drop_logged},
    text,
    value::Value,
};

/// A client of a backend. Buffers and executables keep it alive.
pub(crate) struct Client {
    pub(crate) core: Core,
    platform: String,
    version: String,
    process: u32,
    devices: Vec<Arc<Device>>,
    memories: Vec<Arc<Memory>>,
    handles: Handles,
    pub(crate) host_maps: HostMaps,
}

objects!(Client => PJRT_Client);

/// The lists that callers get.
struct Handles {
    devices: Shared<Box<[*mut PJRT_Device]>>,
    local: Shared<Box<[*mut PJRT_Device]>>,
    memories: Shared<Box<[*mut PJRT_Memory]>>,
    topology: Shared<*mut PJRT_TopologyDescription>,
}

impl Client {
    /// A client of this backend, after checks of what it says of its devices.
    fn new(core: Core, host_maps: HostMaps) -> Outcome<Arc<Self>> {
        let platform = core.platform().name.to_string();
        let version = core.platform().version.clone();
        let listed = core.devices();
        check_devices(&listed)?;
        let topology = Topology::of_client(&platform, &version, &listed);
        let (devices, memories) = objects_of(&core, &listed, &topology);
        let local = devices.iter().filter(|device| device.local);
        let process = local.clone().next().map_or(0, |device| device.process);
        let handles = Handles {
            devices: Shared(devices.iter().map(|device| device.handle()).collect()),
            local: Shared(local.map(|device| device.handle()).collect()),
            memories: Shared(memories.iter().map(|memory| memory.handle()).collect()),
            topology: Shared(publish(topology.clone())),
        };
        for device in &devices {
            publish_as(device.number, device.clone());
        }
        for memory in &memories {
            publish_as(memory.number, memory.clone());
        }
        let client = Arc::new(Client {
            core: core.clone(),
            platform,
            version,
            process,
            devices,
            memories,
            handles,
            host_maps,
        });
        topology.set_client(&client);
        Ok(client)
    }

    /// Name of the platform.
    pub(crate) fn platform(&self) -> &str {
        &self.platform
    }

    /// Version of the platform.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The device with this id.
    pub(crate) fn device(&self, id: DeviceId) -> Option<&Arc<Device>> {
        self.devices.iter().find(|device| device.id == id)
    }

    /// The memory of a placement.
    pub(crate) fn memory(&self, place: Placement) -> Option<&Arc<Memory>> {
        self.memories.iter().find(|memory| memory.place == place)
    }

    /// The local devices, in id order.
    pub(crate) fn local_devices(&self) -> Vec<DeviceId> {
        let local = self.devices.iter().filter(|device| device.local);
        local.map(|device| device.id).collect()
    }

    /// The device of this client behind a handle.
    ///
    /// # Errors
    /// If it is not a device of this client and process.
    pub(crate) fn own_device(&self, handle: *mut PJRT_Device) -> Outcome<&Device> {
        let mut local = self.devices.iter().filter(|device| device.local);
        match local.find(|device| device.number == handle.addr()) {
            Some(device) => Ok(device),
            None => Err(foreign("device", find::<Device>(handle)?.id)),
        }
    }

    /// The memory of this client behind a handle.
    ///
    /// # Errors
    /// If it is not a memory of this client and process.
    pub(crate) fn own_memory(&self, handle: *mut PJRT_Memory) -> Outcome<&Memory> {
        let mut memories = self.memories.iter();
        match memories.find(|memory| memory.number == handle.addr()) {
            Some(memory) => Ok(memory),
            None => {
                let place = find::<Memory>(handle)?.place;
                Err(foreign("a memory of device", place.device))
            }
        }
    }

    /// The placement that a caller chooses by a memory, or else by a device.
    pub(crate) fn placement(
        &self,
        device: *mut PJRT_Device,
        memory: *mut PJRT_Memory,
    ) -> Outcome<Placement> {
        if !memory.is_null() {
            let place = self.own_memory(memory)?.place;
            if !device.is_null() && self.own_device(device)?.id != place.device {
                return Err(Status::invalid("`memory` is not a memory of `device`"));
            }
            return Ok(place);
        }
        if !device.is_null() {
            return Ok(self.own_device(device)?.id.into());
        }
        let first = self.devices.iter().find(|device| device.local);
        let first = first.ok_or_else(|| Status::invalid("`device` and `memory` are null"))?;
        Ok(first.id.into())
    }
}

#[cold]
fn foreign(what: &str, id: DeviceId) -> Status {
    Status::invalid(format!(
        "{what} {} of another client or process was passed, one of this client is needed",
        id.0
    ))
}

impl Drop for Client {
    fn drop(&mut self) {
        for &device in &self.handles.devices.0 {
            _ = take::<Device>(device);
        }
        for &memory in &self.handles.memories.0 {
            _ = take::<Memory>(memory);
        }
        _ = take::<Topology>(self.handles.topology.0);
    }
}

/// The devices and memories of a client, which know each other's handles.
fn objects_of(
    core: &Core,
    listed: &[&dyn halite_core::Device],
    topology: &Topology,
) -> (Vec<Arc<Device>>, Vec<Arc<Memory>>) {
    let (mut devices, mut memories) = (Vec::new(), Vec::new());
    let descriptions = topology.descriptions();
    for (index, (device, &description)) in listed.iter().zip(descriptions).enumerate() {
        let (first, number) = (memories.len(), reserve());
        let kinds = device.memories().iter().filter(|_| device.is_local());
        for &memory in kinds {
            let device = device.id();
            let place = Placement { device, memory };
            let name = &core.platform().name;
            memories.push(Arc::new(Memory::new(memories.len(), place, number, name)));
        }
        let own = &memories[first..];
        let device = Device::new(core, *device, index, number, description, own);
        devices.push(Arc::new(device));
    }
    (devices, memories)
}

/// Checks the promises of `Backend::devices`.
fn check_devices(devices: &[&dyn halite_core::Device]) -> Outcome {
    let broken = |rule: String| Err(Status::internal(format!("`Backend::devices`: {rule}")));
    let mut ids = HashSet::new();
    for device in devices {
        let id = device.id().0;
        if !ids.insert(id) {
            return broken(format!("device {id} is listed twice; ids are unique"));
        }
        if i32::try_from(id).is_err() {
            return broken(format!("device id {id} does not fit 31 bits"));
        }
        let memories = device.memories();
        if device.is_local() && memories.first() != Some(&MemoryKind::Device) {
            return broken(format!(
                "the memories of device {id} are {memories:?}; the first is `MemoryKind::Device`"
            ));
        }
    }
    if !devices.iter().any(|device| device.is_local()) {
        return broken("no device is local; a client needs one".to_owned());
    }
    Ok(())
}

/// Creates a client of a plugin. The callbacks of a key-value store are read only if the plugin
/// asks for it: they are not initialized in jobs of one process.
pub(crate) fn create<P: Plugin>(
    args: &Given<PJRT_Client_Create_Args>,
    out: &mut PJRT_Client_Create_Args,
) -> Outcome {
    let options = Options::new(named_values!(args, create_options, num_options)?);
    let mut options = options.with_store(CallerStore::of(args));
    let core = P::open(&mut options)?;
    options.check_all_taken()?;
    let host_maps = HostMaps::new(options.host_memory());
    out.client = publish(Client::new(core, host_maps)?);
    Ok(())
}

impl Function for PJRT_Plugin_Initialize_Args {
    const HAS_RESULTS: bool = false;

    fn call(_: &Given<Self>, _: &mut Self) -> Outcome {
        Ok(())
    }
}

impl Function for PJRT_Plugin_Attributes_Args {
    fn call(_: &Given<Self>, out: &mut Self) -> Outcome {
        static ATTRIBUTES: std::sync::OnceLock<NamedValues> = std::sync::OnceLock::new();

        let attributes = ATTRIBUTES.get_or_init(|| {
            let version =
                |Version {
                     major,
                     minor,
                     patch,
                 }| { Value::Ints([major, minor, patch].map(i64::from).to_vec()) };
            NamedValues::new([
                ("xla_version".to_owned(), Value::Int(2)),
                (
                    "stablehlo_current_version".to_owned(),
                    version(program::NEWEST_STABLEHLO),
                ),
                (
                    "stablehlo_minimum_version".to_owned(),
                    version(program::OLDEST_STABLEHLO),
                ),
            ])
        });
        (out.attributes, out.num_attributes) = attributes.raw();
        Ok(())
    }
}

impl Function for PJRT_Client_Destroy_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_logged(take::<Client>(args.client)?);
        Ok(())
    }
}

getters! {
    PJRT_Client_PlatformName_Args(client: Client) =>
        |out| (out.platform_name, out.platform_name_size) = text(&client.platform);
    PJRT_Client_PlatformVersion_Args(client: Client) =>
        |out| (out.platform_version, out.platform_version_size) = text(&client.version);
    PJRT_Client_ProcessIndex_Args(client: Client) =>
        |out| out.process_index = int(client.process as usize);
    PJRT_Client_TopologyDescription_Args(client: Client) =>
        |out| out.topology = client.handles.topology.0;
    PJRT_Client_Devices_Args(client: Client) => |out| {
        let devices = &client.handles.devices.0;
        (out.devices, out.num_devices) = (devices.as_ptr(), devices.len());
    };
    PJRT_Client_AddressableDevices_Args(client: Client) => |out| {
        let local = &client.handles.local.0;
        (out.addressable_devices, out.num_addressable_devices) = (local.as_ptr(), local.len());
    };
    PJRT_Client_AddressableMemories_Args(client: Client) => |out| {
        let memories = &client.handles.memories.0;
        out.addressable_memories = memories.as_ptr();
        out.num_addressable_memories = memories.len();
    };
}

impl Function for PJRT_Client_LookupDevice_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        out.device = client.lookup(args.id, |device| int(device.id.0 as usize))?;
        Ok(())
    }
}

impl Function for PJRT_Client_LookupAddressableDevice_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let number = |device: &Device| if device.local { int(device.index) } else { -1 };
        out.addressable_device = client.lookup(args.local_hardware_id, number)?;
        Ok(())
    }
}

impl Client {
    fn lookup(&self, wanted: i32, number: impl Fn(&Device) -> i32) -> Outcome<*mut PJRT_Device> {
        let found = self
            .devices
            .iter()
            .find(|device| number(device) == wanted && wanted >= 0);
        found.map(|device| device.handle()).ok_or_else(|| {
            let known: Vec<_> = self.devices.iter().map(|device| number(device)).collect();
            Status::invalid(format!("no device {wanted}; the devices are {known:?}"))
        })
    }
}

impl Function for PJRT_Client_DefaultDeviceAssignment_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let devices = client.local_devices();
        let size = |count: i32| usize::try_from(count).unwrap_or(0);
        let needed = size(args.num_replicas).saturating_mul(size(args.num_partitions));
        if needed == 0 || needed > devices.len() || needed > args.default_assignment_size {
            return Err(Status::invalid(format!(
                "{} replicas of {} partitions do not fit {} devices and an assignment of size {}",
                args.num_replicas,
                args.num_partitions,
                devices.len(),
                args.default_assignment_size
            )));
        }
        let room = room!(args, default_assignment, needed)?;
        room.write(devices.iter().map(|device| int(device.0 as usize)));
        Ok(())
    }
}
