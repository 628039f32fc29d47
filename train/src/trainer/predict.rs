//! Inference on datasets.

use std::{panic::Location, sync::Arc};

use halite_core::{
    Array, Error, HostArray, Result,
    tree::{Empty, Family, Leaf, Of, Tree},
};
use halite_data::{Dataset, DeviceBatch, Loader, Position};
use halite_nn::{Jit, Tensor};

use super::Trainer;
use crate::{
    Predict,
    programs::{ModelArrays, predict_program},
};

/// Outputs of a model for a whole dataset.
pub type Answers<K> = <<K as Predict>::Output as Family>::Bare<HostArray>;

impl Trainer {
    /// Runs inference on every sample of `dataset`, in order. Returns one array per leaf of the
    /// output, with the samples along its first dimension.
    ///
    /// # Errors
    /// Those of [`fit`](Self::fit).
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

    /// Runs inference by a closure on the first field of every sample of `dataset`, in order:
    /// `trainer.predict_with(&fitted.model, |model, x| model.forward(x), test)`. Returns the outputs
    /// with the samples along the first dimension.
    ///
    /// # Errors
    /// Those of [`fit`](Self::fit).
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
        mut run: impl FnMut(DeviceBatch) -> Result<T>,
    ) -> Result<Of<T, HostArray>> {
        let batch_size = self.options.eval_batch_size();
        let loader = Loader::new(dataset, self.padded())?;
        let mut answers: Vec<Vec<u8>> = Vec::new();
        let mut shape = None;
        let mut samples = 0;
        for batch in self.prefetch(&loader, Position::default())? {
            let batch = batch?;
            let count = batch.count;
            let output = run(batch)?;
            samples += count;
            let types = Tree::leaf_refs(&output).map_leaves(|_, array| array.ty().clone());
            answers.resize_with(types.leaf_count(), Vec::new);
            for (all, array) in answers.iter_mut().zip(output.leaves()) {
                if array.ty().dims().first() != Some(&batch_size) {
                    let message = format!(
                        "an output is {}; its first dimension must be the batch of {batch_size} \
                         samples",
                        array.ty()
                    );
                    return Err(Error::invalid("predict", message));
                }
                let host = array.fetch()?.wait()?;
                all.extend(&host.bytes()[..host.bytes().len() / batch_size * count]);
            }
            shape = Some(types);
        }
        let shape = shape.ok_or_else(|| Error::invalid("predict", "the dataset is empty"))?;
        let mut arrays = Vec::new();
        for (bytes, ty) in answers.into_iter().zip(shape.leaves()) {
            let mut dims = ty.dims().to_vec();
            dims[0] = samples;
            arrays.push(HostArray::from_bytes(&bytes, ty.with_dims(dims))?);
        }
        Ok(shape.rebuild(arrays))
    }
}
