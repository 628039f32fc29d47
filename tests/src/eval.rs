//! Evaluation of traced functions on host data, by the real CPU plugin.

use std::sync::OnceLock;

use halite_backends::Accelerator;
use halite_core::{
    Arg, Array, Client, CompileOptions, Element, HostArray, HostBytes, MeshShape, Program,
    ProgramFacts, Result, Sharding, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_ir::{Graph, Interface};
use halite_nn::{Jit, Tensor, Trace};

use crate::{combinations::recorded, lowering::lowered, targets};

/// A function of tensors to tensors.
pub trait Function:
    for<'t> Fn(&'t Trace, &[Tensor<'t>]) -> Vec<Tensor<'t>> + Send + Sync + 'static
{
}
impl<F: for<'t> Fn(&'t Trace, &[Tensor<'t>]) -> Vec<Tensor<'t>> + Send + Sync + 'static> Function
    for F
{
}

/// The client of [`open`], shared by the whole process.
pub fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(open)
}

/// Environment variable that names the accelerator of [`open`].
pub const ACCELERATOR: &str = "HALITE_TEST_ACCELERATOR";

/// The accelerator that the environment variable [`ACCELERATOR`] names, such as `embedded:8`.
///
/// # Panics
/// If the variable is set to something else.
pub fn named() -> Option<Accelerator> {
    let name = std::env::var(ACCELERATOR).ok()?;
    let accelerator = name.parse();
    Some(accelerator.unwrap_or_else(|error| panic!("{ACCELERATOR}: {error}")))
}

/// Opens the [`named`] accelerator; by default the CPU plugin with eight virtual devices, which is
/// installed if it is missing. With [`targets::VARIABLE`], its programs are compiled for targets too.
///
/// # Panics
/// If it does not open.
pub fn open() -> Client {
    if std::env::var_os(targets::VARIABLE).is_some() {
        return targets::open().unwrap_or_else(|error| panic!("{error}"));
    }
    let accelerator = named().unwrap_or(Accelerator::Cpu { devices: Some(8) });
    let client = accelerator
        .open()
        .unwrap_or_else(|error| panic!("the accelerator of the tests: {error}"));
    let name = client.platform().name.to_string();
    recorded(client, &name)
}

/// Whether the client of the tests has this many devices. If it is an accelerator that the environment
/// names and has fewer, prints that the test is skipped.
///
/// # Panics
/// If the client that is opened by default has fewer.
#[must_use]
pub fn has_devices(count: usize) -> bool {
    let has = client().local_devices().len();
    if count > has {
        let name = std::env::var(ACCELERATOR);
        let name = name.unwrap_or_else(|_| panic!("the CPU plugin has {has} devices, not {count}"));
        println!("skipped: needs {count} devices, {name} has {has}");
    }
    count <= has
}

/// [`halite_ir::program`], whose facts are compared with what a scan of the text finds, and whose
/// module with what is read from its text.
///
/// # Errors
/// As [`halite_ir::program`].
pub fn program(graph: &Graph, interface: &Interface) -> Result<Program> {
    let program = halite_ir::program(graph, interface)?;
    lowered(graph, interface)?;
    let facts = program.code.facts().expect("a module has facts");
    let text = program.code.bytes();
    let found = ProgramFacts {
        custom_calls: facts.custom_calls.clone(),
        ..halite_pjrt::fuzz::program_facts(text)
    };
    assert_eq!(
        *facts,
        found,
        "facts and scan of `{}`:\n{}",
        program.name,
        String::from_utf8_lossy(text)
    );
    Ok(program)
}

/// Compiles `function` for one device, runs it on `inputs`, and returns the results.
///
/// # Errors
/// Errors of tracing, compiling and running.
pub fn try_eval(function: impl Function, inputs: &[HostArray]) -> Result<Vec<HostArray>> {
    try_eval_on(client(), function, inputs)
}

/// As [`try_eval`], on a device of this client.
///
/// # Errors
/// Errors of tracing, compiling and running.
pub fn try_eval_on(
    client: &Client,
    function: impl Function,
    inputs: &[HostArray],
) -> Result<Vec<HostArray>> {
    type Many = Vec<Leaf<()>>;
    fn bare<'t>(inputs: Vec<Leaf<Tensor<'t>>>) -> Vec<Tensor<'t>> {
        inputs.into_leaves()
    }
    let jit = Jit::<Empty<()>, Many, Many>::new(client, move |cx, _, inputs| {
        let outputs = function(cx, &bare(inputs));
        (Empty::new(), outputs.into_iter().map(Leaf).collect())
    });
    let device = Sharding::single(client.local_devices()[0]);
    let upload = |input: &HostArray| Array::upload(client, input, &device).map(Leaf);
    let arrays = inputs.iter().map(upload).collect::<Result<Vec<_>>>()?;
    let (_, outputs) = jit.on(device.mesh()).call(Empty::new(), &arrays)?;
    outputs.iter().map(Array::read).collect()
}

