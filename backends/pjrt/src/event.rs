//! Completion events of a plugin's work.
//!
//! Every wait has a deadline, the client's wait limit. Waiting is done with a callback of the
//! plugin, because the API's own function for it has no deadline.

use std::{
    cell::Cell,
    collections::HashMap,
    ffi::c_void,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use halite_core::{Error, ErrorKind, Event, OnReady, Result, wait::wait_until};
use halite_pjrt_sys::{error::PJRT_Error, event::*};

use crate::{
    callbacks::{self, Job},
    client::Shared,
    handle::Handle,
    owned_client::Owned,
};

/// Completion event of work on a device of a plugin.
#[derive(Debug)]
pub struct PjrtEvent {
    event: Handle<PJRT_Event>,
    op: &'static str,
    client: Arc<Shared>,
}

impl PjrtEvent {
    /// Takes ownership of `event`; errors name the operation `op`.
    pub(crate) fn new(
        client: &Arc<Shared>,
        op: &'static str,
        event: std::ptr::NonNull<PJRT_Event>,
    ) -> Self {
        PjrtEvent {
            event: Handle::new(event),
            op,
            client: client.clone(),
        }
    }

    /// Runs `then` on any thread after the event has completed. Returns `then` if the plugin takes
    /// no callback: what it owns may still be in use.
    pub(crate) fn when_done(&self, then: OnReady) -> Result<(), (Error, OnReady)> {
        register(&self.client, self.op, &self.event, then, None)
    }

    /// Returns whether the event is known to have completed, so that its work is over.
    pub(crate) fn is_done(&self) -> bool {
        matches!(is_ready(&self.client, self.op, &self.event), Ok(true))
    }
}

impl Event for PjrtEvent {
    fn is_ready(&self) -> bool {
        is_ready(&self.client, self.op, &self.event).unwrap_or(true)
    }

    fn wait(&self) -> Result<()> {
        await_event(&self.client, self.op, &self.event)
    }

    fn on_ready(&self, then: OnReady) {
        let queue = self.client.callbacks().queue();
        if let Err((error, then)) = register(&self.client, self.op, &self.event, then, queue) {
            then(Err(error));
        }
    }

    fn unfinished(&self) -> String {
        self.client.unfinished()
    }

    fn notify_when_ready(&self, notify: OnReady) {
        if let Err((error, notify)) = self.when_done(notify) {
            notify(Err(error));
        }
    }
}

impl Drop for PjrtEvent {
    fn drop(&mut self) {
        let mut args = PJRT_Event_Destroy_Args {
            event: self.event.as_ptr(),
            ..PJRT_Event_Destroy_Args::new()
        };
        // SAFETY: the event is ours and not used again. A callback that is registered owns its own
        // state.
        unsafe { self.client.table().free(&mut args) };
    }
}

/// Returns whether the event has completed; an error if the plugin cannot tell.
pub(crate) fn is_ready(
    client: &Shared,
    op: &'static str,
    event: &Handle<PJRT_Event>,
) -> Result<bool> {
    let mut args = PJRT_Event_IsReady_Args {
        event: event.as_ptr(),
        ..PJRT_Event_IsReady_Args::new()
    };
    // SAFETY: the handle owns the event, which is alive.
    unsafe { client.call(op, &mut args) }.map(|()| args.is_ready)
}

/// Blocks until the event has completed, at most for the client's wait limit, and returns the
/// error of the work.
pub(crate) fn await_event(
    client: &Shared,
    op: &'static str,
    event: &Handle<PJRT_Event>,
) -> Result<()> {
    if let Ok(true) = is_ready(client, op, event) {
        return result_of(client, op, event);
    }
    let (send, arrived) = mpsc::sync_channel(1);
    // On the plugin's thread, so that a callback may wait too: it may be the one that runs the
    // queue.
    let notify = Box::new(move |result| _ = send.send(result));
    if let Err((refused, _)) = register(client, op, event, notify, None) {
        return poll(client, op, event, refused);
    }
    wait(client, op, |slice| match arrived.recv_timeout(slice) {
        Ok(result) => Some(result),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            let message = "the plugin dropped the completion callback";
            Some(Err(
                Error::new(ErrorKind::Internal, op, message).on(client.platform_name())
            ))
        }
    })
}

