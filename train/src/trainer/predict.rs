//! Inference on datasets.

use std::{mem::replace, panic::Location, path::Path, sync::Arc};

use halite_core::{
    Array, Error, ErrorKind, HostArray, Pending, Result, TensorType,
    tree::{Empty, Family, Leaf, Of, Tree},
};
use halite_data::{BadSample, Dataset, DeviceBatch, Loader, LoaderOptions, Position};
use halite_nn::{Jit, Tensor};

use super::Trainer;
use crate::{
    Predict,
    checkpoint::RowsFile,
    programs::{ModelArrays, predict_program},
};

/// Outputs of a model for a whole dataset.
pub type Answers<K> = <<K as Predict>::Output as Family>::Bare<HostArray>;

impl Trainer {
    /// Runs inference on every sample of `dataset`, in order. Returns one array per leaf of the
    /// output, with the samples along its first dimension.
    ///
    /// # Errors
    /// Those of [`fit`](Self::fit); a sample that cannot be read, whatever the option `bad_samples`
    /// says, because each sample has its row.
    #[track_caller]
    pub fn predict<K: Predict>(
        &self,
        task: K,
        model: &ModelArrays<K>,
        dataset: impl Dataset + 'static,
    ) -> Result<Answers<K>> {
        let line = Location::caller();
        let program = predict_program(&self.client, &self.mesh, &self.strategy, &Arc::new(task));
        let program = program.precision(self.precision).of_line(line);
        let outputs = self.outputs(dataset, |batch| {
            let batch = self.batch_tree::<K>(batch)?;
            program.run_with((Tree::leaf_refs(model), Tree::leaf_refs(&batch)))
        })?;
        Ok(K::Output::into_bare(outputs))
    }

    /// Runs inference on every sample of `dataset`, in order, and passes the outputs of each batch to
    /// `each`: one array per leaf of the output, with the samples along its first dimension. Only a
    /// few batches are in memory at a time.
    ///
    /// # Errors
    /// Those of [`predict`](Self::predict), and of `each`, which ends it.
    #[track_caller]
    pub fn predict_each<K: Predict>(
        &self,
        task: K,
        model: &ModelArrays<K>,
        dataset: impl Dataset + 'static,
        mut each: impl FnMut(Answers<K>) -> Result<()>,
    ) -> Result<()> {
        let line = Location::caller();
        let program = predict_program(&self.client, &self.mesh, &self.strategy, &Arc::new(task));
        let program = program.precision(self.precision).of_line(line);
        let run = |batch| {
            let batch = self.batch_tree::<K>(batch)?;
            program.run_with((Tree::leaf_refs(model), Tree::leaf_refs(&batch)))
        };
        self.each_output(Arc::new(dataset), run, |outputs| {
            each(K::Output::into_bare(outputs))
        })
    }

    /// Runs inference on every sample of `dataset`, in order, and writes the outputs to a safetensors
    /// file as they are computed: an array per leaf of the output, by its path, or `output` for one
    /// tensor. An earlier file at `path` is replaced when the new one is complete and on the disk.
    ///
    /// # Errors
    /// Those of [`predict_each`](Self::predict_each); a file that cannot be written; an element type
    /// that the format does not have.
    #[track_caller]
    pub fn predict_to<K: Predict>(
        &self,
        task: K,
        model: &ModelArrays<K>,
        dataset: impl Dataset + 'static,
        path: impl AsRef<Path>,
    ) -> Result<()> {
        let samples = dataset.len();
        // A path that cannot be written is an error now, not after the predictions.
        let mut file = RowsFile::create(path.as_ref())?;
        let mut is_begun = false;
        self.predict_each(task, model, dataset, |outputs| {
            let outputs = K::Output::from_bare(outputs);
            if !replace(&mut is_begun, true) {
                file.begin(&whole(&outputs, samples))?;
            }
            file.write(&outputs.leaves())
        })?;
        file.finish()
    }

    /// Runs inference by a closure on the first field of every sample of `dataset`, in order:
    /// `trainer.predict_with(&fitted.model, |model, x| model.forward(x), test)`. Returns the outputs
    /// with the samples along the first dimension.
    ///
    /// # Errors
    /// Those of [`predict`](Self::predict).
    #[track_caller]
    pub fn predict_with<M: Tree<Leaf = Array>>(
        &self,
        model: &M,
        predict: impl for<'t> Fn(&<M::Family as Family>::Bare<Tensor<'t>>, Tensor<'t>) -> Tensor<'t>
        + Send
        + Sync
        + 'static,
        dataset: impl Dataset + 'static,
    ) -> Result<HostArray> {
        let line = Location::caller();
        let program = Jit::<Empty<()>, (M::Family, Leaf<()>), Leaf<()>>::function(
            &self.client,
            move |cx, (model, Leaf(x))| {
                cx.set_mode(false, None);
                Leaf(predict(&M::Family::into_bare(model), x))
            },
        )
        .named("predict")
        .axis_roles(self.strategy.axis_roles(&self.mesh))
        .on(&self.mesh)
        .precision(self.precision)
        .of_line(line);
        let Leaf(outputs) = self.outputs(dataset, |batch| {
            let field = batch.arrays.first().expect("a batch has its weights");
            program.run_with((Tree::leaf_refs(model), Leaf(field)))
        })?;
        Ok(outputs)
    }

