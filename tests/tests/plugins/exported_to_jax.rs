//! Functions of halite, exported, read again, and run by JAX.

use std::{collections::BTreeMap, path::Path, sync::LazyLock};

use halite_core::{Array, Client, DType, HostArray, TensorType, Tree, tree};
use halite_embedded::{Embedded, Options};
use halite_exchange::{Artifact, Exported, PyTree, export, export_step};
use halite_nn::{Jit, Linear, Param, Tensor, cross_entropy, grad, init, jit_like, jit_step, rng};
use halite_tests::python::python;
use safetensors::{SafeTensors, tensor::TensorView};

/// The example, whose function is called here.
#[path = "../../../exchange/examples/run_program.rs"]
#[allow(dead_code, unreachable_pub, reason = "its `main` is of the example")]
mod run_program;

static CLIENT: LazyLock<Client> =
    LazyLock::new(|| Client::new(Embedded::new(&Options::default()).unwrap()));

#[derive(Tree, Clone, Debug)]
struct Mlp<L> {
    hidden: Vec<Linear<L>>,
    out: Linear<L>,
}

impl<'t> Mlp<Tensor<'t>> {
    /// `x: f32[batch, 4]` to logits `f32[batch, 3]`.
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let hidden = |x, layer: &Linear<Tensor<'t>>| layer.forward(x).relu();
        self.out.forward(self.hidden.iter().fold(x, hidden))
    }
}

fn description() -> Mlp<Param> {
    Mlp {
        hidden: vec![Linear::new(4, 8), Linear::new(8, 8)],
        out: Linear::new(8, 3),
    }
}

fn parameters() -> Mlp<Array> {
    let initialize = Jit::<tree::Empty<()>, tree::Leaf<()>, Mlp<()>>::function(
        &CLIENT,
        |cx, tree::Leaf(key)| init(cx, &description(), key),
    );
    let key = Array::from_slice(&CLIENT, &rng::key(7), [2]).unwrap();
    initialize.run(&key).unwrap()
}

/// Inputs and labels.
fn batch() -> (Array, Array) {
    let x: Vec<f32> = (0..24).map(|i| (i as f32 * 0.7).sin()).collect();
    let x = Array::from_slice(&CLIENT, &x, [6, 4]).unwrap();
    let labels = Array::from_slice(&CLIENT, &[0i32, 1, 2, 0, 1, 2], [6]).unwrap();
    (x, labels)
}

/// Runs an artifact in halite on arguments by path.
fn run(exported: &Exported, arguments: &BTreeMap<String, HostArray>) -> Vec<HostArray> {
    let program = Artifact::from_exported(exported)
        .unwrap()
        .compile(&CLIENT)
        .unwrap();
    let inputs: Vec<Array> = (program.inputs().iter())
        .map(|input| Array::upload(&CLIENT, &arguments[&input.name], program.sharding()).unwrap())
        .collect();
    let outputs = program.run(&inputs.iter().collect::<Vec<_>>()).unwrap();
    outputs
        .iter()
        .map(|output| output.read().unwrap())
        .collect()
}

/// Runs an artifact in JAX.
fn run_in_jax(exported: &Exported, arguments: &BTreeMap<String, HostArray>) -> Vec<HostArray> {
    let dir = tempfile::tempdir().unwrap();
    let [artifact, given, results] =
        ["f.jax", "arguments.safetensors", "results.safetensors"].map(|name| dir.path().join(name));
    exported.save(&artifact).unwrap();
    let views = arguments.iter().map(|(name, array)| {
        let dtype = match array.ty().dtype() {
            DType::F32 => safetensors::Dtype::F32,
            DType::S32 => safetensors::Dtype::I32,
            DType::U32 => safetensors::Dtype::U32,
            other => panic!("{other}"),
        };
        (
            name,
            TensorView::new(dtype, array.ty().dims().to_vec(), array.bytes()).unwrap(),
        )
    });
    std::fs::write(&given, safetensors::serialize(views, None).unwrap()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("jax/run_exported.py");
    let output = python()
        .env("JAX_PLATFORMS", "cpu")
        .arg(script)
        .args([&artifact, &given, &results])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", exported.name);
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let bytes = std::fs::read(&results).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let result = |index: usize| {
        let tensor = file.tensor(&index.to_string()).unwrap();
        let name = tensor
            .dtype()
            .to_string()
            .to_lowercase()
            .replacen('i', "s", 1);
        let ty = TensorType::new(DType::from_name(&name).unwrap(), tensor.shape());
        HostArray::from_bytes(tensor.data(), ty).unwrap()
    };
    (0..file.len()).map(result).collect()
}

#[track_caller]
fn assert_close(name: &str, found: &[HostArray], expected: &[HostArray]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.ty(), expected.ty(), "{name}, result {index}");
        if !expected.ty().dtype().is_float() {
            assert_eq!(found.bytes(), expected.bytes(), "{name}, result {index}");
            continue;
        }
        let (left, right) = (
            found.as_slice::<f32>().unwrap(),
            expected.as_slice::<f32>().unwrap(),
        );
        for (left, right) in left.iter().zip(right) {
            assert!(
                (left - right).abs() < 2e-5,
                "{name}, result {index}: {found} != {expected}"
            );
        }
    }
}

