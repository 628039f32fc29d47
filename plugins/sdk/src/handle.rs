//! Handles: what callers hold as `PJRT_Buffer *` and the like.
//!
//! A handle is the address of a cell that holds nothing. It is looked up in the table of its type,
//! so that null, a destroyed handle and a handle of another type or plugin are errors instead of
//! undefined behaviour. A cell is used again only after all others, so that a destroyed handle
//! stays detectable until every other cell has been used.
//!
//! Cells are demand-zero pages that are never written. They exist because callers read them: since
//! API 0.105, XLA reads the first word of a handle as a pointer to a table of functions that store
//! data of the caller, and skips it if it is null.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use halite_pjrt_sys::error::PJRT_Error;

use crate::status::{Outcome, Status};

/// A type with handles.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    /// The C type behind the pointer.
    type Handle: 'static;
    /// The name of the C type.
    const NAME: &'static str;
    /// The objects that are alive.
    fn live() -> &'static Live<Self>;
}

/// Declares types with handles: `objects!(Status => PJRT_Error)`.
macro_rules! objects {
    ($($object:ty => $handle:ident),* $(,)?) => {
        $(impl $crate::handle::Object for $object {
            type Handle = $handle;
            const NAME: &'static str = stringify!($handle);
            fn live() -> &'static $crate::handle::Live<Self> {
                static LIVE: $crate::handle::Live<$object> = $crate::handle::Live::new();
                &LIVE
            }
        })*
    };
}

pub(crate) use objects;

/// Number of tables of one type, so that threads rarely wait for each other.
const SHARDS: usize = 16;
/// Number of cells: the most handles that can be alive.
const CELLS: usize = if cfg!(miri) { 1 << 12 } else { 1 << 22 };

/// What a handle points at: zeros.
type Cell = [AtomicU64; 2];

static MEMORY: [Cell; CELLS] = [const { [const { AtomicU64::new(0) }; 2] }; CELLS];
/// A bit for each cell that is a handle.
static USED: [AtomicU64; CELLS / 64] = [const { AtomicU64::new(0) }; CELLS / 64];

/// The index of the cell at an address, which need not be one.
fn index(address: usize) -> usize {
    address.wrapping_sub(MEMORY.as_ptr().addr()) / size_of::<Cell>()
}

/// The objects of one type that are alive, by handle.
pub(crate) struct Live<T> {
    shards: [RwLock<Shard<T>>; SHARDS],
}

type Shard<T> = HashMap<usize, Arc<T>, BuildHasherDefault<Number>>;

impl<T> Live<T> {
    pub(crate) const fn new() -> Self {
        Live {
            shards: [const { RwLock::new(HashMap::with_hasher(BuildHasherDefault::new())) };
                SHARDS],
        }
    }

    fn shard(&self, handle: usize) -> &RwLock<Shard<T>> {
        &self.shards[index(handle) % SHARDS]
    }
}

/// Hasher of handles, which are distinct already.
#[derive(Default)]
pub(crate) struct Number(u64);

impl Hasher for Number {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(byte.into()));
    }
    fn write_usize(&mut self, handle: usize) {
        // The handles of one shard differ above these bits only. The table uses the highest bits
        // of the product as well as the lowest.
        let number = (handle / (size_of::<Cell>() * SHARDS)) as u64;
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Gives an object a handle, which keeps it alive until [`take`].
///
/// # Panics
/// If there are too many handles.
pub(crate) fn publish<T: Object>(object: Arc<T>) -> *mut T::Handle {
    let handle = reserve();
    publish_as(handle, object);
    pointer(handle)
}

objects!(Status => PJRT_Error);

/// [`publish`] for errors, which cannot fail: without a cell, the handle is of no object. The caller
/// frees it.
pub(crate) fn publish_error(status: Status) -> *mut PJRT_Error {
    static NO_OBJECT: Cell = [const { AtomicU64::new(0) }; 2];

    match try_reserve() {
        Some(handle) => {
            publish_as(handle, Arc::new(status));
            pointer(handle)
        }
        None => (&raw const NO_OBJECT).cast_mut().cast(),
    }
}

/// A handle that gets its object later, for calls that cannot fail once they have started work.
pub(crate) struct Reserved(usize);

impl Reserved {
    /// Reserves a handle, which is free again if it is dropped.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there are too many handles.
    pub(crate) fn new() -> Outcome<Self> {
        let handle = try_reserve().ok_or_else(|| Status::exhausted(too_many()))?;
        Ok(Reserved(handle))
    }

    /// [`publish`] with this handle.
    pub(crate) fn publish<T: Object>(self, object: Arc<T>) -> *mut T::Handle {
        let handle = self.0;
        std::mem::forget(self);
        publish_as(handle, object);
        pointer(handle)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        release(self.0);
    }
}

/// A new number, for an object that needs to know its own handle.
///
/// # Panics
/// If there are too many handles.
pub(crate) fn reserve() -> usize {
    try_reserve().unwrap_or_else(|| panic!("{}", too_many()))
}

fn too_many() -> String {
    format!("{CELLS} handles are alive, which is the limit; destroy unused objects")
}

fn try_reserve() -> Option<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);

    for _ in 0..CELLS {
        let cell = NEXT.fetch_add(1, Relaxed) % CELLS;
        let bit = 1 << (cell % 64);
        if USED[cell / 64].fetch_or(bit, Relaxed) & bit == 0 {
            return Some((&raw const MEMORY[cell]).addr());
        }
    }
    None
}