    /// The outputs that `run` computes for each batch of `dataset`, joined, without padding.
    fn outputs<T: Tree<Leaf = Array>>(
        &self,
        dataset: impl Dataset + 'static,
        run: impl FnMut(DeviceBatch) -> Result<T>,
    ) -> Result<Of<T, HostArray>> {
        let samples = dataset.len();
        let (mut answers, mut shape) = (Vec::<Vec<u8>>::new(), None);
        self.each_output(Arc::new(dataset), run, |outputs: Of<T, HostArray>| {
            answers.resize_with(outputs.leaf_count(), Vec::new);
            for (all, array) in answers.iter_mut().zip(outputs.leaves()) {
                all.extend(array.bytes());
            }
            shape = Some(outputs);
            Ok(())
        })?;
        let shape = shape.expect("a dataset without samples is an error");
        let types = whole(&shape, samples).into_iter();
        let arrays = answers.iter().zip(types);
        let arrays = arrays.map(|(bytes, (_, ty))| HostArray::from_bytes(bytes, ty));
        Ok(shape.with_leaves(arrays.collect::<Result<Vec<_>>>()?))
    }

    /// Passes the outputs that `run` computes for each batch of `dataset` to `each`, in order, without
    /// padding. The devices work on a batch while `each` has the one before.
    fn each_output<T: Tree<Leaf = Array>>(
        &self,
        dataset: Arc<dyn Dataset>,
        mut run: impl FnMut(DeviceBatch) -> Result<T>,
        mut each: impl FnMut(Of<T, HostArray>) -> Result<()>,
    ) -> Result<()> {
        if self.spans_processes {
            let message = "the mesh has the devices of several processes, each of which would have \
                           a part of the outputs; predict with a trainer without `processes`, whose \
                           mesh is of this process, and the model resharded to it";
            return Err(Error::new(ErrorKind::Unsupported, "predict", message));
        }
        // There is a row for each sample, in order.
        let options = LoaderOptions {
            bad_samples: BadSample::Fail,
            ..self.padded()
        };
        let loader = Loader::shared(dataset, options)?;
        let batch_size = self.options.eval_batch_size();
        let mut pass_on = |(count, outputs): (usize, Of<T, Pending<HostArray>>)| {
            let first_rows = |pending: Pending<HostArray>| {
                let array = pending.wait()?;
                if count == batch_size {
                    return Ok(array);
                }
                let bytes = array.bytes().len() / batch_size * count;
                let ty = rows(array.ty(), count);
                HostArray::from_bytes(&array.bytes()[..bytes], ty)
            };
            each(outputs.try_map_leaves(|_, pending| first_rows(pending))?)
        };
        let mut before = None;
        for batch in self.prefetch(&loader, Position::default())? {
            let batch = batch?;
            let count = batch.count;
            let outputs = run(batch)?.try_map_leaves(|_, array| {
                if array.ty().dims().first() != Some(&batch_size) {
                    let message = format!(
                        "an output is {}; its first dimension must be the batch of {batch_size} \
                         samples",
                        array.ty()
                    );
                    return Err(Error::invalid("predict", message));
                }
                array.fetch()
            })?;
            if let Some(before) = before.replace((count, outputs)) {
                pass_on(before)?;
            }
        }
        match before {
            Some(last) => pass_on(last),
            None => Err(Error::invalid("predict", "the dataset is empty")),
        }
    }
}

/// Names and types of the outputs for `samples` samples, from those of a batch.
fn whole<T: Tree<Leaf = HostArray>>(outputs: &T, samples: usize) -> Vec<(String, TensorType)> {
    let named = outputs.named().into_iter();
    named
        .map(|(path, array)| {
            if path.is_empty() {
                ("output".to_string(), rows(array.ty(), samples))
            } else {
                (path, rows(array.ty(), samples))
            }
        })
        .collect()
}

/// This type with another first dimension.
fn rows(ty: &TensorType, count: usize) -> TensorType {
    let mut dims = ty.dims().to_vec();
    dims[0] = count;
    ty.with_dims(dims)
}