/// [`await_event`] for a plugin that takes no callback.
#[cold]
fn poll(
    client: &Shared,
    op: &'static str,
    event: &Handle<PJRT_Event>,
    refused: Error,
) -> Result<()> {
    let mut refused = Some(refused);
    wait(client, op, |_| match is_ready(client, op, event) {
        Ok(true) => Some(result_of(client, op, event)),
        Ok(false) => {
            thread::sleep(Duration::from_millis(2));
            None
        }
        Err(error) => Some(Err(refused.take().unwrap_or(error))),
    })
}

/// Calls `arrived`, with the time that it may block, until it returns a result or the client's wait
/// limit is over.
fn wait(
    client: &Shared,
    op: &'static str,
    arrived: impl FnMut(Duration) -> Option<Result<()>>,
) -> Result<()> {
    let limit = client.wait_limit();
    match wait_until(|| format!("`{op}`"), limit, || false, arrived) {
        Ok(result) => result.expect("nobody cancels this wait"),
        Err(_) => Err(client.late(op, limit)),
    }
}

/// The result of completed work.
fn result_of(client: &Shared, op: &'static str, event: &Handle<PJRT_Event>) -> Result<()> {
    let mut args = PJRT_Event_Await_Args {
        event: event.as_ptr(),
        ..PJRT_Event_Await_Args::new()
    };
    // SAFETY: the handle owns the event, which is alive.
    unsafe { client.call(op, &mut args) }
}

/// Registers `then` as a callback of the event: it runs on `queue`, or on the plugin's thread
/// without one, or at once on this thread if the event has completed already. Returns `then` if the
/// plugin refuses.
fn register(
    client: &Shared,
    op: &'static str,
    event: &Handle<PJRT_Event>,
    then: OnReady,
    queue: Option<Sender<Job>>,
) -> Result<(), (Error, OnReady)> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);

    let callback = Callback {
        client: client.owned().clone(),
        op,
        platform: client.platform_name().clone(),
        then,
        queue,
    };
    let key = NEXT.fetch_add(1, Relaxed);
    registered().insert(key, callback);
    let mut args = PJRT_Event_OnReady_Args {
        event: event.as_ptr(),
        callback: Some(run_callback),
        user_arg: std::ptr::without_provenance_mut(key),
        ..PJRT_Event_OnReady_Args::new()
    };
    let outer = REGISTERING.replace(key);
    // SAFETY: the event is alive; the callback takes any argument.
    let refused = unsafe { client.call(op, &mut args) };
    REGISTERING.set(outer);
    match refused {
        Ok(()) => Ok(()),
        // A plugin may call back and then return an error.
        Err(error) => registered()
            .remove(&key)
            .map_or(Ok(()), |callback| Err((error, callback.then))),
    }
}

/// The data of a callback. The event and every other handle of the client may be gone when it runs.
struct Callback {
    /// Kept until the event has completed: XLA's CPU plugin reads memory that is freed if its client
    /// is destroyed while it still has to copy a result to the host.
    client: Arc<Owned>,
    op: &'static str,
    platform: Arc<str>,
    then: OnReady,
    /// The client's queue of callbacks, if `then` runs there.
    queue: Option<Sender<Job>>,
}

thread_local! {
    /// The callback that this thread is registering. If the plugin calls it meanwhile, the event
    /// had completed before.
    static REGISTERING: Cell<usize> = const { Cell::new(0) };
}

/// Pending callbacks by their key, which plugins pass back. A second call with one key finds
/// nothing.
fn registered() -> MutexGuard<'static, HashMap<usize, Callback>> {
    static REGISTERED: LazyLock<Mutex<HashMap<usize, Callback>>> = LazyLock::new(Mutex::default);
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called by the plugin, once, on a thread of its choice.
///
/// # Safety
///
/// * `error` is null or an error of the plugin that `user_arg` was registered with.
unsafe extern "C" fn run_callback(error: *mut PJRT_Error, user_arg: *mut c_void) {
    let Some(callback) = registered().remove(&user_arg.addr()) else {
        return;
    };
    let Callback {
        client,
        op,
        platform,
        then,
        queue,
    } = callback;
    // SAFETY: this function's condition.
    let result =
        unsafe { client.plugin.table().check(op, error) }.map_err(|error| error.on(&platform));
    // Before `then` reports the result: whoever waits for it may drop the last handle, and expects
    // the client to be destroyed then.
    if let Some(client) = Arc::into_inner(client) {
        callbacks::run(Box::new(move || drop(client)));
    }
    let job: Job = Box::new(move || then(result));
    match queue {
        Some(queue) if REGISTERING.get() != user_arg.addr() => {
            if let Err(mpsc::SendError(job)) = queue.send(job) {
                callbacks::run(job);
            }
        }
        _ => callbacks::run(job),
    }
}
