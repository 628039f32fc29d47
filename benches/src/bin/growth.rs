//! How time grows with a size, as exponents: the least-squares slope of log(time) over log(size).
//!
//! `growth [ROW..] [--accelerator cpu] [--most N] [--python PYTHON]`: all rows by default, with
//! sizes of at most N. With a Python that has the package `jax`, each row has JAX's times and
//! exponent of the same work (`growth.py`). The rows:
//!
//! | row | size | work |
//! |---|---|---|
//! | `grad` | gradients | n gradients of one forward pass of 50 operations, traced |
//! | `inner` | steps | n steps of gradient descent in one trace, as in meta-learning |
//! | `jit` | programs | a call of one `Jit` of 256 arguments that has n programs, round robin |
//! | `read` | bytes | read-back of an array |
//! | `upload` | bytes | upload of a host array, until it is there |
//! | `init` | layers | compiling what initializes n layers of different sizes |
//! | `chain` | operations | compiling a chain of n elementwise operations |
//! | `attention` | length | forward pass of causal attention, 1 head of width 64 |
//! | `devices` | devices | a launch over n virtual devices, until it is done |
//!
//! Times are the least of some runs, for the machine may be busy. Compiled programs are not cached.
#![forbid(unsafe_code)]

use std::{
    hint::black_box,
    process::{Command, ExitCode},
    sync::Arc,
    time::Instant,
};

use halite::{
    Array, Client, DType, Error, ErrorKind, HostArray, Mesh, MeshShape, Param, PartitionSpec,
    Result, Sharding, TensorType,
    backends::{Accelerator, CompileCacheOptions, OpenOptions, Opened},
    fetch::Quiet,
    nn::{ArraySpec, Dropout, Init, Jit, Mask, Tensor, Trace, attention, grad, init},
};
use halite_benches::{Arguments, exit_code};
use halite_core::{
    CompileOptions, Null, WarningFilter, set_warning_filter,
    tree::{Empty, Leaf},
};

fn main() -> ExitCode {
    exit_code(Options::read().and_then(|options| run(&options)))
}

struct Options {
    rows: Vec<String>,
    accelerator: Accelerator,
    most: usize,
    python: Option<String>,
}

impl Options {
    fn read() -> Result<Self> {
        let arguments = Arguments::read("growth", &["--accelerator", "--most", "--python"])?;
        Ok(Options {
            rows: arguments.words(&ROWS.map(|row| row.name)),
            accelerator: (arguments.option("--accelerator")?).unwrap_or(Accelerator::cpu()),
            most: arguments.option("--most")?.unwrap_or(usize::MAX),
            python: arguments.option("--python")?,
        })
    }
}

/// A row: the seconds of its work at each size.
struct Row {
    name: &'static str,
    sizes: &'static [usize],
    seconds: fn(&Options, usize) -> Result<f64>,
}

const ROWS: [Row; 9] = [
    Row {
        name: "grad",
        sizes: &[25, 50, 100, 200, 400],
        seconds: |_, n| gradients(n),
    },
    Row {
        name: "inner",
        sizes: &[25, 50, 100, 200, 400],
        seconds: |_, n| inner_steps(n),
    },
    Row {
        name: "jit",
        sizes: &[1, 8, 64, 512],
        seconds: |_, n| programs(n),
    },
    Row {
        name: "read",
        sizes: &[1 << 10, 32 << 10, 1 << 20, 32 << 20, 128 << 20],
        seconds: read,
    },
    Row {
        name: "upload",
        sizes: &[1 << 10, 32 << 10, 1 << 20, 32 << 20, 128 << 20],
        seconds: upload,
    },
    Row {
        name: "init",
        sizes: &[5, 10, 20, 40],
        seconds: initialization,
    },
    Row {
        name: "chain",
        sizes: &[375, 750, 1500, 3000, 6000],
        seconds: chain,
    },
    Row {
        name: "attention",
        sizes: &[256, 512, 1024, 2048],
        seconds: attend,
    },
    Row {
        name: "devices",
        sizes: &[1, 2, 4, 8, 16],
        seconds: devices,
    },
];

fn run(options: &Options) -> Result<()> {
    for name in &options.rows {
        let row = ROWS.iter().find(|row| row.name == name).ok_or_else(|| {
            let known = ROWS.map(|row| row.name).join(", ");
            Error::invalid(
                "growth",
                format!("unknown row `{name}`; expected one of {known}"),
            )
        })?;
        let sizes = row
            .sizes
            .iter()
            .copied()
            .filter(|&size| size <= options.most);
        let sizes: Vec<usize> = sizes.collect();
        let measured = sizes
            .iter()
            .map(|&size| Ok((size, (row.seconds)(options, size)?)));
        print_line(name, "halite", &measured.collect::<Result<Vec<_>>>()?);
        if let Some(python) = &options.python {
            print_line(name, "jax", &jax(python, name, &sizes)?);
        }
    }
    Ok(())
}

