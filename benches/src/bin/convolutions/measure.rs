//! Times of one convolution and its gradients.

use std::time::Instant;

use halite::{
    Array, Client, DType, HostArray, Result, Sharding, TensorType,
    backends::Accelerator,
    core::{
        Kernels,
        tree::{Empty, Leaf},
    },
    nn::{ArraySpec, Jit, Tensor, grad},
};
use halite_benches::{ConvShape, ProcessorClock};

use super::torch::Torch;

/// Rounds, in each of which everybody has a turn.
const ROUNDS: usize = 4;
/// Seconds of processor time of a turn.
const TURN: f64 = 4e-3;
/// XLA's code has no turns if it takes this many times as long as the kernel: seconds each.
const SLOW: f64 = 20.0;

/// Clients whose programs call no kernels, all, and those that are chosen.
pub(crate) struct Clients {
    compiler: Client,
    kernels: Client,
    pub(crate) chosen: Client,
}

impl Clients {
    pub(crate) fn open() -> Result<Self> {
        let chosen = Accelerator::cpu().open()?;
        let with = |kernels| {
            let mut capabilities = chosen.capabilities();
            capabilities.kernels = kernels;
            chosen.clone().with_capabilities(capabilities)
        };
        Ok(Clients {
            compiler: with(Kernels::Off),
            kernels: with(Kernels::All),
            chosen,
        })
    }
}

/// Seconds of a run: of the processor, all threads together, and those that pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seconds {
    pub(crate) processor: f64,
    pub(crate) wall: f64,
}

impl Seconds {
    const MOST: Self = Seconds {
        processor: f64::INFINITY,
        wall: f64::INFINITY,
    };

    /// The least of either.
    fn least(self, other: Self) -> Self {
        Seconds {
            processor: self.processor.min(other.processor),
            wall: self.wall.min(other.wall),
        }
    }
}

/// Times of a pass: the result, the gradient of the input, or that of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) compiler: Seconds,
    pub(crate) kernel: Seconds,
    /// Whether programs call the kernel.
    pub(crate) is_called: bool,
    pub(crate) torch: Option<Seconds>,
}

impl Times {
    /// Time of what programs do.
    pub(crate) fn chosen(&self) -> Seconds {
        if self.is_called {
            self.kernel
        } else {
            self.compiler
        }
    }

    /// Processor time of the compiler's code as a multiple of that of the kernel.
    pub(crate) fn ratio(&self) -> f64 {
        self.compiler.processor / self.kernel.processor
    }

    /// Processor time of the faster one.
    pub(crate) fn best(&self) -> f64 {
        self.kernel.processor.min(self.compiler.processor)
    }
}

/// The three passes of a shape.
#[derive(Clone, Debug)]
pub(crate) struct Measured(pub(crate) [Times; 3]);

/// Two tensors, as the inputs of a program.
type Pair<'t> = (Leaf<Tensor<'t>>, Leaf<Tensor<'t>>);
/// A program of two arrays.
type Program = Jit<Empty<()>, (Leaf<()>, Leaf<()>), Leaf<()>>;

impl Measured {
    pub(crate) fn of(
        clients: &Clients,
        shape: &ConvShape,
        dtype: DType,
        mut torch: Option<&mut Torch>,
    ) -> Result<Self> {
        let arrays = shape
            .tensors()
            .map(|dims| array(&clients.compiler, &dims, dtype));
        let [x, kernel, g] = arrays;
        let (x, kernel, g) = (x?, kernel?, g?);
        let operands = [(&x, &kernel), (&kernel, &g), (&x, &g)];
        if let Some(torch) = torch.as_deref_mut() {
            torch.prepare(shape, dtype)?;
        }
        let mut passes = Vec::new();
        for (pass, (left, right)) in operands.into_iter().enumerate() {
            let program = |client: &Client| program(client, shape, dtype, pass);
            let sides = [&clients.compiler, &clients.kernels].map(program);
            let mut least = [Seconds::MOST; 2];
            for (least, program) in least.iter_mut().zip(&sides) {
                seconds(program, left, right, 1)?;
                *least = seconds(program, left, right, 2)?;
            }
            let is_slow = least[0].processor > SLOW * least[1].processor;
            let count = (TURN / least[1].processor.max(1e-6)).clamp(1.0, 400.0) as usize;
            let mut of_torch = torch.is_some().then_some(Seconds::MOST);
            for _ in 0..ROUNDS {
                for (least, program) in least.iter_mut().zip(&sides).skip(is_slow.into()) {
                    *least = least.least(seconds(program, left, right, count)?);
                }
                if let Some((least, torch)) = of_torch.as_mut().zip(torch.as_deref_mut()) {
                    *least = least.least(torch.seconds(pass, TURN)?);
                }
            }
            passes.push(Times {
                compiler: least[0],
                kernel: least[1],
                is_called: is_called(&program(&clients.chosen), left, right)?,
                torch: of_torch,
            });
        }
        Ok(Measured(passes.try_into().expect("there are three passes")))
    }
}

fn array(client: &Client, dims: &[usize], dtype: DType) -> Result<Array> {
    let values = (0..dims.iter().product::<usize>()).map(|i| (i * 7919 % 65) as f32 / 65.0 - 0.5);
    let host = HostArray::from_slice(&values.collect::<Vec<_>>(), dims)?;
    let device = Sharding::single(client.local_devices()[0]);
    Array::upload(client, &host.to_float(dtype)?, &device)
}

/// The program of a pass. Its inputs are the input and the kernel, the kernel and the gradient of
/// the result, or the input and the gradient of the result.
fn program(client: &Client, shape: &ConvShape, dtype: DType, pass: usize) -> Program {
    let options = shape.options();
    let [x, kernel, _] = shape.tensors().map(|dims| TensorType::new(dtype, dims));
    Jit::function(client, move |cx, (Leaf(left), Leaf(right)): Pair<'_>| {
        let zeros = |ty: &TensorType| cx.scalar(0.0, dtype).broadcast_to(ty.dims());
        match pass {
            0 => Leaf(left.conv(right, &options)),
            1 => {
                let zero = zeros(&x);
                grad((zero.conv(left, &options) * right).sum_all(), &Leaf(zero))
            }
            _ => {
                let zero = zeros(&kernel);
                grad((left.conv(zero, &options) * right).sum_all(), &Leaf(zero))
            }
        }
    })
}

/// Returns whether a program calls a kernel.
fn is_called(program: &Program, left: &Array, right: &Array) -> Result<bool> {
    let specs = (Leaf(ArraySpec::of(left)), Leaf(ArraySpec::of(right)));
    let lowered = program.lower(&Empty::new(), &specs)?;
    let code = String::from_utf8_lossy(lowered.program.code.bytes()).into_owned();
    Ok(code.contains("@\"halite_convolution"))
}

/// Seconds of a run.
fn seconds(program: &Program, left: &Array, right: &Array, count: usize) -> Result<Seconds> {
    let clock = ProcessorClock::start();
    let started = Instant::now();
    for _ in 0..count {
        program.run_with((Leaf(left), Leaf(right)))?.0.wait()?;
    }
    let wall = started.elapsed().as_secs_f64();
    Ok(Seconds {
        processor: clock.seconds() / count as f64,
        wall: wall / count as f64,
    })
}