/// As [`try_eval`].
///
/// # Panics
/// On errors of tracing, compiling and running.
#[track_caller]
pub fn eval(function: impl Function, inputs: &[HostArray]) -> Vec<HostArray> {
    match try_eval(function, inputs) {
        Ok(outputs) => outputs,
        Err(error) => panic!("{error}"),
    }
}

/// Runs `function` as replicas, each on another device with its own inputs, and returns the results
/// of each. The inputs of all replicas have the same types.
///
/// # Errors
/// Errors of tracing, compiling and running.
pub fn try_eval_replicas(
    function: &impl Function,
    inputs: &[Vec<HostArray>],
) -> Result<Vec<Vec<HostArray>>> {
    let cx = Trace::new();
    let traced: Vec<Tensor<'_>> = inputs[0]
        .iter()
        .enumerate()
        .map(|(i, input)| cx.input(input.ty().clone(), format!("input {i}")))
        .collect();
    let outputs = function(&cx, &traced);
    try_run_replicas(&cx.graph(&traced, &outputs)?, inputs)
}

/// Runs a graph as [`try_eval_replicas`] does, with full precision in `f32` and around the compiler's
/// faults, as programs of users are.
///
/// # Errors
/// Errors of printing, compiling and running.
pub fn try_run_replicas(graph: &Graph, inputs: &[Vec<HostArray>]) -> Result<Vec<Vec<HostArray>>> {
    let capabilities = client().capabilities();
    let faults = &capabilities.faults;
    let program = program(
        &halite_ir::around_faults(graph.clone(), faults, &MeshShape::single()),
        &Interface {
            replicas: inputs.len(),
            full_products: capabilities.rounds_products,
            ..Interface::new("replicas")
        },
    )?;
    let devices = client().local_devices()[..inputs.len()].to_vec();
    let loaded = client().compile(
        &program,
        &CompileOptions {
            devices: devices.clone(),
            ..CompileOptions::default()
        },
    )?;
    let mut buffers = Vec::new();
    for input in 0..program.signature.inputs.len() {
        for (&device, inputs) in devices.iter().zip(inputs) {
            let (bytes, ty) = (inputs[input].bytes(), inputs[input].ty());
            buffers.push(client().upload(HostBytes::Borrowed(bytes), ty, device.into())?);
        }
    }
    let outputs = loaded.launch(buffers.iter().map(Arg::Borrow).collect())?;
    let mut rows = vec![Vec::new(); devices.len()];
    for buffers in &outputs {
        for (row, buffer) in rows.iter_mut().zip(buffers.iter()) {
            let mut host = HostArray::zeros(buffer.tensor_type().clone());
            buffer.read(host.bytes_mut())?;
            row.push(host);
        }
    }
    Ok(rows)
}

/// A tensor of `values`.
///
/// # Panics
/// If the number of values is not the product of `dims`.
#[track_caller]
pub fn host<T: Element>(values: &[T], dims: &[usize]) -> HostArray {
    HostArray::from_slice(values, dims).expect("one value for each element")
}

/// Pseudo-random numbers between `low` and `high`, a function of `seed`; all different in practice.
pub fn noise(seed: u64, dims: &[usize], low: f64, high: f64) -> HostArray {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut next = || {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    };
    let count = TensorType::new(f64::DTYPE, dims).elements();
    let values: Vec<f64> = (0..count).map(|_| low + (high - low) * next()).collect();
    host(&values, dims)
}
