//! Launches that are queued one at a time and limited in number: those over several devices, and
//! those of programs with much temporary memory where the plugin needs it.
//!
//! All devices must receive launches with collectives in one order. Two host threads that launch at
//! once could give two devices different orders, which deadlocks on every platform. So launches
//! over more than one device are queued one after the other ([`InFlight::acquire`]).
//!
//! XLA's CPU plugin also lets each device have 32 launches in flight only and makes its threads
//! wait for a place. When launches of a program with collectives fill them, some devices of one
//! launch wait for a place while the others wait for them in the collective. So their number is
//! limited there for each device ([`Quirks::max_launches`](crate::quirks::Quirks)); fewer already
//! keep the devices busy.
//!
//! In a queue of launches, that plugin allocates the temporary memory of one before that of the one
//! before it is free: twice the memory, in new pages that the system clears. So a program with much
//! of it waits until the launch before it on its devices is done
//! ([`Quirks::large_temporary`](crate::quirks::Quirks)). Other launches over one device do not come
//! here.

use std::{
    fmt::Write,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use halite_core::{DeviceId, Error, Result};
use halite_pjrt_sys::event::*;

use crate::{
    completion::{Late, await_event, is_ready},
    handle::Handle,
    owned_client::Owned,
    plugin::Plugin,
};

/// Launches of one client over several devices, or with much temporary memory.
pub(crate) struct InFlight {
    plugin: &'static Plugin,
    /// The most launches in flight on a device, if there is a limit.
    limit: Option<usize>,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    /// The launch that is being queued, and since when.
    queuing: Option<(Arc<Described>, Instant)>,
    /// Launches that may not be done yet, oldest first. Empty where their number is not limited.
    launches: Vec<Arc<Launched>>,
    /// The last launch, where their number is not limited: its completion is not observed.
    last: Option<(Arc<Described>, Instant)>,
    /// Number of threads that wait for a permit.
    waiting: usize,
}

/// Properties of a program that its launches wait by and messages name.
pub(crate) struct Described {
    pub(crate) name: Arc<str>,
    pub(crate) devices: Vec<DeviceId>,
    /// It is launched when the launch before it on its devices is done.
    pub(crate) is_large: bool,
}

impl Described {
    /// Returns whether its launches are queued one at a time.
    pub(crate) fn needs_permit(&self) -> bool {
        self.is_large || self.devices.len() > 1
    }

    fn shares_device_with(&self, other: &Described) -> bool {
        self.devices
            .iter()
            .any(|device| other.devices.contains(device))
    }
}

const OP: &str = "launch";

/// Time that XLA's CPU plugin takes to free the temporary memory of a launch after it has reported
/// that the launch is done. Nothing reports that it was freed.
const FREEING: Duration = Duration::from_micros(200);

impl InFlight {
    pub(crate) fn new(plugin: &'static Plugin, limit: Option<usize>) -> Self {
        InFlight {
            plugin,
            limit,
            state: Mutex::default(),
            released: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until a launch of `program` may be queued. No other launch is queued until the permit
    /// is dropped.
    ///
    /// # Errors
    /// [`DeadlineExceeded`](halite_core::ErrorKind::DeadlineExceeded) after the client's wait
    /// limit.
    pub(crate) fn acquire<'a>(
        &'a self,
        client: &Arc<Owned>,
        program: &'a Arc<Described>,
    ) -> Result<Permit<'a>> {
        let mut state = self.state();
        loop {
            if let Some((other, since)) = &state.queuing {
                let (limit, waited) = (client.wait_limit.get(), since.elapsed());
                if waited >= limit {
                    let note = format!(
                        "`{}` waits while `{}` is queued, for {waited:.1?} now",
                        program.name, other.name
                    );
                    drop(state);
                    return Err(self.late(client, limit).with_note(&note));
                }
                state.waiting += 1;
                let woken = self.released.wait_timeout(state, limit - waited);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
                state.waiting -= 1;
                continue;
            }
            state.launches.retain(|launch| !launch.is_done(client));
            let limit = if program.is_large {
                Some(1)
            } else {
                self.limit
            };
            let newest_first = state.launches.iter().rev();
            let mut on_its_devices =
                newest_first.filter(|launch| launch.program.shares_device_with(program));
            let Some(last_with_place) = limit.and_then(|limit| on_its_devices.nth(limit - 1))
            else {
                state.queuing = Some((program.clone(), Instant::now()));
                return Ok(Permit {
                    in_flight: self,
                    program,
                    is_queued: false,
                    launched: None,
                });
            };
            let awaited = last_with_place.clone();
            // Other threads may use the state meanwhile.
            drop(state);
            self.await_launch(client, &awaited).map_err(|error| {
                error.with_note(&format!("`{}` waits for a place", program.name))
            })?;
            if program.is_large {
                thread::sleep(FREEING);
            }
            state = self.state();
        }
    }

    /// Blocks until a launch is done.
    ///
    /// # Errors
    /// If it is not done within the client's wait limit.
    fn await_launch(&self, client: &Arc<Owned>, launch: &Launched) -> Result<()> {
        for event in launch.events.iter().flatten() {
            let done = await_event(client, OP, event);
            match done.unwrap_or_else(|Late(limit)| Err(self.late(client, limit))) {
                // It would have come back from the plugin as the work's own error only when it was
                // done.
                Err(error) if !is_ready(client, OP, event).unwrap_or(true) => return Err(error),
                // A launch that failed is done too; its error is in its results.
                _ => {}
            }
        }
        Ok(())
    }

    #[cold]
    fn late(&self, client: &Owned, limit: Duration) -> Error {
        client.late(OP, limit, &self.unfinished(client))
    }

    /// Describes the launches that are not done, for messages; empty if all are. Where launches are
    /// not limited their completion is not observed, and it describes the last one.
    pub(crate) fn unfinished(&self, client: &Owned) -> String {
        let state = self.state();
        if let Some((program, since)) = &state.last {
            return describe_last(program, since.elapsed());
        }
        let launches = state.launches.clone();
        drop(state);
        let mut unfinished = launches.iter().filter(|launch| !launch.is_done(client));
        let Some(oldest) = unfinished.next() else {
            return String::new();
        };
        let late: Vec<u32> = oldest.late(client).map(|id| id.0).collect();
        let (program, devices) = (&oldest.program.name, oldest.program.devices.len());
        let since = oldest.queued.elapsed();
        let mut text = format!(
            "`{program}`, launched {since:.1?} ago, is not done on devices {late:?} of {devices}"
        );
        let more = unfinished.count();
        if more > 0 {
            _ = write!(text, ", and {more} launches behind it");
        }
        text
    }
}

/// Describes the last launch over several devices.
fn describe_last(program: &Described, since: Duration) -> String {
    let (name, devices) = (&program.name, program.devices.len());
    format!("the last launch over several devices was `{name}` on {devices}, {since:.1?} ago")
}

/// Permit to queue one launch.
pub(crate) struct Permit<'a> {
    in_flight: &'a InFlight,
    program: &'a Arc<Described>,
    /// The launch was queued; else it failed.
    is_queued: bool,
    launched: Option<Arc<Launched>>,
}

