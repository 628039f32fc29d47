//! Rates of convolutions and their gradients: XLA's code on the CPU beside halite's kernels.
//!
//! `convolutions [FILTER]`. For each shape of the table whose name contains the filter, programs of
//! XLA's convolution and of halite's kernel alternate; the rates are those of the fastest rounds.
//! `halite::ir::with_kernels` calls the kernels that are faster here.
#![forbid(unsafe_code)]

use std::{process::ExitCode, time::Instant};

use halite::{
    Array, Client, DType, Result, TensorType,
    backends::Accelerator,
    core::{
        Kernels,
        tree::{Empty, Leaf},
    },
    nn::{ConvOptions, CustomOp, Jit, Padding, Tensor, grad},
};
use halite_benches::CONVOLUTIONS;

/// As in `peer`: XLA's CPU plugin allocates for every launch, from several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A convolution of square images, padded so that the result has the size of the input over the
/// stride.
struct Shape {
    batch: usize,
    features: usize,
    size: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
}

/// Two tensors, as the inputs of a program.
type Pair<'t> = (Leaf<Tensor<'t>>, Leaf<Tensor<'t>>);
/// A program of two arrays.
type Program = Jit<Empty<()>, (Leaf<()>, Leaf<()>), Leaf<()>>;

fn main() -> ExitCode {
    let filter = std::env::args().nth(1).unwrap_or_default();
    match run(&filter) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(filter: &str) -> Result<()> {
    let client = Accelerator::cpu().open()?.with_kernels(Kernels::Off);
    println!("GFLOP/s of XLA / of the kernel: result, input gradient, kernel gradient");
    for [batch, features, size, outputs, kernel, stride] in CONVOLUTIONS {
        let shape = Shape {
            batch,
            features,
            size,
            outputs,
            kernel,
            stride,
        };
        let name = shape.name();
        if name.contains(filter) {
            let rates = shape.rates(&client)?;
            let rates =
                rates.map(|[xla, own]| format!("{xla:4.0} / {own:4.0} ({:4.2})", own / xla));
            println!("{name:26} {}", rates.join("  "));
        }
    }
    Ok(())
}

impl Shape {
    fn name(&self) -> String {
        let Shape {
            batch,
            features,
            size,
            outputs,
            kernel,
            stride,
        } = self;
        format!("{batch}x{size}x{size}x{features} {kernel}x{kernel}/{stride} {outputs}")
    }

    /// Rates of XLA and of the kernel for the result, the input gradient and the kernel gradient.
    fn rates(&self, client: &Client) -> Result<[[f64; 2]; 3]> {
        let result = self.size.div_ceil(self.stride);
        let types = [
            [self.batch, self.size, self.size, self.features],
            [self.kernel, self.kernel, self.features, self.outputs],
            [self.batch, result, result, self.outputs],
        ];
        let arrays = types.map(|dims| {
            let values = (0..dims.iter().product::<usize>()).map(|i| (i * 7919 % 65) as f32 / 65.0);
            Array::from_slice(client, &values.collect::<Vec<_>>(), dims)
        });
        let [x, kernel, g] = arrays;
        let (x, kernel, g) = (x?, kernel?, g?);
        let padding = (self.kernel / 2) as i64;
        let options = ConvOptions {
            strides: vec![self.stride; 2],
            padding: Padding::Explicit(vec![(padding, padding); 2]),
            ..ConvOptions::default()
        };
        let [of_x, of_kernel, of_g] = types.map(|dims| TensorType::new(DType::F32, dims));
        let forward = options.clone();
        let programs: [(Program, Program, &Array, &Array); 3] = [
            (
                Jit::function(client, move |_, (Leaf(x), Leaf(kernel)): Pair<'_>| {
                    Leaf(x.conv(kernel, &forward))
                }),
                self.call(client, "halite_convolution", &of_g),
                &x,
                &kernel,
            ),
            (
                gradient(client, &options, &of_x, 0),
                self.call(client, "halite_convolution_input_gradient", &of_x),
                &kernel,
                &g,
            ),
            (
                gradient(client, &options, &of_kernel, 1),
                self.call(client, "halite_convolution_kernel_gradient", &of_kernel),
                &x,
                &g,
            ),
        ];
        let work = 2.0 * (of_g.elements() * self.features * self.kernel * self.kernel) as f64;
        let mut rates = [[0.0; 2]; 3];
        for (rates, (xla, own, left, right)) in rates.iter_mut().zip(&programs) {
            for _ in 0..7 {
                for (rate, program) in rates.iter_mut().zip([xla, own]) {
                    *rate = f64::max(*rate, work / seconds(program, left, right, work)? / 1e9);
                }
            }
        }
        Ok(rates)
    }

    /// A program that calls a kernel.
    fn call(&self, client: &Client, target: &str, result: &TensorType) -> Program {
        let result = result.clone();
        let mut op = CustomOp::new(target, move |_| Ok(vec![result.clone()]));
        let sizes = [
            ("batch", self.batch),
            ("features", self.features),
            ("outputs", self.outputs),
            ("groups", 1),
        ];
        for (name, value) in sizes {
            op = op.attribute(name, value as i64);
        }
        for dim in 0..2 {
            let sizes = [
                ("input", self.size),
                ("kernel", self.kernel),
                ("stride", self.stride),
                ("dilation", 1),
                ("low", self.kernel / 2),
                ("high", self.kernel / 2),
            ];
            for (name, value) in sizes {
                op = op.attribute(format!("{name}{dim}"), value as i64);
            }
        }
        Jit::function(client, move |cx, (Leaf(left), Leaf(right)): Pair<'_>| {
            let [result] = op.call(cx, &[left, right]);
            Leaf(result)
        })
    }
}

/// The program of a gradient, by the operand that it is of. The other operand and the gradient of
/// the result are its inputs.
fn gradient(client: &Client, options: &ConvOptions, ty: &TensorType, operand: usize) -> Program {
    let (options, ty) = (options.clone(), ty.clone());
    Jit::function(client, move |cx, (Leaf(other), Leaf(g)): Pair<'_>| {
        let zero = cx.scalar(0.0, DType::F32).broadcast_to(ty.dims());
        let y: Tensor<'_> = match operand {
            0 => zero.conv(other, &options),
            _ => other.conv(zero, &options),
        };
        grad((y * g).sum_all(), &Leaf(zero))
    })
}

/// Seconds of a launch, over at least a few milliseconds.
fn seconds(program: &Program, left: &Array, right: &Array, work: f64) -> Result<f64> {
    let count = (2e9 / work).clamp(1.0, 200.0) as usize;
    let started = Instant::now();
    for _ in 0..count {
        program.run_with((Leaf(left), Leaf(right)))?.0.wait()?;
    }
    Ok(started.elapsed().as_secs_f64() / count as f64)
}
