//! Topologies: devices and their interconnect, for compiling without having them.

mod v5e;

use std::{fmt, sync::Arc};

use halite_core::{CompileOptions, DeviceId, Error, Program, Result};
use halite_pjrt_sys::{Call, client::*, error::PJRT_Error, executable::*, topology::*};

use self::v5e::{BEYOND_V5E, check_name, is_beyond_v5e};
use crate::{
    CompiledProgram, DeviceDescription, Options, Plugin,
    at_exit::Compiling,
    check::{assign, check_program},
    device::describe,
    handle::Handle,
    options::{encode, with_defaults},
    program_error::of_program,
    quirks::Quirks,
    scan::facts_of,
    shared_client::Shared,
    value::{bytes_of, check_options, from_named, slice_of, text_of, to_named},
};

/// A description of devices, present or absent.
pub struct Topology {
    plugin: &'static Plugin,
    topology: Handle<PJRT_TopologyDescription>,
    platform: Arc<str>,
    owner: Owner,
}

enum Owner {
    /// The topology is freed on drop.
    Us,
    /// The client frees it.
    Client(#[allow(dead_code, reason = "keeps the client alive")] Arc<Shared>),
}

impl Plugin {
    /// Describes devices that need not be here, to compile for: `v5e:4x4` on a TPU plugin.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin has no topologies by
    /// name; errors of the plugin about the name.
    pub fn topology(&'static self, name: &str, options: Options) -> Result<Topology> {
        Topology::create(self, name, options)
    }

    /// A topology that [`Topology::serialize`] wrote.
    ///
    /// # Errors
    /// If the bytes are not a topology of this plugin.
    pub fn deserialize_topology(&'static self, serialized: &[u8]) -> Result<Topology> {
        Topology::deserialize(self, serialized)
    }
}

impl Topology {
    fn create(plugin: &'static Plugin, name: &str, options: Options) -> Result<Topology> {
        const OP: &str = "create topology";
        check_options(OP, &options)?;
        check_name(name).map_err(|message| Error::invalid(OP, format!("`{name}`: {message}")))?;
        let named = to_named(&options);
        let mut args = PJRT_TopologyDescription_Create_Args {
            topology_name: name.as_ptr().cast(),
            topology_name_size: name.len(),
            create_options: named.as_ptr(),
            num_options: named.len(),
            ..PJRT_TopologyDescription_Create_Args::new()
        };
        // SAFETY: the name and the options live during the call.
        unsafe { plugin.table().call(OP, &mut args) }.map_err(|error| {
            Error::new(error.kind(), OP, format!("`{name}`: {}", error.message()))
        })?;
        Self::owned(plugin, Handle::from_plugin(OP, args.topology)?, Owner::Us)
    }

    fn deserialize(plugin: &'static Plugin, serialized: &[u8]) -> Result<Topology> {
        const OP: &str = "deserialize topology";
        let mut args = PJRT_TopologyDescription_Deserialize_Args {
            serialized_topology: serialized.as_ptr().cast(),
            serialized_topology_size: serialized.len(),
            ..PJRT_TopologyDescription_Deserialize_Args::new()
        };
        // SAFETY: the bytes live during the call.
        unsafe { plugin.table().call(OP, &mut args)? };
        Self::owned(plugin, Handle::from_plugin(OP, args.topology)?, Owner::Us)
    }

    pub(crate) fn of_client(client: &Arc<Shared>) -> Result<Topology> {
        const OP: &str = "client topology";
        let mut args = args!(PJRT_Client_TopologyDescription_Args, client: client.raw());
        // SAFETY: the client is alive, and held for as long as its topology is.
        unsafe { client.call(OP, &mut args)? };
        Self::owned(
            client.plugin(),
            Handle::from_plugin(OP, args.topology)?,
            Owner::Client(client.clone()),
        )
    }

    fn owned(
        plugin: &'static Plugin,
        topology: Handle<PJRT_TopologyDescription>,
        owner: Owner,
    ) -> Result<Topology> {
        // From here on it is freed if anything fails.
        let mut it = Topology {
            plugin,
            topology,
            platform: Arc::from("topology"),
            owner,
        };
        let mut args = args!(PJRT_TopologyDescription_PlatformName_Args, topology: it.raw());
        // SAFETY: the topology is alive, and so is its platform's name.
        it.platform = unsafe {
            it.call("platform name", &mut args)?;
            text_of(
                plugin.table().name(),
                args.platform_name,
                args.platform_name_size,
            )?
            .into()
        };
        Ok(it)
    }

    /// The platform's name: `cpu`, `cuda`, `tpu`.
    pub fn platform(&self) -> &Arc<str> {
        &self.platform
    }

    /// The version of the platform, as it describes itself.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn platform_version(&self) -> Result<String> {
        let mut args = args!(PJRT_TopologyDescription_PlatformVersion_Args, topology: self.raw());
        // SAFETY: the topology is alive, and so is the text.
        unsafe {
            self.call("platform version", &mut args)?;
            text_of(
                self.plugin.table().name(),
                args.platform_version,
                args.platform_version_size,
            )
        }
    }