impl Permit<'_> {
    /// Returns whether the launch must return its completion events.
    pub(crate) fn wants_events(&self) -> bool {
        self.in_flight.limit.is_some() || self.program.is_large
    }

    /// Releases the permit after its launch was queued. Takes ownership of `events`, the completion
    /// events by device.
    pub(crate) fn launched(mut self, events: &[*mut PJRT_Event]) {
        self.is_queued = true;
        if events.is_empty() {
            return;
        }
        let of = |event: &*mut PJRT_Event| std::ptr::NonNull::new(*event).map(Handle::new);
        let events = events.iter().map(of).collect();
        let launched = Launched {
            plugin: self.in_flight.plugin,
            program: self.program.clone(),
            queued: Instant::now(),
            events,
        };
        self.launched = Some(Arc::new(launched));
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.in_flight.state();
        let queued = state.queuing.take();
        if self.is_queued && self.in_flight.limit.is_none() {
            state.last = queued;
        }
        state.launches.extend(self.launched.take());
        let is_awaited = state.waiting > 0;
        drop(state);
        // Avoids a system call for most launches.
        if is_awaited {
            self.in_flight.released.notify_one();
        }
    }
}

/// A launch, with its completion events by device. They do not hold the client, which owns them.
struct Launched {
    plugin: &'static Plugin,
    program: Arc<Described>,
    queued: Instant,
    events: Vec<Option<Handle<PJRT_Event>>>,
}

impl Launched {
    /// Returns whether the launch is done. Events that cannot be polled count as completed.
    fn is_done(&self, client: &Owned) -> bool {
        self.late(client).next().is_none()
    }

    /// The devices that have not finished it.
    fn late(&self, client: &Owned) -> impl Iterator<Item = DeviceId> {
        let is_late = |event: &Option<Handle<PJRT_Event>>| match event {
            Some(event) => !is_ready(client, OP, event).unwrap_or(true),
            None => false,
        };
        self.program
            .devices
            .iter()
            .zip(&self.events)
            .filter(move |(_, event)| is_late(event))
            .map(|(device, _)| *device)
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        for event in self.events.iter().flatten() {
            let mut args = args!(PJRT_Event_Destroy_Args, event: event.as_ptr());
            // SAFETY: the event is ours and not used again; the client is alive, because it is
            // destroyed after its launches.
            unsafe { self.plugin.table().free(&mut args) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_launch_is_described() {
        let program = Described {
            name: "step".into(),
            devices: vec![DeviceId(0), DeviceId(1)],
            is_large: false,
        };
        assert_eq!(
            describe_last(&program, Duration::from_millis(1500)),
            "the last launch over several devices was `step` on 2, 1.5s ago"
        );
    }
}
