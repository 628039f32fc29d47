//! Launches over many devices of XLA's CPU plugin, one after the other and few at a time.
//!
//! The plugin lets each device have 32 launches in flight and makes its threads wait for a place. When
//! launches of a program with collectives fill them, some devices of one launch wait for a place while the others wait
//! for them in the collective, for ever: after a while the plugin says "Expected 8 threads to join the rendezvous, but
//! only 7 arrived" and ends the process. Two host threads that launch at once could also give two devices different
//! orders, with the same end. So launches over more than one device go through [`InFlight`], which holds them to one
//! order and to [`InFlight::MOST`] at a time; four already keep the devices busy. Other launches do not come here.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use halite_pjrt_sys::event::*;

use crate::{event::in_callback, handle::Handle, plugin::Plugin};

/// The launches of one client over many devices that may not be done yet, oldest first.
pub(crate) struct InFlight {
    plugin: &'static Plugin,
    launches: Mutex<VecDeque<Arc<Done>>>,
}

impl InFlight {
    /// How many launches are queued at once.
    const MOST: usize = 8;

    pub(crate) fn new(plugin: &'static Plugin) -> Self {
        InFlight { plugin, launches: Mutex::default() }
    }

    /// Blocks until one more launch may be queued. Nobody else queues one until the turn is over.
    pub(crate) fn turn(&self) -> Turn<'_> {
        loop {
            let mut launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
            while launches.front().is_some_and(|oldest| oldest.is_ready()) {
                launches.pop_front();
            }
            // A callback may run on a thread that the oldest launch needs, so it must not wait for it.
            if launches.len() < Self::MOST || in_callback() {
                return Turn { plugin: self.plugin, launches };
            }
            let oldest = launches[0].clone();
            // Callbacks must be able to take their turn meanwhile.
            drop(launches);
            oldest.wait();
        }
    }
}

/// The right to queue one launch.
pub(crate) struct Turn<'a> {
    plugin: &'static Plugin,
    launches: MutexGuard<'a, VecDeque<Arc<Done>>>,
}

impl Turn<'_> {
    /// Ends the turn with a launch that was queued: `events` are those of its completion on each device, now owned here.
    pub(crate) fn launched(mut self, events: &[*mut PJRT_Event]) {
        let events = events.iter().filter_map(|event| std::ptr::NonNull::new(*event)).map(Handle::new).collect();
        self.launches.push_back(Arc::new(Done { plugin: self.plugin, events }));
    }
}

/// When a launch is done: its events of completion, one a device. They do not hold the client, which holds them.
struct Done {
    plugin: &'static Plugin,
    events: Vec<Handle<PJRT_Event>>,
}

impl Done {
    fn is_ready(&self) -> bool {
        self.events.iter().all(|event| {
            let mut args = PJRT_Event_IsReady_Args { event: event.as_ptr(), ..PJRT_Event_IsReady_Args::new() };
            // SAFETY: the event is alive. One that cannot be asked is not worth waiting for.
            unsafe { self.plugin.table().call("wait", &mut args) }.is_err() || args.is_ready
        })
    }

    fn wait(&self) {
        for event in &self.events {
            let mut args = PJRT_Event_Await_Args { event: event.as_ptr(), ..PJRT_Event_Await_Args::new() };
            // A launch that failed is done too; its error is in its results.
            // SAFETY: the event is alive.
            let _ = unsafe { self.plugin.table().call("wait", &mut args) };
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        for event in &self.events {
            let mut args = PJRT_Event_Destroy_Args { event: event.as_ptr(), ..PJRT_Event_Destroy_Args::new() };
            // SAFETY: the event is ours and not used again; the client is alive, because it is destroyed after its launches.
            unsafe { self.plugin.table().free(&mut args) };
        }
    }
}
