//! Events: work of a plugin that completes once.

use std::{
    cell::Cell,
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    sync::Arc,
};

use halite_core::{Event, OnReady, Result};
use halite_pjrt_sys::{error::PJRT_Error, event::*};

use crate::{client::Shared, handle::Handle, plugin::Plugin};

/// Something that will have happened on a device of a plugin.
#[derive(Debug)]
pub struct PjrtEvent {
    event: Handle<PJRT_Event>,
    op: &'static str,
    client: Arc<Shared>,
}

impl PjrtEvent {
    /// Owns `event`; `op` is what its errors are named after.
    pub(crate) fn new(client: &Arc<Shared>, op: &'static str, event: NonNull<PJRT_Event>) -> Self {
        PjrtEvent { event: Handle::new(event), op, client: client.clone() }
    }
}

impl Event for PjrtEvent {
    fn is_ready(&self) -> bool {
        let mut args = PJRT_Event_IsReady_Args { event: self.event.as_ptr(), ..PJRT_Event_IsReady_Args::new() };
        // SAFETY: the event is alive. If it cannot be asked, `wait` is what tells why.
        unsafe { self.client.call(self.op, &mut args) }.is_err() || args.is_ready
    }

    fn wait(&self) -> Result<()> {
        let mut args = PJRT_Event_Await_Args { event: self.event.as_ptr(), ..PJRT_Event_Await_Args::new() };
        // Also for an event that is ready: this is what returns its error.
        // SAFETY: the event is alive.
        unsafe { self.client.call(self.op, &mut args) }
    }

    fn on_ready(&self, then: OnReady) {
        let platform = self.client.platform_name().clone();
        let callback = Box::new(Callback { plugin: self.client.plugin(), op: self.op, platform, then });
        let user_arg = Box::into_raw(callback);
        let mut args = PJRT_Event_OnReady_Args {
            event: self.event.as_ptr(),
            callback: Some(run_callback),
            user_arg: user_arg.cast(),
            ..PJRT_Event_OnReady_Args::new()
        };
        // SAFETY: the event is alive; the callback owns what `user_arg` points at and needs nothing else.
        if unsafe { self.client.call(self.op, &mut args) }.is_err() {
            // SAFETY: the plugin refused the callback, so the box is still ours.
            let callback = unsafe { Box::from_raw(user_arg) };
            // Never before the event: the closure may own memory that the plugin still writes.
            (callback.then)(self.wait());
        }
    }
}

impl Drop for PjrtEvent {
    fn drop(&mut self) {
        let mut args = PJRT_Event_Destroy_Args { event: self.event.as_ptr(), ..PJRT_Event_Destroy_Args::new() };
        // SAFETY: the event is ours and not used again. A callback that is registered owns its own state.
        unsafe { self.client.table().free(&mut args) };
    }
}

/// What a callback needs, and all it needs: the event and even the client may be gone by then.
struct Callback {
    plugin: &'static Plugin,
    op: &'static str,
    platform: Arc<str>,
    then: OnReady,
}

/// Called by the plugin, once, on a thread of its choice.
///
/// # Safety
///
/// * `user_arg` is a `Callback` from `Box::into_raw`, and `error` is null or an error of its plugin.
unsafe extern "C" fn run_callback(error: *mut PJRT_Error, user_arg: *mut c_void) {
    // SAFETY: this function's condition.
    let Callback { plugin, op, platform, then } = *unsafe { Box::from_raw(user_arg.cast::<Callback>()) };
    let outer = IN_CALLBACK.replace(true);
    // A panic must not unwind into the plugin. It was reported by the panic hook; there is nobody to hand it to.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: this function's condition.
        let result = unsafe { plugin.table().check(op, error) };
        then(result.map_err(|error| error.on(&platform)));
    }));
    IN_CALLBACK.set(outer);
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is running a callback, so that it may be one of the plugin's own.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.get()
}
