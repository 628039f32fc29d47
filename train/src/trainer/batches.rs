//! The loaders of a trainer: batches of the data on the host, their types, and their uploads.

use std::sync::Arc;

use halite_core::{
    DType, Error, Result, Sharding, TensorType,
    tree::{Family, Tree},
};
use halite_data::{
    BadSample, Dataset, DeviceBatch, LastBatch, Loader, LoaderOptions, Order, Position, Prefetch,
    Shard,
};
use halite_nn::ArraySpec;

use super::Trainer;
use crate::{Task, programs::BatchArrays};

impl Trainer {
    /// The loader of the training data.
    pub(super) fn training<K: Task>(&self, dataset: Arc<dyn Dataset>) -> Result<Loader> {
        let options = &self.options;
        let order = match options.overfit_batches {
            Some(_) => Order::Sequential,
            // A stream has one order.
            None if dataset.is_sequential() => Order::Sequential,
            None => Order::Shuffled { seed: options.seed },
        };
        let loader = Loader::shared(
            dataset,
            LoaderOptions {
                order,
                last: options.last_batch,
                bad_samples: options.bad_samples,
                workers: options.workers,
                ahead: options.read_ahead,
                shard: self.shard(options.batch_size)?,
                ..LoaderOptions::new(options.batch_size)
            },
        )?;
        check_weights::<K>(&loader)?;
        let loader = match options.limit_train_batches {
            None => loader,
            Some(limit) => {
                let name = match options.overfit_batches {
                    Some(_) => "overfit_batches",
                    None => "limit_train_batches",
                };
                let batches = limit.of(name, loader.batches_per_epoch())?;
                loader.limited(batches)?
            }
        };
        // Without weights a batch that is missing in the last step of an epoch would count.
        let (batches, of_step) = (
            loader.batches_per_epoch(),
            options.numerics.accumulate_grad_batches,
        );
        if has_weights::<K>(&loader) || batches.is_multiple_of(of_step) {
            return Ok(loader);
        }
        if batches < of_step {
            let message = format!(
                "`accumulate_grad_batches` is {of_step}, an epoch has {batches} batches, and the \
                 task's batch has no leaf for the weights, by which a step can have fewer; use at \
                 most {batches}, or add a leaf for the weights"
            );
            return Err(Error::invalid("batch", message));
        }
        loader.limited(batches - batches % of_step)
    }

    /// A loader of every sample once, in the dataset's order.
    pub(super) fn in_order<K: Task>(&self, dataset: Arc<dyn Dataset>) -> Result<Loader> {
        let options = LoaderOptions {
            shard: self.shard(self.options.eval_batch_size())?,
            ..self.padded()
        };
        let loader = Loader::shared(dataset, options)?;
        check_weights::<K>(&loader)?;
        Ok(loader)
    }

    /// The loader of a validation, of as many batches as the options allow.
    pub(super) fn limited(&self, loader: Loader) -> Result<Loader> {
        match self.options.limit_val_batches {
            Some(limit) => {
                let batches = limit.of("limit_val_batches", loader.batches_per_epoch())?;
                loader.limited(batches)
            }
            None => Ok(loader),
        }
    }

    pub(super) fn padded(&self) -> LoaderOptions {
        LoaderOptions {
            workers: self.options.workers,
            ahead: self.options.read_ahead,
            last: LastBatch::Pad,
            bad_samples: self.options.bad_samples,
            ..LoaderOptions::new(self.options.eval_batch_size())
        }
    }

    /// The part of each batch that this process reads.
    fn shard(&self, batch_size: usize) -> Result<Shard> {
        match &self.processes {
            None => Ok(Shard::default()),
            Some(_) if self.spans_processes => self.shard_of_devices(batch_size),
            Some(processes) => Ok(Shard {
                index: processes.rank(),
                of: processes.size(),
            }),
        }
    }

