//! The memory of byte buffers.

use std::{mem, sync::Weak};

/// Page-locked memory of the host, which a [`Backend`](crate::Backend) allocated. It stays at its
/// address, and keeps what the driver needs to release it.
pub trait PinnedMemory: AsRef<[u8]> + AsMut<[u8]> + Send + Sync + 'static {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send + Sync + 'static> PinnedMemory for T {}

/// Owner that takes page-locked memory back after its use.
pub(crate) trait Recycle: Send + Sync {
    fn recycle(&self, memory: Box<dyn PinnedMemory>);
}

/// Page-locked memory in use. Dropping it returns the memory to its owner, or releases it if there
/// is none.
pub(crate) struct Pinned {
    memory: Box<dyn PinnedMemory>,
    owner: Option<Weak<dyn Recycle>>,
}

impl Pinned {
    pub(crate) fn new(memory: Box<dyn PinnedMemory>, owner: Option<Weak<dyn Recycle>>) -> Self {
        Pinned { memory, owner }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.as_ref().and_then(Weak::upgrade) {
            owner.recycle(mem::replace(&mut self.memory, Box::new([0_u8; 0])));
        }
    }
}

pub(super) enum Storage {
    Heap(Vec<u8>),
    #[cfg(target_os = "linux")]
    Pages(memmap2::MmapMut),
    Pinned(Pinned),
}

impl Storage {
    /// Zero bytes of this length or more in pages of the system, if they are [`LARGE`]. Huge pages
    /// are written for the first time three times as fast as those of the heap, of 4 kB.
    pub(super) fn pages(len: usize) -> Option<Self> {
        #[cfg(target_os = "linux")]
        if len >= LARGE {
            let map = memmap2::MmapMut::map_anon(len).ok()?;
            // A system without huge pages has others.
            let _ = map.advise(memmap2::Advice::HugePage);
            return Some(Storage::Pages(map));
        }
        let _ = len;
        None
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Storage::Heap(bytes) => bytes,
            #[cfg(target_os = "linux")]
            Storage::Pages(map) => map,
            Storage::Pinned(pinned) => (*pinned.memory).as_ref(),
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Storage::Heap(bytes) => bytes,
            #[cfg(target_os = "linux")]
            Storage::Pages(map) => map,
            Storage::Pinned(pinned) => (*pinned.memory).as_mut(),
        }
    }
}

/// Bytes from which memory is worth huge pages of 2 MB.
pub(crate) const LARGE: usize = 8 << 20;