    /// The devices, in id order.
    ///
    /// # Errors
    /// If the plugin cannot describe them.
    pub fn devices(&self) -> Result<Vec<DeviceDescription>> {
        const OP: &str = "topology devices";
        let mut args = PJRT_TopologyDescription_GetDeviceDescriptions_Args {
            topology: self.raw(),
            ..PJRT_TopologyDescription_GetDeviceDescriptions_Args::new()
        };
        // SAFETY: the topology is alive, and so are its descriptions.
        let mut devices = unsafe {
            self.call(OP, &mut args)?;
            let raw = slice_of(
                self.plugin.table().name(),
                args.descriptions,
                args.num_descriptions,
            )?;
            let describe = |description: &*mut _| {
                describe(self.plugin.table(), Handle::from_plugin(OP, *description)?)
            };
            raw.iter().map(describe).collect::<Result<Vec<_>>>()?
        };
        devices.sort_by_key(|device| device.id);
        Ok(devices)
    }

    /// Further attributes.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn attributes(&self) -> Result<Options> {
        let mut args = args!(PJRT_TopologyDescription_Attributes_Args, topology: self.raw());
        // SAFETY: the topology is alive, and so are its attributes.
        unsafe {
            self.call("topology attributes", &mut args)?;
            from_named(
                self.plugin.table().name(),
                args.attributes,
                args.num_attributes,
            )
        }
    }

    /// A number that is equal for equal topologies.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin has none.
    pub fn fingerprint(&self) -> Result<u64> {
        let mut args = args!(PJRT_TopologyDescription_Fingerprint_Args, topology: self.raw());
        // SAFETY: the topology is alive.
        unsafe { self.call("topology fingerprint", &mut args)? };
        Ok(args.fingerprint)
    }

    /// Bytes for [`Plugin::deserialize_topology`].
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin cannot.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let mut args = args!(PJRT_TopologyDescription_Serialize_Args, topology: self.raw());
        // SAFETY: the topology is alive; the bytes live until the deleter is called, once.
        unsafe {
            self.call("serialize topology", &mut args)?;
            let bytes = bytes_of(
                self.plugin.table().name(),
                args.serialized_bytes,
                args.serialized_bytes_size,
            )?
            .to_vec();
            if let Some(delete) = args.serialized_topology_deleter {
                delete(args.serialized_topology);
            }
            Ok(bytes)
        }
    }

    /// Compiles for these devices without having them. Empty `options.devices` means the first
    /// ones.
    ///
    /// The compiler runs in this process, and ends it if it aborts: a program that must survive
    /// that compiles in a child process, as `halite plan` does (decision 0028).
    ///
    /// # Errors
    /// Errors of the compiler; [`OutOfMemory`](halite_core::ErrorKind::OutOfMemory) when the
    /// program does not fit the devices.
    pub fn compile(&self, program: &Program, options: &CompileOptions) -> Result<CompiledProgram> {
        const OP: &str = "compile";
        let known = self.devices()?;
        let beyond = known.iter().any(is_beyond_v5e);
        let known: Vec<DeviceId> = known.iter().map(|device| device.id).collect();
        let facts = facts_of(program);
        let devices = check_program(program, &facts, options)
            .and_then(|()| {
                if beyond {
                    Err(BEYOND_V5E.to_owned())
                } else {
                    Ok(())
                }
            })
            .and_then(|()| {
                assign(
                    program.replicas,
                    program.partitions,
                    &options.devices,
                    known.clone(),
                    &known,
                )
            })
            .map_err(|message| {
                Error::invalid(OP, format!("`{}`: {message}", program.name)).on(&self.platform)
            })?;
        let mut code = program.code.bytes().to_vec();
        let format = "mlir";
        let c_program = PJRT_Program {
            code: code.as_mut_ptr().cast(),
            code_size: code.len(),
            format: format.as_ptr().cast(),
            format_size: format.len(),
            ..PJRT_Program::new()
        };
        let quirks = Quirks::of(&self.platform, self.plugin.api_version());
        let flags = with_defaults(quirks, &facts, &options.flags);
        let options = encode(&devices, &facts, &flags);
        let _compiling = Compiling::begin(OP)?;
        let mut args = PJRT_Compile_Args {
            topology: self.raw(),
            program: &c_program,
            compile_options: options.as_ptr().cast(),
            compile_options_size: options.len(),
            ..PJRT_Compile_Args::new()
        };
        // SAFETY: the topology is alive; program and options live during the call, and the options
        // have a replica and a partition, without which XLA aborts.
        unsafe { self.call(OP, &mut args) }
            .map_err(|error| of_program(error, OP, &program.name))?;
        let executable = Handle::from_plugin(OP, args.executable)?;
        Ok(CompiledProgram::new(
            self.plugin,
            executable,
            &self.platform,
            None,
        ))
    }

    fn raw(&self) -> *mut PJRT_TopologyDescription {
        self.topology.as_ptr()
    }

    /// # Safety
    ///
    /// * As for [`Table::call`](crate::table::Table::call).
    unsafe fn call<A: Call<Return = *mut PJRT_Error>>(
        &self,
        op: &'static str,
        args: &mut A,
    ) -> Result<()> {
        // SAFETY: the caller's condition.
        unsafe { self.plugin.table().call(op, args) }.map_err(|error| error.on(&self.platform))
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topology({})", self.platform)
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        if let Owner::Us = self.owner {
            let mut args = args!(PJRT_TopologyDescription_Destroy_Args, topology: self.raw());
            // SAFETY: the topology is ours and not used again.
            unsafe { self.plugin.table().free(&mut args) };
        }
    }
}
