//! Ahead-of-time compilation of a training step for accelerators that this machine does not have:
//! memory on each device, and collectives between them.
//!
//! `cargo run --release --example ahead -- tpu:v5e:4x4 cuda:h100:1x8` installs the vendors'
//! compilers where they are missing: libtpu (205 MB), and XLA's CUDA plugin with NVIDIA's tools
//! (234 MB). Without targets it compiles for eight virtual CPUs.
use halite::{
    backends::{OpenOptions, Target},
    fetch::{Bar, Bytes},
    models::{Classify, Mlp},
    prelude::*,
    train::{LowerOptions, Strategy, lower_step},
};

fn main() -> Result<()> {
    let mut targets: Vec<String> = std::env::args().skip(1).collect();
    if targets.is_empty() {
        targets.push("cpu:8".into());
    }
    for target in targets {
        let target: Target = target.parse()?;
        let target = target.open(&OpenOptions::default(), &mut Bar::default())?;
        let devices = target.devices().len();
        let mesh = target.mesh([("data", devices)])?;

        // 64 images for each device. The step is traced from types alone, without data.
        let batch = [
            TensorType::new(DType::U8, [64 * devices, 28, 28]),
            TensorType::new(DType::U8, [64 * devices]),
        ];
        let (task, model) = (Classify::<Mlp<()>>::new(), Mlp::new(&[784, 2048, 2048, 10]));
        let options = LowerOptions::new(&mesh, Strategy::fsdp());
        let step = lower_step(task, model, Adam::new(1e-3), &batch, &options)?;

        let compiled = target.compile(&step.program, &Default::default())?;
        let memory = compiled.memory()?;
        println!("{}: {devices} x {}", target.target(), target.device_kind());
        let (arguments, temporary) = (Bytes(memory.arguments), Bytes(memory.temporary));
        println!("  on each device: arguments {arguments}, temporary {temporary}");
        if let Some(limit) = target.memory_per_device() {
            println!("  {} of {}", Bytes(memory.required()), Bytes(limit));
        }
        for one in compiled.collectives()?.uses {
            let (count, kind, group, bytes) = (one.count, one.kind, one.group, Bytes(one.bytes));
            println!("  {count} x {kind} over groups of {group}: {bytes}");
        }
        println!("  serialized {}", Bytes(compiled.serialize()?.len() as u64));
    }
    Ok(())
}
