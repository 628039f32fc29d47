//! Rates of the kernels, beside the roofline of this machine (Williams, Waterman and Patterson,
//! "Roofline", 2009).
//!
//! `cargo bench -p halite-benches --bench kernels -- [FILTER]`. First the rate of multiply-adds on
//! registers and the rate of reading memory are measured, on all threads. Before each kernel there
//! is a line with the most that these allow: its operations, or each byte of its operands and
//! result moved once, at those rates. Criterion's `elem/s` are floating-point operations per
//! second. A kernel whose operands fit the caches may do more than memory allows.

use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use half::bf16;
use halite_benches::CONVOLUTIONS;
use halite_kernels::{
    Accumulate, Attention, AttentionBackward, AttentionGeometry, Axis, ConvDim, ConvGeometry,
    Convolution, Element, Operand, Reduction, Threads, multiply, reduce,
};
use pulp::{Arch, Simd, WithSimd};

/// Products `[m, k] x [k, n]` of a multilayer perceptron and of a transformer, and which operands
/// are transposed.
const PRODUCTS: [([usize; 3], [bool; 2]); 6] = [
    ([128, 784, 512], [false, false]),
    ([128, 512, 512], [false, true]),
    ([784, 128, 512], [true, false]),
    ([4096, 384, 1536], [false, false]),
    ([4096, 1536, 384], [false, true]),
    ([384, 4096, 1536], [true, false]),
];

/// The most that the machine can do.
struct Roofline {
    /// Floating-point operations per second.
    compute: f64,
    /// Bytes per second.
    memory: f64,
}

impl Roofline {
    fn measure(threads: usize) -> Self {
        let rate = |work: fn() -> f64| {
            let rates = (0..5).map(|_| {
                thread::scope(|scope| {
                    let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                    let rates = all.into_iter().map(|one| one.join().expect("no panic"));
                    rates.sum()
                })
            });
            rates.fold(0.0, f64::max)
        };
        Roofline {
            compute: rate(|| Arch::new().dispatch(MultiplyAdds)),
            memory: rate(read_memory),
        }
    }

    /// The most operations per second of a kernel, and what limits them.
    fn limit(&self, flops: f64, bytes: f64) -> (f64, &'static str) {
        let by_memory = flops / bytes * self.memory;
        if by_memory < self.compute {
            (by_memory, "memory")
        } else {
            (self.compute, "compute")
        }
    }
}

/// Multiply-adds on registers: returns the operations per second of this thread.
struct MultiplyAdds;

impl WithSimd for MultiplyAdds {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        // More sums than the latency of an operation needs, and registers for all of them.
        const SUMS: usize = 12;
        const STEPS: usize = 10_000_000;
        let started = Instant::now();
        let factor = simd.splat_f32s(black_box(0.5));
        let mut sums = [factor; SUMS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f32s(*sum, factor, factor);
            }
        }
        black_box(sums);
        (2 * STEPS * SUMS * S::F32_LANES) as f64 / started.elapsed().as_secs_f64()
    }
}

/// Reads more memory than the caches have: returns the bytes per second of this thread.
fn read_memory() -> f64 {
    const WORDS: usize = 1 << 24;
    const TIMES: usize = 8;
    // Zeros would share one page.
    let words = vec![1u64; WORDS];
    let started = Instant::now();
    for _ in 0..TIMES {
        black_box(black_box(&words).iter().fold(0, |all, word| all ^ word));
    }
    (8 * WORDS * TIMES) as f64 / started.elapsed().as_secs_f64()
}

/// What the benchmarks share.
struct Bench<'c> {
    criterion: &'c mut Criterion,
    roofline: Roofline,
    threads: Threads,
}