/// Checks an artifact after it was written and read, here and in JAX.
#[track_caller]
fn check(exported: &Exported, arguments: &[(String, HostArray)], expected: &[HostArray]) {
    let read = Exported::read(&exported.to_bytes().unwrap()).unwrap();
    assert_eq!(read, *exported);
    let arguments = arguments.iter().cloned().collect();
    assert_close("halite", &run(&read, &arguments), expected);
    assert_close("JAX", &run_in_jax(&read, &arguments), expected);
}

/// Values of a tree by path, below argument `index`.
fn named(index: usize, values: &impl Tree<Leaf = Array>) -> Vec<(String, HostArray)> {
    let name = |path: String| match path.as_str() {
        "" => index.to_string(),
        path => format!("{index}.{path}"),
    };
    let values = values.named().into_iter();
    values
        .map(|(path, array)| (name(path), array.read().unwrap()))
        .collect()
}

#[test]
fn model_with_parameters_as_arguments() {
    let (model, (x, _)) = (parameters(), batch());
    let predict =
        jit_like(&CLIENT, (&model, &x), |_cx, (model, x)| [model.forward(x)]).named("predict");
    let [logits] = predict.run((&model, &x)).unwrap();
    let exported = export(&predict, (&model, &x)).unwrap();
    let arguments = [named(0, &model), named(1, &x)].concat();
    check(&exported, &arguments, &[logits.read().unwrap()]);
}

#[test]
fn model_with_parameters_inside() {
    let (model, (x, _)) = (parameters(), batch());
    let predict =
        jit_like(&CLIENT, (&model, &x), |_cx, (model, x)| [model.forward(x)]).named("baked");
    let [logits] = predict.run((&model, &x)).unwrap();
    let exported = export(&predict, (&model, &x))
        .unwrap()
        .with_constant(0, &model)
        .unwrap();
    assert_eq!(exported.inputs.paths(), ["0.0"]);
    check(&exported, &named(0, &x), &[logits.read().unwrap()]);
}

