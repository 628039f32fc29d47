//! Functions that JAX exported, compiled and imported, beside what JAX computed: values, gradients,
//! and the losses of a training run. `tests/golden/exports.py` in the repository records them.

use std::{collections::BTreeMap, path::Path, sync::LazyLock};

use halite_core::{
    Array, Client, DType, HostArray, Result, Sharding, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_embedded::{Embedded, Options};
use halite_exchange::{Artifact, Exported};
use halite_nn::{Jit, Tensor, Trace, grad};
use safetensors::SafeTensors;

/// Tensors of the file by name; programs are vectors of `u8`.
static TENSORS: LazyLock<BTreeMap<String, HostArray>> = LazyLock::new(|| {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/jax_exports.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.tensors().into_iter().map(|(name, tensor)| {
        let format = tensor.dtype().to_string();
        let dtype = DType::from_name(&format.to_lowercase().replacen('i', "s", 1)).unwrap();
        let ty = TensorType::new(dtype, tensor.shape());
        (name, HostArray::from_bytes(tensor.data(), ty).unwrap())
    });
    tensors.collect()
});

static CLIENT: LazyLock<Client> =
    LazyLock::new(|| Client::new(Embedded::new(&Options::default()).unwrap()));

/// Names of all recorded functions.
fn functions() -> impl Iterator<Item = &'static str> {
    TENSORS
        .keys()
        .filter_map(|name| name.strip_suffix(".program"))
}

