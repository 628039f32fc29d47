//! Samples in the report of a run.

use std::sync::Arc;

use halite_core::{
    Array, Result,
    tree::{Family, Tree},
};
use halite_data::Dataset;
use halite_nn::Tensor;

use super::Trainer;
use crate::Report;

impl Trainer {
    /// Adds what a model predicts for each sample of `dataset`, at most 100, to the report of its
    /// training, and writes the report again if the run has a directory: `report.html` shows the
    /// first field of each sample beside the second, if there is one, and the output of `predict`.
    ///
    /// Arrays of `[height, width]` and `[height, width, channels]` are shown as pictures, others as
    /// numbers.
    ///
    /// ```
    /// # use halite_backends::Accelerator;
    /// # use halite_core::{HostArray, Result};
    /// # use halite_data::{DatasetExt, InMemory};
    /// # use halite_nn::{Adam, Linear, cross_entropy};
    /// # use halite_train::{Trainer, Weighted, task};
    /// # fn main() -> Result<()> {
    /// # let client = Accelerator::cpu().open()?;
    /// # let trainer = Trainer::builder(&client).batch_size(4).quiet(true).build()?;
    /// # let points = HostArray::from_slice(&[0.5f32; 16], [8, 2])?;
    /// # let classes = HostArray::from_slice(&[1u8; 8], [8])?;
    /// # let train = InMemory::new([("point", points), ("class", classes)])?;
    /// # let test = train.clone();
    /// let model = Linear::new(2, 3);
    /// let task = task(&model, |_, model, batch| {
    ///     batch.mean(cross_entropy(model.forward(batch.input), batch.target))
    /// });
    /// let mut fitted = trainer.fit(task, model, Adam::new(1e-3), train, test.clone())?;
    /// let shown = test.subset([0, 1, 2])?;
    /// trainer.show_predictions(
    ///     &mut fitted.report,
    ///     &fitted.model,
    ///     |model, x| model.forward(x).argmax(1),
    ///     shown,
    /// )?;
    /// assert_eq!(fitted.report.predictions.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`predict_with`](Self::predict_with) and of
    /// [`set_predictions`](Report::set_predictions); if the report cannot be written.
    #[track_caller]
    pub fn show_predictions<M: Tree<Leaf = Array>>(
        &self,
        report: &mut Report,
        model: &M,
        predict: impl for<'t> Fn(&<M::Family as Family>::Bare<Tensor<'t>>, Tensor<'t>) -> Tensor<'t>
        + Send
        + Sync
        + 'static,
        dataset: impl Dataset + 'static,
    ) -> Result<()> {
        let dataset = Arc::new(dataset);
        let outputs = self.predict_with(model, predict, dataset.clone())?;
        report.set_predictions(&*dataset, &outputs)?;
        match &self.options.out {
            Some(out) => report.write_to(out),
            None => Ok(()),
        }
    }
}