fn print_line(name: &str, of: &str, measured: &[(usize, f64)]) {
    let times: Vec<String> = measured
        .iter()
        .map(|(size, seconds)| format!("{size}: {:.3} ms", 1e3 * seconds))
        .collect();
    match exponent(measured) {
        Some(exponent) => println!("{name} {of}: exponent {exponent:.2}; {}", times.join(", ")),
        None => println!("{name} {of}: {}", times.join(", ")),
    }
}

/// The slope of log(time) over log(size).
fn exponent(measured: &[(usize, f64)]) -> Option<f64> {
    let points = measured
        .iter()
        .map(|&(size, seconds)| ((size as f64).ln(), seconds.ln()));
    let count = measured.len() as f64;
    let (x, y) = points
        .clone()
        .fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    let (x, y) = (x / count, y / count);
    let product: f64 = points
        .clone()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    let square: f64 = points.map(|point| (point.0 - x).powi(2)).sum();
    (measured.len() > 1).then(|| product / square)
}

/// JAX's seconds, by a Python that has it; a row that it does not have is empty.
fn jax(python: &str, row: &str, sizes: &[usize]) -> Result<Vec<(usize, f64)>> {
    let failed = |message: String| Error::new(ErrorKind::Unavailable, "growth", message);
    let output = Command::new(python)
        .args(["-c", include_str!("growth.py"), row])
        .args(sizes.iter().map(usize::to_string))
        .output()
        .map_err(|error| failed(format!("cannot run {python}: {error}")))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| {
        let (size, seconds) = line.split_once(' ')?;
        Some((size.parse().ok()?, seconds.parse().ok()?))
    };
    Ok(text.lines().filter_map(line).collect())
}

/// The least seconds of `times` runs.
fn least<R>(times: usize, mut work: impl FnMut() -> Result<R>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..times {
        let started = Instant::now();
        black_box(work()?);
        least = least.min(started.elapsed().as_secs_f64());
    }
    Ok(least)
}

fn open(options: &Options) -> Result<Client> {
    Ok(opened(&options.accelerator)?.client)
}

fn opened(accelerator: &Accelerator) -> Result<Opened> {
    let without_cache = OpenOptions {
        compile_cache: Some("off".parse::<CompileCacheOptions>()?),
        ..OpenOptions::default()
    };
    accelerator.open_with(&without_cache, &mut Quiet)
}

fn vector() -> TensorType {
    TensorType::new(DType::F32, [64])
}