fn artifact(name: &str) -> Artifact {
    let program = &TENSORS[&format!("{name}.program")];
    Artifact::read(program.bytes()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// `NAME.KIND.0`, `NAME.KIND.1`, ..
fn recorded(name: &str, kind: &str) -> Vec<HostArray> {
    (0..)
        .map_while(|index| TENSORS.get(&format!("{name}.{kind}.{index}")).cloned())
        .collect()
}

/// Runs a traced function.
fn evaluate(
    function: impl for<'t> Fn(&'t Trace, Vec<Tensor<'t>>) -> Vec<Tensor<'t>> + Send + Sync + 'static,
    inputs: &[HostArray],
) -> Result<Vec<HostArray>> {
    type Many = Vec<Leaf<()>>;
    let jit = Jit::<Empty<()>, Many, Many>::new(&CLIENT, move |cx, _, inputs| {
        let outputs = function(cx, Tree::into_leaves(inputs));
        (Empty::new(), outputs.into_iter().map(Leaf).collect())
    });
    let device = Sharding::single(CLIENT.local_devices()[0]);
    let arrays: Vec<Leaf<Array>> = (inputs.iter())
        .map(|input| Array::upload(&CLIENT, input, &device).map(Leaf))
        .collect::<Result<_>>()?;
    let (_, outputs) = jit.on(device.mesh()).call(Empty::new(), &arrays)?;
    outputs.iter().map(Array::read).collect()
}

/// Asserts that arrays are equal but for rounding.
#[track_caller]
fn assert_close(what: &str, found: &HostArray, expected: &HostArray) {
    assert_eq!(found.ty(), expected.ty(), "{what}");
    if !expected.ty().dtype().is_float() {
        assert_eq!(
            found.bytes(),
            expected.bytes(),
            "{what}: {found} != {expected}"
        );
        return;
    }
    let wide = |array: &HostArray| array.to_float(DType::F64).unwrap();
    let (found_wide, expected_wide) = (wide(found), wide(expected));
    let expected_values = expected_wide.as_slice::<f64>().unwrap();
    let finite = expected_values
        .iter()
        .copied()
        .filter(|value| value.is_finite());
    let scale = finite.fold(0.1, |scale: f64, value| scale.max(value.abs()));
    for (&found_value, &value) in found_wide
        .as_slice::<f64>()
        .unwrap()
        .iter()
        .zip(expected_values)
    {
        let close = (found_value - value).abs() <= 1e-5 * scale;
        let same = found_value == value || (found_value.is_nan() && value.is_nan());
        assert!(close || same, "{what}: {found} != {expected}");
    }
}

#[track_caller]
fn assert_all_close(name: &str, found: &[HostArray], expected: &[HostArray]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_close(&format!("{name}, result {index}"), found, expected);
    }
}

#[test]
fn compiled_functions_compute_what_jax_does() {
    let mut count = 0;
    for name in functions() {
        let program = artifact(name).compile(&CLIENT).unwrap();
        let inputs: Vec<Array> = (recorded(name, "in").iter())
            .map(|input| Array::upload(&CLIENT, input, program.sharding()).unwrap())
            .collect();
        let outputs = program.run(&inputs.iter().collect::<Vec<_>>());
        let outputs = outputs.unwrap_or_else(|error| panic!("{name}: {error}"));
        let outputs: Vec<HostArray> = outputs
            .iter()
            .map(|output| output.read().unwrap())
            .collect();
        assert_all_close(name, &outputs, &recorded(name, "out"));
        count += 1;
    }
    assert!(count >= 50, "{count} functions");
}

#[test]
fn imported_functions_compute_what_jax_does() {
    for name in functions() {
        let function = artifact(name)
            .function()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let inputs = recorded(name, "in");
        let outputs = evaluate(move |cx, inputs| function.call(cx, &inputs), &inputs);
        let outputs = outputs.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_all_close(name, &outputs, &recorded(name, "out"));
    }
}

#[test]
fn gradients_are_those_of_jax() {
    let mut count = 0;
    for name in functions() {
        let Some(cotangent) = TENSORS.get(&format!("{name}.cotangent")) else {
            continue;
        };
        let mut inputs = recorded(name, "in");
        let wrt: Vec<usize> = (0..inputs.len())
            .filter(|index| TENSORS.contains_key(&format!("{name}.grad.{index}")))
            .collect();
        inputs.push(cotangent.clone());
        let function = artifact(name).function().unwrap();
        let slopes = {
            let wrt = wrt.clone();
            evaluate(
                move |cx, mut inputs| {
                    let cotangent = inputs.pop().unwrap();
                    let loss = (function.call(cx, &inputs)[0] * cotangent).sum_all();
                    let wrt: Vec<Leaf<_>> = wrt.iter().map(|&index| Leaf(inputs[index])).collect();
                    grad(loss, &wrt).into_leaves()
                },
                &inputs,
            )
        };
        let slopes = slopes.unwrap_or_else(|error| panic!("{name}: {error}"));
        for (index, slope) in wrt.iter().zip(&slopes) {
            let expected = &TENSORS[&format!("{name}.grad.{index}")];
            assert_close(
                &format!("{name}, gradient of input {index}"),
                slope,
                expected,
            );
            count += 1;
        }
    }
    assert!(count >= 60, "{count} gradients");
}

#[test]
fn training_step_of_jax_trains() {
    let step = artifact("training_step").compile(&CLIENT).unwrap();
    let mut inputs: Vec<Array> = (recorded("training_step", "in").iter())
        .map(|input| Array::upload(&CLIENT, input, step.sharding()).unwrap())
        .collect();
    let batch = inputs.split_off(inputs.len() - 2);
    let mut state = inputs;
    let expected = TENSORS["training_losses"].as_slice::<f32>().unwrap();
    let mut losses = Vec::new();
    for _ in expected {
        let moved = state.into_iter().map(halite_core::Arg::Donate);
        let inputs = moved.chain(batch.iter().map(halite_core::Arg::Borrow));
        state = step.launch(inputs).unwrap();
        losses.push(state.pop().unwrap().item::<f32>().unwrap());
    }
    for (loss, expected) in losses.iter().zip(expected) {
        assert!((loss - expected).abs() < 1e-5, "{losses:?} != {expected:?}");
    }
    assert!(losses[losses.len() - 1] < 0.8 * losses[0], "{losses:?}");
}

#[test]
fn inputs_are_named_by_their_paths() {
    let names = |name| -> Vec<String> {
        let artifact = artifact(name);
        artifact
            .inputs()
            .iter()
            .map(|input| input.name.clone())
            .collect()
    };
    assert_eq!(
        names("mlp"),
        [
            "0.hidden.0.bias",
            "0.hidden.0.kernel",
            "0.hidden.1.bias",
            "0.hidden.1.kernel",
            "0.out.bias",
            "0.out.kernel",
            "1"
        ]
    );
    let artifact = artifact("unused_argument");
    let used: Vec<bool> = artifact.inputs().iter().map(|input| input.used).collect();
    assert_eq!(names("unused_argument"), ["0", "1", "2.a", "2.b"]);
    assert_eq!(used, [true, false, false, true]);
}

#[test]
fn artifacts_are_written_as_they_were_read() {
    for name in functions() {
        let program = &TENSORS[&format!("{name}.program")];
        let exported = Exported::read(program.bytes()).unwrap();
        let written = Exported::read(&exported.to_bytes().unwrap()).unwrap();
        assert_eq!(written, exported, "{name}");
    }
}

#[test]
fn wrong_inputs_are_named() {
    let program = artifact("mlp").compile(&CLIENT).unwrap();
    let x = Array::from_slice(&CLIENT, &[0.0f32; 8], [8]).unwrap();
    let error = program.run(&[&x; 7]).unwrap_err().to_string();
    assert_eq!(
        error,
        "run: input `0.hidden.0.kernel` is f32[8], the program has f32[4, 8]"
    );
    let error = program.run(&[&x]).unwrap_err().to_string();
    assert!(
        error.starts_with("run: 1 inputs given, the program has 7: 0.hidden.0.bias, "),
        "{error}"
    );
}

#[test]
fn truncated_artifacts_are_errors() {
    let program = TENSORS["cnn.program"].bytes();
    for length in (0..program.len()).step_by(7) {
        let _ = Artifact::read(&program[..length]);
    }
    let error = Artifact::read(&program[..100]).unwrap_err().to_string();
    assert!(error.contains("jax.export"), "{error}");
}

#[test]
fn platforms_are_those_of_the_export() {
    let name = functions().next().unwrap();
    let exported = Exported::read(TENSORS[&format!("{name}.program")].bytes()).unwrap();
    let artifact = |platforms: &[&str]| {
        Artifact::from_exported(&exported.with_platforms(platforms).unwrap()).unwrap()
    };
    // Executors without a name in JAX run what is for CPUs.
    for platforms in [&["cpu"][..], &["tpu", "cpu"], &["embedded"], &["halite"]] {
        artifact(platforms).compile(&CLIENT).unwrap();
    }
    let error = artifact(&["tpu"]).compile(&CLIENT).unwrap_err().to_string();
    assert!(
        error.contains("was exported for tpu, this client is embedded"),
        "{error}"
    );
    artifact(&["tpu"])
        .on_any_platform()
        .compile(&CLIENT)
        .unwrap();
}