impl Bench<'_> {
    /// Measures a kernel, given its floating-point operations and the bytes of its operands and
    /// result.
    fn run(&mut self, name: &str, flops: f64, bytes: f64, mut work: impl FnMut(&Threads) + Send) {
        let (limit, by) = self.roofline.limit(flops, bytes);
        let mut is_told = false;
        let mut group = self.criterion.benchmark_group("kernels");
        group.throughput(Throughput::Elements(flops as u64));
        let threads = &self.threads;
        group.bench_function(name, |bencher| {
            if !std::mem::replace(&mut is_told, true) {
                println!("\n{name}: at most {:.1} GFLOP/s, by {by}", limit / 1e9);
            }
            bencher.iter(|| threads.run(|| work(threads)));
        });
        group.finish();
    }

    fn convolution<T: Element + From<bf16>>(&mut self, dtype: &str, sizes: [usize; 6]) {
        let [batch, features, size, outputs, kernel, stride] = sizes;
        let before = (kernel - 1) / 2;
        let result = size.div_ceil(stride);
        let after = ((result - 1) * stride + kernel).saturating_sub(size + before);
        let dim = ConvDim {
            input: size,
            kernel,
            input_dilation: 1,
            stride,
            dilation: 1,
            low: before as isize,
            high: after as isize,
        };
        let convolution = Convolution::new(ConvGeometry {
            batch,
            features,
            outputs,
            groups: 1,
            spatial: vec![dim; 2],
        })
        .expect("the geometry is valid");
        let geometry = convolution.geometry();
        let lengths = [
            geometry.input_len(),
            geometry.kernel_len(),
            geometry.output_len(),
        ];
        let [mut x, mut w, mut g] = lengths.map(|length| {
            let value = |at: usize| T::from(bf16::from_f32((at * 7919 % 101) as f32 / 50.0 - 1.0));
            (0..length).map(value).collect::<Vec<_>>()
        });
        let flops = 2.0 * (lengths[2] / outputs * lengths[1]) as f64;
        let bytes = (lengths.iter().sum::<usize>() * size_of::<T>()) as f64;
        let shape = format!(
            "{batch}x{size}x{size}x{features} {kernel}x{kernel}/{stride} {outputs} {dtype}"
        );
        self.run(&format!("convolution {shape}"), flops, bytes, |threads| {
            convolution.forward(threads, &x, &w, &mut g);
        });
        self.run(
            &format!("input gradient {shape}"),
            flops,
            bytes,
            |threads| {
                convolution.input_gradient(threads, &w, &g, &mut x);
            },
        );
        self.run(
            &format!("kernel gradient {shape}"),
            flops,
            bytes,
            |threads| {
                convolution.kernel_gradient(threads, &x, &g, &mut w);
            },
        );
    }

    /// Causal attention of `[batch, time, heads, width]` on as many source positions.
    fn attention(&mut self, [batch, time, heads, width]: [usize; 4]) {
        let geometry = AttentionGeometry {
            batch,
            time,
            source: time,
            heads,
            kv_heads: heads,
            width,
            value_width: width,
            causal: true,
        };
        let values = |count: usize| -> Vec<f32> {
            let value = |at: usize| (at * 7919 % 1009) as f32 / 504.5 - 1.0;
            (0..count).map(value).collect()
        };
        let (count, sums) = (geometry.q_len(), geometry.log_sums_len());
        let attention = Attention::new(geometry).expect("the sizes are valid");
        let [q, k, v, g] = [(); 4].map(|()| values(count));
        let row_sums = values(sums);
        let (mut out, mut log_sums) = (values(count), values(sums));
        // Half of the scores are masked.
        let flops = (count * time) as f64;
        let bytes = 4.0 * count as f64;
        let shape = format!("{batch}x{time}x{heads}x{width} f32");
        let name = format!("attention {shape}");
        self.run(&name, 2.0 * flops, 4.0 * bytes, |threads| {
            attention.forward(threads, &q, &k, &v, &mut out, &mut log_sums);
        });
        let mut gradients = [(); 3].map(|()| values(count));
        let name = format!("attention gradient {shape}");
        self.run(&name, 5.0 * flops, 7.0 * bytes, |threads| {
            let [dq, dk, dv] = &mut gradients;
            let operands = AttentionBackward {
                q: &q,
                k: &k,
                v: &v,
                log_sums: &log_sums,
                g: &g,
                row_sums: &row_sums,
            };
            attention.backward(threads, operands, dq, dk, dv);
        });
    }

    fn product(&mut self, [m, k, n]: [usize; 3], transposed: [bool; 2]) {
        let values = |count: usize| -> Vec<f32> {
            let value = |at: usize| (at * 7919 % 1009) as f32 / 504.5 - 1.0;
            (0..count).map(value).collect()
        };
        let axis = |size: usize, stride: usize| {
            Axis::new((0..size).map(|at| (at * stride) as u32).collect())
        };
        let axes = |rows: usize, columns: usize, is_transposed: bool| {
            let strides = if is_transposed {
                [1, rows]
            } else {
                [columns, 1]
            };
            [axis(rows, strides[0]), axis(columns, strides[1])]
        };
        let (a, b) = (values(m * k), values(k * n));
        let (a_axes, b_axes) = (axes(m, k, transposed[0]), axes(k, n, transposed[1]));
        let mut out = vec![0.0; m * n];
        let mark = transposed.map(|is_transposed| if is_transposed { "^T" } else { "" });
        let name = format!("product [{m}, {k}]{} x [{k}, {n}]{}", mark[0], mark[1]);
        let flops = 2.0 * (m * k * n) as f64;
        let bytes = 4.0 * (m * k + k * n + m * n) as f64;
        self.run(&name, flops, bytes, |threads| {
            let [a, b] = [(&a, &a_axes), (&b, &b_axes)].map(|(data, [rows, columns])| Operand {
                data,
                offset: 0,
                rows,
                columns,
            });
            multiply(threads, a, b, &mut out);
        });
    }

    /// Sums over the middle dimension.
    fn sum(&mut self, [outer, reduced, inner]: [usize; 3]) {
        let count = outer * reduced * inner;
        let x: Vec<u32> = (0..count).map(|at| (at as f32).to_bits()).collect();
        let mut out = vec![0; outer * inner];
        let sizes = Reduction {
            outer,
            reduced,
            inner,
            op: Accumulate::AddF,
        };
        let bytes = 4.0 * (count + out.len()) as f64;
        let name = format!("sums {:?}", [outer, reduced, inner]);
        self.run(&name, count as f64, bytes, |threads| {
            reduce(threads, sizes, 0, &x, &mut out);
        });
    }
}

fn kernels(criterion: &mut Criterion) {
    let count = thread::available_parallelism().map_or(1, usize::from);
    let roofline = Roofline::measure(count);
    println!(
        "{count} threads: multiply-adds {:.0} GFLOP/s, reading memory {:.1} GB/s",
        roofline.compute / 1e9,
        roofline.memory / 1e9
    );
    let mut bench = Bench {
        criterion,
        roofline,
        threads: Threads::new(count).expect("threads start"),
    };
    for sizes in CONVOLUTIONS {
        bench.convolution::<f32>("f32", sizes);
    }
    bench.convolution::<bf16>("bf16", [64, 64, 32, 64, 3, 1]);
    for (sizes, transposed) in PRODUCTS {
        bench.product(sizes, transposed);
    }
    bench.attention([16, 256, 6, 64]);
    bench.attention([4, 1024, 12, 64]);
    // Larger than the caches.
    bench.sum([1, 1 << 20, 64]);
    bench.sum([1 << 16, 1024, 1]);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600));
    targets = kernels
}
criterion_main!(benches);
