//! Functions of halite as `jax.export` artifacts.

use halite_core::{
    Array, Capabilities, Client, Error, ErrorKind, Kernels, Result, TensorType,
    tree::{Empty, Family, Tree},
};
use halite_nn::{ArraySpec, Inputs, Jit, Lowered};
use halite_stablehlo::{Attributes, Function, Module, OpKind, Region};

use crate::{
    Exported, PyTree,
    constant::{dense, fix_input},
    exported::{OP, add_platform_index, child},
    portable,
};

/// Platforms of the artifacts that are written. The program is the same on all of them.
const PLATFORMS: [&str; 3] = ["cpu", "cuda", "tpu"];

/// Exports a function of arrays like `inputs` as `jax.export.export` does, for CPUs, CUDA and TPUs.
///
/// In Python, `jax.export.deserialize(bytes).call(..)` takes what [`Jit::run`] takes: several
/// inputs are positional arguments, a struct is a dict with its fields by name, a `Vec` is a list.
///
/// ```
/// use halite_core::{Array, Client};
/// use halite_exchange::export;
/// use halite_nn::jit;
/// use halite_embedded::{Options, Embedded};
///
/// # fn main() -> halite_core::Result<()> {
/// let client = Client::new(Embedded::new(&Options::default())?);
/// let distance = jit(&client, |_cx, [x, y]| [(x - y).square().sum_all().sqrt()]);
/// let x = Array::from_slice(&client, &[1.0f32, 2.0], [2])?;
/// let artifact = export(&distance, [&x, &x])?; // `artifact.save("distance.jax")` writes a file
/// assert_eq!(artifact.inputs.paths(), ["0.0", "0.1"]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// All mistakes of the traced code at once; if the inputs are on several devices, or the program
/// has operations that portable artifacts do not have.
pub fn export<'a, I: Inputs<'a>, O: Family>(
    function: &Jit<Empty<()>, I::Family, O>,
    inputs: I,
) -> Result<Exported> {
    let inputs = inputs
        .into_refs()
        .map_leaves(|_, array| ArraySpec::of(array));
    let lowered =
        function.lower_for(&without_kernels(function.client()), &Empty::new(), &inputs)?;
    let arguments = positional(inputs.paths(), 0);
    let results = lowered.shape.paths();
    exported(function.name(), &lowered, &arguments, &results)
}

/// Exports a step, such as of training, that takes and returns a state. In Python it is a function
/// `(state, inputs..) -> (state, outputs)`.
///
/// # Errors
/// As [`export`].
pub fn export_step<'a, S: Tree<Leaf = Array>, I: Inputs<'a>, O: Family>(
    step: &Jit<S::Family, I::Family, O>,
    state: &S,
    inputs: I,
) -> Result<Exported> {
    let state = state
        .leaf_refs()
        .map_leaves(|_, array| ArraySpec::of(array));
    let inputs = inputs
        .into_refs()
        .map_leaves(|_, array| ArraySpec::of(array));
    let lowered = step.lower_for(&without_kernels(step.client()), &state, &inputs)?;
    let below = |index: usize, paths: Vec<String>| -> Vec<String> {
        paths.iter().map(|path| child(index, path)).collect()
    };
    let arguments = [below(0, state.paths()), positional(inputs.paths(), 1)].concat();
    let results = [below(0, state.paths()), below(1, lowered.shape.paths())].concat();
    exported(step.name(), &lowered, &arguments, &results)
}

/// Capabilities of the devices of a client, without calls of functions of this process, and with
/// products of full precision on other devices too.
fn without_kernels(client: &Client) -> Capabilities {
    let mut capabilities = client.capabilities();
    capabilities.kernels = Kernels::Off;
    capabilities.rounds_products = true;
    capabilities
}

/// Paths of inputs as positional arguments from `first` on: their own indices if they have any,
/// otherwise one argument.
fn positional(paths: Vec<String>, first: usize) -> Vec<String> {
    let split = |path: &String| {
        let (head, rest) = path.split_once('.').unwrap_or((path, ""));
        Some((head.parse::<usize>().ok()?, rest.to_owned()))
    };
    match paths.iter().map(split).collect::<Option<Vec<_>>>() {
        Some(split) => (split.iter())
            .map(|(index, rest)| child(first + index, rest))
            .collect(),
        None => paths.iter().map(|path| child(first, path)).collect(),
    }
}

/// Makes an artifact of a program whose arguments and results have these paths.
pub(crate) fn exported<O>(
    name: &str,
    lowered: &Lowered<O>,
    arguments: &[String],
    results: &[String],
) -> Result<Exported> {
    let program = &lowered.program;
    if program.devices() != 1 {
        let devices = program.devices();
        let message = format!(
            "`{name}` is for {devices} devices; export it with inputs on one device (`Array::reshard`)"
        );
        return Err(Error::new(ErrorKind::Unsupported, OP, message));
    }
    let (inputs, input_order) = PyTree::of_paths(arguments)?;
    let (outputs, output_order) = PyTree::of_paths(results)?;
    let mut module = Module::from_code(&program.code)?;
    refuse_custom_calls(name, &module)?;
    for (index, (_, values)) in lowered.hyperparameters.iter().enumerate().rev() {
        fix_input(&mut module, arguments.len() + index, dense(values))?;
    }
    let main = (module.functions.iter_mut())
        .find(|function| function.name == "main")
        .expect("programs of halite have a function `main`");
    reorder(main, &input_order, &output_order);
    let types = |graph: &[TensorType], order: &[usize]| {
        order
            .iter()
            .map(|&index| Some(graph[index].clone()))
            .collect()
    };
    let signature = &program.signature;
    let root = match inputs {
        PyTree::List(arguments) => PyTree::Tuple(arguments),
        _ => PyTree::Tuple(Vec::new()),
    };
    Ok(Exported {
        name: name.to_owned(),
        inputs: PyTree::Tuple(vec![root, PyTree::Dict(Vec::new())]),
        input_types: types(&signature.inputs, &input_order),
        outputs: match outputs {
            PyTree::List(results) => PyTree::Tuple(results),
            other => other,
        },
        output_types: types(&signature.outputs, &output_order),
        platforms: PLATFORMS.map(str::to_owned).to_vec(),
        used_inputs: (0..arguments.len()).collect(),
        devices: 1,
        program: portable(&module, None)?.into(),
    })
}

/// Checks that a module calls no function of a process: those of XLA's FFI, API version 4.
fn refuse_custom_calls(name: &str, module: &Module) -> Result<()> {
    fn target(region: &Region) -> Option<&str> {
        region.operations.iter().find_map(|op| match &op.kind {
            OpKind::CustomCall(call) if call.api_version == 4 => Some(&*call.target),
            _ => op.regions.iter().find_map(target),
        })
    }
    let called = module
        .functions
        .iter()
        .find_map(|function| target(&function.body));
    let Some(target) = called else {
        return Ok(());
    };
    let message = format!(
        "`{name}` calls `{target}`, a function that only this process has; write it in tensor \
         operations to export it"
    );
    Err(Error::new(ErrorKind::Unsupported, OP, message))
}

/// Orders arguments and results, and adds the argument for the index of the platform. Attributes of
/// both are dropped: the caller of the function decides about donation and shardings.
fn reorder(main: &mut Function, inputs: &[usize], outputs: &[usize]) {
    let arguments = inputs.iter().map(|&input| main.body.arguments[input]);
    main.body.arguments = arguments.collect();
    main.body.results = (outputs.iter())
        .map(|&output| main.body.results[output])
        .collect();
    main.output_attributes = vec![Attributes::default(); main.body.results.len()];
    add_platform_index(main);
}
