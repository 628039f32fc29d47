//! Upload of batches to the devices ahead of time.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use halite_core::{
    Array, Client, Error, ErrorKind, PinnedPool, Result, Sharding, TensorType,
    wait::{default_limit, wait_until},
};
use halite_telemetry::{InputSource, Metrics};

use crate::{
    batch::{DeviceBatch, HostBatch, Position},
    loader::{Batches, Schedule},
    threads::{PATIENCE, Worker},
};

/// Uploads batches in its own thread, so that the next ones are on the devices when a step ends.
///
/// Dropping it stops the thread and the loader's workers and waits for them for at most three
/// seconds: a thread that hangs in a read or an upload is abandoned, with a warning.
///
/// ```
/// use std::sync::Arc;
///
/// use halite_core::{Client, HostArray, Mesh, Null, PartitionSpec, Sharding};
/// use halite_data::{InMemory, Labeled, Loader, LoaderOptions, Prefetch};
///
/// let images = HostArray::from_slice(&[0u8; 12 * 784], [12, 28, 28])?;
/// let labels = HostArray::from_slice(&[0u8; 12], [12])?;
/// let loader = Loader::new(InMemory::new([("image", images), ("label", labels)])?, LoaderOptions::shuffled(4, 42))?;
///
/// let client = Client::new(Null::new(2));
/// let mesh = Arc::new(Mesh::new([("data", 2)], client.local_devices())?);
/// let by_rows = Sharding::new(&mesh, PartitionSpec::first("data"))?;
/// for batch in Prefetch::new(loader.epoch(0), &client, vec![by_rows], 2)? {
///     let batch = batch?.into_tree(&Labeled::TEMPLATE)?;
///     assert_eq!(batch.input.ty().dims(), [4, 28, 28]);
///     assert_eq!(batch.input.shards().first().tensor_type().dims(), [2, 28, 28]);
/// }
/// # Ok::<(), halite_core::Error>(())
/// ```
pub struct Prefetch {
    /// `None` only while being dropped.
    batches: Option<Receiver<Result<DeviceBatch>>>,
    thread: Option<Worker>,
    stop: Arc<AtomicBool>,
    schedule: Schedule,
    waited: Duration,
    /// The part of `waited` for the next batch.
    waited_for_next: Duration,
    /// When the last batch arrived.
    last: Option<Instant>,
    /// Where waits are recorded, if the client is measured.
    telemetry: Option<(Arc<Metrics>, Arc<InputSource>)>,
}

impl Prefetch {
    /// Starts to upload `batches`, at most `depth` (1 or more) ahead of the consumer. `shardings`
    /// has one for each array of a batch (the fields, then the weights), or one for all.
    ///
    /// # Errors
    /// If the number of shardings is wrong, a sharding does not divide its array, or no thread can
    /// be created.
    pub fn new(
        batches: Batches,
        client: &Client,
        shardings: Vec<Arc<Sharding>>,
        depth: usize,
    ) -> Result<Self> {
        Self::stacked(batches, client, shardings, depth, std::iter::repeat(1))
    }

    /// Like [`new`](Self::new), with groups of successive batches stacked along a new first
    /// dimension, which is not sharded, for programs of several steps. `sizes` are the numbers of
    /// batches of the groups; 1, and the groups after the last of `sizes`, are single batches that
    /// are not stacked.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn stacked(
        batches: Batches,
        client: &Client,
        shardings: Vec<Arc<Sharding>>,
        depth: usize,
        sizes: impl IntoIterator<Item = usize, IntoIter: Send + 'static>,
    ) -> Result<Self> {
        Self::accumulated(batches, client, shardings, depth, 1, sizes)
    }

    /// Like [`stacked`](Self::stacked), for steps that accumulate gradients over `micro` batches,
    /// which are stacked along a new first dimension if there is more than one. `sizes` are the
    /// numbers of steps of the groups: `[micro, batch, ..]` for a group of 1, otherwise
    /// `[steps, micro, batch, ..]`. At the end of the epoch copies of a batch at weight 0 take the
    /// places of those that are missing.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn accumulated(
        mut batches: Batches,
        client: &Client,
        shardings: Vec<Arc<Sharding>>,
        depth: usize,
        micro: usize,
        sizes: impl IntoIterator<Item = usize, IntoIter: Send + 'static>,
    ) -> Result<Self> {
        let types = batches.loader().batch_types();
        let shardings = one_for_each(shardings, &types)?;
        // The arrays have the rows of all processes where their devices are those of all.
        let is_own = |sharding: &Arc<Sharding>| client.addresses(sharding.mesh().devices());
        let of = if shardings.iter().all(is_own) {
            1
        } else {
            batches.loader().options().shard.of
        };
        for (sharding, ty) in shardings.iter().zip(&types) {
            sharding.shard_type(&whole_type(ty, 0, of))?;
        }
        let (schedule, stop) = (batches.schedule().clone(), batches.stopper());
        let telemetry = Metrics::of(client).map(|metrics| {
            let loader = batches.loader();
            let input = metrics.input(&loader.dataset().name(), loader.options().workers);
            (metrics.clone(), input)
        });
        let (sender, receiver) = bounded(depth.max(1));
        let mut sizes = sizes.into_iter();
        let target = Target {
            pool: batches.loader().pinned_pool().cloned(),
            client: client.unattributed(),
            shardings,
            micro: micro.max(1),
            of,
        };
        let work = move || {
            loop {
                let size = sizes.next().unwrap_or(1).max(1);
                let group: Result<Vec<_>> = batches.by_ref().take(size * target.micro).collect();
                if group.as_ref().is_ok_and(Vec::is_empty) {
                    return;
                }
                let uploaded = group.and_then(|group| target.upload(&group));
                // The consumer has ended.
                if sender.send(uploaded).is_err() {
                    return;
                }
            }
        };
        let thread = Worker::spawn("halite-upload".into(), work).map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                "prefetch",
                format!("cannot create a thread: {error}"),
            )
        })?;
        Ok(Self {
            batches: Some(receiver),
            thread: Some(thread),
            stop,
            schedule,
            waited: Duration::ZERO,
            waited_for_next: Duration::ZERO,
            last: None,
            telemetry,
        })
    }

    /// Position of the next batch, for a checkpoint. Batches that are only uploaded ahead do not
    /// count.
    pub fn next_position(&self) -> Position {
        self.schedule.next_position()
    }

    /// Total time that the consumer has waited for batches.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

