//! Events: completion of asynchronous work.

use std::sync::{Arc, Mutex, PoisonError};

use halite_core::{DeviceEvent, Result};
use halite_pjrt_sys::event::*;

use crate::{
    abi::{ErrorCallback, Function, Given, text},
    handle::{find, objects, publish, take},
    promise::{Completion, Promise},
    status::{Outcome, Status, drop_logged, guard},
};

/// An event that a caller holds.
pub(crate) enum Event {
    /// The work was done when the event was made.
    Done(Outcome),
    /// An event of the backend.
    Backend(DeviceEvent),
    /// An event that the SDK completes.
    Pending(Completion),
    /// An event that the caller created and completes. The promise is `None` once it is set.
    Caller(Mutex<Option<Promise>>, Completion),
}

objects!(Event => PJRT_Event);

impl Event {
    /// The event of the backend, or its outcome if the work is done already.
    pub(crate) fn of_backend(event: Result<DeviceEvent>) -> Self {
        match event {
            Err(error) => Event::Done(Err(error.into())),
            Ok(event) if event.is_ready() => Event::Done(event.wait().map_err(Status::from)),
            Ok(event) => Event::Backend(event),
        }
    }

    /// Gives the event to a caller, who frees it.
    pub(crate) fn into_handle(self) -> *mut PJRT_Event {
        publish(Arc::new(self))
    }

    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Event::Done(_) => true,
            Event::Backend(event) => event.is_ready(),
            Event::Pending(event) | Event::Caller(_, event) => event.outcome().is_some(),
        }
    }

    /// Blocks until the work is done.
    pub(crate) fn wait(&self) -> Outcome {
        match self {
            Event::Done(outcome) => outcome.clone(),
            Event::Backend(event) => event.wait().map_err(Status::from),
            Event::Pending(event) | Event::Caller(_, event) => event.wait(),
        }
    }

    /// Runs `then` once, on any thread; at once if the work is done. A backend that panics or drops
    /// the callback makes it run with an error.
    pub(crate) fn on_ready(&self, then: impl FnOnce(Outcome) + Send + 'static) {
        match self {
            Event::Done(outcome) => then(outcome.clone()),
            Event::Backend(event) => {
                let then = Callback(Some(then));
                // Unwinding drops the callback, which reports the panic: the caller of this
                // function would report it twice.
                _ = guard(|| {
                    event.on_ready(Box::new(|result| then.call(result.map_err(Status::from))));
                    Ok(())
                });
            }
            Event::Pending(event) | Event::Caller(_, event) => event.on_ready(then),
        }
    }

    /// An event that is ready when all of `events` are, with the first error.
    pub(crate) fn all(mut events: Vec<Event>) -> Self {
        events.retain(|event| !matches!(event, Event::Done(Ok(()))));
        if events.len() < 2 {
            return events.pop().unwrap_or(Event::Done(Ok(())));
        }
        let (promise, all) = Promise::new("an event was dropped");
        let left = Arc::new(Mutex::new((events.len(), Ok(()), Some(promise))));
        for event in &events {
            let left = left.clone();
            event.on_ready(move |outcome| {
                let last = {
                    let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                    left.0 -= 1;
                    left.1 = left.1.clone().and(outcome);
                    let promise = if left.0 == 0 { left.2.take() } else { None };
                    promise.map(|promise| (promise, left.1.clone()))
                };
                if let Some((promise, outcome)) = last {
                    promise.set(outcome);
                }
            });
        }
        match all.outcome() {
            Some(outcome) => Event::Done(outcome),
            None => Event::Pending(all),
        }
    }
}

/// A callback that a backend holds: runs exactly once, with an error if it is dropped before. Its
/// panics do not reach the thread of the backend.
struct Callback<F: FnOnce(Outcome)>(Option<F>);

impl<F: FnOnce(Outcome)> Callback<F> {
    fn call(mut self, outcome: Outcome) {
        self.run(outcome);
    }

    fn run(&mut self, outcome: Outcome) {
        if let Some(then) = self.0.take() {
            _ = guard(|| {
                then(outcome);
                Ok(())
            });
        }
    }
}

