//! Trains networks beside PyTorch and compares the loss of each step.
#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use halite_backends::Accelerator;
use halite_core::{DType, Result};
use halite_tests::parity::{Comparison, Network, Size, compare, compare_f32, pytorch};

/// Train networks beside PyTorch: the losses of all steps agree to 1e-9 in f64; in f32 the first to
/// 1e-5, later ones to three times the difference of PyTorch with one thread and with two, or 1e-6
#[derive(Parser)]
struct Arguments {
    /// Python with the packages that `golden/pytorch/parity.py` names
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Network: resnet18, vit, lstm or gpt; all if not given
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
        let pytorch = |dtype, threads| pytorch(python, network, *size, *steps, dtype, threads);
        let exact = pytorch(DType::F64, 1)?;
        let narrow = match arguments.f32 {
            true => Some([pytorch(DType::F32, 1)?, pytorch(DType::F32, 2)?]),
            false => None,
        };
        for (client, accelerator) in clients.iter().zip(&accelerators) {
            let report = |dtype: DType, comparison: &Comparison| {
                let first = comparison.first_beyond();
                let verdict = first.map_or("agrees".into(), |step| {
                    format!("differs from step {step} on")
                });
                println!(
                    "{} {dtype} on {accelerator}: {verdict}: {comparison}",
                    network.name()
                );
                first.is_none()
            };
            agrees &= report(DType::F64, &compare(client, network, *size, &exact)?);
            if let Some([one, two]) = &narrow {
                agrees &= report(
                    DType::F32,
                    &compare_f32(client, network, *size, [one, two])?,
                );
            }
        }
    }
    Ok(agrees)
}
