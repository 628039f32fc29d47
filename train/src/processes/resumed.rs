//! The checkpoint that a run resumes from: process 0 reads it, the others receive it.

use std::path::PathBuf;

use halite_core::{DType, Error, Exchange, HostArray, Result, TensorType, wait::default_limit};
use halite_nn::Processes;
use serde::{Deserialize, Serialize};

use super::patience;
use crate::{
    checkpoint::{RunPosition, Saved},
    resume::{Metadata, window_type},
};

/// A checkpoint to resume from, as each process has it.
pub(crate) struct ResumeFrom {
    pub(crate) path: PathBuf,
    pub(crate) position: RunPosition,
    pub(crate) metadata: Metadata,
    /// Type of the window of metrics in it.
    pub(crate) window: Option<TensorType>,
    /// The checkpoint on the disk, in the process that reads it.
    saved: Option<Saved>,
}

/// What process 0 sends about the checkpoint.
#[derive(Deserialize, Serialize)]
enum Sent {
    /// It could not open the directory of the run.
    Failed(String),
    /// It starts a new run.
    New,
    Checkpoint {
        path: PathBuf,
        /// Step, epoch, and batch.
        position: [u64; 3],
        metadata: serde_json::Value,
        window: Option<usize>,
    },
}

impl ResumeFrom {
    /// The checkpoint that this process has opened.
    ///
    /// # Errors
    /// If a trainer did not write it.
    pub(crate) fn of(saved: Saved) -> Result<Self> {
        Ok(ResumeFrom {
            path: saved.path().to_path_buf(),
            position: saved.position(),
            metadata: Metadata::of(&saved)?,
            window: window_type(&saved),
            saved: Some(saved),
        })
    }

    /// What process 0 has `opened`; other processes have opened nothing.
    ///
    /// # Errors
    /// That of process 0.
    pub(crate) fn shared(
        processes: &Processes,
        opened: Result<Option<Saved>>,
    ) -> Result<Option<Self>> {
        let sent = match &opened {
            Err(error) => Sent::Failed(error.to_string()),
            Ok(None) => Sent::New,
            Ok(Some(saved)) => {
                let RunPosition { step, epoch, batch } = saved.position();
                Sent::Checkpoint {
                    path: saved.path().to_path_buf(),
                    position: [step, epoch, batch],
                    metadata: saved.metadata().clone(),
                    window: window_type(saved).map(|ty| ty.dims()[0]),
                }
            }
        };
        let json = |error: serde_json::Error| {
            Error::invalid("processes", "the checkpoint's metadata is not JSON").caused_by(error)
        };
        let message = serde_json::to_vec(&sent).map_err(json)?;
        let group = processes.group();
        // Process 0 has verified the checkpoint, and taken the digest of all data.
        let message = group.broadcast("checkpoint", 0, &message, default_limit())?;
        if processes.rank() == 0 {
            return opened?.map(Self::of).transpose();
        }
        match serde_json::from_slice(&message).map_err(json)? {
            Sent::Failed(error) => {
                let message = format!("process 0 cannot open the run: {error}");
                Err(Error::invalid("processes", message))
            }
            Sent::New => Ok(None),
            Sent::Checkpoint {
                path,
                position: [step, epoch, batch],
                metadata,
                window,
            } => Ok(Some(ResumeFrom {
                metadata: Metadata::parse(&path, &metadata)?,
                path,
                position: RunPosition { step, epoch, batch },
                window: window.map(|length| TensorType::new(DType::F32, [length])),
                saved: None,
            })),
        }
    }

    /// Takes the arrays of these names and types one by one, as [`Saved::take_each`].
    ///
    /// # Errors
    /// As there; in other processes than 0, the error of the exchange.
    pub(crate) fn take_each(
        &mut self,
        processes: Option<&Processes>,
        wanted: &[(String, TensorType)],
        mut then: impl FnMut(usize, HostArray) -> Result<()>,
    ) -> Result<()> {
        let mut share = |index: usize, mut array: HostArray| {
            if let Some(processes) = processes {
                // Into the memory of the array: it may be most of what a host has.
                let name = format!("checkpoint: {}", wanted[index].0);
                let bytes = array.bytes_mut();
                let exchange = Exchange::Broadcast { root: 0, bytes };
                (processes.group()).exchange(&name, exchange, patience(processes))?;
            }
            then(index, array)
        };
        match &mut self.saved {
            Some(saved) => saved.take_each(wanted, share),
            None => (wanted.iter().enumerate())
                .try_for_each(|(index, (_, ty))| share(index, HostArray::try_zeros(ty.clone())?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use halite_core::{Collective, DeviceId, Mesh, ProcessGroup, SingleProcess};

    use super::*;

    /// Records how long it would wait.
    #[derive(Debug, Default)]
    struct Patient(Mutex<Vec<(String, Duration)>>);

    impl Collective for Patient {
        fn rank(&self) -> usize {
            0
        }
        fn size(&self) -> usize {
            1
        }
        fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
            self.0.lock().unwrap().push((name.to_string(), patience));
            Ok(vec![mine.to_vec()])
        }
    }

    impl ProcessGroup for Patient {
        fn lane(&self, _: &str) -> Result<Arc<dyn Collective>> {
            Ok(Arc::new(SingleProcess))
        }
    }

    #[test]
    fn process_0_may_read_a_checkpoint_for_hours() {
        let patient = Arc::new(Patient::default());
        let group: Arc<dyn ProcessGroup> = patient.clone();
        let mesh = Mesh::single(DeviceId(0));
        let processes = Processes::new(&group, &mesh, Duration::from_secs(60)).unwrap();
        assert!(ResumeFrom::shared(&processes, Ok(None)).unwrap().is_none());
        let waits = patient.0.lock().unwrap();
        assert_eq!(waits[..], [("checkpoint".to_string(), default_limit())]);
    }
}
