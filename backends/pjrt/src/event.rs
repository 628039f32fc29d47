//! Completion events of a plugin's work, as [`Event`]s.

use std::{ptr::NonNull, sync::Arc};

use halite_core::{Error, Event, OnReady, Result};
use halite_pjrt_sys::event::*;

use crate::{
    completion::{Late, await_event, is_ready, register},
    handle::Handle,
    shared_client::Shared,
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
    pub(crate) fn new(client: &Arc<Shared>, op: &'static str, event: NonNull<PJRT_Event>) -> Self {
        PjrtEvent {
            event: Handle::new(event),
            op,
            client: client.clone(),
        }
    }

    /// Runs `then` on any thread after the event has completed. Returns `then` if the plugin takes
    /// no callback: what it owns may still be in use.
    pub(crate) fn when_done(&self, then: OnReady) -> Result<(), (Error, OnReady)> {
        register(self.client.owned(), self.op, &self.event, then, None)
    }

    /// Returns whether the event is known to have completed, so that its work is over.
    pub(crate) fn is_done(&self) -> bool {
        matches!(
            is_ready(self.client.owned(), self.op, &self.event),
            Ok(true)
        )
    }
}

impl Event for PjrtEvent {
    fn is_ready(&self) -> bool {
        is_ready(self.client.owned(), self.op, &self.event).unwrap_or(true)
    }

    fn wait(&self) -> Result<()> {
        let done = await_event(self.client.owned(), self.op, &self.event);
        done.unwrap_or_else(|Late(limit)| Err(self.client.late(self.op, limit)))
    }

    fn on_ready(&self, then: OnReady) {
        let queue = self.client.callbacks().queue();
        if let Err((error, then)) = register(self.client.owned(), self.op, &self.event, then, queue)
        {
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
        let mut args = args!(PJRT_Event_Destroy_Args, event: self.event.as_ptr());
        // SAFETY: the event is ours and not used again. A callback that is registered owns its own
        // state.
        unsafe { self.client.table().free(&mut args) };
    }
}
