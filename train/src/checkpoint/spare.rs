//! Host memory that saves use again and again.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use halite_core::{HostArray, TensorType};

/// Distance of the bytes that are written so that the system maps memory: the smallest page.
const PAGE: usize = 4096;

/// Memory for one copy of the state, by the names of the arrays. New memory is mapped by the system
/// page by page while the device copies to it, at 1 GB/s, and a step that donates the state waits;
/// memory that was used before is written as fast as any.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareMemory {
    arrays: Arc<Mutex<HashMap<String, HostArray>>>,
    is_kept: Arc<AtomicBool>,
}

impl SpareMemory {
    /// Takes memory for arrays of these types on another thread, and keeps it from save to save.
    /// Without a thread or memory, saves take memory of their own.
    pub(crate) fn prepare(&self, types: Vec<(String, TensorType)>) {
        if self.is_kept.swap(true, Ordering::Relaxed) {
            return;
        }
        let spare = self.clone();
        let work = move || {
            for (name, ty) in types {
                let Ok(mut array) = HostArray::try_zeros(ty) else {
                    return;
                };
                // A value that the compiler cannot know to be there already.
                let byte = std::hint::black_box(0);
                let pages = array.bytes_mut().iter_mut().step_by(PAGE);
                pages.for_each(|first| *first = byte);
                spare.give([(name, array)]);
            }
        };
        // Without it the first save is slow, as all would be.
        let _ = std::thread::Builder::new()
            .name("checkpoint memory".into())
            .spawn(work);
    }

    /// True if memory is kept from save to save.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    /// Takes the memory of an array out.
    pub(crate) fn take(&self, name: &str) -> Option<HostArray> {
        self.lock().remove(name)
    }

    /// Gives memory back after a save.
    pub(super) fn give(&self, arrays: impl IntoIterator<Item = (String, HostArray)>) {
        if self.is_kept() {
            self.lock().extend(arrays);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, HostArray>> {
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use halite_core::DType;

    use super::*;

    #[test]
    fn memory_is_kept_after_it_was_prepared() {
        let spare = SpareMemory::default();
        let array = || ("w".to_string(), HostArray::scalar(1f32));
        spare.give([array()]);
        assert!(spare.take("w").is_none());
        spare.prepare(vec![("v".into(), TensorType::new(DType::F32, [5000]))]);
        spare.give([array()]);
        assert!(spare.take("w").is_some() && spare.take("w").is_none());
        for _ in 0..1000 {
            if let Some(prepared) = spare.take("v") {
                assert_eq!(prepared.ty().dims(), [5000]);
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("memory of 20 kB takes more than ten seconds");
    }
}
