//! The plan's memory compared with the memory of the process. The only test in this binary, so that
//! nothing else changes it.

use halite::{
    backends::{OpenOptions, Target},
    fetch::Bar,
    models::{Classify, Mlp},
    nn::Adam,
    plan::plan,
    prelude::*,
    train::{LowerOptions, Strategy, lower_step},
};
use halite_core::{Arg, CompileOptions, DeviceBuffer, HostBytes, Launch};

/// A number of bytes in `/proc/self/status`.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[test]
fn step_on_cpu_uses_the_planned_memory() {
    let target = "cpu:1"
        .parse::<Target>()
        .unwrap()
        .open(&OpenOptions::default(), &mut Bar::default())
        .unwrap();
    let options = LowerOptions::new(
        &target.mesh([("data", 1)]).unwrap(),
        Strategy::data_parallel(),
    );
    let batch = [
        TensorType::new(DType::U8, [512, 28, 28]),
        TensorType::new(DType::U8, [512]),
    ];
    let (task, model, optimizer) = (
        || Classify::<Mlp<()>>::new(),
        || Mlp::new(&[784, 4096, 4096, 10]),
        || Adam::new(1e-3),
    );
    let plan = plan(&target, task(), model(), optimizer(), &batch, &options).unwrap();
    let said = plan.memory.unwrap();

    let step = lower_step(task(), model(), optimizer(), &batch, &options).unwrap();
    let client = Accelerator::cpu().open().unwrap();
    let device = client.local_devices()[0];
    let loaded = client
        .compile(&step.program, &CompileOptions::default())
        .unwrap();
    drop(step.graph);
    let before = status("VmRSS");
    let mut arguments: Vec<DeviceBuffer> = Vec::new();
    for ty in &step.program.signature.inputs {
        // Ones: pages of zeros that were never written take no memory.
        let ones = vec![1u8; ty.bytes()];
        let buffer = client
            .upload(HostBytes::Borrowed(&ones), ty, device.into())
            .unwrap();
        buffer.ready().unwrap().pending("upload").wait().unwrap();
        arguments.push(buffer);
    }
    let resident = status("VmRSS") - before;
    let close = |measured: u64, said: u64| (0.8..1.25).contains(&(measured as f64 / said as f64));
    assert!(
        close(resident, said.arguments),
        "arguments take {resident} bytes, the plan says {}",
        said.arguments
    );

    // Resets the high-water mark.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let donated = &step.program.signature.donated;
    let args = arguments.into_iter().enumerate();
    let (moved, kept): (Vec<_>, Vec<_>) = args.partition(|(index, _)| donated.contains(index));
    let mut row: Vec<(usize, Arg<'_, DeviceBuffer>)> = moved
        .into_iter()
        .map(|(index, buffer)| (index, Arg::Donate(buffer)))
        .collect();
    row.extend(
        kept.iter()
            .map(|(index, buffer)| (*index, Arg::Borrow(buffer))),
    );
    row.sort_by_key(|(index, _)| *index);
    let launched = loaded
        .launch(Launch {
            args: vec![row.into_iter().map(|(_, arg)| arg).collect()],
        })
        .unwrap();
    for output in &launched.outputs[0] {
        output.ready().unwrap().pending("output").wait().unwrap();
    }
    let peak = status("VmHWM") - before;
    assert!(
        close(peak, said.peak),
        "a step takes {peak} bytes at its peak, the plan says {}",
        said.peak
    );
    println!(
        "arguments {resident} of {}, peak {peak} of {} bytes",
        said.arguments, said.peak
    );
}
