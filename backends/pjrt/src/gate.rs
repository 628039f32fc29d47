//! Serializes the creation and destruction of a plugin's clients, which race in some plugins.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A lock that refuses callers while its holder is stuck.
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The activity of the caller inside.
    inside: Option<&'static str>,
    /// The time after which the caller inside was abandoned.
    stuck: Option<Duration>,
}

/// Refusal to enter.
pub(crate) struct Closed {
    /// The activity of the caller inside.
    pub(crate) doing: &'static str,
    /// Duration of the wait for it.
    pub(crate) waited: Duration,
}

/// Guard of a caller inside the gate.
pub(crate) struct Entered<'a>(&'a Gate);

impl Gate {
    pub(crate) const fn new() -> Self {
        Gate {
            state: Mutex::new(State {
                inside: None,
                stuck: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits until nobody is inside, at most `deadline`. Returns at once if the caller inside is
    /// stuck.
    pub(crate) fn enter(
        &self,
        doing: &'static str,
        deadline: Duration,
    ) -> Result<Entered<'_>, Closed> {
        let started = Instant::now();
        let mut state = self.lock();
        while let Some(doing) = state.inside {
            if let Some(waited) = state.stuck {
                return Err(Closed { doing, waited });
            }
            let left = deadline.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(Closed {
                    doing,
                    waited: deadline,
                });
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.inside = Some(doing);
        Ok(Entered(self))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reopens the gate when an abandoned call returns.
    pub(crate) fn returned(&self) {
        let mut state = self.lock();
        if state.stuck.is_some() {
            *state = State {
                inside: None,
                stuck: None,
            };
            self.changed.notify_all();
        }
    }
}

impl Entered<'_> {
    /// Records that the caller inside was abandoned after `waited`: nobody enters until it returns.
    pub(crate) fn give_up(self, waited: Duration) {
        self.0.lock().stuck = Some(waited);
        self.0.changed.notify_all();
        std::mem::forget(self);
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.lock().inside = None;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn gate_lets_one_in_at_a_time() {
        let gate = Gate::new();
        let inside = gate.enter("making", LONG).ok().unwrap();
        let closed = gate
            .enter("destroying", Duration::from_millis(10))
            .err()
            .unwrap();
        assert_eq!(
            (closed.doing, closed.waited),
            ("making", Duration::from_millis(10))
        );
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gate.enter("destroying", LONG).is_ok());
            drop(inside);
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn stuck_caller_is_not_waited_for() {
        let gate = Gate::new();
        gate.enter("making", LONG)
            .ok()
            .unwrap()
            .give_up(Duration::from_secs(3));
        let closed = gate.enter("destroying", Duration::MAX).err().unwrap();
        assert_eq!(
            (closed.doing, closed.waited),
            ("making", Duration::from_secs(3))
        );
        gate.returned();
        assert!(gate.enter("destroying", LONG).is_ok());
    }
}
