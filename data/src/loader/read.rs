//! Reading of one batch.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use halite_core::{Error, ErrorKind, Result, guard::panic_message};

use super::{
    BadSample, Loader, Order,
    bad::{BadRead, Skipped},
    cancelled,
};
use crate::{
    Key, Permutation, Rows,
    batch::{HostBatch, Position},
};

/// A batch, and the samples of it that cannot be read.
#[derive(Debug)]
pub(super) struct ReadBatch {
    batch: HostBatch,
    bad: Vec<BadRead>,
}

impl ReadBatch {
    /// Returns the batch if its samples that cannot be read are within the policy.
    pub(super) fn admitted(self, skipped: &Skipped, policy: BadSample) -> Result<HostBatch> {
        skipped.add(self.bad, policy)?;
        Ok(self.batch)
    }
}

/// Reads samples of one batch into rows.
struct Reader<'a> {
    loader: &'a Loader,
    position: Position,
    seed: u64,
    order: Option<Permutation>,
    rows: Rows,
    bad: Vec<BadRead>,
}

impl Loader {
    pub(super) fn read_while(&self, position: Position, stop: &AtomicBool) -> Result<ReadBatch> {
        assert!(
            position.batch < self.batches_per_epoch(),
            "batch {} of {}",
            position.batch,
            self.batches_per_epoch()
        );
        let (len, rows) = (self.dataset.len(), self.rows());
        let (seed, order) = match self.options.order {
            Order::Sequential => (0, None),
            Order::Shuffled { seed } => (seed, Some(Permutation::new(len, seed, position.epoch))),
        };
        let mut reader = Reader {
            loader: self,
            position,
            seed,
            order,
            rows: Rows::zeros_in(self.pinned_pool(), self.dataset.fields(), rows)?,
            bad: Vec::new(),
        };
        let first = position.batch * self.options.batch_size + self.options.shard.index * rows;
        let mut weights = vec![0.0; rows];
        // A row with a sample, and the rows that become copies of it.
        let (mut source, mut copies) = (None, Vec::new());
        for (row, weight) in weights.iter_mut().enumerate() {
            if stop.load(Relaxed) {
                return Err(cancelled());
            }
            let is_padding = first + row >= len;
            // A stream that reads its first samples again would start from its beginning.
            if !(is_padding && self.dataset.is_sequential()) && reader.read(first + row, row)? {
                *weight = if is_padding { 0.0 } else { 1.0 };
                source.get_or_insert(row);
            } else {
                copies.push(row);
            }
        }
        if let Some(&row) = copies.first() {
            let source = match source {
                Some(source) => source,
                None => reader.read_substitute(first + rows, row)?,
            };
            for row in copies.into_iter().filter(|&row| row != source) {
                reader.rows.copy_row(source, row);
            }
        }
        Ok(ReadBatch {
            batch: HostBatch::new(reader.rows, &weights, position),
            bad: reader.bad,
        })
    }
}

impl Reader<'_> {
    /// Reads the sample at `place` of the epoch into a row. Returns false if it cannot be read and
    /// is skipped.
    fn read(&mut self, place: usize, row: usize) -> Result<bool> {
        let dataset = &self.loader.dataset;
        let place = place % dataset.len();
        let index = self.order.as_ref().map_or(place, |order| order.at(place));
        let key = Key {
            seed: self.seed,
            epoch: self.position.epoch,
            index,
        };
        let mut sample = self.rows.sample_mut(row).with_key(key);
        // Its batch is an error: no one reads the row that a panic leaves.
        let read = catch_unwind(AssertUnwindSafe(|| dataset.read(index, &mut sample)));
        let Err(error) = read.unwrap_or_else(|panic| {
            let message = format!("a panic: {}", panic_message(&*panic));
            Err(Error::new(ErrorKind::Internal, "dataset", message))
        }) else {
            return Ok(true);
        };
        let bad = BadRead {
            index,
            position: self.position,
            error,
        };
        match self.loader.options.bad_samples {
            BadSample::Skip { .. } if bad.is_of_sample() => {
                self.bad.push(bad);
                Ok(false)
            }
            _ => Err(bad.into_error()),
        }
    }

    /// Reads a sample for a part of a batch that has none: that of the next place of the epoch that
    /// can be read, or the last of a stream. Returns the row.
    fn read_substitute(&mut self, next: usize, row: usize) -> Result<usize> {
        let (loader, len) = (self.loader, self.loader.dataset.len());
        if loader.dataset.is_sequential() && self.bad.is_empty() && self.read(len - 1, row)? {
            return Ok(row);
        }
        // A whole batch of weight 0 has no mean.
        let tries = match loader.options.bad_samples {
            BadSample::Skip { at_most } if loader.options.shard.of > 1 => {
                at_most.saturating_add(1).min(len)
            }
            _ => 0,
        };
        for place in next..next.saturating_add(tries) {
            if self.read(place, row)? {
                return Ok(row);
            }
        }
        let message = "no sample of the batch can be read; a larger batch size needs one of them";
        let error = Error::invalid("loader", message);
        Err(match self.bad.pop() {
            Some(bad) => error.caused_by(bad.into_error()),
            None => error,
        })
    }
}