fn release(handle: usize) {
    let cell = index(handle);
    USED[cell / 64].fetch_and(!(1 << (cell % 64)), Relaxed);
}

/// The handle that has this number.
pub(crate) fn pointer<H>(handle: usize) -> *mut H {
    match MEMORY.get(index(handle)) {
        Some(cell) => (&raw const *cell).cast_mut().cast(),
        None => std::ptr::null_mut(),
    }
}

/// Makes a reserved number the handle of an object.
pub(crate) fn publish_as<T: Object>(handle: usize, object: Arc<T>) {
    let shard = T::live().shard(handle);
    let mut objects = shard.write().unwrap_or_else(PoisonError::into_inner);
    objects.insert(handle, object);
}

/// The object of a handle.
///
/// # Errors
/// INVALID_ARGUMENT for null and for what is not a handle of a living object of this type.
pub(crate) fn find<T: Object>(handle: *mut T::Handle) -> Outcome<Arc<T>> {
    let shard = T::live().shard(handle.addr());
    let objects = shard.read().unwrap_or_else(PoisonError::into_inner);
    match objects.get(&handle.addr()) {
        Some(object) => Ok(object.clone()),
        None => Err(unknown::<T>(handle.addr())),
    }
}

/// Ends the life of a handle. Null has no object.
///
/// # Errors
/// As [`find`], except for null.
pub(crate) fn take<T: Object>(handle: *mut T::Handle) -> Outcome<Option<Arc<T>>> {
    if handle.is_null() {
        return Ok(None);
    }
    let shard = T::live().shard(handle.addr());
    // The lock is released before the object can be dropped.
    let object = shard
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&handle.addr());
    let object = object.ok_or_else(|| unknown::<T>(handle.addr()))?;
    release(handle.addr());
    Ok(Some(object))
}

#[cold]
fn unknown<T: Object>(handle: usize) -> Status {
    Status::invalid(match handle {
        0 => format!("null was passed, a {} is needed", T::NAME),
        _ => format!(
            "{handle:#x} is not a {} of this plugin that is alive: it was destroyed, or has \
             another type",
            T::NAME
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(outcome: Outcome<Arc<Status>>) -> String {
        outcome.unwrap_err().message.to_string()
    }

    #[test]
    fn destroyed_handle_is_an_error() {
        let handle = publish(Arc::new(Status::internal("x")));
        assert_eq!(&*find::<Status>(handle).unwrap().message, "x");
        take::<Status>(handle).unwrap();
        assert!(message(find::<Status>(handle)).contains("it was destroyed"));
        assert!(take::<Status>(handle).is_err());
        let null: *mut PJRT_Error = std::ptr::null_mut();
        assert_eq!(
            message(find::<Status>(null)),
            "null was passed, a PJRT_Error is needed"
        );
        assert!(take::<Status>(null).unwrap().is_none());
    }

    #[test]
    fn handles_point_at_zeros() {
        let handle = publish(Arc::new(Status::internal("x")));
        let cell = &MEMORY[index(handle.addr())];
        assert_eq!(pointer::<PJRT_Error>(handle.addr()), handle);
        assert!(cell.iter().all(|word| word.load(Relaxed) == 0));
        take::<Status>(handle).unwrap();
    }
}