/// A scalar of 50 operations.
fn loss(mut x: Tensor<'_>) -> Tensor<'_> {
    for _ in 0..24 {
        x = (x * 0.5).sin();
    }
    x.sum_all()
}

fn gradients(n: usize) -> Result<f64> {
    least(3, || {
        let cx = &Trace::new();
        let w = cx.input(vector(), "w");
        let loss = loss(w);
        let mut sum = w;
        for _ in 0..n {
            let Leaf(slope) = grad(loss, &Leaf(w));
            sum = sum + slope;
        }
        cx.graph(&[w], &[sum]).map(drop)
    })
}

fn inner_steps(n: usize) -> Result<f64> {
    least(3, || {
        let cx = &Trace::new();
        let first = cx.input(vector(), "w");
        let mut w = first;
        for _ in 0..n {
            let Leaf(slope) = grad(loss(w), &Leaf(w));
            w = w - slope * 0.1;
        }
        cx.graph(&[first], &[w]).map(drop)
    })
}

fn programs(n: usize) -> Result<f64> {
    const ARGUMENTS: usize = 256;
    set_warning_filter(WarningFilter::parse("off"));
    let client = Client::new(Null::new(1));
    let jit = Jit::<Empty<()>, Vec<Leaf<()>>, Leaf<()>>::function(&client, |_, inputs| {
        Leaf(inputs[0].0 + 1.0)
    })
    .max_programs(n);
    let arguments = |size: usize| -> Result<Vec<Array>> {
        (0..ARGUMENTS)
            .map(|_| Array::from_slice(&client, &vec![0f32; size], [size]))
            .collect()
    };
    let all: Vec<Vec<Array>> = (1..=n).map(arguments).collect::<Result<_>>()?;
    let call = |arrays: &Vec<Array>| jit.run_with(arrays.iter().map(Leaf).collect());
    all.iter().try_for_each(|arrays| call(arrays).map(drop))?;
    let rounds = 2048usize.div_ceil(n);
    let round = || (0..rounds).try_for_each(|_| all.iter().try_for_each(|one| call(one).map(drop)));
    Ok(least(5, round)? / (rounds * n) as f64)
}

fn read(options: &Options, bytes: usize) -> Result<f64> {
    let client = open(options)?;
    let array = Array::upload(
        &client,
        &HostArray::zeros(TensorType::new(DType::U8, [bytes])),
        &Sharding::single(client.local_devices()[0]),
    )?;
    array.wait()?;
    least(repeats(bytes), || array.read())
}

fn upload(options: &Options, bytes: usize) -> Result<f64> {
    let client = open(options)?;
    let host = HostArray::zeros(TensorType::new(DType::U8, [bytes]));
    let sharding = Sharding::single(client.local_devices()[0]);
    least(repeats(bytes), || {
        Array::upload(&client, &host, &sharding)?.wait()
    })
}

fn repeats(bytes: usize) -> usize {
    ((256 << 20) / bytes).clamp(10, 1000)
}

/// Weights and biases of layers whose sizes all differ.
fn initialization(options: &Options, layers: usize) -> Result<f64> {
    let client = open(options)?;
    let model: Vec<[Param; 2]> = (0..layers)
        .map(|layer| {
            let uniform = Init::Uniform {
                low: -0.1,
                high: 0.1,
            };
            [
                Param::new([32 + layer, 33 + layer], Init::he_normal()),
                Param::new([33 + layer], uniform),
            ]
        })
        .collect();
    compile(&client, TensorType::new(DType::U32, [2]), move |cx, key| {
        let drawn = init(cx, &model, key);
        drawn.into_iter().flatten().map(|Leaf(x)| x).collect()
    })
}

fn chain(options: &Options, operations: usize) -> Result<f64> {
    compile(&open(options)?, vector(), move |_, mut x| {
        for index in 0..operations {
            x = match index % 3 {
                0 => x * 1.01,
                1 => x + 0.1,
                _ => x.sin(),
            };
        }
        vec![x]
    })
}

/// Seconds of compiling a function of one input, traced and lowered before.
fn compile(
    client: &Client,
    input: TensorType,
    function: impl for<'t> Fn(&'t Trace, Tensor<'t>) -> Vec<Tensor<'t>> + Send + Sync + 'static,
) -> Result<f64> {
    let jit = Jit::<Empty<()>, Leaf<()>, Vec<Leaf<()>>>::function(client, move |cx, Leaf(x)| {
        function(cx, x).into_iter().map(Leaf).collect()
    });
    let sharding = Sharding::single(client.local_devices()[0]);
    let spec = ArraySpec::new(input, &sharding);
    let program = jit.lower(&Empty::new(), &Leaf(spec))?.program;
    least(2, || client.compile(&program, &CompileOptions::default()))
}

fn attend(options: &Options, length: usize) -> Result<f64> {
    let client = open(options)?;
    let jit = Jit::<Empty<()>, Leaf<()>, Leaf<()>>::function(&client, |_, Leaf(x)| {
        Leaf(attention(x, x, x, Mask::Causal, Dropout::new(0.0)))
    });
    let x = Array::from_slice(&client, &vec![0.01f32; length * 64], [1, length, 1, 64])?;
    jit.run(&x)?.wait()?;
    least(5, || jit.run(&x)?.wait())
}

fn devices(options: &Options, devices: usize) -> Result<f64> {
    let accelerator: Accelerator = match options.accelerator.to_string().split(':').next() {
        Some(name @ ("cpu" | "embedded")) => format!("{name}:{devices}").parse()?,
        _ => options.accelerator.clone(),
    };
    let client = opened(&accelerator)?.client;
    let mesh = Arc::new(Mesh::new(
        MeshShape::new([("data", devices)])?,
        client.local_devices().iter().copied().take(devices),
    )?);
    let sharding = Arc::new(Sharding::new(&mesh, PartitionSpec::new([vec!["data"]]))?);
    let jit = Jit::<Empty<()>, Leaf<()>, Leaf<()>>::function(&client, |_, Leaf(x)| Leaf(x + 1.0));
    let host = HostArray::zeros(TensorType::new(DType::F32, [64 * devices]));
    let x = Array::upload(&client, &host, &sharding)?;
    jit.run(&x)?.wait()?;
    least(200, || jit.run(&x)?.wait())
}
