//! Handwritten digits: a model, a task, and training. `halite train mnist` does the same with a
//! larger model.
//!
//! `cargo run --release --example mnist`
use halite::{
    fetch::{Bar, Cache},
    prelude::*,
};

/// A struct generic over its leaf: `Mlp<Param>` describes the model, `Mlp<Tensor>` computes,
/// `Mlp<Array>` is on a device.
#[derive(Tree)]
struct Mlp<L> {
    hidden: Linear<L>,
    out: Linear<L>,
}

impl<'t> Mlp<Tensor<'t>> {
    /// `images: u8[batch, 28, 28]` to logits `f32[batch, 10]`.
    fn forward(&self, images: Tensor<'t>) -> Tensor<'t> {
        let x = images.flatten_from(1).convert(DType::F32) / 255.0;
        self.out.forward(self.hidden.forward(x).relu())
    }
}

/// The loss to minimize and the metrics to log.
struct Classify;

impl Task for Classify {
    type Model = Mlp<()>;
    type Batch = Labeled<()>; // input, target, and the weight of each sample

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Mlp<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let logits = model.forward(batch.input);
        let correct = correct(logits, batch.target, 1);
        cx.metric("accuracy", batch.mean(correct));
        let cross_entropy = CrossEntropy::new().weights(batch.weight);
        cross_entropy.loss(logits, batch.target)
    }
}

fn main() -> Result<()> {
    let client = Accelerator::auto().open()?;
    let cache = Cache::open(None)?;
    let train = Mnist::Digits.train(&cache, &mut Bar::default())?;
    let test = Mnist::Digits.test(&cache, &mut Bar::default())?;

    let model = Mlp {
        hidden: Linear::new(28 * 28, 128),
        out: Linear::new(128, 10),
    };
    let trainer = Trainer::builder(&client)
        .epochs(3)
        .batch_size(128)
        .build()?;
    let fitted = trainer.fit(Classify, model, Adam::new(2e-3), train, test)?;
    println!("{fitted}"); // and `fitted.model` is the trained `Mlp<Array>`
    Ok(())
}
