//! Every row, with the gradients of all its results, lowered and compiled for an NVIDIA GPU and a
//! TPU.

use halite_backends::OpenTarget;
use halite_core::{
    CompileOptions, DType, MeshShape, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{Function, ShardedType, Tensor, Trace, lower, vjp};
use halite_tests::targets::target;

use crate::edge_values::{
    groups,
    job::every_result,
    slopes::has_slopes,
    table::{Form, Row},
};

/// Environment variable that adds all other element types for the GPU, which takes an hour.
const ALL: &str = "HALITE_AOT_TYPES";

/// Rows that libtpu does not compile, and why.
const NOT_ON_TPU: &[(&str, &str)] = &[
    (
        "convolutions_of_volumes",
        "its check of the layout of a kernel fails, which ends the process",
    ),
    ("dots_wider", "it has no products of integers of 64 bits"),
    (
        "windows_of_sums_or_extremes",
        "its select_and_scatter has two dimensions or more without windows",
    ),
];

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

/// Compiles rows all together, and each alone to name the one that is rejected.
fn rejections(target: &OpenTarget, rows: &[&'static Row], inputs: &[TensorType]) -> Vec<String> {
    if compile(target, rows, inputs).is_ok() {
        return vec![];
    }
    let rejection = |row: &&'static Row| {
        let why = compile(target, &[row], inputs).err()?;
        Some(format!("{} of {} {why}", row.name, inputs[0]))
    };
    rows.iter().filter_map(rejection).collect()
}

/// An empty dimension may be a mistake.
fn accepts(row: &Row, inputs: &[TensorType]) -> bool {
    let cx = Trace::new();
    let inputs = inputs.iter().map(|ty| cx.input(ty.clone(), "x"));
    every_result(&[row], &inputs.collect::<Vec<_>>());
    cx.check().is_ok()
}

fn every_row_compiles_for(name: &str, dtypes: &[DType], skipped: &[(&str, &str)]) {
    let target = target(name).expect("a plugin that compiles for it");
    let mut rejected = Vec::new();
    for (form, dtype, mut rows) in groups() {
        if !dtypes.contains(&dtype) {
            continue;
        }
        rows.retain(|row| !skipped.iter().any(|(name, _)| *name == row.name));
        rejected.extend(rejections(&target, &rows, &form.types(dtype)));
        if form == Form::Cubes && [DType::F32, DType::S32].contains(&dtype) {
            let empty = [TensorType::new(dtype, [4, 6, 0])];
            rows.retain(|row| accepts(row, &empty));
            rejected.extend(rejections(&target, &rows, &empty));
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
    let all: Vec<DType> = DType::computed().collect();
    let dtypes = match std::env::var_os(ALL) {
        Some(_) => &all[..],
        None => &[DType::F32, DType::Bf16, DType::U64],
    };
    every_row_compiles_for("cuda:h100:1x1", dtypes, &[]);
}

/// Not of 64 bits, whose convolutions libtpu rejects.
#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn every_row_compiles_for_tpu() {
    let dtypes = [DType::F32, DType::Bf16, DType::S32];
    every_row_compiles_for("tpu:v5e:1x1", &dtypes, NOT_ON_TPU);
}
