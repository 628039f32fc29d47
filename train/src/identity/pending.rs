//! The identity of a run while its data are digested.

use std::{
    panic::resume_unwind,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};
use halite_data::Dataset;

use super::Identity;
use crate::{
    checkpoint::Saved,
    signals::StopFlag,
    validation_set::NamedDataset,
    waits::{Limits, wait, wait_also_when_stopped},
};

/// Data of a run.
#[derive(Clone)]
pub(crate) struct Data {
    pub(crate) train: Arc<dyn Dataset>,
    pub(crate) validation: Vec<Arc<NamedDataset>>,
}

pub(super) type Digests = [Option<String>; 2];

/// Identity of a run whose data are digested on another thread, while it trains. Until the first
/// step, other work needs the processor's cores.
pub(crate) struct PendingIdentity {
    /// Without the digests until they are known.
    pub(super) identity: Identity,
    pub(super) digesting: Option<Digesting>,
}

pub(super) enum Digesting {
    /// Not begun.
    Later(Data),
    Thread(JoinHandle<Digests>),
    /// The system gave no thread.
    Inline(Data),
}

impl PendingIdentity {
    /// The identity with these values. `data` is digested when that is [begun](Self::begin), or
    /// waited for.
    pub(crate) fn new(known: Identity, data: Option<Data>) -> Self {
        PendingIdentity {
            identity: known,
            digesting: data.map(Digesting::Later),
        }
    }

    /// Begins to digest the data, unless that has begun.
    pub(crate) fn begin(&mut self) {
        if let Some(Digesting::Later(data)) = &self.digesting {
            let of_thread = data.clone();
            let thread = thread::Builder::new()
                .name("data digest".into())
                .spawn(move || digest(&of_thread));
            let inline = |_| Digesting::Inline(data.clone());
            self.digesting = Some(thread.map_or_else(inline, Digesting::Thread));
        }
    }

    /// The identity, with the digests of the data once they were waited for.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Waits for the digests before the run resumes from `saved`.
    ///
    /// # Errors
    /// If the digests take longer than `limits` allow, or the run is asked to stop first.
    pub(crate) fn wait_before_resume(
        &mut self,
        saved: &Saved,
        limits: &Limits,
        stop: &StopFlag,
    ) -> Result<()> {
        let digested = wait(digest_name, limits, &|| stop.is_set(), |_| self.poll())?;
        digested.ok_or_else(|| {
            let message = format!(
                "stopped before the first step, while the data was digested; nothing was trained, \
                 and the checkpoint {} stays",
                saved.path().display()
            );
            Error::new(ErrorKind::Cancelled, "fit", message)
        })
    }

    /// Waits for the digests before a checkpoint is saved. If they take too long, the checkpoint is
    /// saved without them: the weights are worth more.
    pub(crate) fn wait_or_give_up(&mut self, limits: &Limits, stop: &StopFlag) {
        let digested =
            wait_also_when_stopped(digest_name, limits, &|| stop.is_set(), |_| self.poll());
        if let Err(error) = digested {
            halite_core::warning!(
                "{error}; checkpoints do not have the digest of the data, and a resume does not \
                 compare it"
            );
            self.digesting = None;
        }
    }

    /// Takes the digests if they are known soon: other processes wait for this one. The next save
    /// looks again.
    pub(crate) fn wait_shortly(&mut self) {
        let begun = Instant::now();
        while self.poll().is_none() && begun.elapsed() < SHORT {}
    }

    /// Takes the digests if they are known, and sleeps a little if not.
    fn poll(&mut self) -> Option<()> {
        self.begin();
        let digests = match self.digesting.take() {
            None => return Some(()),
            Some(Digesting::Inline(data)) => digest(&data),
            Some(Digesting::Thread(thread)) if thread.is_finished() => {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            }
            running => {
                self.digesting = running;
                thread::sleep(DIGEST_POLL);
                return None;
            }
        };
        self.identity.add_data(digests);
        Some(())
    }
}

/// Time between two looks at the thread that digests the data.
const DIGEST_POLL: Duration = Duration::from_millis(2);

/// Time that the other processes of a job wait for the digests at each save.
const SHORT: Duration = Duration::from_secs(1);

fn digest_name() -> String {
    "the digest of the data".to_string()
}

fn digest(data: &Data) -> Digests {
    let sets = data.validation.iter();
    let digests = sets.map(|set| Some(set.metric(&set.data.digest()?).to_string()));
    let digests: Option<Vec<String>> = digests.collect();
    let validation = digests.map(|digests| match &digests[..] {
        [] => "none".to_string(),
        digests => digests.join(", "),
    });
    [data.train.digest(), validation]
}
