//! Processor time of single operations on the embedded executor and on XLA's CPU plugin, in turns.
//!
//! `cargo run --release -p halite-benches --bin operations -- [NAME..] [PROGRAM.mlir..]` prints the
//! medians of a launch in milliseconds, and their ratio, for the operations whose names contain one
//! of these, or all, and for programs of StableHLO in files. The sizes are those at which they were
//! first compared.
#![forbid(unsafe_code)]

use std::{process::ExitCode, sync::Arc, time::Instant};

use halite::{
    Client, Error, HostArray, Result,
    backends::{Accelerator, OpenOptions},
    fetch::Quiet,
    stablehlo::{Module, ValueId},
};
use halite_core::{
    Arg, CompileOptions, DType, DeviceBuffers, HostBytes, Loaded, Program, Signature, TensorType,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds in turns, of which the medians are printed.
const ROUNDS: usize = 7;

/// Least seconds of a round.
const ROUND: f64 = 0.03;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let (files, names): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|it| it.ends_with(".mlir"));
    let mut operations: Vec<(String, String)> = Vec::new();
    if !names.is_empty() || files.is_empty() {
        let is_wanted =
            |name: &str| names.is_empty() || names.iter().any(|wanted| name.contains(&***wanted));
        let known = known().into_iter().filter(|(name, _)| is_wanted(name));
        operations.extend(known.map(|(name, text)| (name.to_owned(), text)));
    }
    for file in files {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Error::invalid("operations", format!("{file}: {error}")))?;
        operations.push((file.clone(), text));
    }
    let open =
        |accelerator: Accelerator| accelerator.open_with(&OpenOptions::default(), &mut Quiet);
    let embedded = open(Accelerator::Embedded { devices: None })?;
    let cpu = open(Accelerator::Cpu { devices: None })?;
    println!(
        "processor time of a launch in ms\n{:34} embedded      cpu    ratio",
        ""
    );
    for (name, text) in &operations {
        let mut subjects = [
            Subject::new(&embedded.client, text)?,
            Subject::new(&cpu.client, text)?,
        ];
        for _ in 0..ROUNDS {
            subjects.iter_mut().try_for_each(Subject::measure)?;
        }
        let [embedded, cpu] = subjects.map(|mut subject| {
            subject.times.sort_by(f64::total_cmp);
            subject.times[ROUNDS / 2]
        });
        println!("{name:34} {embedded:8.3} {cpu:8.3} {:8.1}", embedded / cpu);
    }
    Ok(())
}

/// A program on a client.
struct Subject {
    loaded: Loaded,
    inputs: Vec<DeviceBuffers>,
    /// Milliseconds of a launch, of each round.
    times: Vec<f64>,
}

impl Subject {
    fn new(client: &Client, text: &str) -> Result<Self> {
        let program = program(text)?;
        let loaded = client.compile(&program, &CompileOptions::default())?;
        let device = client.local_devices()[0];
        let upload = |(number, ty): (usize, &TensorType)| {
            let host = input(number, ty);
            client.upload(HostBytes::Borrowed(host.bytes()), ty, device.into())
        };
        let inputs = program.signature.inputs.iter().enumerate().map(upload);
        let inputs = inputs.collect::<Result<_>>()?;
        let mut subject = Subject {
            loaded,
            inputs,
            times: Vec::new(),
        };
        subject.launch()?;
        Ok(subject)
    }

    fn launch(&mut self) -> Result<()> {
        let arguments = self.inputs.iter().map(Arg::Borrow).collect();
        let outputs = self.loaded.launch(arguments)?;
        outputs[0].first().ready()?.wait()
    }

    fn measure(&mut self) -> Result<()> {
        let (started, before) = (Instant::now(), processor_ms());
        let mut count = 0.0;
        while started.elapsed().as_secs_f64() < ROUND {
            self.launch()?;
            count += 1.0;
        }
        self.times.push((processor_ms() - before) / count);
        Ok(())
    }
}

