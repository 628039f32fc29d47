//! State of a client that all its handles share.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering::Relaxed},
    },
    time::Duration,
};

use halite_core::{Device, DeviceId, Error, MemoryKind, Placement, Platform, Result};
use halite_pjrt_sys::{Call, client::PJRT_Client, error::PJRT_Error, memory::PJRT_Memory};

use crate::{
    PjrtDevice, Plugin,
    callbacks::Callbacks,
    in_flight::{Described, InFlight, Permit},
    owned_client::Owned,
    quirks::Quirks,
    table::Table,
};

/// State of a client that all its handles share and keep alive.
pub(crate) struct Shared {
    /// Launches over several devices. Before the client, so that its events are destroyed first.
    in_flight: InFlight,
    callbacks: Callbacks,
    client: Arc<Owned>,
    platform: Platform,
    quirks: Quirks,
    /// All devices, in id order.
    devices: Vec<PjrtDevice>,
    /// See [`client_identity`](crate::key::client_identity).
    identity: String,
    /// Number of launches over several devices, for a client with devices of other processes.
    launches: Option<AtomicI32>,
    /// True if the plugin was seen to use host memory without an event for its end.
    pub(crate) copies_uploads: AtomicBool,
}

impl Shared {
    /// State of a client that has just been created, with its devices in id order.
    pub(crate) fn new(
        client: Owned,
        platform: Platform,
        quirks: Quirks,
        devices: Vec<PjrtDevice>,
        identity: String,
    ) -> Self {
        let is_alone = devices.iter().all(PjrtDevice::is_addressable);
        Shared {
            in_flight: InFlight::new(client.plugin, quirks.max_launches),
            callbacks: Callbacks::default(),
            client: Arc::new(client),
            platform,
            quirks,
            devices,
            identity,
            launches: (!is_alone).then(AtomicI32::default),
            copies_uploads: AtomicBool::new(false),
        }
    }

    pub(crate) fn plugin(&self) -> &'static Plugin {
        self.client.plugin
    }

    #[inline]
    pub(crate) fn table(&self) -> &'static Table {
        self.client.plugin.table()
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut PJRT_Client {
        self.client.client.as_ptr()
    }

    /// The plugin's client object, for work that must not outlive it.
    pub(crate) fn owned(&self) -> &Arc<Owned> {
        &self.client
    }

    pub(crate) fn platform(&self) -> &Platform {
        &self.platform
    }

    pub(crate) fn platform_name(&self) -> &Arc<str> {
        &self.platform.name
    }

    pub(crate) fn quirks(&self) -> Quirks {
        self.quirks
    }

    pub(crate) fn devices(&self) -> &[PjrtDevice] {
        &self.devices
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether some of its devices belong to other processes.
    pub(crate) fn spans_processes(&self) -> bool {
        self.launches.is_some()
    }

    /// Calls a function of the table; an error names this platform.
    ///
    /// # Safety
    ///
    /// * As for [`Table::call`].
    #[inline]
    pub(crate) unsafe fn call<A: Call<Return = *mut PJRT_Error>>(
        &self,
        op: &'static str,
        args: &mut A,
    ) -> Result<()> {
        // SAFETY: the caller's condition.
        unsafe { self.client.call(op, args) }
    }

    /// An error of the caller's, on this platform.
    #[cold]
    pub(crate) fn invalid(&self, op: &'static str, message: impl Into<String>) -> Error {
        Error::invalid(op, message).on(&self.platform.name)
    }

    pub(crate) fn device(&self, op: &'static str, id: DeviceId) -> Result<&PjrtDevice> {
        match self
            .devices
            .binary_search_by_key(&id, |device| device.device_id())
        {
            Ok(index) => Ok(&self.devices[index]),
            Err(_) => {
                let ids: Vec<_> = self
                    .devices
                    .iter()
                    .map(|device| device.device_id().0)
                    .collect();
                Err(self.invalid(
                    op,
                    format!("unknown device {}; expected one of {ids:?}", id.0),
                ))
            }
        }
    }

    /// The memory at a place that this process can use.
    pub(crate) fn memory(
        &self,
        op: &'static str,
        place: Placement,
    ) -> Result<(&PjrtDevice, *mut PJRT_Memory)> {
        let device = self.device(op, place.device)?;
        if !device.is_addressable() {
            let message = format!(
                "device {} belongs to process {}",
                place.device.0,
                device.process_index()
            );
            return Err(self.invalid(op, message));
        }
        match device.memory_of(place.memory) {
            Some(memory) => Ok((device, memory)),
            // A plugin that lists no memories has only the device's own.
            None if place.memory == MemoryKind::Device => Ok((device, std::ptr::null_mut())),
            None => {
                let message = format!(
                    "device {} has no {:?} memory, only {:?}",
                    place.device.0,
                    place.memory,
                    device.kinds()
                );
                Err(self.invalid(op, message))
            }
        }
    }

    /// Adds the memory statistics of the devices to an out-of-memory error, where available.
    #[cold]
    pub(crate) fn with_memory(&self, error: Error, devices: &[DeviceId]) -> Error {
        let used = devices.iter().filter_map(|id| {
            let stats = self.device("memory", *id).ok()?.memory().ok()?;
            let limit = stats
                .limit
                .map_or("an unknown number".to_owned(), |limit| limit.to_string());
            Some(format!(
                "device {} uses {} of {limit} bytes",
                id.0, stats.in_use
            ))
        });
        let used: Vec<_> = used.collect();
        let error = error.on(&self.platform.name);
        if used.is_empty() {
            error
        } else {
            error.with_note(&used.join(", "))
        }
    }

    /// Blocks until a launch of this program may be queued, over several devices or with much temporary
    /// memory.
    pub(crate) fn launch_permit<'a>(&'a self, program: &'a Arc<Described>) -> Result<Permit<'a>> {
        self.in_flight.acquire(&self.client, program)
    }

    /// The launches with a permit that are not done, for messages.
    pub(crate) fn unfinished(&self) -> String {
        self.in_flight.unfinished(&self.client)
    }

    pub(crate) fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// See [`Owned::late`].
    #[cold]
    pub(crate) fn late(&self, op: &'static str, limit: Duration) -> Error {
        self.client.late(op, limit, &self.unfinished())
    }

    /// The id of the next launch over several devices.
    ///
    /// XLA's CPU runtime finds the participants of a collective by this id, in a table of the
    /// process, so no two clients of a process may use the same: their values would mix. A client
    /// with devices of several processes counts by itself, because the processes must give a launch
    /// the same id, and they launch in the same order.
    pub(crate) fn next_launch(&self) -> i32 {
        static LAUNCHES: AtomicI32 = AtomicI32::new(0);
        let counter = match self.launches.as_ref() {
            Some(own) => own,
            None => &LAUNCHES,
        };
        counter.fetch_add(1, Relaxed).wrapping_add(1) & i32::MAX
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.platform.name)
    }
}
