//! The table of functions of a plugin, and calls of them.

use std::{ffi::c_int, mem::offset_of, path::Path, ptr::NonNull, sync::Arc};

use halite_core::{Error, ErrorKind, Result};
use halite_pjrt_sys::{
    API_MINOR, Call, GET_PJRT_API, GetPjrtApi, PJRT_Api, base::*, buffer::*, client::*, device::*,
    error::*, event::*, executable::*,
};

use crate::{
    call_times::CallTimes,
    isolate::Boundary,
    loader::{self, OP},
    value::{Options, from_named},
};

/// The oldest minor version that is loaded. Before it the table had another order.
pub const OLDEST_MINOR: i32 = 58;

/// The size of a table in bytes, and its version; the size alone if it holds no function.
///
/// # Safety
///
/// * `table` is the table of a plugin.
unsafe fn size_and_version(table: NonNull<PJRT_Api>) -> Result<(usize, (i32, i32)), usize> {
    // SAFETY: every version of the table begins with its size.
    let size = unsafe { table.cast::<usize>().read() };
    if size < offset_of!(PJRT_Api, PJRT_Error_Destroy) {
        return Err(size);
    }
    let number = |offset| {
        let offset = offset_of!(PJRT_Api, pjrt_api_version) + offset;
        // SAFETY: the version stands before the first function, which the table reaches.
        unsafe { table.cast::<u8>().add(offset).cast::<c_int>().read() }
    };
    let major = number(offset_of!(PJRT_Api_Version, major_version));
    let minor = number(offset_of!(PJRT_Api_Version, minor_version));
    Ok((size, (major, minor)))
}

/// The functions of a plugin, each read only if the table is long enough to have it.
pub(crate) struct Table {
    pub(crate) start: NonNull<PJRT_Api>,
    size: usize,
    pub(crate) version: (i32, i32),
    /// The file's name, for errors.
    name: Arc<str>,
    pub(crate) times: CallTimes,
}

// SAFETY: the table is constant after the plugin is initialised, which happens before a `Plugin` is
// handed out.
unsafe impl Send for Table {}
// SAFETY: as above; that its functions can be called from any thread is how JAX uses every plugin.
unsafe impl Sync for Table {}

impl Table {
    /// Loads the plugin at `path`, and reads its table.
    pub(crate) fn of_library(path: &Path) -> Result<Table> {
        let shown = path.display();
        let library = loader::open(path)?;
        // SAFETY: the symbol has this type in every plugin.
        let get = unsafe { library.get::<GetPjrtApi>(GET_PJRT_API) }.map(|symbol| *symbol);
        // Its constructors ran and may have started threads: it stays, plugin or not.
        std::mem::forget(library);
        let get = get.map_err(|_| {
            let message = format!(
                "{shown} is a library but not a PJRT plugin: it has no `{GET_PJRT_API}`; pass the \
                 path of the plugin itself"
            );
            Error::invalid(OP, message)
        })?;
        let boundary = Boundary {
            plugin: &shown.to_string(),
            function: GET_PJRT_API,
        };
        // SAFETY: the function takes nothing and is the first one called.
        let start = unsafe { get() };
        std::mem::forget(boundary);
        let start = NonNull::new(start.cast_mut()).ok_or_else(|| {
            let message =
                format!("{shown} returned no table of functions; use another build of it");
            Error::invalid(OP, message)
        })?;
        // SAFETY: the plugin returned it as its table.
        let (size, version) = unsafe { size_and_version(start) }.map_err(|size| {
            let message = format!("{shown} has a table of {size} bytes, which holds no function");
            Error::invalid(OP, message)
        })?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        let table = Table {
            start,
            size,
            version,
            name: name.to_string_lossy().into(),
            times: CallTimes::new(),
        };
        table.check_version(path)?;
        table.check_required(path)?;
        Ok(table)
    }

    fn check_version(&self, path: &Path) -> Result<()> {
        let (major, minor) = self.version;
        if major == 0 && minor >= OLDEST_MINOR {
            return Ok(());
        }
        let message = format!(
            "{} uses PJRT {major}.{minor}; 0.{OLDEST_MINOR} or newer is required (0.{API_MINOR} \
             is fully supported); {}",
            path.display(),
            if major == 0 {
                "install a newer plugin"
            } else {
                "install a newer halite"
            },
        );
        Err(Error::new(ErrorKind::Unsupported, OP, message))
    }