/// Processor time of all threads of this process, in milliseconds.
fn processor_ms() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let time = |thread: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    threads.flatten().filter_map(time).sum::<f64>() / 1e6
}

/// A program with the signature of its main function.
fn program(text: &str) -> Result<Program> {
    let module = Module::parse(text)?;
    let main = module.main()?;
    let types = |ids: &[ValueId]| -> Result<Vec<TensorType>> {
        let ty = |id: &ValueId| {
            let ty = main.ty(*id).as_tensor().and_then(|ty| ty.tensor_type());
            ty.ok_or_else(|| Error::invalid("operations", "a value that is not a tensor"))
        };
        ids.iter().map(ty).collect()
    };
    Ok(Program {
        name: Arc::from("operation"),
        code: Arc::from(text.as_bytes()),
        signature: Signature {
            inputs: types(&main.body.arguments)?,
            outputs: types(&main.body.results)?,
            donated: Vec::new(),
        },
        partitions: 1,
        replicas: 1,
        facts: None,
    })
}

/// Pseudorandom elements: floats between -1 and 1, integers below 1,000.
fn input(number: usize, ty: &TensorType) -> HostArray {
    let mut host = HostArray::zeros(ty.clone());
    let size = ty.dtype().size();
    let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_add(number as u64);
    for element in host.bytes_mut().chunks_exact_mut(size) {
        // Xorshift (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let float = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        match ty.dtype() {
            DType::F32 => element.copy_from_slice(&float.to_le_bytes()),
            DType::F64 => element.copy_from_slice(&f64::from(float).to_le_bytes()),
            DType::C64 => {
                element[..4].copy_from_slice(&float.to_le_bytes());
                element[4..].copy_from_slice(&(-float).to_le_bytes());
            }
            DType::Bool => element[0] = (state & 1) as u8,
            _ => element.copy_from_slice(&(state % 1000).to_le_bytes()[..size]),
        }
    }
    host
}

fn known() -> Vec<(&'static str, String)> {
    let pool = (
        "tensor<16x64x64x16xf32>",
        "tensor<16x32x32x16xf32>",
        "padding = dense<0> : tensor<4x2xi64>, window_dimensions = array<i64: 1, 2, 2, 1>, \
         window_strides = array<i64: 1, 2, 2, 1>",
    );
    vec![
        ("top_k 40 of 8x50257", top_k(8, 50257, 40)),
        (
            "fft of 256x1024",
            fft("256x1024", "256x1024", "FFT", "1024"),
        ),
        (
            "rfft2 of 128x128",
            fft("128x128", "128x65", "RFFT", "128, 128"),
        ),
        ("cumsum 1024x64 along 0", scan("add", "0.0", [1024, 64], 0)),
        (
            "cummax 64x512 along 1",
            scan("maximum", "0xFF800000", [64, 512], 1),
        ),
        ("argmax 1000x256 along 0", argmax(1000, 256)),
        ("sort 32768", sort(32768)),
        ("gather 64K points", GATHER.to_owned()),
        ("scatter-add 64K points", SCATTER.to_owned()),
        (
            "max pool gradient",
            select_and_scatter(pool.0, pool.1, pool.2),
        ),
        ("loop of 1000, dynamic index", LOOP.to_owned()),
        ("philox 1M words", random("PHILOX")),
        ("threefry 1M words", random("THREE_FRY")),
        ("cholesky 128", CHOLESKY.to_owned()),
        ("triangular_solve 128x128", SOLVE.to_owned()),
    ]
}

const COMPARE: &str = "
      %z = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %z : tensor<i1>";

