//! The thread on which a client's callbacks run.
//!
//! A plugin calls back on threads that its own work needs. A callback that launches there blocks
//! them: XLA's CPU plugin makes a launch wait for a free place and for threads of all devices, so a
//! few callbacks that launch at the same time would deadlock. So the plugin's thread only puts the
//! callback into a queue, and one thread of the client runs the queue in order. A callback may
//! launch, and blocks only later callbacks. Callbacks that only signal
//! ([`Event::notify_when_ready`]) and those of [`Buffer::fetch`](halite_core::Buffer::fetch) skip
//! the queue.
//!
//! [`Event::notify_when_ready`]: halite_core::Event::notify_when_ready

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        OnceLock,
        mpsc::{self, Sender},
    },
    thread,
};

/// A callback with its result.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The queue of a client, and its thread from the first callback on. The thread ends when the
/// client and every callback that was registered are gone.
#[derive(Default)]
pub(crate) struct Callbacks(OnceLock<Option<Sender<Job>>>);

impl Callbacks {
    /// A place to send callbacks to. `None` if the system has no thread left: they run where the
    /// plugin calls them then.
    pub(crate) fn queue(&self) -> Option<Sender<Job>> {
        let start = || {
            let (send, receive) = mpsc::channel::<Job>();
            let run_all = move || receive.iter().for_each(run);
            thread::Builder::new()
                .name("pjrt-callback".into())
                .spawn(run_all)
                .is_ok()
                .then_some(send)
        };
        self.0.get_or_init(start).clone()
    }
}

/// Runs a callback. A panic, which the panic hook has reported, ends here: it must neither unwind
/// into a plugin nor end the queue.
pub(crate) fn run(job: Job) {
    let outer = IN_CALLBACK.replace(true);
    let _ = catch_unwind(AssertUnwindSafe(job));
    IN_CALLBACK.set(outer);
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread is running a callback: it may belong to the plugin, or other
/// callbacks may need it.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.get()
}
