//! A custom dataset and model: a small network learns `sin(x)` from noisy points, and predicts it.
//!
//! `cargo run --release --example regression`
use halite::prelude::*;

#[derive(Tree)]
struct Curve<L> {
    hidden: Vec<Linear<L>>,
    out: Linear<L>,
}

impl<'t> Curve<Tensor<'t>> {
    /// `x: f32[batch, 1]` to `f32[batch, 1]`.
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let hidden = |x, layer: &Linear<Tensor<'t>>| layer.forward(x).tanh();
        self.out.forward(self.hidden.iter().fold(x, hidden))
    }
}

/// Points of the curve from -3 to 3, with noise of up to `noise`.
fn points(count: usize, noise: f32) -> Result<InMemory> {
    let step = 6.0 / (count - 1) as f32;
    let x: Vec<f32> = (0..count).map(|i| step * i as f32 - 3.0).collect();
    // Pseudo-random numbers between -1 and 1.
    let wobble = |x: f32| (x * 1298.98).sin() * 43758.547 % 1.0;
    let y: Vec<f32> = x.iter().map(|x| x.sin() + noise * wobble(*x)).collect();
    InMemory::new([
        ("x", HostArray::from_slice(&x, [count, 1])?),
        ("y", HostArray::from_slice(&y, [count, 1])?),
    ])
}

fn main() -> Result<()> {
    let client = Accelerator::cpu().open()?;
    let model = Curve {
        hidden: vec![Linear::new(1, 32), Linear::new(32, 32)],
        out: Linear::new(32, 1),
    };
    println!("{}", summary(&model));

    let task = task(&model, |_cx, model, batch| {
        batch.mean(mse(model.forward(batch.input), batch.target))
    });
    let trainer = Trainer::builder(&client)
        .epochs(60)
        .batch_size(50)
        .quiet(true)
        .build()?;
    let (train, validation) = (points(1000, 0.2)?, points(101, 0.0)?);
    let fitted = trainer.fit(task, model, Adam::new(1e-2), train, validation)?;
    let loss = fitted.report.metrics["loss"];
    println!("mean squared error against the true curve: {loss:.5}");

    let curve = trainer.predict_with(&fitted.model, |net, x| net.forward(x), points(7, 0.0)?)?;
    for (i, y) in curve.as_slice::<f32>()?.iter().enumerate() {
        let x = i as f32 - 3.0;
        println!("x = {x:4.1}   learned {y:6.3}   sin(x) {:6.3}", x.sin());
    }
    Ok(())
}
