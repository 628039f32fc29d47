//! Communicators: non-blocking calls, each of which returns when MPI has given its buffers back.
//!
//! `unsafe` is needed to call MPI's C functions with pointers to the buffers that are exchanged;
//! why they stay valid while MPI uses them is written at each call.

use std::{
    ffi::{c_int, c_void},
    fmt, ptr,
    time::Duration,
};

use halite_core::{Error, Result};

use super::{
    BYTE, COMM_NULL, ERRORS_RETURN, Functions, Handle, MESSAGE_NULL, Mpi, REQUEST_NULL, Reduction,
    Status, lengths,
};

/// `MPI_Iallreduce_c` and `MPI_Ireduce_scatter_block_c`.
type ReduceFunction = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    i64,
    Handle,
    Handle,
    Handle,
    *mut Handle,
) -> c_int;

/// A communicator. Its handle is an opaque address, which any thread may pass to MPI. It is valid
/// until MPI is finalized, which waits for the calls of other threads (`Presence::close`) and
/// refuses later ones (`Presence::enter`).
#[derive(Clone, Copy)]
pub(crate) struct Comm {
    pub(super) mpi: &'static Mpi,
    pub(super) handle: usize,
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

    pub(super) fn return_errors(&self) -> Result<()> {
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
    /// MPI's; lengths that differ.
    pub(crate) fn all_reduce(
        &self,
        kind: Reduction,
        from: &[u8],
        into: &mut [u8],
        patience: &mut dyn Patience,
    ) -> Result<()> {
        let count = kind.count(from, into, 1)?;
        let function = self.functions().all_reduce;
        // SAFETY: both buffers have `count` elements.
        unsafe { self.reduce("all_reduce", function, kind, count, from, into, patience) }
    }

    /// Reduces `from` of all processes, and gives this one its part.
    ///
    /// # Errors
    /// MPI's; if `from` is not as long as the parts of all processes.
    pub(crate) fn reduce_scatter(
        &self,
        kind: Reduction,
        from: &[u8],
        into: &mut [u8],
        patience: &mut dyn Patience,
    ) -> Result<()> {
        let count = kind.count(from, into, self.size()?)?;
        let function = self.functions().reduce_scatter;
        // SAFETY: `into` has `count` elements, and `from` as many for each process.
        unsafe {
            self.reduce(
                "reduce_scatter",
                function,
                kind,
                count,
                from,
                into,
                patience,
            )
        }
    }

    /// Calls a function that reduces `from` into `into`, and waits for it.
    ///
    /// # Safety
    /// The buffers have the lengths that `function` needs for `count` elements.
    #[expect(clippy::too_many_arguments, reason = "those of MPI's function")]
    unsafe fn reduce(
        &self,
        call: &str,
        function: ReduceFunction,
        kind: Reduction,
        count: i64,
        from: &[u8],
        into: &mut [u8],
        patience: &mut dyn Patience,
    ) -> Result<()> {
        let mut request = REQUEST_NULL as Handle;
        // SAFETY: the caller promises the lengths; the buffers do not overlap, and are borrowed
        // until `complete` returns.
        let code = unsafe {
            function(
                from.as_ptr().cast(),
                into.as_mut_ptr().cast(),
                count,
                kind.datatype as Handle,
                kind.op as Handle,
                self.raw(),
                &mut request,
            )
        };
        self.mpi.check(call, code)?;
        self.complete(call, request, patience)
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
        // SAFETY: `into` has room for `count` bytes of each process; the buffers do not overlap,
        // and are borrowed until `complete` returns.
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
