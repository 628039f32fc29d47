//! Reads of device memory that is host memory: one copy, on the caller's thread.

use halite_pjrt_sys::buffer::*;

use super::{PjrtBuffer, row_major::RowMajor};

impl PjrtBuffer {
    /// Copies the contents, which are computed, straight from the device's memory, which is host
    /// memory. Returns false, with `into` unchanged, if the plugin does not say where it is, or if it
    /// is not row-major.
    ///
    /// Unlike the plugin's own copy it is over when this returns, so it may write into borrowed
    /// memory.
    pub(super) fn copy_in_place(&self, into: &mut [u8]) -> bool {
        let client = &self.kind.client;
        if !self.is_row_major() {
            return false;
        }
        let mut hold = args!(PJRT_Buffer_IncreaseExternalReferenceCount_Args, buffer: self.raw());
        // SAFETY: the buffer is alive.
        if unsafe { client.call(OP, &mut hold) }.is_err() {
            return false;
        }
        let memory = self.address().filter(|memory| !memory.is_null());
        let is_whole = self.device_bytes().is_ok_and(|bytes| bytes >= into.len());
        let copied = match memory {
            Some(memory) if is_whole => {
                // SAFETY: the platform's device memory is host memory, of at least this size; it
                // stays while the external count is above 0, and nobody writes it: its contents are
                // computed, and donating or deleting it needs the buffer that is borrowed here.
                unsafe { into.copy_from_slice(std::slice::from_raw_parts(memory, into.len())) };
                true
            }
            _ => false,
        };
        let mut release = PJRT_Buffer_DecreaseExternalReferenceCount_Args {
            buffer: self.raw(),
            ..PJRT_Buffer_DecreaseExternalReferenceCount_Args::new()
        };
        // SAFETY: the buffer is alive, and its count was increased above.
        _ = unsafe { client.call(OP, &mut release) };
        copied
    }

    fn address(&self) -> Option<*const u8> {
        let mut args = args!(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, buffer: self.raw());
        // SAFETY: the buffer is alive.
        let found = unsafe { self.kind.client.call(OP, &mut args) };
        found
            .ok()
            .map(|()| args.device_memory_ptr.cast::<u8>().cast_const())
    }

    /// Whether the plugin says that the elements are dense and row-major on the device.
    fn is_row_major(&self) -> bool {
        let mut args = args!(PJRT_Buffer_GetMemoryLayout_Args, buffer: self.raw());
        // SAFETY: the buffer is alive.
        if unsafe { self.kind.client.call(OP, &mut args) }.is_err()
            || args.layout.r#type != PJRT_Buffer_MemoryLayout_Type::Tiled
        {
            return false;
        }
        // SAFETY: the tag says which field of the union is valid.
        let tiled = unsafe { args.layout.value.tiled };
        let rank = self.kind.ty.rank();
        if tiled.num_tiles != 0 || tiled.minor_to_major_size != rank {
            return false;
        }
        // SAFETY: the plugin's list has this length, and lives as long as the buffer.
        rank == 0
            || RowMajor::of(rank).as_slice()
                == unsafe { std::slice::from_raw_parts(tiled.minor_to_major, rank) }
    }
}

const OP: &str = "read";
