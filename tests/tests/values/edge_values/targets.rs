//! Every row, with the gradients of all its results, lowered and compiled for an NVIDIA GPU and a
//! TPU: none is rejected.

use halite_backends::OpenTarget;
use halite_core::{
    CompileOptions, DType, MeshShape, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{Function, ShardedType, Tensor, lower, vjp};
use halite_tests::targets::target;

use crate::edge_values::{groups, job::every_result, slopes::has_slopes, table::Row};

/// Environment variable that adds all other element types, which takes an hour.
const ALL: &str = "HALITE_AOT_TYPES";
const BY_DEFAULT: [DType; 3] = [DType::F32, DType::Bf16, DType::U64];

/// Results of rows, and the gradients of all of them, or of the first if others have none.
fn results<'t>(rows: &[&Row], inputs: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
    let mut all = Vec::new();
    for row in rows {
        if !has_slopes(row) {
            all.extend(every_result(&[row], inputs));
            continue;
        }
        let outputs = (row.build)(inputs);
        let floats = outputs.iter().copied().filter(|y| y.dtype().is_float());
        let floats: Vec<Tensor<'t>> = floats.collect();
        let wrt: Vec<_> = row.gradients.iter().map(|&at| Leaf(inputs[at])).collect();
        all.extend(outputs);
        if wrt.iter().all(|x| x.0.dtype().is_float()) {
            all.extend(vjp(&floats, &floats, &wrt).into_leaves());
        }
    }
    all
}

fn compile(
    target: &OpenTarget,
    rows: &[&'static Row],
    inputs: &[TensorType],
) -> Result<(), String> {
    type Many = Vec<Leaf<()>>;
    let rows = rows.to_vec();
    let function = Function::<_, Many, Many>::stateless(move |_, inputs: Vec<Leaf<Tensor<'_>>>| {
        let results = results(&rows, &inputs.into_leaves());
        results.into_iter().map(Leaf).collect()
    });
    let mesh = MeshShape::new([("data", 1)]).expect("one axis");
    let capabilities = target.target().capabilities().expect("a known target");
    let inputs = inputs
        .iter()
        .map(|ty| Leaf(ShardedType::replicated(ty.clone())))
        .collect::<Vec<_>>();
    let lowered = lower(&function, &Empty::new(), &inputs, &mesh, &capabilities)
        .map_err(|error| format!("is not lowered: {error}"))?;
    let compiled = target.compile(&lowered.program, &CompileOptions::default());
    compiled.map(|_| ()).map_err(|error| {
        let text = error.to_string();
        format!("is rejected: {}", &text[..text.len().min(400)])
    })
}

fn every_row_compiles_for(name: &str) {
    let target = target(name).expect("a plugin that compiles for it");
    let all = std::env::var_os(ALL).is_some();
    let mut rejected = Vec::new();
    for (form, dtype, rows) in groups() {
        if !all && !BY_DEFAULT.contains(&dtype) {
            continue;
        }
        let inputs = form.types(dtype);
        // All together; each alone to name the one that is rejected.
        if compile(&target, &rows, &inputs).is_err() {
            for row in rows {
                let result = compile(&target, &[row], &inputs);
                let line = |why| format!("{} of {dtype} {why}", row.name);
                rejected.extend(result.err().map(line));
            }
        }
    }
    assert!(
        rejected.is_empty(),
        "{} for {name}:\n{}",
        rejected.len(),
        rejected.join("\n")
    );
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn every_row_compiles_for_cuda() {
    every_row_compiles_for("cuda:h100:1x1");
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn every_row_compiles_for_tpu() {
    every_row_compiles_for("tpu:v5e:1x1");
}
