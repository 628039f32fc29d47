//! Two networks against each other: a generator learns to make points of a ring from noise, and a
//! critic to tell them from real ones. Each step of the trainer updates the critic, and then the
//! generator.
//!
//! `cargo run --release --example gan`
use halite::prelude::*;

#[derive(Tree, Debug)]
struct Net<L> {
    hidden: Vec<Linear<L>>,
    out: Linear<L>,
}

impl Net<Param> {
    fn new(inputs: usize, outputs: usize) -> Self {
        Net {
            hidden: vec![Linear::new(inputs, 64), Linear::new(64, 64)],
            out: Linear::new(64, outputs),
        }
    }
}

impl<'t> Net<Tensor<'t>> {
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let hidden = |x, layer: &Linear<Tensor<'t>>| layer.forward(x).silu();
        self.out.forward(self.hidden.iter().fold(x, hidden))
    }
}

#[derive(Tree, Debug)]
struct Gan<L> {
    generator: Net<L>,
    critic: Net<L>,
}

/// Noise, and points of the ring of radius 1, in pairs that have nothing to do with each other.
fn samples(count: usize, seed: u64) -> Result<InMemory> {
    // Pseudo-random numbers between 0 and 1.
    let random = |i: usize| {
        let bits = (i as u64 + seed * 1_000_003).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = (bits ^ (bits >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((bits ^ (bits >> 29)) >> 40) as f32 / (1 << 24) as f32
    };
    let noise = (0..2 * count).map(|i| 2.0 * random(3 * i) - 1.0);
    let ring = (0..count).flat_map(|i| {
        let angle = std::f32::consts::TAU * random(3 * i + 1);
        let radius = 1.0 + 0.1 * (random(3 * i + 2) - 0.5);
        [radius * angle.cos(), radius * angle.sin()]
    });
    let array = |values: Vec<f32>| HostArray::from_slice(&values, [count, 2]);
    InMemory::new([
        ("noise", array(noise.collect())?),
        ("real", array(ring.collect())?),
    ])
}

fn main() -> Result<()> {
    let client = Accelerator::cpu().open()?;
    let gan: Gan<Param> = Gan {
        generator: Net::new(2, 2),
        critic: Net::new(2, 1),
    };
    // The logit of "real" should be high for real points and low for others.
    let criticize = task(&gan, |_, gan, batch| {
        let fake = gan.critic.forward(gan.generator.forward(batch.input));
        let real = gan.critic.forward(batch.target);
        batch.mean(fake.softplus() + (-real).softplus())
    });
    let deceive = task(&gan, |_, gan, batch| {
        let fake = gan.critic.forward(gan.generator.forward(batch.input));
        batch.mean((-fake).softplus())
    });
    let task = Alternating::new()
        .update("critic.**", criticize)?
        .update("generator.**", deceive)?;
    let adam = Adam::new(1e-3).betas(0.5, 0.99);

    let trainer = Trainer::builder(&client)
        .max_epochs(40)
        .batch_size(256)
        .quiet(true)
        .build()?;
    let fitted = trainer.fit(task, gan, adam, samples(16_384, 1)?, ())?;
    println!("{}", fitted.report);

    let made = trainer.predict_with(
        &fitted.model.generator,
        |generator, noise| generator.forward(noise),
        samples(4096, 2)?,
    )?;
    let (mut off, mut sectors) = (0.0, [0; 8]);
    for point in made.as_slice::<f32>()?.chunks(2) {
        let angle = point[1].atan2(point[0]) / std::f32::consts::TAU + 0.5;
        sectors[(8.0 * angle) as usize % 8] += 1;
        off += (point[0].hypot(point[1]) - 1.0).abs() / 4096.0;
    }
    println!("mean distance from the ring: {off:.3}; points in its eighths: {sectors:?}");
    Ok(())
}
