//! Events: completion of asynchronous work.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use halite_core::{DeviceEvent, Error, ErrorKind, Result, wait};
use halite_pjrt_sys::event::*;

use crate::{
    abi::{ErrorCallback, Function, Given, text},
    handle::{find, objects, publish, take},
    status::{Outcome, Status, drop_guarded, guard},
};

/// An event that a caller holds.
pub(crate) enum Event {
    /// The work was done when the event was made.
    Done(Outcome),
    /// An event of the backend.
    Backend(DeviceEvent),
    /// An event of the SDK.
    Promise(Promise),
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
            Event::Promise(promise) => promise.outcome().is_some(),
        }
    }

    /// Blocks until the work is done.
    pub(crate) fn wait(&self) -> Outcome {
        match self {
            Event::Done(outcome) => outcome.clone(),
            Event::Backend(event) => event.wait().map_err(Status::from),
            Event::Promise(promise) => promise.wait(),
        }
    }

    /// Runs `then` once, on any thread; at once if the work is done.
    pub(crate) fn on_ready(&self, then: impl FnOnce(Outcome) + Send + 'static) {
        match self {
            Event::Done(outcome) => then(outcome.clone()),
            // A panic must not reach the backend's thread.
            Event::Backend(event) => event.on_ready(Box::new(|result| {
                _ = guard(|| {
                    then(result.map_err(Status::from));
                    Ok(())
                });
            })),
            Event::Promise(promise) => promise.on_ready(then),
        }
    }

    /// An event that is ready when all of `events` are, with the first error.
    pub(crate) fn all(mut events: Vec<Event>) -> Self {
        let failed = |event: &Event| matches!(event, Event::Done(Err(_)));
        if let Some(failed) = events.iter().position(failed) {
            return events.swap_remove(failed);
        }
        events.retain(|event| !matches!(event, Event::Done(Ok(()))));
        match events.len() {
            0 => Event::Done(Ok(())),
            1 => events.remove(0),
            count => {
                let all = Promise::default();
                let left = Arc::new(Mutex::new((count, Ok(()))));
                for event in &events {
                    let (all, left) = (all.clone(), left.clone());
                    event.on_ready(move |outcome| {
                        let complete = {
                            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                            left.0 -= 1;
                            left.1 = left.1.clone().and(outcome);
                            (left.0 == 0).then(|| left.1.clone())
                        };
                        complete.map(|outcome| all.set(outcome));
                    });
                }
                Event::Promise(all)
            }
        }
    }
}

/// An event that the SDK completes.
#[derive(Clone, Default)]
pub(crate) struct Promise(Arc<State>);

#[derive(Default)]
struct State {
    progress: Mutex<Progress>,
    done: Condvar,
}

#[derive(Default)]
struct Progress {
    outcome: Option<Outcome>,
    callbacks: Vec<Box<dyn FnOnce(Outcome) + Send>>,
}

impl Promise {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0
            .progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome, if it is set.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.lock().outcome.clone()
    }

    /// Completes the event, and runs the callbacks on this thread. Returns whether this is the
    /// first outcome; a later one is ignored.
    pub(crate) fn set(&self, outcome: Outcome) -> bool {
        let callbacks = {
            let mut progress = self.lock();
            if progress.outcome.is_some() {
                return false;
            }
            progress.outcome = Some(outcome.clone());
            self.0.done.notify_all();
            std::mem::take(&mut progress.callbacks)
        };
        for callback in callbacks {
            let outcome = outcome.clone();
            _ = guard(move || {
                callback(outcome);
                Ok(())
            });
        }
        true
    }

    /// Runs `then` once, on the thread that completes the event; at once if it is complete.
    pub(crate) fn on_ready(&self, then: impl FnOnce(Outcome) + Send + 'static) {
        let outcome = {
            let mut progress = self.lock();
            match &progress.outcome {
                None => {
                    progress.callbacks.push(Box::new(then));
                    return;
                }
                Some(outcome) => outcome.clone(),
            }
        };
        then(outcome);
    }

    /// Blocks until the event is complete, at most for the default limit of waits.
    pub(crate) fn wait(&self) -> Outcome {
        let limit = wait::default_limit();
        let waited = wait::wait_until(
            || "an event".to_owned(),
            limit,
            || false,
            |slice| {
                let progress = self.lock();
                if progress.outcome.is_some() {
                    return progress.outcome.clone();
                }
                let (progress, _) = self
                    .0
                    .done
                    .wait_timeout(progress, slice)
                    .unwrap_or_else(PoisonError::into_inner);
                progress.outcome.clone()
            },
        );
        match waited {
            Ok(outcome) => outcome.expect("nobody cancels this wait"),
            Err(_) => Err(Error::new(
                ErrorKind::DeadlineExceeded,
                "wait",
                format!("an event was not complete within {} s", limit.as_secs()),
            )
            .into()),
        }
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Promise({:?})", self.outcome())
    }
}

impl Function for PJRT_Event_Destroy_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_guarded(take::<Event>(args.event)?)
    }
}

impl Function for PJRT_Event_IsReady_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.is_ready = find::<Event>(args.event)?.is_ready();
        Ok(())
    }
}

impl Function for PJRT_Event_Error_Args {
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
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        find::<Event>(args.event)?.wait()
    }
}

impl Function for PJRT_Event_OnReady_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let event = find::<Event>(args.event)?;
        let callback = ErrorCallback::new(args)?;
        event.on_ready(move |outcome| callback.call(outcome));
        Ok(())
    }
}

impl Function for PJRT_Event_Create_Args {
    fn call(_: &Given<Self>, out: &mut Self) -> Outcome {
        out.event = Event::Promise(Promise::default()).into_handle();
        Ok(())
    }
}

impl Function for PJRT_Event_Set_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let event = find::<Event>(args.event)?;
        let message = text!(args, error_message, error_message_size)?;
        let Event::Promise(promise) = &*event else {
            return Err(Status::invalid(
                "the event was not made by PJRT_Event_Create",
            ));
        };
        if promise.set(Status::of_code(args.error_code, message)) {
            Ok(())
        } else {
            Err(Status::invalid("the event is set already"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn callback_runs_once_on_set() {
        let (send, ran) = mpsc::channel();
        let promise = Promise::default();
        let before = send.clone();
        promise.on_ready(move |outcome| before.send(outcome).unwrap());
        assert!(promise.set(Err(Status::internal("no"))));
        assert!(!promise.set(Ok(())), "the first outcome stays");
        promise.on_ready(move |outcome| send.send(outcome).unwrap());
        let outcomes: Vec<_> = ran.iter().collect();
        assert_eq!(outcomes, vec![Err(Status::internal("no")); 2]);
        assert_eq!(promise.wait(), Err(Status::internal("no")));
    }

    #[test]
    fn panicking_callback_does_not_stop_others() {
        let (send, ran) = mpsc::channel();
        let promise = Promise::default();
        promise.on_ready(|_| panic!("in a callback"));
        promise.on_ready(move |_| send.send(()).unwrap());
        promise.set(Ok(()));
        assert_eq!(ran.recv(), Ok(()));
    }

    #[test]
    fn joined_event_has_the_first_error() {
        let [a, b] = [Promise::default(), Promise::default()];
        let all = Event::all(vec![
            Event::Done(Ok(())),
            Event::Promise(a.clone()),
            Event::Promise(b.clone()),
        ]);
        a.set(Err(Status::internal("a")));
        assert!(!all.is_ready());
        b.set(Err(Status::internal("b")));
        assert_eq!(all.wait(), Err(Status::internal("a")));
    }
}
