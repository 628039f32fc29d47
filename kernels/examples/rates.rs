//! Rates of the kernels on one thread, beside the rate of the processor's multiply-add units.
//!
//! `cargo run --release -p halite-kernels --example rates -- [FILTER]`
//!
//! Times are processor times of the thread, where the system reports them, the least of some
//! rounds: other load on the machine changes them little.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use halite_kernels::{Axis, Operand, Threads, multiply};
use pulp::{Arch, Simd, WithSimd};

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let peak = peak();
    println!("multiply-add units: {peak:.0} GFLOP/s");
    for (name, [m, k, n], transposed) in products() {
        if name.contains(&filter) {
            let rate = product([m, k, n], transposed);
            println!(
                "{name:24} [{m}, {k}] x [{k}, {n}]: {rate:4.0} GFLOP/s, {:3.0} %",
                100.0 * rate / peak
            );
        }
    }
}

/// Products of training steps: name, sizes, and which operands are transposed.
fn products() -> Vec<(&'static str, [usize; 3], [bool; 2])> {
    vec![
        ("square", [512, 512, 512], [false, false]),
        ("mlp forward", [128, 784, 512], [false, false]),
        ("mlp forward 2", [128, 512, 512], [false, false]),
        ("mlp forward 3", [128, 512, 10], [false, false]),
        ("mlp input gradient", [128, 512, 512], [false, true]),
        ("mlp input gradient 3", [128, 10, 512], [false, true]),
        ("mlp weight gradient", [784, 128, 512], [true, false]),
        ("mlp weight gradient 2", [512, 128, 512], [true, false]),
        ("mlp weight gradient 3", [512, 128, 10], [true, false]),
        ("gpt forward", [4096, 384, 1536], [false, false]),
        ("gpt forward 2", [4096, 1536, 384], [false, false]),
        ("gpt input gradient", [4096, 1536, 384], [false, true]),
        ("gpt weight gradient", [384, 4096, 1536], [true, false]),
    ]
}

/// Runs `work` for some rounds, and returns its rate in GFLOP/s.
fn rate(flops: f64, mut work: impl FnMut()) -> f64 {
    work();
    let mut least = f64::MAX;
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(300) {
        let before = thread_time();
        let mut count = 0;
        while count == 0 || (thread_time() - before < 2e-3) {
            work();
            count += 1;
        }
        least = least.min((thread_time() - before) / f64::from(count));
    }
    flops / least / 1e9
}

/// Seconds of processor time of this thread, or of the clock where the system does not report it.
fn thread_time() -> f64 {
    thread_local!(static START: Instant = Instant::now());
    let nanoseconds = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(
        || START.with(Instant::elapsed).as_secs_f64(),
        |it| it * 1e-9,
    )
}

fn values(count: usize) -> Vec<f32> {
    (0..count)
        .map(|at| (at * 7919 % 1009) as f32 / 504.5 - 1.0)
        .collect()
}

fn product([m, k, n]: [usize; 3], transposed: [bool; 2]) -> f64 {
    let axis =
        |size: usize, stride: usize| Axis::new((0..size).map(|at| (at * stride) as u32).collect());
    let axes = |rows: usize, columns: usize, is_transposed: bool| {
        let (of_rows, of_columns) = if is_transposed {
            (1, rows)
        } else {
            (columns, 1)
        };
        (axis(rows, of_rows), axis(columns, of_columns))
    };
    let (a, b) = (values(m * k), values(k * n));
    let (a_axes, b_axes) = (axes(m, k, transposed[0]), axes(k, n, transposed[1]));
    let operand = |data| {
        move |(rows, columns)| Operand {
            data,
            offset: 0,
            rows,
            columns,
        }
    };
    let a = operand(&a)((&a_axes.0, &a_axes.1));
    let b = operand(&b)((&b_axes.0, &b_axes.1));
    let mut out = vec![0.0; m * n];
    let threads = Threads::new(1).expect("one thread is the caller's");
    rate(2.0 * (m * k * n) as f64, || {
        multiply(&threads, a, b, &mut out);
    })
}

/// The rate of multiply-adds on registers.
fn peak() -> f64 {
    const STEPS: usize = 10_000;
    const SUMS: usize = 16;
    struct Peak;
    impl WithSimd for Peak {
        type Output = usize;

        /// Returns the number of lanes.
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> usize {
            let factor = simd.splat_f32s(black_box(0.5));
            let mut sums = [factor; SUMS];
            for _ in 0..STEPS {
                for sum in &mut sums {
                    *sum = simd.mul_add_e_f32s(*sum, factor, factor);
                }
            }
            black_box(sums);
            S::F32_LANES
        }
    }
    let arch = Arch::new();
    let lanes = arch.dispatch(Peak);
    rate((2 * STEPS * SUMS * lanes) as f64, || {
        arch.dispatch(Peak);
    })
}
