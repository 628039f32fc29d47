//! Trains networks beside PyTorch and compares the loss of each step.
#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use halite_backends::Accelerator;
use halite_core::{DType, Result};
use halite_tests::parity::{
    Comparison, Network, PyTorch, Size, compare, compare_f32, compare_references, distance,
};

/// Train networks beside PyTorch: the losses of all steps agree to 1e-9 in f64; in f32 the first to
/// 1e-5, later ones to three times the difference of PyTorch with one thread and with two, or 1e-6
#[derive(Parser)]
struct Arguments {
    /// Python with the packages that `golden/pytorch/parity.py` names
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Network: resnet18, vit, lstm, gpt or ct; all if not given
    #[arg(long)]
    model: Vec<Network>,
    /// Accelerator: cpu and embedded if not given
    #[arg(long)]
    accelerator: Vec<Accelerator>,
    /// small or full
    #[arg(long, default_value = "full")]
    size: Size,
    /// Optimizer steps
    #[arg(long, default_value_t = 50)]
    steps: usize,
    /// Compare in f32 too
    #[arg(long)]
    f32: bool,
    /// Compare PyTorch in f64 with itself too, from weights that differ by up to one unit in the
    /// last place
    #[arg(long)]
    condition: bool,
    /// Data set of `halite data fake ct` whose first images are the batches of `ct`; they are
    /// computed without one
    #[arg(long)]
    data: Option<PathBuf>,
    /// Directory in which PyTorch's results are kept for later calls
    #[arg(long)]
    references: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all comparisons agree.
fn run(arguments: &Arguments) -> Result<bool> {
    let Arguments {
        python,
        size,
        steps,
        ..
    } = arguments;
    let networks = match &arguments.model[..] {
        [] => Network::ALL.to_vec(),
        chosen => chosen.to_vec(),
    };
    let accelerators = match &arguments.accelerator[..] {
        [] => vec![Accelerator::cpu(), Accelerator::embedded()],
        chosen => chosen.to_vec(),
    };
    let clients = accelerators
        .iter()
        .map(Accelerator::open)
        .collect::<Result<Vec<_>>>()?;
    let mut agrees = true;
    for network in networks {
        let f64 = PyTorch {
            python,
            steps: *steps,
            dtype: DType::F64,
            threads: 1,
            perturbed: false,
            kept: arguments.references.as_deref(),
            data: arguments.data.as_deref(),
        };
        let exact = f64.train(network, *size)?;
        if let Some(pixels) = exact.pixels {
            println!(
                "{}: Pillow and torchvision read the images of the batches with differences of {pixels}",
                network.name()
            );
        }
        let report = |dtype: DType, what: &str, comparison: &Comparison| {
            let first = comparison.first_beyond();
            let verdict = first.map_or("agrees".into(), |step| {
                format!("differs from step {} on", step + 1)
            });
            println!(
                "{} {dtype} on {what}: {verdict}: {comparison}",
                network.name()
            );
            first.is_none()
        };
        if arguments.condition {
            let perturbed = PyTorch {
                perturbed: true,
                ..f64
            };
            let comparison = compare_references(&exact, &perturbed.train(network, *size)?);
            agrees &= report(DType::F64, "PyTorch, perturbed", &comparison);
        }
        let f32 = |threads| {
            let f32 = PyTorch {
                dtype: DType::F32,
                threads,
                ..f64
            };
            f32.train(network, *size)
        };
        let narrow = match arguments.f32 {
            true => Some([f32(1)?, f32(2)?]),
            false => None,
        };
        for (client, accelerator) in clients.iter().zip(&accelerators) {
            let on = accelerator.to_string();
            let comparison = compare(client, network, *size, &exact)?;
            agrees &= report(DType::F64, &on, &comparison);
            if let Some([one, two]) = &narrow {
                let comparison = compare_f32(client, network, *size, [one, two])?;
                agrees &= report(DType::F32, &on, &comparison);
                println!(
                    "{} f32 on {on}: from the losses in f64 PyTorch differs by {:.1e}, halite by {:.1e}",
                    network.name(),
                    distance(&comparison.theirs, &exact.losses),
                    distance(&comparison.ours, &exact.losses)
                );
            }
        }
    }
    Ok(agrees)
}
