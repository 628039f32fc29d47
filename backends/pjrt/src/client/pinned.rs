//! Page-locked host memory: memory of this process that is registered with a plugin by
//! `PJRT_Client_DmaMap`, from which it uploads without a copy to memory of its own.
//!
//! A block is registered when it is allocated and unregistered when it is dropped. An upload from
//! it holds it until the plugin reports that it is done with the bytes, as with any
//! [`HostBytes::Shared`](halite_core::HostBytes::Shared), so no block is unregistered while a
//! transfer reads it.

use std::{ops::Range, sync::Arc};

use halite_core::{AlignedBytes, ErrorKind, PinnedMemory, Result};
use halite_pjrt_sys::transfer::{PJRT_Client_DmaMap_Args, PJRT_Client_DmaUnmap_Args};

use crate::{
    callbacks::in_callback,
    owned_client::{Owned, in_background},
    shared_client::Shared,
};

/// Blocks begin and end at multiples of this: the largest page size of the supported systems, which
/// 64-bit Arm has. Drivers lock whole pages, and a page of two blocks could not be locked twice.
const PAGE: usize = 64 << 10;

/// Allocates and registers zero bytes, `bytes` rounded up to whole pages. `None` if the plugin has
/// no such function.
///
/// # Errors
/// If the host has too little memory, or the plugin refuses it.
pub(crate) fn allocate(
    client: &Arc<Shared>,
    bytes: usize,
) -> Result<Option<Box<dyn PinnedMemory>>> {
    const OP: &str = "pin memory";
    let len = bytes.max(1).checked_next_multiple_of(PAGE);
    let len = len.unwrap_or(usize::MAX);
    let memory = AlignedBytes::try_zeroed(len.saturating_add(PAGE));
    let mut memory = memory.map_err(|error| error.on(client.platform_name()))?;
    let start = memory.as_ref().as_ptr().align_offset(PAGE);
    let pages = start..start + len;
    let mut args = PJRT_Client_DmaMap_Args {
        client: client.raw(),
        data: memory.as_mut()[pages.clone()].as_mut_ptr().cast(),
        size: len,
        ..PJRT_Client_DmaMap_Args::new()
    };
    // SAFETY: the pages belong to `memory`, which does not move them. `Registered` unregisters them
    // before it frees them.
    match unsafe { client.call(OP, &mut args) } {
        Ok(()) => Ok(Some(Box::new(Registered {
            memory: Some(memory),
            pages,
            client: client.owned().clone(),
        }))),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(error.with_note(&format!("{len} bytes of host memory"))),
    }
}

/// Registered memory, unregistered and freed on drop.
struct Registered {
    /// `None` only while being dropped.
    memory: Option<AlignedBytes>,
    /// The registered part of `memory`.
    pages: Range<usize>,
    client: Arc<Owned>,
}

impl AsRef<[u8]> for Registered {
    fn as_ref(&self) -> &[u8] {
        let memory = self.memory.as_ref();
        memory.map_or(&[], |memory| &memory.as_ref()[self.pages.clone()])
    }
}

impl AsMut<[u8]> for Registered {
    fn as_mut(&mut self) -> &mut [u8] {
        let memory = self.memory.as_mut();
        memory.map_or(&mut [], |memory| &mut memory.as_mut()[self.pages.clone()])
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        let (pages, client) = (self.pages.clone(), self.client.clone());
        let release = move || unregister(memory, pages, &client);
        if in_callback() {
            // A callback at the end of an upload, on a thread of the plugin: drivers forbid calls
            // there.
            in_background(release);
        } else {
            release();
        }
    }
}

/// Unregisters and frees memory.
fn unregister(mut memory: AlignedBytes, pages: Range<usize>, client: &Owned) {
    let mut args = PJRT_Client_DmaUnmap_Args {
        client: client.client.as_ptr(),
        data: memory.as_mut()[pages].as_mut_ptr().cast(),
        ..PJRT_Client_DmaUnmap_Args::new()
    };
    // SAFETY: the client is alive, and the address is that of a registration of it. No transfer
    // uses the memory: each held it to its end.
    if let Err(error) = unsafe { client.plugin.table().call("unpin memory", &mut args) } {
        halite_core::warning!("{error}; the memory stays allocated until the process ends");
        // A driver may still use registered memory.
        std::mem::forget(memory);
    }
}
