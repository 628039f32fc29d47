//! One training step compiled for accelerators that are not here: what it needs on each device, and
//! what the devices send each other.
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
        targets.push("cpu:8".to_owned());
    }
    for target in targets {
        let target = target
            .parse::<Target>()?
            .open(&OpenOptions::default(), &mut Bar::default())?;
        let devices = target.devices().len();
        let mesh = target.mesh([("data", devices)])?;

        // 64 images for each device. Nothing of this size is made: the step is traced from types
        // alone.
        let batch = [
            TensorType::new(DType::U8, [64 * devices, 28, 28]),
            TensorType::new(DType::U8, [64 * devices]),
        ];
        let task = Classify::<Mlp<()>>::new();
        let options = LowerOptions::new(&mesh, Strategy::fsdp());
        let step = lower_step(
            task,
            Mlp::new(&[784, 2048, 2048, 10]),
            Adam::new(1e-3),
            &batch,
            &options,
        )?;

        let compiled = target.compile(&step.program, &Default::default())?;
        let memory = compiled.memory()?;
        println!("{}: {devices} x {}", target.target(), target.device_kind());
        println!(
            "  on each: arguments {}, temporary {}",
            Bytes(memory.arguments),
            Bytes(memory.temporary)
        );
        if let Some(limit) = target.memory_per_device() {
            println!(
                "  at its peak {} of {}",
                Bytes(memory.peak.unwrap_or_default()),
                Bytes(limit)
            );
        }
        for one in compiled.collectives()?.uses {
            println!(
                "  {} x {} over groups of {}: {}",
                one.count,
                one.kind,
                one.group,
                Bytes(one.bytes)
            );
        }
        println!("  serialized {}", Bytes(compiled.serialize()?.len() as u64));
    }
    Ok(())
}