    /// Checks for the functions that everything depends on. Others are looked up when used.
    fn check_required(&self, path: &Path) -> Result<()> {
        let required = [
            PJRT_Error_Destroy_Args::SLOT,
            PJRT_Error_Message_Args::SLOT,
            PJRT_Error_GetCode_Args::SLOT,
            PJRT_Plugin_Initialize_Args::SLOT,
            PJRT_Event_Destroy_Args::SLOT,
            PJRT_Event_IsReady_Args::SLOT,
            PJRT_Event_Await_Args::SLOT,
            PJRT_Event_OnReady_Args::SLOT,
            PJRT_Client_Create_Args::SLOT,
            PJRT_Client_Destroy_Args::SLOT,
            PJRT_Client_PlatformName_Args::SLOT,
            PJRT_Client_Devices_Args::SLOT,
            PJRT_Client_Compile_Args::SLOT,
            PJRT_Client_BufferFromHostBuffer_Args::SLOT,
            PJRT_DeviceDescription_Id_Args::SLOT,
            PJRT_Device_GetDescription_Args::SLOT,
            PJRT_Device_IsAddressable_Args::SLOT,
            PJRT_LoadedExecutable_Destroy_Args::SLOT,
            PJRT_LoadedExecutable_GetExecutable_Args::SLOT,
            PJRT_LoadedExecutable_AddressableDevices_Args::SLOT,
            PJRT_LoadedExecutable_Execute_Args::SLOT,
            PJRT_Executable_Destroy_Args::SLOT,
            PJRT_Executable_NumOutputs_Args::SLOT,
            PJRT_Buffer_Destroy_Args::SLOT,
            PJRT_Buffer_ReadyEvent_Args::SLOT,
            PJRT_Buffer_ToHostBuffer_Args::SLOT,
        ];
        let missing: Vec<_> = required
            .iter()
            .filter(|slot| self.entry(slot.offset).is_none())
            .map(|slot| slot.name)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let (major, minor) = self.version;
        let (some, more) = missing.split_at(missing.len().min(4));
        let more = if more.is_empty() {
            String::new()
        } else {
            format!(" and {} more", more.len())
        };
        let message = format!(
            "{} (PJRT {major}.{minor}) lacks {}{more}, which halite needs; use a complete build of \
             it",
            path.display(),
            some.join(", ")
        );
        Err(Error::new(ErrorKind::Unsupported, OP, message))
    }

    /// Calls the function that takes these arguments.
    ///
    /// # Safety
    ///
    /// * The arguments are valid for that function: handles alive, lengths true.
    #[inline]
    pub(crate) unsafe fn call<A: Call<Return = *mut PJRT_Error>>(
        &self,
        op: &'static str,
        args: &mut A,
    ) -> Result<()> {
        let function = self.function(args).ok_or_else(|| self.lacks::<A>(op))?;
        let boundary = Boundary {
            plugin: &self.name,
            function: A::SLOT.name,
        };
        // SAFETY: the caller's condition.
        let error = self.times.time(&A::SLOT, || unsafe { function(args) });
        std::mem::forget(boundary);
        // SAFETY: the error is new and ours.
        unsafe { self.check(op, error) }
    }

    /// Calls a function that frees something. Its error cannot be handled and is dropped; if the
    /// plugin lacks the function, the object is leaked.
    ///
    /// # Safety
    ///
    /// * As for [`call`](Self::call).
    #[inline]
    pub(crate) unsafe fn free<A: Call<Return = *mut PJRT_Error>>(&self, args: &mut A) {
        // SAFETY: the caller's condition.
        let _ = unsafe { self.call("free", args) };
    }

    /// The plugin's file name, for errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the plugin has the function that takes these arguments.
    pub(crate) fn has<A: Call>(&self) -> bool {
        self.entry(A::SLOT.offset).is_some()
    }

    /// The function that takes these arguments, if the table has it.
    #[inline]
    pub(crate) fn function<A: Call>(
        &self,
        _: &A,
    ) -> Option<unsafe extern "C-unwind" fn(*mut A) -> A::Return> {
        let entry = self.entry(A::SLOT.offset)?;
        // SAFETY: by `Call`, the entry at this offset has this type.
        Some(unsafe {
            std::mem::transmute::<NonNull<()>, unsafe extern "C-unwind" fn(*mut A) -> A::Return>(
                entry,
            )
        })
    }

    #[inline]
    pub(crate) fn entry(&self, offset: usize) -> Option<NonNull<()>> {
        if offset + size_of::<usize>() > self.size {
            return None;
        }
        // SAFETY: the table is `size` bytes long, so the pointer-sized entry at `offset` is
        // within.
        let entry = unsafe { self.start.cast::<u8>().add(offset).cast::<*mut ()>().read() };
        NonNull::new(entry)
    }

    #[cold]
    fn lacks<A: Call>(&self, op: &'static str) -> Error {
        let (major, minor) = self.version;
        let since = match A::SLOT.since {
            0 => String::new(),
            since => format!(", which came with 0.{since}"),
        };
        let message = format!(
            "{} (PJRT {major}.{minor}) has no {}{since}",
            self.name,
            A::SLOT.name
        );
        Error::new(ErrorKind::Unsupported, op, message)
    }

    pub(crate) fn attributes(&self) -> Result<Options> {
        let mut args = PJRT_Plugin_Attributes_Args::new();
        // SAFETY: the plugin is initialised, and the list lives as long as the process. A plugin
        // without attributes is allowed.
        unsafe {
            match self.call("plugin attributes", &mut args) {
                Ok(()) => from_named(self.name(), args.attributes, args.num_attributes),
                Err(_) => Ok(Options::new()),
            }
        }
    }
}
