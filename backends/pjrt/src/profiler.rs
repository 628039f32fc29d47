//! A plugin's own profiler: what the device did, kernel by kernel, as the vendor's tools read it.
//!
//! The functions are those of XLA's `profiler_c_api.h`, reached through PJRT's extension of type 1.
//! The header does not mention threads, so one thread creates, starts, stops, collects and
//! destroys, as in XLA's own use.

use std::{
    fmt,
    marker::PhantomData,
    ptr::{self, NonNull},
};

use halite_core::{Error, ErrorKind, Result};
use halite_pjrt_sys::{CStruct, extension::*};
use prost::Message;

use crate::{
    handle::Handle,
    plugin::Plugin,
    value::{text_of, zeroed},
};

const OP: &str = "profiler";

/// The profiler of a plugin. [`Profiler::start`] begins to record.
#[derive(Clone, Copy)]
pub struct Profiler {
    plugin: &'static Plugin,
    functions: Functions,
}

/// A profiler that is recording. Dropping it discards the recording.
///
/// It stays on the thread that started it, because no plugin promises that another may stop it.
///
/// ```compile_fail,E0277
/// fn stop_elsewhere(profiling: halite_pjrt::Profiling) {
///     std::thread::spawn(move || profiling.stop());
/// }
/// ```
pub struct Profiling {
    profiler: Profiler,
    handle: Handle<PLUGIN_Profiler>,
    on_one_thread: PhantomData<*const ()>,
}

/// The table's functions, all there.
#[derive(Clone, Copy)]
struct Functions {
    error_destroy: unsafe extern "C-unwind" fn(*mut PLUGIN_Profiler_Error_Destroy_Args),
    error_message: unsafe extern "C-unwind" fn(*mut PLUGIN_Profiler_Error_Message_Args),
    create: Function<PLUGIN_Profiler_Create_Args>,
    destroy: Function<PLUGIN_Profiler_Destroy_Args>,
    start: Function<PLUGIN_Profiler_Start_Args>,
    stop: Function<PLUGIN_Profiler_Stop_Args>,
    collect_data: Function<PLUGIN_Profiler_CollectData_Args>,
}

type Function<A> = unsafe extern "C-unwind" fn(*mut A) -> *mut PLUGIN_Profiler_Error;

/// `tensorflow.ProfileOptions`.
#[derive(Clone, PartialEq, Message)]
struct ProfileOptions {
    #[prost(uint32, tag = "2")]
    host_tracer_level: u32,
    #[prost(uint32, tag = "3")]
    device_tracer_level: u32,
    #[prost(uint32, tag = "5")]
    version: u32,
    #[prost(bool, tag = "7")]
    enable_hlo_proto: bool,
}

impl Plugin {
    /// The plugin's own profiler, where it has one: those of CUDA and TPUs have, the CPU's do not.
    pub fn profiler(&'static self) -> Option<Profiler> {
        Profiler::of(self)
    }
}

impl Profiler {
    /// `None` where the plugin has no profiler, or not all functions of one.
    fn of(plugin: &'static Plugin) -> Option<Self> {
        let offset = std::mem::offset_of!(PJRT_Profiler_Extension, profiler_api);
        let table = plugin
            .table()
            .extension_entry::<PJRT_Profiler_Extension>(offset)?
            .cast::<PLUGIN_Profiler_Api>();
        // SAFETY: a profiler's table begins with its size, and lives as long as the plugin.
        let size = unsafe { table.cast::<usize>().read() };
        if size < PLUGIN_Profiler_Api::STRUCT_SIZE {
            return None;
        }
        // SAFETY: the table is long enough for all that is read.
        let table = unsafe { table.read() };
        let functions = Functions {
            error_destroy: table.error_destroy?,
            error_message: table.error_message?,
            create: table.create?,
            destroy: table.destroy?,
            start: table.start?,
            stop: table.stop?,
            collect_data: table.collect_data?,
        };
        Some(Profiler { plugin, functions })
    }

    /// Begins to record what the host and the devices do.
    ///
    /// # Errors
    /// Errors of the plugin, such as another profiler recording.
    pub fn start(self) -> Result<Profiling> {
        // As JAX does: host events down to those of XLA's runtime, all of the devices, and the
        // programs.
        let options = ProfileOptions {
            host_tracer_level: 2,
            device_tracer_level: 1,
            version: 1,
            enable_hlo_proto: true,
        };
        let options = options.encode_to_vec();
        let mut args = PLUGIN_Profiler_Create_Args {
            options: options.as_ptr().cast(),
            options_size: options.len(),
            ..PLUGIN_Profiler_Create_Args::new()
        };
        // SAFETY: the options live during the call.
        self.check("create", unsafe { (self.functions.create)(&mut args) })?;
        // From here on it is destroyed if anything fails.
        let profiling = Profiling {
            profiler: self,
            handle: Handle::from_plugin(OP, args.profiler)?,
            on_one_thread: PhantomData,
        };
        let mut args = PLUGIN_Profiler_Start_Args {
            profiler: profiling.handle.as_ptr(),
            ..PLUGIN_Profiler_Start_Args::new()
        };
        // SAFETY: the profiler is alive.
        self.check("start", unsafe { (self.functions.start)(&mut args) })?;
        Ok(profiling)
    }

