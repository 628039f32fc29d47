//! MPI through its standard binary interface (MPI 5.0, chapter 20), loaded at run time. Everything
//! here is non-blocking but for initialization and finalization; a wait that exceeds its deadline
//! never returns, because MPI owns the buffers.
//!
//! `unsafe` is needed to load a library, which runs its initializers, and to call its C functions
//! with pointers to buffers. It stands here and in [`comm`], and not in a crate of bindings,
//! because these few functions have one user: the rest of the crate sees safe methods that return
//! only when MPI has given the buffers back.
#![allow(unsafe_code)]

mod comm;

use std::{
    ffi::{c_char, c_int, c_void},
    path::Path,
    ptr,
};

use halite_core::{DType, Error, ErrorKind, ReduceOp, Result};

pub(crate) use self::comm::{Comm, Patience, SLEEP, Sending, TESTS};

/// Address-sized handles of the binary interface; predefined ones are small numbers.
type Handle = *mut c_void;

const COMM_WORLD: usize = 0x101;
const COMM_NULL: usize = 0x100;
const REQUEST_NULL: usize = 0x180;
const MESSAGE_NULL: usize = 0x128;
const ERRORS_RETURN: usize = 0x143;
const BYTE: usize = 0x247;
const THREAD_MULTIPLE: c_int = 4096;
const MAX_ERROR_STRING: usize = 512;
const MAX_LIBRARY_VERSION_STRING: usize = 8192;

/// `MPI_Status`.
#[repr(C)]
#[derive(Default)]
struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    internal: [c_int; 5],
}

/// Declares the table of functions and its loader.
macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            /// # Errors
            /// The name of the first function that the library lacks.
            ///
            /// # Safety
            /// The library implements MPI's standard binary interface.
            unsafe fn load(library: &libloading::Library) -> Result<Self, &'static str> {
                $(
                    // SAFETY: the types are those of `mpi_abi.h`, which the caller promises.
                    let $field = *unsafe { library.get($symbol.as_bytes()) }.map_err(|_| $symbol)?;
                )*
                Ok(Functions { $($field),* })
            }
        }
    };
}

functions! {
    abi_version = "MPI_Abi_get_version": fn(*mut c_int, *mut c_int);
    library_version = "MPI_Get_library_version": fn(*mut c_char, *mut c_int);
    init = "MPI_Init_thread": fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize = "MPI_Finalize": fn();
    abort = "MPI_Abort": fn(Handle, c_int);
    error_string = "MPI_Error_string": fn(c_int, *mut c_char, *mut c_int);
    rank = "MPI_Comm_rank": fn(Handle, *mut c_int);
    size = "MPI_Comm_size": fn(Handle, *mut c_int);
    dup = "MPI_Comm_idup": fn(Handle, *mut Handle, *mut Handle);
    set_errhandler = "MPI_Comm_set_errhandler": fn(Handle, Handle);
    test = "MPI_Test": fn(*mut Handle, *mut c_int, *mut Status);
    all_reduce = "MPI_Iallreduce_c":
        fn(*const c_void, *mut c_void, i64, Handle, Handle, Handle, *mut Handle);
    reduce_scatter = "MPI_Ireduce_scatter_block_c":
        fn(*const c_void, *mut c_void, i64, Handle, Handle, Handle, *mut Handle);
    all_gather = "MPI_Iallgather_c":
        fn(*const c_void, i64, Handle, *mut c_void, i64, Handle, Handle, *mut Handle);
    broadcast = "MPI_Ibcast_c": fn(*mut c_void, i64, Handle, c_int, Handle, *mut Handle);
    send = "MPI_Isend_c": fn(*const c_void, i64, Handle, c_int, c_int, Handle, *mut Handle);
    probe = "MPI_Improbe": fn(c_int, c_int, Handle, *mut c_int, *mut Handle, *mut Status);
    count = "MPI_Get_count_c": fn(*const Status, Handle, *mut i64);
    receive = "MPI_Imrecv_c": fn(*mut c_void, i64, Handle, *mut Handle, *mut Handle);
}

/// A loaded MPI library. It is never unloaded: its threads and exit handlers run until the process
/// ends.
pub(crate) struct Mpi {
    functions: Functions,
}