/// The type of an array whose dimension `dim` has one of `of` parts.
fn whole_type(part: &TensorType, dim: usize, of: usize) -> TensorType {
    let mut dims = part.dims().to_vec();
    dims[dim] *= of;
    part.with_dims(dims)
}

/// Where batches are uploaded to, and how.
struct Target {
    client: Client,
    /// One for each array of a batch.
    shardings: Vec<Arc<Sharding>>,
    /// Number of batches of a step.
    micro: usize,
    /// Number of parts of the rows of a batch, one of which is given.
    of: usize,
    /// Memory of stacked batches.
    pool: Option<PinnedPool>,
}

impl Target {
    /// Uploads the batches of a group as one: those of several steps.
    fn upload(&self, group: &[HostBatch]) -> Result<DeviceBatch> {
        let lengths = [group.len().div_ceil(self.micro), self.micro];
        let lengths: Vec<usize> = lengths.into_iter().filter(|length| *length > 1).collect();
        let (batches, stacked);
        let (batch, shardings) = match (group, &lengths[..]) {
            ([batch], []) => (batch, &self.shardings[..]),
            _ => {
                batches = HostBatch::stacked(group, &lengths, self.pool.as_ref())?;
                let stack = |sharding: &Arc<Sharding>| {
                    let spec = sharding.spec().clone();
                    let spec = lengths.iter().fold(spec, |spec, _| spec.stacked());
                    Sharding::new(sharding.mesh(), spec)
                };
                stacked = self
                    .shardings
                    .iter()
                    .map(stack)
                    .collect::<Result<Vec<_>>>()?;
                (&batches, &stacked[..])
            }
        };
        let arrays = batch.arrays.iter().zip(shardings).map(|(array, sharding)| {
            let whole = whole_type(array.ty(), lengths.len(), self.of);
            Array::from_process_local(&self.client, array, &whole, sharding)
        });
        Ok(DeviceBatch {
            arrays: arrays.collect::<Result<_>>()?,
            count: batch.count,
            position: batch.position,
            batches: group.len(),
        })
    }
}

impl Prefetch {
    /// The next batch, if it is ready within `limit`; `Ready(None)` after the last. Between two
    /// calls the consumer can check whether it should stop.
    pub fn poll_next(&mut self, limit: Duration) -> Poll<Option<Result<DeviceBatch>>> {
        let mut schedule = self.schedule.clone();
        let Some(position) = schedule.next() else {
            return Poll::Ready(None);
        };
        let _span = tracing::trace_span!("wait for data").entered();
        let start = Instant::now();
        let received = match &self.batches {
            Some(batches) => batches.recv_timeout(limit),
            None => Err(RecvTimeoutError::Disconnected),
        };
        let waited = start.elapsed();
        self.waited += waited;
        self.waited_for_next += waited;
        let batch = match received {
            Ok(batch) => batch,
            Err(RecvTimeoutError::Timeout) => return Poll::Pending,
            // A panic in the backend's upload: the thread ended before its last batch.
            Err(RecvTimeoutError::Disconnected) => {
                let message = format!(
                    "the upload thread ended before epoch {}, batch {}",
                    position.epoch, position.batch
                );
                Err(Error::new(ErrorKind::Internal, "prefetch", message))
            }
        };
        // The first batch of a group is taken above.
        let further = batch.as_ref().map_or(0, |batch| batch.batches - 1);
        schedule.by_ref().take(further).for_each(drop);
        self.schedule = schedule;
        let waited = std::mem::take(&mut self.waited_for_next);
        let now = Instant::now();
        let since_last = self.last.replace(now).map(|last| now - last);
        if let Some((metrics, input)) = &self.telemetry {
            metrics.input_waited(input, waited, since_last);
        }
        Poll::Ready(Some(batch))
    }
}

impl Iterator for Prefetch {
    type Item = Result<DeviceBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let Position { epoch, batch } = self.next_position();
        let name = || format!("the data of epoch {epoch}, batch {batch}");
        let next = wait_until(
            name,
            default_limit(),
            || false,
            |slice| match self.poll_next(slice) {
                Poll::Ready(next) => Some(next),
                Poll::Pending => None,
            },
        );
        match next {
            Ok(next) => next.flatten(),
            Err(late) => Some(Err(late)),
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // The thread waits for the loader's workers itself.
            thread.join_by(Instant::now() + 3 * PATIENCE);
        }
    }
}

impl fmt::Debug for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefetch")
            .field("position", &self.next_position())
            .field("waited", &self.waited)
            .finish_non_exhaustive()
    }
}

/// A sharding for each array, from one for all or one for each.
fn one_for_each(shardings: Vec<Arc<Sharding>>, types: &[TensorType]) -> Result<Vec<Arc<Sharding>>> {
    match shardings.len() {
        1 => Ok(vec![shardings[0].clone(); types.len()]),
        given if given == types.len() => Ok(shardings),
        given => {
            let message = format!(
                "{given} shardings given for {} arrays (fields and weights): {types:?}",
                types.len()
            );
            Err(Error::invalid("prefetch", message))
        }
    }
}
