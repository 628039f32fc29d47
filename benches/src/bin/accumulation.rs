//! Cost of accumulated gradients beside that of as many gradient passes.
//!
//! `cargo run --release -p halite-benches --bin accumulation -- [PAIRS] [ACCELERATOR]`, by default
//! 7 pairs on `cpu`. A pair is timed in turns: the gradients of four batches in one program, and
//! the program of the gradients of one batch, launched four times. The ratio should be at most
//! 1.02.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use halite::{
    Array, Client, Param, Result, Tree,
    backends::Accelerator,
    models::{Cnn, Mlp},
    nn::{Jit, Mean, Sgd, Tensor, Trace, cross_entropy, grad},
    train::State,
    tree::{Empty, Leaf},
};
use halite_benches::{Forward, ProcessorClock, Ratios, measure_pairs};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Batches whose gradients are added up.
const BATCHES: usize = 4;
/// Samples of a batch.
const SIZE: usize = 64;
/// Steps of a measurement.
const STEPS: usize = 20;

/// Images and labels.
type Batch = (Leaf<()>, Leaf<()>);

fn main() -> ExitCode {
    measure_pairs("accumulation", 7, run)
}

fn run(pairs: usize, accelerator: &Accelerator) -> Result<()> {
    let client = accelerator.open()?;
    println!("{BATCHES} batches of {SIZE}: processor time of accumulation / of gradient passes");
    let mlp = Mlp::new(&[28 * 28, 512, 512, 10]);
    compare::<Mlp<()>>(&client, "mlp", mlp, &[28 * 28], pairs)?;
    compare::<Cnn<()>>(&client, "cnn", Cnn::new(28, 10), &[28, 28, 1], pairs)
}

fn compare<M: Forward>(
    client: &Client,
    name: &str,
    net: M::Of<Param>,
    image: &[usize],
    pairs: usize,
) -> Result<()>
where
    M::Of<Param>: Clone + Send + Sync,
{
    let state = State::new(client, &net, &Sgd::new(0.1), 0)?;
    let model = &state.model;
    let single = Jit::<Empty<()>, (M, Batch), M>::function(client, |cx, (model, (x, y))| {
        gradients::<M>(cx, &model, x.0, y.0).1
    });
    let several = Jit::<Empty<()>, (M, Batch), M>::function(client, |cx, (model, (x, y))| {
        let leaves: Vec<Tensor<'_>> = model.leaves().into_iter().copied().collect();
        let (_, sums) = cx.accumulate_gradients((x, y), &leaves, |(x, y)| {
            let (loss, gradients) = gradients::<M>(cx, &model, x.0, y.0);
            (loss, gradients.into_leaves())
        });
        model.with_leaves(sums)
    });
    let one = batch(client, &[SIZE], image)?;
    let all = batch(client, &[BATCHES, SIZE], image)?;
    let time = |program: &Jit<Empty<()>, (M, Batch), M>, batch: &[Array; 2], launches: usize| {
        let clock = ProcessorClock::start();
        for _ in 0..launches {
            let batch = (Leaf(&batch[0]), Leaf(&batch[1]));
            let gradients = program.run_with((Tree::leaf_refs(model), batch))?;
            gradients.leaves().into_iter().try_for_each(Array::wait)?;
        }
        Ok::<f64, halite::Error>(clock.seconds())
    };
    time(&single, &one, 1)?;
    time(&several, &all, 1)?;
    let mut ratios = Ratios::default();
    for _ in 0..pairs {
        let passes = time(&single, &one, BATCHES * STEPS)?;
        ratios.0.push(time(&several, &all, STEPS)? / passes);
    }
    println!("{name}: {ratios}");
    Ok(())
}

/// The mean loss of a batch, and its gradients.
fn gradients<'t, M: Forward>(
    _: &'t Trace,
    model: &M::Of<Tensor<'t>>,
    x: Tensor<'t>,
    y: Tensor<'t>,
) -> (Mean<'t>, M::Of<Tensor<'t>>) {
    let loss = Mean::of(cross_entropy(M::logits(model, x), y));
    (loss, grad(loss.value(), model))
}

/// Images and labels with these first dimensions, and an image's own dimensions.
fn batch(client: &Client, dims: &[usize], image: &[usize]) -> Result<[Array; 2]> {
    let count: usize = dims.iter().product();
    let images: Vec<f32> = (0..count * 28 * 28)
        .map(|i| (i as f32 * 0.37).sin())
        .collect();
    let labels: Vec<i32> = (0..count as i32).map(|i| i % 10).collect();
    Ok([
        Array::from_slice(client, &images, [dims, image].concat())?,
        Array::from_slice(client, &labels, dims)?,
    ])
}