fn top_k(rows: usize, columns: usize, count: usize) -> String {
    let of = |ty: &str| format!("tensor<{rows}x{columns}x{ty}>");
    let part = |ty: &str| format!("tensor<{rows}x{count}x{ty}>");
    let (x, i, v, p) = (of("f32"), of("i32"), part("f32"), part("i32"));
    format!(
        "func.func private @sorted(%x: {x}) -> ({v}, {p}) {{
    %i = stablehlo.iota dim = 1 : {i}
    %s:2 = \"stablehlo.sort\"(%x, %i) <{{dimension = 1 : i64, is_stable = true}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %j: tensor<i32>, %k: tensor<i32>):{COMPARE}
    }}) : ({x}, {i}) -> ({x}, {i})
    %v = stablehlo.slice %s#0 [0:{rows}, 0:{count}] : ({x}) -> {v}
    %p = stablehlo.slice %s#1 [0:{rows}, 0:{count}] : ({i}) -> {p}
    return %v, %p : {v}, {p}
  }}
  func.func public @main(%x: {x}) -> ({v}, {p}) {{
    %r:2 = stablehlo.composite \"chlo.top_k\" %x {{composite_attributes = {{k = {count} : i64}}, \
         decomposition = @sorted, version = 1 : i32}} : ({x}) -> ({v}, {p})
    return %r#0, %r#1 : {v}, {p}
  }}"
    )
}

fn sort(size: usize) -> String {
    let ty = format!("tensor<{size}xf32>");
    format!(
        "func.func public @main(%x: {ty}) -> {ty} {{
    %y = \"stablehlo.sort\"(%x) <{{dimension = 0 : i64, is_stable = true}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):{COMPARE}
    }}) : ({ty}) -> {ty}
    return %y : {ty}
  }}"
    )
}

fn fft(dims: &str, results: &str, kind: &str, lengths: &str) -> String {
    let element = if kind == "FFT" { "complex<f32>" } else { "f32" };
    let (x, y) = (
        format!("tensor<{dims}x{element}>"),
        format!("tensor<{results}xcomplex<f32>>"),
    );
    format!(
        "func.func public @main(%x: {x}) -> {y} {{
    %y = stablehlo.fft %x, type = {kind}, length = [{lengths}] : ({x}) -> {y}
    return %y : {y}
  }}"
    )
}

fn scan(op: &str, initial: &str, dims: [usize; 2], dim: usize) -> String {
    let ty = format!("tensor<{}x{}xf32>", dims[0], dims[1]);
    let (mut window, mut padding) = ([1, 1], [[0, 0], [0, 0]]);
    window[dim] = dims[dim];
    padding[dim][0] = dims[dim] - 1;
    format!(
        "func.func public @main(%x: {ty}) -> {ty} {{
    %i = stablehlo.constant dense<{initial}> : tensor<f32>
    %y = \"stablehlo.reduce_window\"(%x, %i) <{{padding = dense<{padding:?}> : tensor<2x2xi64>, \
         window_dimensions = array<i64: {}, {}>}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %z = stablehlo.{op} %a, %b : tensor<f32>
      stablehlo.return %z : tensor<f32>
    }}) : ({ty}, tensor<f32>) -> {ty}
    return %y : {ty}
  }}",
        window[0], window[1]
    )
}

fn argmax(rows: usize, columns: usize) -> String {
    let (x, i) = (
        format!("tensor<{rows}x{columns}xf32>"),
        format!("tensor<{rows}x{columns}xi32>"),
    );
    let (y, j) = (
        format!("tensor<{columns}xf32>"),
        format!("tensor<{columns}xi32>"),
    );
    format!(
        "func.func public @main(%x: {x}) -> {j} {{
    %i = stablehlo.iota dim = 0 : {i}
    %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %none = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.reduce(%x init: %least), (%i init: %none) across dimensions = [0] : \
         ({x}, {i}, tensor<f32>, tensor<i32>) -> ({y}, {j})
     reducer(%a: tensor<f32>, %b: tensor<f32>) (%m: tensor<i32>, %n: tensor<i32>) {{
      %2 = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.or %2, %3 : tensor<i1>
      %5 = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %6 = stablehlo.compare LT, %m, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %7 = stablehlo.and %5, %6 : tensor<i1>
      %8 = stablehlo.or %4, %7 : tensor<i1>
      %9 = stablehlo.select %4, %a, %b : tensor<i1>, tensor<f32>
      %10 = stablehlo.select %8, %m, %n : tensor<i1>, tensor<i32>
      stablehlo.return %9, %10 : tensor<f32>, tensor<i32>
    }}
    return %r#1 : {j}
  }}"
    )
}

