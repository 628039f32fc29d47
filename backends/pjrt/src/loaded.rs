//! Loaded executables as plugins hand them out.

use std::sync::Arc;

use halite_core::{Device, DeviceId, Error, ErrorKind, Result};
use halite_pjrt_sys::executable::*;

use crate::{CompiledProgram, handle::Handle, shared_client::Shared, value::slice_of};

/// A loaded executable of the plugin, and its client, which outlives it.
pub(crate) struct Loaded {
    pub(crate) executable: Handle<PJRT_LoadedExecutable>,
    pub(crate) client: Arc<Shared>,
}

impl Loaded {
    pub(crate) fn program(&self, op: &'static str) -> Result<CompiledProgram> {
        let mut args = PJRT_LoadedExecutable_GetExecutable_Args {
            loaded_executable: self.executable.as_ptr(),
            ..PJRT_LoadedExecutable_GetExecutable_Args::new()
        };
        // SAFETY: the loaded executable is alive; the executable is ours.
        unsafe { self.client.call(op, &mut args)? };
        let executable = Handle::from_plugin(op, args.executable)?;
        Ok(CompiledProgram::new(
            self.client.plugin(),
            executable,
            self.client.platform_name(),
            Some(self.client.clone()),
        ))
    }

    /// The local devices in launch order.
    pub(crate) fn devices(&self, op: &'static str) -> Result<Vec<DeviceId>> {
        let mut args = PJRT_LoadedExecutable_AddressableDevices_Args {
            executable: self.executable.as_ptr(),
            ..PJRT_LoadedExecutable_AddressableDevices_Args::new()
        };
        // SAFETY: the loaded executable is alive, and so is its list.
        let raw = unsafe {
            self.client.call(op, &mut args)?;
            slice_of(
                self.client.table().name(),
                args.addressable_devices,
                args.num_addressable_devices,
            )?
        };
        let id = |device| {
            self.client
                .devices()
                .iter()
                .find(|known| known.raw() == device)
                .map(Device::id)
        };
        let unknown = || {
            Error::new(
                ErrorKind::Internal,
                op,
                "the plugin assigned it to a device that it does not list",
            )
        };
        raw.iter()
            .map(|device| id(*device).ok_or_else(unknown))
            .collect()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let mut args = PJRT_LoadedExecutable_Destroy_Args {
            executable: self.executable.as_ptr(),
            ..PJRT_LoadedExecutable_Destroy_Args::new()
        };
        // SAFETY: the executable is ours and not used again; launches that are under way keep what
        // they need.
        unsafe { self.client.table().free(&mut args) };
    }
}
