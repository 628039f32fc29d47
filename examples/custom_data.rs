//! A dataset, a sampler and a random transform of your own: a network learns in which half of a
//! noisy signal a rare pulse is.
//!
//! `cargo run --release --example custom_data`
use halite::data::{Field, Key, SampleMut, Sampler};
use halite::models::{Classify, Mlp};
use halite::prelude::*;

/// Signals of 32 values with a pulse, in the second half (class 1) for one of ten.
struct Pulses([Field; 2]);

impl Dataset for Pulses {
    fn len(&self) -> usize {
        1000
    }

    fn fields(&self) -> &[Field] {
        &self.0
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let class = u32::from(index.is_multiple_of(10));
        into.bytes_mut(0).fill(0);
        into.bytes_mut(0)[16 * class as usize + index / 10 % 16] = 200;
        into.write(1, &[class])
    }
}

/// Draws both classes equally often.
struct Halves;

impl Sampler for Halves {
    fn at(&self, seed: u64, epoch: u64, index: usize) -> usize {
        let mut random = Key { seed, epoch, index }.random("halves");
        let rare = random.chance(0.5);
        10 * random.below(100) + if rare { 0 } else { 1 + random.below(9) }
    }

    fn digest(&self) -> String {
        "halves 1".into()
    }
}

fn main() -> Result<()> {
    let signal = Field::new("signal", TensorType::new(DType::U8, [32]));
    let fields = [signal, Field::new("class", TensorType::scalar(DType::U32))];
    let drawn = Pulses(fields.clone()).sampled(Halves)?;
    let train = drawn.map_random("noise", fields.clone(), |sample, random, into| {
        for (to, from) in into.bytes_mut(0).iter_mut().zip(sample.bytes(0)) {
            *to = from + random.below(50) as u8;
        }
        into.write(1, sample.values::<u32>(1)?)
    });
    let client = Accelerator::cpu().open()?;
    let trainer = Trainer::builder(&client).batch_size(50).epochs(3).build()?;
    let (task, model) = (Classify::<Mlp<()>>::new(), Mlp::new(&[32, 16, 2]));
    let fitted = trainer.fit(task, model, Adam::new(1e-2), train, Pulses(fields))?;
    println!("accuracy: {:.3}", fitted.report.metrics["accuracy"]);
    Ok(())
}
