//! Two updates in each step.

use halite::{
    nn::optim::WeightAveraging,
    prelude::*,
    train::{
        TrainerOptions,
        signals::{StopFlag, StopReason},
    },
};

#[derive(Debug, Tree)]
struct Gan<L> {
    generator: (Linear<L>, Linear<L>),
    critic: (Linear<L>, BatchNorm<L>, Linear<L>),
}

impl<'t> Gan<Tensor<'t>> {
    fn generate(&self, noise: Tensor<'t>) -> Tensor<'t> {
        let (hidden, out) = &self.generator;
        out.forward(hidden.forward(noise).tanh())
    }

    fn criticize(&self, x: Tensor<'t>) -> Tensor<'t> {
        let (hidden, norm, out) = &self.critic;
        out.forward(norm.forward(hidden.forward(x)).tanh())
    }
}

pub(super) fn train(options: TrainerOptions, stop: &StopFlag) -> Result<Option<StopReason>> {
    let client = Accelerator::cpu().open()?;
    let gan: Gan<Param> = Gan {
        generator: (Linear::new(8, 64), Linear::new(64, 16)),
        critic: (Linear::new(16, 64), BatchNorm::new(64), Linear::new(64, 1)),
    };
    let criticize = task(&gan, |_, gan, batch| {
        let fake = gan.criticize(gan.generate(batch.input));
        let real = gan.criticize(batch.target);
        batch.mean((real - 1.0).square() + fake.square())
    });
    let deceive = task(&gan, |cx, gan, batch| {
        let noise = batch.input;
        // Validation has no random numbers.
        let noise = match cx.is_training() {
            true => noise + rng::normal(cx.next_key(), noise.dims(), DType::F32) * 0.1,
            false => noise,
        };
        batch.mean((gan.criticize(gan.generate(noise)) - 1.0).square())
    });
    let task = Alternating::new()
        .update("critic.**", criticize)?
        .update("generator.**", deceive)?
        .every(3);
    let optimizer = Adam::new(1e-3).partition("critic.**", Sgd::new(1e-2).momentum(0.9))?;
    let array = |width: usize, step: f32| {
        let values: Vec<f32> = (0..320 * width).map(|i| (i as f32 * step).sin()).collect();
        HostArray::from_slice(&values, [320, width])
    };
    let data = InMemory::new([("noise", array(8, 0.7)?), ("real", array(16, 1.3)?)])?;
    let trainer = Trainer::builder(&client)
        .options(options)
        .average(WeightAveraging::ema(0.9))
        .stop_flag(stop)
        .build()?;
    let fitted = trainer.fit(task, gan, optimizer, data.clone(), data)?;
    Ok(fitted.stopped_by)
}