    /// The rows of a batch that the devices of this process hold.
    fn shard_of_devices(&self, batch_size: usize) -> Result<Shard> {
        let rows = TensorType::new(DType::U8, [batch_size]);
        let part = self
            .client
            .addressable_part(&rows, &*self.batch_sharding()?)?;
        let (start, length) = (part[0].start, part[0].len());
        if batch_size.is_multiple_of(length) && start.is_multiple_of(length) {
            return Ok(Shard {
                index: start / length,
                of: batch_size / length,
            });
        }
        let message = format!(
            "the devices of this process hold the rows {:?} of a batch of {batch_size}, which are no \
             part of it that one process can read; arrange the devices of each process side by side \
             in the mesh {}",
            part[0], self.mesh
        );
        Err(Error::invalid("trainer", message))
    }

    /// The loader with batches in page-locked memory, where the options ask for it.
    pub(super) fn pinned(&self, loader: &Loader) -> Loader {
        let loader = loader.clone();
        match &self.pinned {
            Some(pool) => loader.with_pinned_memory(pool),
            None => loader,
        }
    }

    /// Uploads the batches of an epoch from `start` on, each of them on its own.
    pub(super) fn prefetch(&self, loader: &Loader, start: Position) -> Result<Prefetch> {
        let batches = self.pinned(loader).epoch_from(start);
        let shardings = vec![self.batch_sharding()?];
        Prefetch::new(batches, &self.client, shardings, self.options.prefetch)
    }

    /// Uploads the training batches of an epoch from `start` on, in launches of as many steps as
    /// `sizes` says.
    pub(crate) fn prefetch_steps(
        &self,
        loader: &Loader,
        start: Position,
        sizes: impl IntoIterator<Item = usize, IntoIter: Send + 'static>,
    ) -> Result<Prefetch> {
        Prefetch::accumulated(
            self.pinned(loader).epoch_from(start),
            &self.client,
            vec![self.batch_sharding()?],
            self.options.prefetch,
            self.options.numerics.accumulate_grad_batches,
            sizes,
        )
    }

    pub(crate) fn batch_tree<K: Task>(&self, batch: DeviceBatch) -> Result<BatchArrays<K>> {
        batch.into_tree(&<K::Batch as Family>::Of::<()>::default())
    }

    /// The sharding of the fields of a batch: by samples.
    fn batch_sharding(&self) -> Result<Arc<Sharding>> {
        Sharding::new(&self.mesh, self.strategy.batch_spec(&self.mesh))
    }

    pub(crate) fn batch_specs<K: Task>(
        &self,
        loader: &Loader,
    ) -> Result<<K::Batch as Family>::Of<ArraySpec>> {
        let sharding = self.batch_sharding()?;
        let types = if self.spans_processes {
            loader.whole().batch_types()
        } else {
            loader.batch_types()
        };
        let specs = types
            .into_iter()
            .map(|ty| ArraySpec::new(ty, &sharding))
            .collect();
        halite_data::batch_tree(specs, &<K::Batch as Family>::Of::<()>::default())
    }
}

/// Whether the last leaf of the task's batch has the weights of the samples.
pub(super) fn has_weights<K: Task>(loader: &Loader) -> bool {
    let leaves = <K::Batch as Family>::Of::<()>::default().leaf_count();
    leaves > loader.dataset().fields().len()
}

/// Checks that padding of the last batch can be left out, and samples that are skipped.
fn check_weights<K: Task>(loader: &Loader) -> Result<()> {
    let leaves = <K::Batch as Family>::Of::<()>::default().leaf_count();
    let skips = loader.options().bad_samples != BadSample::Fail;
    // Any other number of leaves is an error of its own.
    if leaves != loader.dataset().fields().len() || (loader.padding() == 0 && !skips) {
        return Ok(());
    }
    let what = if skips {
        format!("bad samples are skipped ({})", loader.options().bad_samples)
    } else {
        format!(
            "{} samples are not divisible by the batch size {}",
            loader.dataset().len(),
            loader.options().batch_size
        )
    };
    let masks = if skips {
        "mask them"
    } else {
        "mask the padding of the last batch"
    };
    let message = format!(
        "{what}, and the task's batch has no leaf for the weights that {masks}; add a leaf after \
         the {} fields, and use it in `Mean::weighted`",
        loader.dataset().fields().len()
    );
    Err(Error::invalid("batch", message))
}
