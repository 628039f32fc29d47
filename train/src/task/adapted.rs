//! A task for a model with low-rank adapters.

use halite_core::tree::Family;
use halite_nn::{Adapted, Mean, Tensor, Trace, Traced};

use super::{Predict, Task};

/// A task for the adapted form of a model ([`Lora`](halite_nn::Lora)), from one for the model
/// itself: the loss is that of the model with adapted weights. The base is frozen, so only the
/// adapters have gradients and optimizer state.
///
/// ```
/// use halite_backends::Accelerator;
/// # use halite_core::HostArray;
/// # use halite_data::InMemory;
/// use halite_nn::{Adam, Adapted, Linear, Lora, Model};
/// use halite_train::{AdaptedTask, Trainer, Weighted, task};
///
/// # fn main() -> halite_core::Result<()> {
/// # let array = |name, dims: [usize; 2]| Ok::<_, halite_core::Error>((name, HostArray::from_slice(&vec![0.5f32; dims[0] * dims[1]], dims)?));
/// # let data = InMemory::new([array("x", [8, 3])?, array("y", [8, 1])?])?;
/// let model = Linear::new(3, 1);
/// let client = Accelerator::embedded().open()?;
/// let pretrained = model.initialize(&client, 1)?;
/// let task = task(&model, |_, model, batch| batch.mean((model.forward(batch.input) - batch.target).square()));
///
/// let adapted = Lora::new(2).adapt(model)?;
/// let values = Adapted { base: pretrained, adapters: adapted.adapters.initialize(&client, 2)? };
/// let trainer = Trainer::builder(&client).epochs(2).batch_size(4).quiet(true).build()?;
/// let fitted = trainer.fit_from(AdaptedTask(task), adapted, values, Adam::new(0.1), data, ())?;
/// let model = fitted.model.merged(&client)?; // a `Linear<Array>`
/// # assert_eq!(model.weight.ty().dims(), [3, 1]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AdaptedTask<K>(pub K);

impl<K: Task> Task for AdaptedTask<K> {
    type Model = Adapted<K::Model, ()>;
    type Batch = K::Batch;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Traced<'t, Self::Model>,
        batch: &Traced<'t, K::Batch>,
    ) -> Mean<'t> {
        self.0.loss(cx, &model.model(), batch)
    }
}

impl<K: Predict> Predict for AdaptedTask<K> {
    type Output = K::Output;

    fn predict<'t>(
        &self,
        cx: &'t Trace,
        model: &Traced<'t, Self::Model>,
        batch: &Traced<'t, K::Batch>,
    ) -> <K::Output as Family>::Bare<Tensor<'t>> {
        self.0.predict(cx, &model.model(), batch)
    }
}
