//! MPI through its standard binary interface (MPI 5.0, chapter 20), loaded at run time. Everything
//! here is non-blocking but for initialization and finalization; a wait that exceeds its deadline
//! never returns, because MPI owns the buffers.
#![allow(unsafe_code)]

use std::{
    ffi::{c_char, c_int, c_void},
    fmt,
    path::Path,
    ptr,
    time::Duration,
};

use halite_core::{DType, Error, ErrorKind, ReduceOp, Result};

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
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|error| unavailable(format!("cannot load it: {error}")))?;
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

    /// Joins the job. Blocks until all processes have called it; call [`finalize`](Self::finalize) on
    /// the same thread.
    ///
    /// # Errors
    /// MPI's; if the library does not support calls from several threads.
    pub(crate) fn init(&'static self) -> Result<Comm> {
        let mut provided = 0;
        // SAFETY: null arguments are allowed (MPI 5.0, 11.2.1); `provided` is writable. Called once,
        // by the one thread that `Job` starts.
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

/// A communicator. Its handle is an opaque address, which any thread may pass to MPI.
#[derive(Clone, Copy)]
pub(crate) struct Comm {
    mpi: &'static Mpi,
    handle: usize,
}

/// Called between tests of a request that is not complete; an error ends the process by `abandon`,
/// because MPI owns the buffers of the request.
pub(crate) trait Patience {
    /// Whether to wait longer.
    ///
    /// # Errors
    /// Why not.
    fn check(&mut self) -> Result<()>;

    /// Ends the process.
    fn abandon(&self, error: &Error) -> !;
}

/// Number of tests before a wait sleeps between them.
pub(crate) const TESTS: u32 = 200;

/// Sleep between tests: blocking calls and yields starve other processes on few cores.
pub(crate) const SLEEP: Duration = Duration::from_micros(50);

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm({:#x})", self.handle)
    }
}

impl Comm {
    pub(crate) fn rank(&self) -> Result<usize> {
        let mut rank = 0;
        // SAFETY: the communicator is valid, `rank` writable.
        let code = unsafe { (self.functions().rank)(self.raw(), &mut rank) };
        self.mpi.check("rank", code)?;
        Ok(rank as usize)
    }

    pub(crate) fn size(&self) -> Result<usize> {
        let mut size = 0;
        // SAFETY: the communicator is valid, `size` writable.
        let code = unsafe { (self.functions().size)(self.raw(), &mut size) };
        self.mpi.check("size", code)?;
        Ok(size as usize)
    }

    fn functions(&self) -> &'static Functions {
        &self.mpi.functions
    }

    fn raw(&self) -> Handle {
        self.handle as Handle
    }

    fn return_errors(&self) -> Result<()> {
        // SAFETY: the communicator is valid, and the error handler predefined.
        let code =
            unsafe { (self.functions().set_errhandler)(self.raw(), ERRORS_RETURN as Handle) };
        self.mpi.check("set_errhandler", code)
    }

    /// Makes a communicator of the same processes; all of them must call it in the same order.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn duplicate(&self, patience: &mut dyn Patience) -> Result<Comm> {
        // On the heap, so that MPI may write to it if this is abandoned.
        let mut handle = Box::new(COMM_NULL as Handle);
        let mut request = REQUEST_NULL as Handle;
        // SAFETY: `handle` stays in place until the request is complete: `complete` only returns
        // then.
        let code = unsafe { (self.functions().dup)(self.raw(), &mut *handle, &mut request) };
        self.mpi.check("comm_idup", code)?;
        self.complete("comm_idup", request, patience)?;
        let comm = Comm {
            mpi: self.mpi,
            handle: *handle as usize,
        };
        comm.return_errors()?;
        Ok(comm)
    }

    /// Tests whether a request is complete, and frees it then.
    fn test(&self, request: &mut Handle) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the request is one that MPI gave, or null after its completion, which is allowed;
        // a null status is `MPI_STATUS_IGNORE`.
        let code = unsafe { (self.functions().test)(request, &mut done, ptr::null_mut()) };
        self.mpi.check("test", code)?;
        Ok(done != 0)
    }

    /// Waits until MPI does not use the buffers of `request` any more. Returns only then.
    fn complete(&self, call: &str, mut request: Handle, patience: &mut dyn Patience) -> Result<()> {
        /// Ends the process if a panic would free buffers that belong to MPI.
        struct NoUnwind;
        impl Drop for NoUnwind {
            fn drop(&mut self) {
                std::process::abort();
            }
        }
        let guard = NoUnwind;
        let mut tests = 0;
        let result = loop {
            match self.test(&mut request) {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                // A request that failed before it is complete has the buffers still.
                Err(error) if request as usize != REQUEST_NULL => patience.abandon(&error),
                Err(error) => break Err(error.with_note(call)),
            }
            if tests < TESTS {
                tests += 1;
                continue;
            }
            if let Err(error) = patience.check() {
                patience.abandon(&error);
            }
            std::thread::sleep(SLEEP);
        };
        std::mem::forget(guard);
        result
    }

    /// Reduces `from` of all processes into `into`.
    ///
    /// # Errors
    /// MPI's; lengths that differ; a reduction that MPI does not have for the type.
    pub(crate) fn all_reduce(
        &self,
        kind: Reduction,
        from: &[u8],
        into: &mut [u8],
        patience: &mut dyn Patience,
    ) -> Result<()> {
        let count = kind.count(from, into, 1)?;
        let mut request = REQUEST_NULL as Handle;
        // SAFETY: both buffers have `count` elements and do not overlap; they are borrowed until
        // `complete` returns.
        let code = unsafe {
            (self.functions().all_reduce)(
                from.as_ptr().cast(),
                into.as_mut_ptr().cast(),
                count,
                kind.datatype as Handle,
                kind.op as Handle,
                self.raw(),
                &mut request,
            )
        };
        self.mpi.check("all_reduce", code)?;
        self.complete("all_reduce", request, patience)
    }

    /// Reduces `from` of all processes, and gives this one its part.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub(crate) fn reduce_scatter(
        &self,
        kind: Reduction,
        from: &[u8],
        into: &mut [u8],
        patience: &mut dyn Patience,
    ) -> Result<()> {
        let count = kind.count(from, into, self.size()?)?;
        let mut request = REQUEST_NULL as Handle;
        // SAFETY: `into` has `count` elements, `from` as many for each process; they do not overlap,
        // and are borrowed until `complete` returns.
        let code = unsafe {
            (self.functions().reduce_scatter)(
                from.as_ptr().cast(),
                into.as_mut_ptr().cast(),
                count,
                kind.datatype as Handle,
                kind.op as Handle,
                self.raw(),
                &mut request,
            )
        };
        self.mpi.check("reduce_scatter", code)?;
        self.complete("reduce_scatter", request, patience)
    }

    /// Gathers the equally long `from` of all processes.
    ///
    /// # Errors
    /// MPI's; if `into` is not as long as the parts of all.
    pub(crate) fn all_gather(
        &self,
        from: &[u8],
        into: &mut [u8],
        patience: &mut dyn Patience,
    ) -> Result<()> {
        lengths("all_gather", into.len(), from.len(), self.size()?)?;
        let mut request = REQUEST_NULL as Handle;
        let count = from.len() as i64;
        // SAFETY: `into` has room for `count` bytes of each process; the buffers do not overlap, and
        // are borrowed until `complete` returns.
        let code = unsafe {
            (self.functions().all_gather)(
                from.as_ptr().cast(),
                count,
                BYTE as Handle,
                into.as_mut_ptr().cast(),
                count,
                BYTE as Handle,
                self.raw(),
                &mut request,
            )
        };
        self.mpi.check("all_gather", code)?;
        self.complete("all_gather", request, patience)
    }

    /// Sends the bytes of process `root` to all.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn broadcast(
        &self,
        root: usize,
        bytes: &mut [u8],
        patience: &mut dyn Patience,
    ) -> Result<()> {
        let mut request = REQUEST_NULL as Handle;
        // SAFETY: the buffer is borrowed until `complete` returns.
        let code = unsafe {
            (self.functions().broadcast)(
                bytes.as_mut_ptr().cast(),
                bytes.len() as i64,
                BYTE as Handle,
                root as c_int,
                self.raw(),
                &mut request,
            )
        };
        self.mpi.check("broadcast", code)?;
        self.complete("broadcast", request, patience)
    }

    /// Starts to send a message; the bytes are kept until MPI does not need them.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn send(&self, to: usize, tag: i32, bytes: Vec<u8>) -> Result<Sending> {
        let mut request = REQUEST_NULL as Handle;
        // SAFETY: the bytes are on the heap, do not move with `Sending`, and are freed only after
        // the request is complete.
        let code = unsafe {
            (self.functions().send)(
                bytes.as_ptr().cast(),
                bytes.len() as i64,
                BYTE as Handle,
                to as c_int,
                tag,
                self.raw(),
                &mut request,
            )
        };
        let sending = Sending {
            comm: *self,
            request: request as usize,
            bytes,
        };
        self.mpi.check("send", code)?;
        Ok(sending)
    }

    /// Receives a message of process `from` that has arrived.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn receive(
        &self,
        from: usize,
        tag: i32,
        patience: &mut dyn Patience,
    ) -> Result<Option<Vec<u8>>> {
        let (mut found, mut message) = (0, MESSAGE_NULL as Handle);
        let mut status = Status::default();
        // SAFETY: all three are writable.
        let code = unsafe {
            (self.functions().probe)(
                from as c_int,
                tag,
                self.raw(),
                &mut found,
                &mut message,
                &mut status,
            )
        };
        self.mpi.check("probe", code)?;
        if found == 0 {
            return Ok(None);
        }
        let mut length = 0;
        // SAFETY: MPI filled the status; `length` is writable.
        let code = unsafe { (self.functions().count)(&status, BYTE as Handle, &mut length) };
        self.mpi.check("count", code)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let mut request = REQUEST_NULL as Handle;
        // SAFETY: the buffer has the message's length, and lives until `complete` returns.
        let code = unsafe {
            (self.functions().receive)(
                bytes.as_mut_ptr().cast(),
                length,
                BYTE as Handle,
                &mut message,
                &mut request,
            )
        };
        self.mpi.check("receive", code)?;
        self.complete("receive", request, patience)?;
        Ok(Some(bytes))
    }
}

/// A message that is being sent.
pub(crate) struct Sending {
    comm: Comm,
    request: usize,
    bytes: Vec<u8>,
}

impl Sending {
    /// Whether MPI does not need the message any more.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn is_done(&mut self) -> Result<bool> {
        let mut request = self.request as Handle;
        let done = self.comm.test(&mut request);
        self.request = request as usize;
        done
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.request != REQUEST_NULL && !self.is_done().unwrap_or(false) {
            // MPI may still read it.
            std::mem::forget(std::mem::take(&mut self.bytes));
        }
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
