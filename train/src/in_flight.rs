//! How many launches are queued ahead of the devices.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use halite_core::{Array, DeviceEvent, Result};

/// Launches that may not be done yet, each with the time it was queued.
pub(crate) struct InFlight {
    queued: VecDeque<(Instant, DeviceEvent)>,
    pace: Pace,
}

/// How many launches may wait behind the one that runs.
struct Pace {
    most: usize,
    /// When the last launch that was waited for was done.
    done: Option<Instant>,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        InFlight { queued: VecDeque::new(), pace: Pace::new() }
    }

    /// Adds the launch that gives `output`, and waits for the oldest while there are too many.
    pub(crate) fn push(&mut self, output: &Array) -> Result<()> {
        if let Some(shard) = output.shards().first() {
            self.queued.push_back((Instant::now(), shard.ready()?));
        }
        while self.queued.len() > self.pace.most
            && let Some((queued, oldest)) = self.queued.pop_front()
        {
            if !oldest.is_ready() {
                let _span = tracing::trace_span!("wait for device").entered();
                oldest.pending("step").wait()?;
                self.pace.waited(queued, Instant::now());
            }
        }
        Ok(())
    }
}

impl Pace {
    /// A device that does short steps is never without one; more than these would only use memory.
    const MOST: usize = 8;
    /// What is queued is not stopped by a signal, and whoever reads a metric or saves waits for it, with a deadline.
    const AHEAD: Duration = Duration::from_secs(10);

    fn new() -> Self {
        Pace { most: 1, done: None }
    }

    /// Told that a launch was `queued` then and waited for until `done`: it ran since the one before it was done.
    fn waited(&mut self, queued: Instant, done: Instant) {
        let began = self.done.map_or(queued, |before| before.max(queued));
        self.done = Some(done);
        let step = done.saturating_duration_since(began).as_secs_f64();
        self.most = (Self::AHEAD.as_secs_f64() / step).min(Self::MOST as f64) as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_queued_as_take_ten_seconds() {
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