#[test]
fn example_runs_a_saved_program() {
    let (model, (x, _)) = (parameters(), batch());
    let predict =
        jit_like(&CLIENT, (&model, &x), |_cx, (model, x)| [model.forward(x)]).named("saved");
    let exported = export(&predict, (&model, &x)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved.jax");
    let whole = exported.with_constant(0, &model).unwrap();
    whole.save(&path).unwrap();
    // The example's inputs are zeros.
    let zeros = Array::from_slice(&CLIENT, &[0f32; 24], [6, 4]).unwrap();
    let [logits] = predict.run((&model, &zeros)).unwrap();
    let found = run_program::run(&path).unwrap();
    assert_close("example", &found, &[logits.read().unwrap()]);
}

#[test]
fn network_with_gelu() {
    let (model, (x, _)) = (parameters(), batch());
    let predict = jit_like(&CLIENT, (&model, &x), |_cx, (model, x)| {
        let hidden = |x, layer: &Linear<_>| layer.forward(x).gelu();
        let narrow = (x * 2.0).convert(DType::Bf16).gelu().convert(DType::F32);
        [
            model.out.forward(model.hidden.iter().fold(x, hidden)),
            narrow,
        ]
    })
    .named("gelu");
    let outputs = predict.run((&model, &x)).unwrap();
    let expected = outputs.map(|output| output.read().unwrap());
    let exported = export(&predict, (&model, &x)).unwrap();
    let arguments = [named(0, &model), named(1, &x)].concat();
    check(&exported, &arguments, &expected);
}

#[derive(Tree, Clone, Debug)]
struct Training<L> {
    model: Mlp<L>,
    /// Decay per step.
    momentum: Mlp<L>,
}

#[test]
fn training_step_returns_state_first() {
    let (x, labels) = batch();
    let state = || Training {
        model: parameters(),
        momentum: parameters(),
    };
    let step = jit_step(&CLIENT, &state(), |_cx, state, [x, labels]| {
        let loss = cross_entropy(state.model.forward(x), labels).mean_all();
        let slopes = grad(loss, &state.model);
        let momentum = tree::zip(state.momentum, slopes)
            .map_leaves(|_, (momentum, slope)| momentum * 0.9 + slope);
        let model = tree::zip(state.model, momentum.clone())
            .map_leaves(|_, (value, momentum)| value - 0.1 * momentum);
        (Training { model, momentum }, [loss])
    })
    .named("step");
    let exported = export_step(&step, &state(), [&x, &labels]).unwrap();
    assert_eq!(exported.outputs.paths()[0], "0.model.hidden.0.bias");
    assert_eq!(exported.outputs.paths().last().unwrap(), "1.0");
    let arguments = [named(0, &state()), named(1, &x), named(2, &labels)].concat();
    let (next, [loss]) = step.call(state(), [&x, &labels]).unwrap();
    // Results in JAX's order: the keys of each dict are sorted.
    let mut expected = named(0, &next);
    expected.sort_by(|(left, _), (right, _)| left.cmp(right));
    let mut expected: Vec<HostArray> = expected.into_iter().map(|(_, value)| value).collect();
    expected.push(loss.read().unwrap());
    check(&exported, &arguments, &expected);
}

#[test]
fn inputs_of_jit_are_positional_arguments() {
    let pair = halite_nn::jit(&CLIENT, |_cx, [x, y]| [x + y, x - y]);
    let scalar = Array::scalar(&CLIENT, 1.5f32).unwrap();
    let exported = export(&pair, [&scalar, &scalar]).unwrap();
    let leaves = PyTree::Tuple(vec![PyTree::Leaf, PyTree::Leaf]);
    let none = PyTree::Dict(Vec::new());
    assert_eq!(exported.inputs, PyTree::Tuple(vec![leaves.clone(), none]));
    assert_eq!(exported.outputs, leaves);
    let arguments = [named(0, &scalar), named(1, &scalar)].concat();
    let expected = [HostArray::scalar(3.0f32), HostArray::scalar(0.0f32)];
    check(&exported, &arguments, &expected);
}

#[test]
fn wrong_constants_are_errors() {
    let double = halite_nn::jit(&CLIENT, |_cx, [x]| [x * 2.0]);
    let scalar = Array::scalar(&CLIENT, 1.0f32).unwrap();
    let exported = export(&double, [&scalar]).unwrap();
    let error = exported.with_constant(1, &scalar).unwrap_err().to_string();
    assert_eq!(
        error,
        "export: argument 1 of 1 positional arguments, from 0"
    );
    let wrong = Array::scalar(&CLIENT, 1i32).unwrap();
    let error = exported.with_constant(0, &wrong).unwrap_err().to_string();
    assert!(
        error.contains("`0.0` is") && error.contains("s32[]"),
        "{error}"
    );
}

#[test]
fn platforms_are_replaced() {
    let double = halite_nn::jit(&CLIENT, |_cx, [x]| [x * 2.0]);
    let scalar = Array::scalar(&CLIENT, 1.5f32).unwrap();
    let exported = export(&double, [&scalar]).unwrap();
    let one = exported.with_platforms(&["toy"]).unwrap();
    assert_eq!(one.platforms, ["toy"]);
    let three = one.with_platforms(&["cpu", "cuda", "tpu"]).unwrap();
    check(&three, &named(0, &scalar), &[HostArray::scalar(3.0f32)]);
    for wrong in [&["cpu", "cpu"][..], &[""], &[]] {
        let error = exported.with_platforms(wrong).unwrap_err().to_string();
        assert!(error.contains("expected distinct names"), "{error}");
    }
}
