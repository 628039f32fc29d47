//! Rates of convolutions and their gradients, in GFLOP/s: the least time of some rounds.
//!
//! `cargo run --release -p halite-kernels --example convolutions -- [f32|bf16] [THREADS] [FILTER]`
//!
//! Shapes are those of the training steps in `benches/peers`. A line has batch, input features,
//! size, output features, kernel size, stride and groups, and the rates of the result, the input
//! gradient and the kernel gradient.

use std::time::{Duration, Instant};

use half::bf16;
use halite_kernels::{ConvDim, ConvGeometry, Convolution, Element, Threads};

/// Batch, features, size, outputs, kernel size, stride, groups.
const SHAPES: [[usize; 7]; 24] = [
    [128, 32, 28, 64, 3, 1, 1],
    [128, 1, 28, 32, 3, 1, 1],
    [64, 3, 32, 64, 3, 1, 1],
    [64, 64, 32, 64, 3, 1, 1],
    [64, 64, 32, 128, 3, 2, 1],
    [64, 64, 32, 128, 1, 2, 1],
    [64, 128, 16, 128, 3, 1, 1],
    [64, 128, 16, 256, 3, 2, 1],
    [64, 128, 16, 256, 1, 2, 1],
    [64, 256, 8, 256, 3, 1, 1],
    [64, 256, 8, 512, 3, 2, 1],
    [64, 512, 4, 512, 3, 1, 1],
    [8, 3, 224, 64, 7, 2, 1],
    [8, 64, 56, 64, 1, 1, 1],
    [8, 64, 56, 64, 3, 1, 1],
    [8, 64, 56, 256, 1, 1, 1],
    [8, 256, 56, 64, 1, 1, 1],
    [8, 128, 28, 128, 3, 1, 1],
    [8, 512, 28, 128, 1, 1, 1],
    [8, 256, 56, 512, 1, 2, 1],
    [8, 1024, 14, 256, 1, 1, 1],
    [8, 512, 7, 512, 3, 1, 1],
    [8, 512, 7, 2048, 1, 1, 1],
    [8, 128, 28, 128, 3, 1, 128],
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dtype = args.next().unwrap_or_else(|| "f32".into());
    let threads = args.next().map_or(Ok(2), |count| count.parse())?;
    let filter = args.next().unwrap_or_default();
    let threads = Threads::new(threads)?;
    for shape in SHAPES {
        let name = shape.map(|size| size.to_string()).join(" ");
        if !name.contains(&filter) {
            continue;
        }
        let rates = match &dtype[..] {
            "f32" => rates(&threads, shape, |value| value)?,
            "bf16" => rates(&threads, shape, bf16::from_f32)?,
            other => return Err(format!("unknown dtype `{other}`; expected f32 or bf16").into()),
        };
        let rates = rates.map(|rate| format!("{rate:5.0}")).join(" ");
        println!("{name:24} {rates}");
    }
    Ok(())
}

/// Rates of the result, the input gradient and the kernel gradient.
fn rates<T: Element>(
    threads: &Threads,
    [batch, features, size, outputs, kernel, stride, groups]: [usize; 7],
    element: impl Fn(f32) -> T,
) -> Result<[f64; 3], Box<dyn std::error::Error>> {
    let padding = (kernel / 2) as isize;
    let dim = ConvDim {
        input: size,
        kernel,
        stride,
        dilation: 1,
        low: padding,
        high: padding,
    };
    let convolution = Convolution::new(ConvGeometry {
        batch,
        features,
        outputs,
        groups,
        spatial: vec![dim; 2],
    })?;
    let values = |count: usize| -> Vec<T> {
        let value = |at: usize| (at * 7919 % 1009) as f32 / 504.5 - 1.0;
        (0..count).map(|at| element(value(at))).collect()
    };
    let geometry = convolution.geometry();
    let mut x = values(geometry.input_len());
    let mut kernel = values(geometry.kernel_len());
    let mut g = values(geometry.output_len());
    let flops = 2.0 * (g.len() / outputs * kernel.len()) as f64;
    Ok([
        rate(flops, || convolution.forward(threads, &x, &kernel, &mut g)),
        rate(flops, || {
            convolution.input_gradient(threads, &kernel, &g, &mut x);
        }),
        rate(flops, || {
            convolution.kernel_gradient(threads, &x, &g, &mut kernel);
        }),
    ])
}

/// Runs `work` for some rounds, and returns its best rate in GFLOP/s.
fn rate(flops: f64, mut work: impl FnMut()) -> f64 {
    work();
    let mut least = f64::MAX;
    let (started, mut rounds) = (Instant::now(), 0);
    while rounds < 3 || started.elapsed() < Duration::from_millis(250) {
        let before = Instant::now();
        work();
        least = least.min(before.elapsed().as_secs_f64());
        rounds += 1;
    }
    flops / least / 1e9
}
