//! The plugin's client object: its creation and destruction, one at a time for each plugin.

use std::{
    ffi::c_int,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use halite_core::{
    Error, ErrorKind, Result,
    wait::{Limit, default_limit},
};
use halite_pjrt_sys::{Call, client::*, error::PJRT_Error};

use crate::{
    callbacks::in_callback,
    gate::Closed,
    handle::Handle,
    isolate::{self, Isolation},
    plugin::Plugin,
    value::text_of,
};

pub(crate) const OP_CREATE: &str = "create client";

/// A client object, destroyed on drop.
pub(crate) struct Owned {
    pub(crate) plugin: &'static Plugin,
    pub(crate) client: Handle<PJRT_Client>,
    platform: Arc<str>,
    /// Longest time of a wait for the client's work.
    pub(crate) wait_limit: Limit,
    /// True if the thread that makes the client still works on it.
    pub(crate) in_creation: bool,
    /// True if a wait ended at its deadline: destroying the client may wait for the same work.
    stuck: AtomicBool,
}

impl Owned {
    /// Takes ownership of `client`, which has just been created by the plugin.
    ///
    /// # Errors
    /// If the plugin does not name its platform.
    pub(crate) fn new(plugin: &'static Plugin, client: Handle<PJRT_Client>) -> Result<Self> {
        // From here on it is destroyed if anything fails.
        let mut it = Owned {
            plugin,
            client,
            platform: Arc::from("client"),
            wait_limit: Limit::new(default_limit()),
            in_creation: true,
            stuck: AtomicBool::new(false),
        };
        it.platform = it.read_platform_name()?.into();
        Ok(it)
    }

    /// The platform's name.
    pub(crate) fn platform_name(&self) -> &Arc<str> {
        &self.platform
    }

    /// Calls a function of the table; an error names this platform.
    ///
    /// # Safety
    ///
    /// * As for [`Table::call`](crate::table::Table::call).
    #[inline]
    pub(crate) unsafe fn call<A: Call<Return = *mut PJRT_Error>>(
        &self,
        op: &'static str,
        args: &mut A,
    ) -> Result<()> {
        // SAFETY: the caller's condition.
        unsafe { self.plugin.table().call(op, args) }.map_err(|error| error.on(&self.platform))
    }

    /// The error of a wait that took as long as it may, with a description of what is not done,
    /// which may be empty. From now on nothing waits for the end of the client's work.
    #[cold]
    pub(crate) fn late(&self, op: &'static str, limit: Duration, unfinished: &str) -> Error {
        self.stuck.store(true, Relaxed);
        let separator = if unfinished.is_empty() { "" } else { "; " };
        let message = format!(
            "nothing arrived within {limit:?}{separator}{unfinished}; the device is stuck, or \
             HALITE_WAIT_LIMIT must be longer"
        );
        Error::new(ErrorKind::DeadlineExceeded, op, message).on(&self.platform)
    }

    fn read_platform_name(&self) -> Result<String> {
        let mut args = args!(PJRT_Client_PlatformName_Args, client: self.client.as_ptr());
        // SAFETY: the client is alive, and so is its name.
        unsafe {
            self.plugin.table().call("platform name", &mut args)?;
            text_of(
                self.plugin.table().name(),
                args.platform_name,
                args.platform_name_size,
            )
        }
    }

    /// Empty where the plugin does not report it.
    pub(crate) fn platform_version(&self) -> Result<String> {
        let mut args = args!(PJRT_Client_PlatformVersion_Args, client: self.client.as_ptr());
        // SAFETY: the client is alive, and so is its version.
        unsafe {
            match self.plugin.table().call("platform version", &mut args) {
                Ok(()) => text_of(
                    self.plugin.table().name(),
                    args.platform_version,
                    args.platform_version_size,
                ),
                Err(_) => Ok(String::new()),
            }
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        const OP: &str = "destroy client";
        let (plugin, client) = (self.plugin, self.client);
        let destroy = move || {
            let mut args = args!(PJRT_Client_Destroy_Args, client: client.as_ptr());
            // SAFETY: every handle made by the client held it, so this is the last use.
            unsafe { plugin.table().free(&mut args) };
            Ok(())
        };
        if self.in_creation {
            // On the thread that has the plugin to itself.
            _ = destroy();
            return;
        }
        let destroy = move || match alone(
            plugin,
            OP,
            "destroying a client",
            plugin.deadline(),
            destroy,
        ) {
            Ok(()) => {}
            Err(Alone::Failed(error)) => {
                halite_core::warning!("{error}; the client stays until the process ends")
            }
            Err(Alone::Late(waited)) => {
                halite_core::warning!(
                    "{OP}: {} has not returned after {} s, and was left alone",
                    plugin.shown(),
                    waited.as_secs_f32()
                );
            }
        };
        if in_callback() || self.stuck.load(Relaxed) {
            // A callback may run on a thread of this very client, which destroying would wait for.
            in_background(destroy);
        } else {
            destroy();
        }
    }
}

/// Runs `work` on a separate thread and delays the end of the process until it is done: exit
/// handlers tear down what a plugin needs to destroy a client, or to release memory.
pub(crate) fn in_background(work: impl FnOnce() + Send + 'static) {
    static WORKING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    const PATIENCE: Duration = Duration::from_secs(10);

    extern "C" fn wait() {
        // One for all that are registered.
        let deadline = *DEADLINE.get_or_init(|| Instant::now() + PATIENCE);
        let busy = || {
            WORKING
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .any(|thread| !thread.is_finished())
        };
        // Not forever: the thread that ends the process may be one of them, or one that they wait
        // for.
        while busy() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    // Each time: the last registered function is called first, and plugins register their own
    // destructors when they are loaded and when they first use a subsystem. Those that this work
    // needs were registered before it. A second call has nothing to wait for. If the function
    // cannot be registered, the process may end while the thread runs, as if it were killed.
    // SAFETY: `atexit` is C's own, and the function lives as long as the program.
    _ = unsafe { atexit(wait) };
    let mut working = WORKING.lock().unwrap_or_else(PoisonError::into_inner);
    working.retain(|thread| !thread.is_finished());
    // If no thread can be created, the client stays until the process ends.
    working.extend(
        thread::Builder::new()
            .name("pjrt-destroy".into())
            .spawn(work),
    );
}

unsafe extern "C" {
    fn atexit(callback: extern "C" fn()) -> c_int;
}

/// Failure of a call that had the plugin to itself.
pub(crate) enum Alone {
    Failed(Error),
    /// The call did not return in time.
    Late(Duration),
}

/// Runs `call` on a separate thread while no other client of the plugin is created or destroyed:
/// some plugins have data races then.
pub(crate) fn alone<T: Send + 'static>(
    plugin: &'static Plugin,
    op: &'static str,
    doing: &'static str,
    deadline: Duration,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T, Alone> {
    let (gate, started) = (plugin.gate(), Instant::now());
    let entered = gate
        .enter(doing, deadline)
        .map_err(|Closed { doing, waited }| {
            let message = format!(
                "{} has been {doing} for more than {} s, and takes no other request meanwhile",
                plugin.shown(),
                waited.as_secs_f32()
            );
            Alone::Failed(Error::new(ErrorKind::DeadlineExceeded, op, message))
        })?;
    let isolation = Isolation {
        thread: if op == OP_CREATE {
            "pjrt-open"
        } else {
            "pjrt-destroy"
        },
        op,
        plugin: plugin.shown(),
        deadline: deadline.saturating_sub(started.elapsed()),
        notice: isolate::first_notice(deadline),
    };
    let returned = Arc::new(AtomicBool::new(false));
    let result = isolate::run(isolation, {
        let returned = returned.clone();
        move || {
            let result = call();
            returned.store(true, SeqCst);
            gate.returned();
            result
        }
    });
    if let Some(result) = result {
        return result.map_err(Alone::Failed);
    }
    entered.give_up(deadline);
    if returned.load(SeqCst) {
        // It returned just before it was abandoned.
        gate.returned();
    }
    Err(Alone::Late(deadline))
}
