//! Completion of a plugin's work, by its raw events: polling, waiting, and callbacks.
//!
//! Every wait has a deadline, the client's wait limit. Waiting is done with a callback of the
//! plugin, because the API's own function for it has no deadline. Nothing here owns an event.

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

use halite_core::{Error, ErrorKind, OnReady, Result, wait::wait_until};
use halite_pjrt_sys::{error::PJRT_Error, event::*};

use crate::{
    callbacks::{self, Job},
    handle::Handle,
    owned_client::Owned,
};

/// Returns whether the event has completed; an error if the plugin cannot tell.
pub(crate) fn is_ready(
    client: &Owned,
    op: &'static str,
    event: &Handle<PJRT_Event>,
) -> Result<bool> {
    let mut args = args!(PJRT_Event_IsReady_Args, event: event.as_ptr());
    // SAFETY: the handle owns the event, which is alive.
    unsafe { client.call(op, &mut args) }.map(|()| args.is_ready)
}

/// The end of a wait at the client's wait limit, which is given.
pub(crate) struct Late(pub(crate) Duration);

/// Blocks until the event has completed, and returns the result of the work.
///
/// # Errors
/// If the client's wait limit is over before.
pub(crate) fn await_event(
    client: &Arc<Owned>,
    op: &'static str,
    event: &Handle<PJRT_Event>,
) -> Result<Result<()>, Late> {
    if let Ok(true) = is_ready(client, op, event) {
        return Ok(result_of(client, op, event));
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
    client: &Owned,
    op: &'static str,
    event: &Handle<PJRT_Event>,
    refused: Error,
) -> Result<Result<()>, Late> {
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
    client: &Owned,
    op: &'static str,
    arrived: impl FnMut(Duration) -> Option<Result<()>>,
) -> Result<Result<()>, Late> {
    let limit = client.wait_limit.get();
    match wait_until(|| format!("`{op}`"), limit, || false, arrived) {
        Ok(result) => Ok(result.expect("nobody cancels this wait")),
        Err(_) => Err(Late(limit)),
    }
}

/// The result of completed work.
fn result_of(client: &Owned, op: &'static str, event: &Handle<PJRT_Event>) -> Result<()> {
    let mut args = args!(PJRT_Event_Await_Args, event: event.as_ptr());
    // SAFETY: the handle owns the event, which is alive.
    unsafe { client.call(op, &mut args) }
}

/// Registers `then` as a callback of the event: it runs on `queue`, or on the plugin's thread
/// without one, or at once on this thread if the event has completed already. Returns `then` if the
/// plugin refuses.
pub(crate) fn register(
    client: &Arc<Owned>,
    op: &'static str,
    event: &Handle<PJRT_Event>,
    then: OnReady,
    queue: Option<Sender<Job>>,
) -> Result<(), (Error, OnReady)> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);

    let callback = Callback {
        client: client.clone(),
        op,
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
        then,
        queue,
    } = callback;
    // SAFETY: this function's condition.
    let result = unsafe { client.plugin.table().check(op, error) }
        .map_err(|error| error.on(client.platform_name()));
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
