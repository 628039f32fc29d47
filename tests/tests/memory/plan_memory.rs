//! Memory of the process: of a step, compared with its plan, and of large random draws.

use halite::{
    backends::{OpenOptions, Target},
    fetch::Bar,
    models::{Classify, Mlp},
    nn::{Adam, rng},
    plan::plan,
    prelude::*,
    train::{LowerOptions, Strategy, lower_step},
};
use halite_core::{Arg, CompileOptions, DeviceBuffers, HostBytes, Program};

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

/// Resets the high-water mark, `VmHWM`.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

#[test]
fn step_on_cpu_uses_the_planned_memory() {
    let _alone = crate::alone();
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
    let planned = plan.memory.unwrap();

    let step = lower_step(task(), model(), optimizer(), &batch, &options).unwrap();
    let client = Accelerator::cpu().open().unwrap();
    let loaded = client
        .compile(&step.program, &CompileOptions::default())
        .unwrap();
    drop(step.graph);
    let before = status("VmRSS");
    let mut arguments: Vec<Option<DeviceBuffers>> = upload_ones(&client, &step.program)
        .into_iter()
        .map(Some)
        .collect();
    let resident = status("VmRSS") - before;
    check("arguments", resident, planned.arguments);

    reset_peak();
    let donated = &step.program.signature.donated;
    let args = arguments
        .iter_mut()
        .enumerate()
        .map(|(index, buffer)| match buffer {
            buffer if donated.contains(&index) => {
                Arg::Donate(buffer.take().expect("it is taken once"))
            }
            buffer => Arg::Borrow(buffer.as_ref().expect("it is not donated")),
        });
    for output in loaded.launch(args.collect()).unwrap() {
        output
            .first()
            .ready()
            .unwrap()
            .pending("output")
            .wait()
            .unwrap();
    }
    let peak = status("VmHWM") - before;
    check("peak of a step", peak, planned.peak);
}

/// A draw of `f64` needs 8 bytes of random bits and the number, and may hold both. The limit leaves room
/// for as much again, not for a copy at each round of the cipher.
#[test]
fn large_draws_take_bounded_memory() {
    const COUNT: usize = 5_000_000;
    let _alone = crate::alone();
    for accelerator in ["embedded", "cpu"] {
        let client = accelerator.parse::<Accelerator>().unwrap().open().unwrap();
        let draw = jit(&client, |_cx, [key]| {
            let normal = rng::normal(key, [COUNT], DType::F64).max([0]);
            let rare = rng::uniform(key, [COUNT], DType::F64, 0.0, 1.0).lt(1e-10);
            [normal, rare.convert(DType::F64).sum([0])]
        });
        let key = Array::from_slice(&client, &[0u32, 3], [2]).unwrap();
        let before = status("VmRSS");
        reset_peak();
        let [largest, _] = draw.run([&key]).unwrap();
        let largest = largest.item::<f64>().unwrap();
        assert!(largest > 4.5, "the largest of {COUNT}: {largest}");
        let peak = (status("VmHWM") - before) as f64 / COUNT as f64;
        println!("{accelerator}: {peak:.1} bytes for each number");
        assert!(peak < 32.0);
    }
}

fn check(what: &str, measured: u64, planned: u64) {
    println!("{what}: {measured} bytes, the plan says {planned}");
    assert!((0.8..1.25).contains(&(measured as f64 / planned as f64)));
}

/// Arguments of a program. Ones: pages of zeros that were never written take no memory.
fn upload_ones(client: &Client, program: &Program) -> Vec<DeviceBuffers> {
    let upload = |ty: &TensorType| {
        let ones = vec![1u8; ty.bytes()];
        let device = client.local_devices()[0];
        let buffer = client
            .upload(HostBytes::Borrowed(&ones), ty, device.into())
            .unwrap();
        buffer
            .first()
            .ready()
            .unwrap()
            .pending("upload")
            .wait()
            .unwrap();
        buffer
    };
    program.signature.inputs.iter().map(upload).collect()
}