fn select_and_scatter(x: &str, y: &str, windows: &str) -> String {
    format!(
        "func.func public @main(%x: {x}, %y: {y}) -> {x} {{
    %i = stablehlo.constant dense<0.0> : tensor<f32>
    %z = \"stablehlo.select_and_scatter\"(%x, %y, %i) <{{{windows}}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }}, {{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }}) : ({x}, {y}, tensor<f32>) -> {x}
    return %z : {x}
  }}"
    )
}

fn random(algorithm: &str) -> String {
    format!(
        "func.func public @main(%x: tensor<2xui64>) -> tensor<1048576xui32> {{
    %s, %y = stablehlo.rng_bit_generator %x, algorithm = {algorithm} : \
         (tensor<2xui64>) -> (tensor<2xui64>, tensor<1048576xui32>)
    return %y : tensor<1048576xui32>
  }}"
    )
}

const GATHER: &str = "
func.func public @main(%x: tensor<1000x100xf32>, %i: tensor<65536x2xi32>) -> tensor<65536xf32> {
  %y = \"stablehlo.gather\"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = \
      [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : \
      (tensor<1000x100xf32>, tensor<65536x2xi32>) -> tensor<65536xf32>
  return %y : tensor<65536xf32>
}";

const SCATTER: &str = "
func.func public @main(%x: tensor<1000xf32>, %i: tensor<65536x1xi32>, %u: tensor<65536xf32>) -> \
      tensor<1000xf32> {
  %y = \"stablehlo.scatter\"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<\
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) : (tensor<1000xf32>, tensor<65536x1xi32>, tensor<65536xf32>) -> tensor<1000xf32>
  return %y : tensor<1000xf32>
}";

const LOOP: &str = "
func.func public @main(%x: tensor<1000x16xf32>) -> tensor<1000x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<1000> : tensor<i32>
  %factor = stablehlo.constant dense<2.0> : tensor<1x16xf32>
  %0:2 = stablehlo.while(%i = %zero, %all = %x) : tensor<i32>, tensor<1000x16xf32>
    cond {
      %less = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %row = stablehlo.dynamic_slice %all, %i, %zero, sizes = [1, 16] : \
          (tensor<1000x16xf32>, tensor<i32>, tensor<i32>) -> tensor<1x16xf32>
      %twice = stablehlo.multiply %row, %factor : tensor<1x16xf32>
      %next = stablehlo.dynamic_update_slice %all, %twice, %i, %zero : (tensor<1000x16xf32>, \
          tensor<1x16xf32>, tensor<i32>, tensor<i32>) -> tensor<1000x16xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %next : tensor<i32>, tensor<1000x16xf32>
    }
  return %0#1 : tensor<1000x16xf32>
}";

const CHOLESKY: &str = "
func.func public @main(%x: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<128x128xf32>) -> tensor<128x128xf32>
  %s = stablehlo.dot %x, %t : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %y = stablehlo.cholesky %s, lower = true : tensor<128x128xf32>
  return %y : tensor<128x128xf32>
}";

const SOLVE: &str = "
func.func public @main(%a: tensor<128x128xf32>, %b: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %y = \"stablehlo.triangular_solve\"(%a, %b) <{left_side = true, lower = true, unit_diagonal = \
      true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : \
      (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  return %y : tensor<128x128xf32>
}";