impl<F: FnOnce(Outcome)> Drop for Callback<F> {
    fn drop(&mut self) {
        self.run(Err(Status::internal(if std::thread::panicking() {
            "the backend panicked in `Event::on_ready`"
        } else {
            "the backend dropped a callback of `Event::on_ready` without calling it"
        })));
    }
}

impl Function for PJRT_Event_Destroy_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_logged(take::<Event>(args.event)?);
        Ok(())
    }
}

impl Function for PJRT_Event_IsReady_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.is_ready = find::<Event>(args.event)?.is_ready();
        Ok(())
    }
}

impl Function for PJRT_Event_Error_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let event = find::<Event>(args.event)?;
        if !event.is_ready() {
            return Err(Status::new(
                halite_pjrt_sys::error::PJRT_Error_Code::FAILED_PRECONDITION,
                "the event is not ready; call PJRT_Event_Await",
            ));
        }
        event.wait()
    }
}

impl Function for PJRT_Event_Await_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        find::<Event>(args.event)?.wait()
    }
}

impl Function for PJRT_Event_OnReady_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let event = find::<Event>(args.event)?;
        let callback = ErrorCallback::new(args)?;
        event.on_ready(move |outcome| callback.call(outcome));
        Ok(())
    }
}

impl Function for PJRT_Event_Create_Args {
    fn call(_: &Given<Self>, out: &mut Self) -> Outcome {
        let (promise, event) = Promise::new("the event was destroyed before it was set");
        out.event = Event::Caller(Mutex::new(Some(promise)), event).into_handle();
        Ok(())
    }
}

impl Function for PJRT_Event_Set_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let event = find::<Event>(args.event)?;
        let message = text!(args, error_message, error_message_size)?;
        let Event::Caller(promise, _) = &*event else {
            return Err(Status::invalid(
                "the event was not made by PJRT_Event_Create",
            ));
        };
        let promise = promise
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let promise = promise.ok_or_else(|| Status::invalid("the event is set already"))?;
        promise.set(Status::of_code(args.error_code, message));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn callback_runs_once_on_set() {
        let (send, ran) = mpsc::channel();
        let (promise, event) = Promise::new("dropped");
        let before = send.clone();
        event.on_ready(move |outcome| before.send(outcome).unwrap());
        promise.set(Err(Status::internal("no")));
        event.on_ready(move |outcome| send.send(outcome).unwrap());
        let outcomes: Vec<_> = ran.iter().collect();
        assert_eq!(outcomes, vec![Err(Status::internal("no")); 2]);
        assert_eq!(event.wait(), Err(Status::internal("no")));
    }

    #[test]
    fn dropped_promise_is_an_error() {
        let (promise, event) = Promise::new("dropped");
        drop(promise);
        assert_eq!(event.outcome(), Some(Err(Status::internal("dropped"))));
    }

    #[test]
    fn panicking_callback_does_not_stop_others() {
        let (send, ran) = mpsc::channel();
        let (promise, event) = Promise::new("dropped");
        event.on_ready(|_| panic!("in a callback"));
        event.on_ready(move |_| send.send(()).unwrap());
        promise.set(Ok(()));
        assert_eq!(ran.recv(), Ok(()));
    }

    #[test]
    fn joined_event_has_the_first_error() {
        let [(a, first), (b, second)] = [(); 2].map(|()| Promise::new("dropped"));
        let all = Event::all(vec![
            Event::Done(Ok(())),
            Event::Pending(first),
            Event::Pending(second),
        ]);
        a.set(Err(Status::internal("a")));
        assert!(!all.is_ready());
        b.set(Err(Status::internal("b")));
        assert_eq!(all.wait(), Err(Status::internal("a")));
    }

    #[test]
    fn joined_event_waits_for_all_after_a_failure() {
        let (promise, event) = Promise::new("dropped");
        let failed = Event::Done(Err(Status::internal("a")));
        let all = Event::all(vec![failed, Event::Pending(event)]);
        assert!(!all.is_ready());
        promise.set(Ok(()));
        assert_eq!(all.wait(), Err(Status::internal("a")));
    }
}
