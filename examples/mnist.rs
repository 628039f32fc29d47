//! Handwritten digits: a model, a task, and training. `halite train mnist` does the same with a
//! larger model.
//!
//! `cargo run --release --example mnist`
use halite::prelude::*;

/// A struct generic over its tensors: `Mlp<Param>` describes the model, `Mlp<Tensor>` computes,
/// `Mlp<Array>` is on a device.
#[derive(Tree)]
struct Mlp<T> {
    hidden: Linear<T>,
    out: Linear<T>,
}

fn main() -> Result<()> {
    let client = Accelerator::auto().open()?;
    let (train, test) = Mnist::Digits.load()?;
    let model = Mlp {
        hidden: Linear::new(28 * 28, 128),
        out: Linear::new(128, 10),
    };

    // The loss to minimize, and metrics to log, as means over the samples of a batch.
    let task = task(&model, |cx, model, batch| {
        let images = batch.input.flatten_from(1).convert(DType::F32) / 255.0;
        let logits = model.out.forward(model.hidden.forward(images).relu());
        cx.metric("accuracy", batch.mean(correct(logits, batch.target)));
        batch.mean(cross_entropy(logits, batch.target))
    });
    let trainer = Trainer::builder(&client)
        .epochs(3)
        .batch_size(128)
        .build()?;
    let fitted = trainer.fit(task, model, Adam::new(2e-3), train, test)?;
    println!("{fitted}"); // and `fitted.model` is the trained `Mlp<Array>`
    Ok(())
}