impl Mpi {
    /// Loads the library at `path`, which the caller chose to trust.
    ///
    /// # Errors
    /// If it cannot be loaded; if it lacks the standard binary interface of MPI 5.0.
    pub(crate) fn load(path: &Path) -> Result<&'static Mpi> {
        let unavailable = |message: String| {
            let message = format!("{}: {message}", path.display());
            Error::new(ErrorKind::Unavailable, "MPI", message)
        };
        // SAFETY: loading runs the constructors of a library that is in the table of packages, or
        // that the user named.
        let library = unsafe { libloading::Library::new(path) }.map_err(|error| {
            // The source has the loader's own message.
            let source = std::error::Error::source(&error)
                .unwrap_or(&error)
                .to_string();
            let advice = halite_core::loader_advice(path, &source);
            unavailable(format!("cannot be loaded; {advice}")).caused_by(source)
        })?;
        let library = Box::leak(Box::new(library));
        // SAFETY: the functions exist in the standard binary interface alone with these names and
        // the `_c` forms; the version is checked before any other call.
        let functions = unsafe { Functions::load(library) }.map_err(|missing| {
            unavailable(format!(
                "has no {missing}; halite needs the standard ABI of MPI 5.0 (libmpi_abi.so)"
            ))
        })?;
        let mpi: &'static Mpi = Box::leak(Box::new(Mpi { functions }));
        let (mut major, mut minor) = (0, 0);
        // SAFETY: it may be called before initialization (MPI 5.0, 20.3); both are writable.
        mpi.check("abi version", unsafe {
            (mpi.functions.abi_version)(&mut major, &mut minor)
        })?;
        if major != 1 {
            return Err(unavailable(format!(
                "its ABI has version {major}.{minor}, halite needs 1.x"
            )));
        }
        Ok(mpi)
    }

    /// `MPICH Version: 5.0.2`: the first line of the library's description.
    pub(crate) fn version(&self) -> String {
        let mut text = vec![0u8; MAX_LIBRARY_VERSION_STRING];
        let mut length = 0;
        // SAFETY: it may be called before initialization, and `text` has the maximum length.
        let code =
            unsafe { (self.functions.library_version)(text.as_mut_ptr().cast(), &mut length) };
        if code != 0 {
            return "unknown".to_owned();
        }
        let text = String::from_utf8_lossy(&text[..text.len().min(length.max(0) as usize)]);
        let line = text.lines().next().unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Joins the job. Blocks until all processes have called it; call [`finalize`](Self::finalize)
    /// on the same thread.
    ///
    /// # Errors
    /// MPI's; if the library does not support calls from several threads.
    pub(crate) fn init(&'static self) -> Result<Comm> {
        let mut provided = 0;
        // SAFETY: null arguments are allowed (MPI 5.0, 11.2.1); `provided` is writable. Called
        // once, by the one thread that `Job` starts.
        let code = unsafe {
            (self.functions.init)(
                ptr::null_mut(),
                ptr::null_mut(),
                THREAD_MULTIPLE,
                &mut provided,
            )
        };
        self.check("init", code)?;
        if provided < THREAD_MULTIPLE {
            let message = format!(
                "{}: does not support calls from several threads",
                self.version()
            );
            return Err(Error::new(ErrorKind::Unsupported, "MPI", message));
        }
        let world = Comm {
            mpi: self,
            handle: COMM_WORLD,
        };
        world.return_errors()?;
        Ok(world)
    }

    /// Leaves the job. Blocks until all processes have called it.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn finalize(&self) -> Result<()> {
        // SAFETY: called once, by the thread that called `init`, after all requests are done.
        self.check("finalize", unsafe { (self.functions.finalize)() })
    }

    /// Ends all processes of the job.
    pub(crate) fn abort(&self, code: u8) {
        // SAFETY: the world exists from `init` on, which made this `Mpi` reachable for others.
        unsafe { (self.functions.abort)(COMM_WORLD as Handle, code.into()) };
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut text = [0u8; MAX_ERROR_STRING];
        let mut length = 0;
        // SAFETY: `text` has the maximum length. It may be called at any time.
        let known = unsafe {
            (self.functions.error_string)(code, text.as_mut_ptr().cast(), &mut length) == 0
        };
        let length = if known { length.max(0) as usize } else { 0 };
        let text = String::from_utf8_lossy(&text[..length.min(MAX_ERROR_STRING)]).into_owned();
        let message = format!("error {code}: {}", text.trim());
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("MPI {call}"),
            message,
        ))
    }
}

/// A reduction that MPI has.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    datatype: usize,
    op: usize,
    /// Bytes of an element.
    width: usize,
}

impl Reduction {
    /// The reduction of elements of `dtype`; `None` if MPI has none with halite's results: 16-bit
    /// floats have no type, `Mean` is a sum, and the minimum and maximum of NaN is undefined.
    pub(crate) fn new(op: ReduceOp, dtype: DType) -> Option<Self> {
        let (datatype, width) = match dtype {
            DType::Bool | DType::U8 => (0x241, 1),
            DType::S8 => (0x240, 1),
            DType::S16 => (0x248, 2),
            DType::U16 => (0x249, 2),
            DType::S32 => (0x250, 4),
            DType::U32 => (0x251, 4),
            DType::S64 => (0x258, 8),
            DType::U64 => (0x259, 8),
            DType::F32 => (0x210, 4),
            DType::F64 => (0x214, 8),
            _ => return None,
        };
        let is_float = matches!(dtype, DType::F32 | DType::F64);
        let op = match (op, dtype) {
            (ReduceOp::And | ReduceOp::Min | ReduceOp::Product, DType::Bool) => 0x30,
            (ReduceOp::Or | ReduceOp::Max, DType::Bool) => 0x31,
            (_, DType::Bool) => return None,
            (ReduceOp::Sum, _) => 0x21,
            (ReduceOp::Product, _) => 0x24,
            (ReduceOp::Min, _) if !is_float => 0x22,
            (ReduceOp::Max, _) if !is_float => 0x23,
            _ => return None,
        };
        Some(Reduction {
            datatype,
            op,
            width,
        })
    }

    /// Number of elements of `into`, of which `from` has `parts` times as many.
    fn count(self, from: &[u8], into: &[u8], parts: usize) -> Result<i64> {
        lengths("reduction", from.len(), into.len(), parts)?;
        let aligned = |bytes: &[u8]| (bytes.as_ptr() as usize).is_multiple_of(self.width);
        if !into.len().is_multiple_of(self.width) || !aligned(from) || !aligned(into) {
            let message = format!(
                "{} bytes are not aligned elements of {} bytes",
                into.len(),
                self.width
            );
            return Err(Error::invalid("MPI reduction", message));
        }
        Ok((into.len() / self.width) as i64)
    }
}

fn lengths(call: &str, whole: usize, part: usize, parts: usize) -> Result<()> {
    if part.checked_mul(parts) == Some(whole) {
        return Ok(());
    }
    let message = format!("a buffer has {whole} bytes, {parts} parts of {part} bytes are needed");
    Err(Error::invalid(format!("MPI {call}"), message))
}