    /// Makes an error of the plugin's.
    fn check(&self, doing: &str, error: *mut PLUGIN_Profiler_Error) -> Result<()> {
        let Some(error) = NonNull::new(error) else {
            return Ok(());
        };
        let mut message = PLUGIN_Profiler_Error_Message_Args {
            error: error.as_ptr(),
            ..PLUGIN_Profiler_Error_Message_Args::new()
        };
        let mut destroy = PLUGIN_Profiler_Error_Destroy_Args {
            error: error.as_ptr(),
            ..PLUGIN_Profiler_Error_Destroy_Args::new()
        };
        // SAFETY: the error is alive until it is destroyed, and its text is copied before.
        let words = unsafe {
            (self.functions.error_message)(&mut message);
            let words = text_of(
                self.plugin.table().name(),
                message.message,
                message.message_size,
            );
            (self.functions.error_destroy)(&mut destroy);
            words?
        };
        Err(Error::new(
            ErrorKind::Unavailable,
            OP,
            format!("{doing}, {:?}: {words}", self.plugin),
        ))
    }
}

impl Profiling {
    /// Ends recording, and returns a serialized `tensorflow.profiler.XSpace`. XProf and TensorBoard
    /// show it if it is in a file `DIR/plugins/profile/RUN/HOST.xplane.pb`.
    ///
    /// # Errors
    /// Errors of the plugin.
    pub fn stop(self) -> Result<Vec<u8>> {
        let Profiling {
            profiler, handle, ..
        } = &self;
        let mut args = PLUGIN_Profiler_Stop_Args {
            profiler: handle.as_ptr(),
            ..PLUGIN_Profiler_Stop_Args::new()
        };
        // SAFETY: the profiler is alive.
        profiler.check("stop", unsafe { (profiler.functions.stop)(&mut args) })?;
        let mut args = PLUGIN_Profiler_CollectData_Args {
            profiler: handle.as_ptr(),
            ..PLUGIN_Profiler_CollectData_Args::new()
        };
        // SAFETY: the profiler is alive, and stopped.
        profiler.check("collect", unsafe {
            (profiler.functions.collect_data)(&mut args)
        })?;
        let size = args.buffer_size_in_bytes;
        let mut bytes = zeroed(profiler.plugin.table().name(), size)?;
        if args.buffer.is_null() {
            // As the header requires: a second call fills the caller's bytes.
            args.buffer = bytes.as_mut_ptr();
            // SAFETY: as above, and the buffer has the size that the first call returned.
            profiler.check("collect", unsafe {
                (profiler.functions.collect_data)(&mut args)
            })?;
        } else {
            // SAFETY: plugins return `size` bytes of their own, which live until the profiler is
            // destroyed.
            unsafe { ptr::copy_nonoverlapping(args.buffer, bytes.as_mut_ptr(), size) };
        }
        bytes.truncate(message_length(&bytes));
        Ok(bytes)
    }
}

impl Drop for Profiling {
    fn drop(&mut self) {
        let (functions, profiler) = (&self.profiler.functions, self.handle.as_ptr());
        let mut stop = PLUGIN_Profiler_Stop_Args {
            profiler,
            ..PLUGIN_Profiler_Stop_Args::new()
        };
        let mut destroy = PLUGIN_Profiler_Destroy_Args {
            profiler,
            ..PLUGIN_Profiler_Destroy_Args::new()
        };
        // SAFETY: the profiler is alive, and this is its last use. Stopping one that is stopped
        // does nothing.
        unsafe {
            let stopped = (functions.stop)(&mut stop);
            // Nobody can handle the errors here; they are only freed.
            let _ = self.profiler.check("stop", stopped);
            let destroyed = (functions.destroy)(&mut destroy);
            let _ = self.profiler.check("destroy", destroyed);
        }
    }
}

impl fmt::Debug for Profiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Profiler({:?})", self.plugin)
    }
}

impl fmt::Debug for Profiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Profiling({:?})", self.profiler.plugin)
    }
}

/// The length of the message in `bytes`: plugins report one byte more than they wrote. All fields
/// of an `XSpace` are strings or messages: a tag of wire type 2, a length, and that many bytes.
fn message_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Some((tag, after_tag)) = varint(rest) else {
            break;
        };
        let Some((length, after_length)) =
            varint(&rest[after_tag..]).filter(|_| tag & 7 == 2 && tag >> 3 > 0)
        else {
            break;
        };
        let Some(end) = usize::try_from(length)
            .ok()
            .and_then(|length| length.checked_add(at + after_tag + after_length))
        else {
            break;
        };
        if end > bytes.len() {
            break;
        }
        at = end;
    }
    at
}

/// A number in base 128, lowest digits first, and its length in bytes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index).min(63);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_length_excludes_trailing_bytes() {
        let message = [0x0a, 2, 7, 7, 0x22, 1, b'h'];
        assert_eq!(message_length(&message), 7);
        assert_eq!(message_length(&[&message[..], &[0]].concat()), 7);
        assert_eq!(
            message_length(&[&message[..], &[0x0a, 200, 1, 5]].concat()),
            7,
            "a field that is cut off"
        );
        assert_eq!(message_length(&[]), 0);
        let long: Vec<u8> = [0x0a, 0xac, 0x02].into_iter().chain(vec![1; 300]).collect();
        assert_eq!(message_length(&long), 303);
    }
}
