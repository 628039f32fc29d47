//! Topologies and descriptions of devices.

use std::{
    ffi::c_char,
    sync::{Arc, OnceLock, Weak},
};

use halite_core::Device;
use halite_pjrt_sys::{device::*, topology::*};
use prost::Message;
use sha2::{Digest, Sha256};

use super::Client;
use crate::{
    abi::{Function, Given, Shared, getters, int, list},
    handle::{find, objects, publish, take},
    options::NamedValues,
    serialized::Bytes,
    status::{Outcome, Status, drop_logged},
    text,
    value::Value,
};

/// The devices of a client, or a deserialized topology.
pub(crate) struct Topology {
    facts: TopologyProto,
    attributes: NamedValues,
    descriptions: Shared<Box<[*mut PJRT_DeviceDescription]>>,
    /// The client that owns it and destroys it; none for a deserialized one.
    client: OnceLock<Weak<Client>>,
}

/// The description of a device.
pub(crate) struct Description {
    id: u32,
    process: u32,
    kind: String,
    debug: String,
    attributes: NamedValues,
}

objects! {
    Topology => PJRT_TopologyDescription,
    Description => PJRT_DeviceDescription,
}

/// The serialized form of a topology.
#[derive(Clone, PartialEq, Message)]
struct TopologyProto {
    #[prost(string, tag = "1")]
    platform: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(message, repeated, tag = "3")]
    devices: Vec<DeviceProto>,
}

#[derive(Clone, PartialEq, Message)]
struct DeviceProto {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(uint32, tag = "2")]
    process: u32,
    #[prost(string, tag = "3")]
    kind: String,
    #[prost(message, repeated, tag = "4")]
    attributes: Vec<AttributeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

impl Topology {
    /// The topology of a client with these devices.
    pub(crate) fn of_client(platform: &str, version: &str, devices: &[&dyn Device]) -> Arc<Self> {
        let attribute = |(name, value)| AttributeProto { name, value };
        let device = |device: &&dyn Device| DeviceProto {
            id: device.id().0,
            process: device.process(),
            kind: device.kind().to_owned(),
            attributes: device.attributes().into_iter().map(attribute).collect(),
        };
        let facts = TopologyProto {
            platform: platform.to_owned(),
            version: version.to_owned(),
            devices: devices.iter().map(device).collect(),
        };
        Self::new(facts)
    }

    fn new(facts: TopologyProto) -> Arc<Self> {
        let describe = |device: &DeviceProto| publish(Arc::new(Description::new(&facts, device)));
        Arc::new(Topology {
            descriptions: Shared(facts.devices.iter().map(describe).collect()),
            attributes: NamedValues::new([]),
            facts,
            client: OnceLock::new(),
        })
    }

    /// Sets the client that owns it.
    pub(crate) fn set_client(&self, client: &Arc<Client>) {
        _ = self.client.set(Arc::downgrade(client));
    }

    /// The client that owns it, if it is alive.
    pub(crate) fn client(&self) -> Option<Arc<Client>> {
        self.client.get()?.upgrade()
    }

    /// The handles of the descriptions, in the order of the devices.
    pub(crate) fn descriptions(&self) -> &[*mut PJRT_DeviceDescription] {
        &self.descriptions.0
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        for &description in self.descriptions() {
            _ = take::<Description>(description);
        }
    }
}

impl Description {
    fn new(topology: &TopologyProto, device: &DeviceProto) -> Self {
        let attributes = device.attributes.iter();
        Description {
            id: device.id,
            process: device.process,
            kind: device.kind.clone(),
            debug: format!("{}:{} ({})", topology.platform, device.id, device.kind),
            attributes: NamedValues::new(
                attributes.map(|it| (it.name.clone(), Value::Text(it.value.clone()))),
            ),
        }
    }
}

impl Function for PJRT_TopologyDescription_Create_Args {
    const HAS_RESULTS: bool = false;

    fn call(_: &Given<Self>, _: &mut Self) -> Outcome {
        Err(Status::unimplemented(
            "this plugin describes only the devices of a client",
        ))
    }
}

impl Function for PJRT_TopologyDescription_Destroy_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        if args.topology.is_null() {
            return Ok(());
        }
        if find::<Topology>(args.topology)?.client.get().is_some() {
            return Err(Status::invalid("the topology belongs to its client"));
        }
        drop_logged(take::<Topology>(args.topology)?);
        Ok(())
    }
}

getters! {
    PJRT_TopologyDescription_PlatformName_Args(topology: Topology) =>
        |out| (out.platform_name, out.platform_name_size) = text(&topology.facts.platform);
    PJRT_TopologyDescription_PlatformVersion_Args(topology: Topology) =>
        |out| (out.platform_version, out.platform_version_size) = text(&topology.facts.version);
    PJRT_TopologyDescription_GetDeviceDescriptions_Args(topology: Topology) => |out| {
        out.descriptions = topology.descriptions().as_ptr();
        out.num_descriptions = topology.descriptions().len();
    };
    PJRT_TopologyDescription_Attributes_Args(topology: Topology) =>
        |out| (out.attributes, out.num_attributes) = topology.attributes.raw();
    PJRT_TopologyDescription_Serialize_Args(topology: Topology) => |out| {
        let bytes = Bytes::publish(topology.facts.encode_to_vec());
        (out.serialized_bytes, out.serialized_bytes_size) = (bytes.start, bytes.length);
        out.serialized_topology = bytes.handle;
        out.serialized_topology_deleter = bytes.deleter;
    };
}

impl Function for PJRT_TopologyDescription_Deserialize_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let bytes: &[c_char] = list!(args, serialized_topology, serialized_topology_size)?;
        let facts = TopologyProto::decode(crate::abi::as_bytes(bytes))
            .map_err(|error| Status::invalid(format!("not a serialized topology: {error}")))?;
        if facts.platform.is_empty() {
            return Err(Status::invalid("not a serialized topology: no platform"));
        }
        out.topology = publish(Topology::new(facts));
        Ok(())
    }
}

getters! {
    PJRT_TopologyDescription_Fingerprint_Args(topology: Topology) => |out| {
        let digest = Sha256::digest(topology.facts.encode_to_vec());
        let first = digest.iter().take(8);
        out.fingerprint = first.fold(0, |number, &byte| number << 8 | u64::from(byte));
    };
    PJRT_DeviceDescription_Id_Args(device_description: Description) =>
        |out| out.id = int(device_description.id as usize);
    PJRT_DeviceDescription_ProcessIndex_Args(device_description: Description) =>
        |out| out.process_index = int(device_description.process as usize);
    PJRT_DeviceDescription_Attributes_Args(device_description: Description) => |out| {
        (out.attributes, out.num_attributes) = device_description.attributes.raw();
    };
    PJRT_DeviceDescription_Kind_Args(device_description: Description) => |out| {
        (out.device_kind, out.device_kind_size) = text(&device_description.kind);
    };
    PJRT_DeviceDescription_DebugString_Args(device_description: Description) => |out| {
        (out.debug_string, out.debug_string_size) = text(&device_description.debug);
    };
    PJRT_DeviceDescription_ToString_Args(device_description: Description) => |out| {
        (out.to_string, out.to_string_size) = text(&device_description.debug);
    };
}
