//! Cost of launching, tracing and printing, uploading, and of whole training steps.
//!
//! `cargo bench -p halite-benches`. On the backend `Null` the measured time is the
//! overhead of halite.

use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};

use halite::{
    Array, Client, HostArray, Mesh, MeshShape, Sharding,
    backends::Accelerator,
    models::{Cnn, Mlp},
    nn::{Adam, Optimizer, Sgd},
};
use halite_benches::{Bare, Forward, WideCnn, data, labels};
use halite_core::Null;

/// Steps queued before a wait, as in a training loop.
const QUEUED: usize = 32;

fn tiny(client: &Client) -> Bare<Mlp<()>, Sgd> {
    Bare::new(
        client,
        Mlp::new(&[32, 32, 32]),
        Sgd::new(0.01),
        &data(&[8, 32]),
        &labels([8], 32),
    )
    .expect("uploads")
}

fn wide_cnn(client: &Client) -> Bare<WideCnn<()>, Sgd> {
    let sgd = Sgd::new(0.01).momentum(0.9);
    Bare::new(
        client,
        WideCnn::new(),
        sgd,
        &data(&[128, 28, 28, 1]),
        &labels([128], 10),
    )
    .expect("uploads")
}

/// The CNN of `halite train mnist` over eight devices: 26 arrays of state, two of a batch.
fn sharded(client: &Client, strategy: &str, axes: &str) -> Bare<Cnn<()>, Adam> {
    let axes: MeshShape = axes.parse().expect("axes");
    let mesh = Arc::new(Mesh::new(axes, client.local_devices()).expect("eight devices"));
    let (x, y) = (data(&[64, 28, 28, 1]), labels([64], 10));
    Bare::over(
        &mesh,
        &strategy.parse().expect("a strategy"),
        client,
        Cnn::new(28, 10),
        Adam::new(1e-3),
        &x,
        &y,
    )
    .expect("uploads")
}

/// Mean time of `QUEUED` steps.
fn steps<M: Forward, O: Optimizer + Clone>(
    criterion: &mut Criterion,
    name: &str,
    mut bare: Bare<M, O>,
) {
    bare.run(2).expect("the step runs");
    criterion.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            let started = std::time::Instant::now();
            for _ in 0..iterations {
                bare.run(QUEUED).expect("the step runs");
                bare.loss().expect("the step ran");
            }
            started.elapsed() / QUEUED as u32
        });
    });
}

fn benchmarks(criterion: &mut Criterion) {
    let null = Client::new(Null::new(1));
    let cpu = Accelerator::cpu()
        .open()
        .expect("the CPU plugin, which is installed if it is missing");

    steps(criterion, "launch/tiny step/null", tiny(&null));
    steps(criterion, "launch/tiny step/cpu", tiny(&cpu));

    let null = Client::new(Null::new(8));
    let layouts = [("dp", "data=8"), ("dp+tp", "data=2,model=4")];
    for (strategy, axes) in layouts {
        steps(
            criterion,
            &format!("launch/mnist step over 8/{strategy}/null"),
            sharded(&null, strategy, axes),
        );
    }

    let cnn = wide_cnn(&null);
    criterion.bench_function("trace and print/cnn step", |bencher| {
        bencher.iter(|| cnn.lower().expect("a model without mistakes"))
    });

    let device = Sharding::single(cpu.local_devices()[0]);
    for (name, size) in [("1 kB", 256), ("1 MB", 262_144), ("64 MB", 16_777_216)] {
        let host = HostArray::from_slice(&vec![1.0f32; size], [size]).expect("sizes agree");
        criterion.bench_function(&format!("upload/{name}"), |bencher| {
            bencher.iter(|| {
                Array::upload(&cpu, &host, &device)
                    .and_then(|array| array.wait())
                    .expect("the device takes it")
            });
        });
    }

    let mlp = Mlp::new(&[784, 512, 512, 10]);
    let mlp = Bare::<Mlp<()>, _>::new(
        &cpu,
        mlp,
        Adam::new(1e-3),
        &data(&[128, 784]),
        &labels([128], 10),
    )
    .expect("uploads");
    steps(criterion, "train step/mlp", mlp);
    steps(criterion, "train step/cnn", wide_cnn(&cpu));
}

criterion_group!(name = all; config = Criterion::default().sample_size(10).measurement_time(std::time::Duration::from_secs(3)); targets = benchmarks);
criterion_main!(all);
