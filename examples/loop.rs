//! A training loop without the trainer: a compiled step and an optimizer separate two spirals.
//!
//! `cargo run --release --example loop`
use halite::prelude::*;

#[derive(Tree)]
struct Net<L> {
    layers: Vec<Linear<L>>,
    out: Linear<L>,
}

impl<'t> Net<Tensor<'t>> {
    /// `points: f32[batch, 2]` to logits `f32[batch, 2]`.
    fn forward(&self, points: Tensor<'t>) -> Tensor<'t> {
        let hidden = |x, layer: &Linear<Tensor<'t>>| layer.forward(x).tanh();
        self.out.forward(self.layers.iter().fold(points, hidden))
    }
}

const POINTS: usize = 400;

fn main() -> Result<()> {
    let client = Accelerator::cpu().open()?;
    let net = Net {
        layers: vec![Linear::new(2, 64), Linear::new(64, 64)],
        out: Linear::new(64, 2),
    };
    let adam = Adam::new(Schedule::warmup(5e-3, 50).then(Schedule::cosine(5e-3, 950)));

    // Parameters, optimizer slots, step count and random key, initialized on the device.
    let mut state = State::new(&client, &net, &adam, 42)?;

    // Forward, backward and update are one program. The state is donated: it is updated in place.
    let step = jit_step(&client, &state, |cx, state, [points, labels]| {
        state.set_training_mode(cx);
        let logits = state.model.forward(points);
        let loss = cross_entropy(logits, labels).mean_all();
        let accuracy = correct(logits, labels).mean_all();
        let gradients = state.gradients(loss);
        (state.update(gradients), [loss, accuracy])
    })
    .named("spirals");

    let (points, labels) = spirals();
    let points = Array::from_slice(&client, &points, [POINTS, 2])?;
    let labels = Array::from_slice(&client, &labels, [POINTS])?;
    for number in 1..=1000 {
        let (next, [loss, accuracy]) = step.call(state, [&points, &labels])?;
        state = next;
        // Reading waits for the device, so only some steps do; the others are only queued.
        if number % 200 == 0 {
            let (loss, accuracy) = (loss.item::<f32>()?, 100.0 * accuracy.item::<f32>()?);
            println!("step {number:4}: loss {loss:.4}, accuracy {accuracy:.1} %");
        }
    }
    println!("compiled {} time, {:?}", step.compiles(), step.stages());
    Ok(())
}

/// Points `[POINTS, 2]` of two spirals, and the spiral of each.
fn spirals() -> (Vec<f32>, Vec<i32>) {
    let point = |i: usize| {
        let (spiral, along) = (i % 2, i as f32 / POINTS as f32);
        let angle = 9.0 * along + std::f32::consts::PI * spiral as f32;
        [along * angle.cos(), along * angle.sin()]
    };
    let labels = (0..POINTS).map(|i| (i % 2) as i32);
    ((0..POINTS).flat_map(point).collect(), labels.collect())
}
