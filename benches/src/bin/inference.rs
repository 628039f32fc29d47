//! Inference of image classifiers, as a peer of `peers/inference.py`: `inference resnet50 32`
//! (model and batch size), with an accelerator as third argument (default `cpu`).
//!
//! A run of `n` steps is `n` forward passes, one after the other, over one batch on the device.
#![forbid(unsafe_code)]

use std::{io::BufRead, process::ExitCode, time::Instant};

use halite::{
    Array, Error, HostArray, Param, Result, Sharding, Tree,
    backends::Accelerator,
    models::{Classifier, ClassifierVisitor, ColorImageModel, DescribedClassifier},
    nn::{Jit, Model},
    tree::{Empty, Leaf},
};
use halite_benches::{data, exit_code};

/// As in the peer of training.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || Error::invalid("inference", "expected MODEL BATCH [ACCELERATOR]");
    let [model, batch, rest @ ..] = &arguments[..] else {
        return Err(usage());
    };
    let (classifier, batch) = (
        model.parse::<Classifier>()?,
        batch.parse().map_err(|_| usage())?,
    );
    let accelerator = match rest.first() {
        Some(name) => name.parse()?,
        None => Accelerator::cpu(),
    };
    let side = classifier.framing().side;
    let images = data(&[batch, side, side, 3]);
    let peer = Peer {
        accelerator,
        images,
    };
    classifier.visit(1000, side, peer)
}

struct Peer {
    accelerator: Accelerator,
    images: HostArray,
}

impl ClassifierVisitor for Peer {
    type Output = ();

    fn visit<M: ColorImageModel>(
        self,
        classifier: DescribedClassifier<M::Of<Param>>,
    ) -> Result<()> {
        let client = self.accelerator.open()?;
        let leaves = classifier.net.leaves();
        let trained = leaves.iter().filter(|param| param.trainable);
        let parameters: usize = trained.map(|param| param.ty.elements()).sum();
        let device = Sharding::single(client.local_devices()[0]);
        let model = classifier.net.initialize(&client, 1)?;
        let images = Array::upload(&client, &self.images, &device)?;
        let forward = Jit::<Empty<()>, (M, Leaf<()>), Leaf<()>>::new(
            &client,
            |cx, nothing, (model, Leaf(images))| {
                cx.set_mode(false, None);
                (nothing, Leaf(M::logits(&model, images)))
            },
        );
        let forward = forward.on(device.mesh());
        let pass = |count: usize| -> Result<f32> {
            let mut last = None;
            for _ in 0..count {
                let logits = forward
                    .run_with((Tree::leaf_refs(&model), Leaf(&images)))?
                    .0;
                logits.wait()?;
                last = Some(logits);
            }
            let logits = last.map(|logits| logits.to_vec::<f32>()).transpose()?;
            Ok(logits
                .and_then(|logits| logits.first().copied())
                .unwrap_or_default())
        };
        let started = Instant::now();
        let first = pass(1)?;
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "READY {{\"first_step_s\": {seconds:.3}, \"since_exec_s\": 0, \"parameters\": \
             {parameters}, \"loss1\": {first:.4}, \"loss5\": {:.4}}}",
            pass(4)?
        );
        for line in std::io::stdin().lock().lines() {
            let line = line.unwrap_or_default();
            let count = line
                .strip_prefix("RUN ")
                .and_then(|count| count.trim().parse().ok());
            let Some(count) = count else {
                break;
            };
            let started = Instant::now();
            pass(count)?;
            println!("DONE {:.9}", started.elapsed().as_secs_f64());
        }
        println!("BYE {{\"peak_rss_mb\": 0}}");
        Ok(())
    }
}
