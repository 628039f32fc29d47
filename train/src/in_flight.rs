//! Queue of launches that the devices have not completed.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use halite_core::{Array, DeviceEvent, Pending, Result};

use crate::waits::{Limits, wait, wait_also_when_stopped};

/// Launches that may not be done yet.
pub(crate) struct InFlight {
    /// Name of one launch in messages: "step".
    what: &'static str,
    queued: VecDeque<Queued>,
    /// Number of the newest launch that was taken out of the queue.
    done: Option<u64>,
    pace: Pace,
    limits: Limits,
}

/// One launch.
struct Queued {
    number: u64,
    at: Instant,
    event: DeviceEvent,
    /// The same event, once it is waited for.
    pending: Option<Pending<()>>,
}

impl Queued {
    /// Waits until it is done, at most for `limit`; `false` if it is not.
    fn is_done(&mut self, limit: Duration) -> bool {
        if self.pending.is_none() && self.event.is_ready() {
            return true;
        }
        self.pending
            .get_or_insert_with(|| self.event.pending("step"))
            .wait_ready(limit)
    }
}

/// Limit of the number of launches that wait behind the one that runs.
struct Pace {
    most: usize,
    /// Completion time of the last launch that was waited for.
    done: Option<Instant>,
}

impl InFlight {
    /// Returns an empty queue. `what` names one launch in messages; `limit` replaces the measured
    /// limit of a wait.
    pub(crate) fn new(what: &'static str, limit: Option<Duration>) -> Self {
        InFlight {
            what,
            queued: VecDeque::new(),
            done: None,
            pace: Pace::new(),
            limits: Limits::new(limit),
        }
    }

    /// Adds the launch of this number that computes `output`, and waits for the oldest while there
    /// are too many, unless `stop` returns true.
    pub(crate) fn push(
        &mut self,
        number: u64,
        output: &Array,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.queued.push_back(Queued {
            number,
            at: Instant::now(),
            event: output.shards().first().ready()?,
            pending: None,
        });
        while self.queued.len() > self.pace.most {
            let InFlight {
                what,
                queued,
                limits,
                ..
            } = self;
            let Some(oldest) = queued.front_mut() else {
                break;
            };
            if !oldest.event.is_ready() {
                let _span = tracing::trace_span!("wait for device").entered();
                let number = oldest.number;
                let name = || format!("{what} {number}");
                if wait(name, limits, stop, |slice| {
                    oldest.is_done(slice).then_some(())
                })?
                .is_none()
                {
                    break;
                }
                self.waited()?;
            } else {
                self.pop();
            }
        }
        Ok(())
    }

    /// Waits until all launches up to this number are done; only for the grace period once `stop`
    /// returns true.
    pub(crate) fn settle(&mut self, last: u64, stop: &dyn Fn() -> bool) -> Result<()> {
        while let InFlight {
            what,
            queued,
            limits,
            ..
        } = self
            && let Some(oldest) = queued.front_mut()
            && oldest.number <= last
        {
            let number = oldest.number;
            let name = || format!("{what} {number}");
            wait_also_when_stopped(name, limits, stop, |slice| {
                oldest.is_done(slice).then_some(())
            })?;
            self.waited()?;
        }
        Ok(())
    }

    /// Number of the newest launch that is done, as are all before it.
    pub(crate) fn done(&self) -> Option<u64> {
        let ready = self.queued.iter().take_while(|one| one.event.is_ready());
        ready.last().map(|one| one.number).or(self.done)
    }

    fn pop(&mut self) -> Option<Queued> {
        let oldest = self.queued.pop_front()?;
        self.done = Some(oldest.number);
        Some(oldest)
    }

    /// Removes the oldest, which was waited for, from the queue.
    fn waited(&mut self) -> Result<()> {
        let Some(oldest) = self.pop() else {
            return Ok(());
        };
        if let Some(pending) = oldest.pending {
            self.limits
                .measured(self.pace.waited(oldest.at, Instant::now()));
            pending.wait()?;
        }
        Ok(())
    }

    /// Limits of waits for their results.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl Pace {
    /// Enough that a device with short steps is never idle; more would only use memory.
    const MOST: usize = 8;
    /// Queued launches are not stopped by a signal, and reading a metric or saving waits for them,
    /// with a deadline.
    const AHEAD: Duration = Duration::from_secs(10);

    fn new() -> Self {
        Pace {
            most: 1,
            done: None,
        }
    }

    /// Records a launch that was queued at `queued` and done at `done`, and returns its run time:
    /// the time since the launch before it was done.
    fn waited(&mut self, queued: Instant, done: Instant) -> Duration {
        let began = self.done.map_or(queued, |before| before.max(queued));
        self.done = Some(done);
        let took = done.saturating_duration_since(began);
        self.most =
            (Self::AHEAD.as_secs_f64() / took.as_secs_f64()).min(Self::MOST as f64) as usize;
        took
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_ten_seconds_long() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut pace = Pace::new();
        assert_eq!(pace.most, 1);
        // Queued 0.1 s apart, done 3 s apart.
        pace.waited(at(0.0), at(3.0));
        assert_eq!(pace.most, 3);
        pace.waited(at(0.1), at(6.0));
        assert_eq!(pace.most, 3);
        // One of two minutes: none waits behind it, so that nobody waits for several.
        pace.waited(at(0.2), at(126.0));
        assert_eq!(pace.most, 0);
        for (queued, done) in [(127.0, 127.001), (127.0005, 127.002), (127.002, 127.002)] {
            pace.waited(at(queued), at(done));
            assert_eq!(pace.most, 8);
        }
    }
}
