//! Golden values of PyTorch, and functions compared with them.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use halite_core::{DType, HostArray, Tree, tree::Leaf};
use halite_nn::{Param, Tensor, Trace, grad, vjp};
use halite_tests::eval::eval;
use serde::Deserialize;

/// The file that `make.py` writes.
const LAYERS: &str = "layers.json";

/// Inputs and results of one function.
#[derive(Deserialize)]
pub(crate) struct Case {
    /// Arguments of the layer.
    #[serde(default)]
    pub(crate) options: serde_json::Value,
    pub(crate) inputs: Vec<Packed>,
    pub(crate) outputs: Vec<Packed>,
    cotangent: Option<Packed>,
    gradients: Option<Vec<Option<Packed>>>,
}

impl Case {
    /// Whether the file has gradients of it.
    pub(crate) fn has_gradients(&self) -> bool {
        self.gradients.is_some()
    }
}

/// An array in the file.
#[derive(Deserialize)]
pub(crate) struct Packed {
    pub(crate) dims: Vec<usize>,
    dtype: String,
    pub(crate) values: Vec<f64>,
}

impl Packed {
    pub(crate) fn host(&self) -> HostArray {
        let made = match self.dtype.as_str() {
            "f64" => HostArray::from_slice(&self.values, &self.dims),
            "s32" => HostArray::from_slice(
                &self
                    .values
                    .iter()
                    .map(|&value| value as i32)
                    .collect::<Vec<_>>(),
                &self.dims,
            ),
            other => panic!("element type {other}"),
        };
        made.expect("the file has as many values as its dimensions say")
    }
}

/// The cases of `layers.json` whose names begin with `prefix`.
pub(crate) fn cases(prefix: &str) -> BTreeMap<String, Case> {
    cases_in(LAYERS, prefix)
}

/// The cases of a golden file whose names begin with `prefix`.
pub(crate) fn cases_in(file: &str, prefix: &str) -> BTreeMap<String, Case> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pytorch");
    let path = golden.join(file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut cases: BTreeMap<String, Case> =
        serde_json::from_str(&text).expect("the golden file is as its script writes it");
    cases.retain(|name, _| name.starts_with(prefix));
    assert!(!cases.is_empty(), "no golden case begins with {prefix}");
    cases
}

/// Checks values in `f64`; `tolerance` is relative to 1 or to larger values.
pub(crate) fn close(what: &str, got: &HostArray, expected: &Packed, tolerance: f64) {
    assert_eq!(got.ty().dims(), expected.dims, "dimensions of {what}");
    let got: &[f64] = got
        .as_slice()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    for (index, (&got, &expected)) in got.iter().zip(&expected.values).enumerate() {
        let off = (got - expected).abs();
        assert!(
            off <= tolerance * (1.0 + expected.abs()),
            "{what}[{index}] is {got}, not {expected}: off by {off:e}"
        );
    }
}

/// Builds a model from tensors in the order of its leaves.
pub(crate) fn with<'t, M: Tree<Leaf = Param>>(
    model: &M,
    leaves: &[Tensor<'t>],
) -> halite_core::tree::Of<M, Tensor<'t>> {
    model.rebuild(leaves.iter().copied())
}

/// Runs all cases that begin with `prefix` in one program; checks values, gradients and finite
/// differences.
pub(crate) fn check(
    prefix: &str,
    function: impl for<'t> Fn(&'t Trace, &str, &[Tensor<'t>]) -> Vec<Tensor<'t>> + Send + Sync + 'static,
) {
    check_cases(cases(prefix), function);
}

/// As [`check`], for these cases.
pub(crate) fn check_cases(
    cases: BTreeMap<String, Case>,
    function: impl for<'t> Fn(&'t Trace, &str, &[Tensor<'t>]) -> Vec<Tensor<'t>> + Send + Sync + 'static,
) {
    let cases = Arc::new(cases);
    let mut inputs = Vec::new();
    for case in cases.values() {
        inputs.extend(case.inputs.iter().chain(&case.cotangent).map(Packed::host));
    }
    let traced = cases.clone();
    let results = eval(
        move |cx, given| trace(cx, &traced, given, &function),
        &inputs,
    );
    let mut results = results.into_iter();
    for (name, case) in cases.iter() {
        compare(name, case, &mut results);
    }
    assert_eq!(results.count(), 0, "results that no case has");
}

/// Outputs of all cases; each is followed by its slopes if the case has gradients.
fn trace<'t>(
    cx: &'t Trace,
    cases: &BTreeMap<String, Case>,
    given: &[Tensor<'t>],
    function: &impl Fn(&'t Trace, &str, &[Tensor<'t>]) -> Vec<Tensor<'t>>,
) -> Vec<Tensor<'t>> {
    let mut given = given.iter().copied();
    let mut all = Vec::new();
    for (name, case) in cases {
        let inputs: Vec<Tensor<'t>> = given.by_ref().take(case.inputs.len()).collect();
        let outputs = function(cx, name, &inputs);
        all.extend(outputs.iter().copied());
        if case.gradients.is_some() {
            let cotangent = given
                .next()
                .expect("there are as many inputs as the cases have");
            let wrt: Vec<usize> = differentiated(case).collect();
            let loss = (outputs[0] * cotangent).sum_all();
            let loss_at =
                |inputs: &[Tensor<'t>]| (function(cx, name, inputs)[0] * cotangent).sum_all();
            all.extend(slopes(cx, loss, &inputs, &wrt, loss_at));
        }
    }
    all
}

/// Runs all cases with inputs converted to a float type of 16 bits; compares values and gradients
/// within `tolerance` of the largest of each.
pub(crate) fn check_narrow(
    cases: BTreeMap<String, Case>,
    dtype: DType,
    tolerance: f64,
    function: impl for<'t> Fn(&'t Trace, &str, &[Tensor<'t>]) -> Vec<Tensor<'t>> + Send + Sync + 'static,
) {
    let cases = Arc::new(cases);
    let given = |case: &Case| -> Vec<HostArray> {
        (case.inputs.iter().chain(&case.cotangent))
            .map(Packed::host)
            .collect()
    };
    let inputs: Vec<HostArray> = cases.values().flat_map(given).collect();
    let traced = cases.clone();
    let results = eval(
        move |cx, given| {
            let mut given = given.iter();
            let mut all = Vec::new();
            for (name, case) in traced.iter() {
                let inputs: Vec<_> = given
                    .by_ref()
                    .take(case.inputs.len())
                    .map(|&x| {
                        if x.dtype().is_float() {
                            x.convert(dtype)
                        } else {
                            x
                        }
                    })
                    .collect();
                let output = function(cx, name, &inputs)[0];
                let cotangent = *given.next().expect("cases have a cotangent");
                let wrt: Vec<_> = differentiated(case)
                    .map(|index| Leaf(inputs[index]))
                    .collect();
                let slopes = vjp(&[output], &[cotangent.convert(output.dtype())], &wrt);
                all.push(output.convert(DType::F64));
                all.extend(slopes.iter().map(|slope| slope.0.convert(DType::F64)));
            }
            all
        },
        &inputs,
    );
    let mut results = results.iter();
    for (name, case) in cases.iter() {
        let slopes = (case.gradients.iter().flatten()).flatten();
        for (at, expected) in case.outputs[..1].iter().chain(slopes).enumerate() {
            let got: &[f64] = results
                .next()
                .expect("a result each")
                .as_slice()
                .expect("f64");
            let largest = expected
                .values
                .iter()
                .fold(1.0, |most: f64, x| most.max(x.abs()));
            for (got, expected) in got.iter().zip(&expected.values) {
                let off = (got - expected).abs();
                assert!(
                    off <= tolerance * largest,
                    "{name}, {dtype}, result {at}: {got}, not {expected}"
                );
            }
        }
    }
}

/// Inputs that the golden file has gradients of.
fn differentiated(case: &Case) -> impl Iterator<Item = usize> {
    let gradients = case.gradients.iter().flatten().enumerate();
    gradients
        .filter(|(_, gradient)| gradient.is_some())
        .map(|(index, _)| index)
}

/// Gradients of `loss` by the inputs of these indices, its derivative along a direction, and the
/// same as a central difference.
fn slopes<'t>(
    cx: &'t Trace,
    loss: Tensor<'t>,
    inputs: &[Tensor<'t>],
    wrt: &[usize],
    loss_at: impl Fn(&[Tensor<'t>]) -> Tensor<'t>,
) -> Vec<Tensor<'t>> {
    const STEP: f64 = 1e-5;
    let leaves: Vec<Leaf<Tensor<'t>>> = wrt.iter().map(|&index| Leaf(inputs[index])).collect();
    let gradients = grad(loss, &leaves);
    let mut along = cx.scalar(0.0, DType::F64);
    let (mut before, mut after) = (inputs.to_vec(), inputs.to_vec());
    for (&index, gradient) in wrt.iter().zip(&gradients) {
        let x = inputs[index];
        let places = cx.arange(x.ty().elements(), DType::F64).reshape(x.dims());
        let direction = (places * 7.3 + (index + 1) as f64).sin();
        along = along + (gradient.0 * direction).sum_all();
        before[index] = x - direction * STEP;
        after[index] = x + direction * STEP;
    }
    let difference = (loss_at(&after) - loss_at(&before)) / (2.0 * STEP);
    let gradients = gradients.into_iter().map(|Leaf(gradient)| gradient);
    gradients.chain([along, difference]).collect()
}

/// Compares the results of one case, which it takes from `results`.
fn compare(name: &str, case: &Case, results: &mut impl Iterator<Item = HostArray>) {
    let mut next = || {
        results
            .next()
            .expect("there are as many results as were returned")
    };
    // One pass over data far from its running mean loses precision of the variance: see
    // `BatchNorm`.
    let tolerance = if name == "batch_norm.offset" {
        1e-9
    } else {
        1e-11
    };
    for (index, output) in case.outputs.iter().enumerate() {
        let what = format!("{name}: output {index}");
        close(&what, &next(), output, tolerance);
    }
    let Some(gradients) = &case.gradients else {
        return;
    };
    for (index, gradient) in gradients.iter().enumerate() {
        if let Some(gradient) = gradient {
            let what = format!("{name}: gradient of input {index}");
            close(&what, &next(), gradient, 1e-8);
        }
    }
    let [along, difference] =
        [next(), next()].map(|host| host.as_slice::<f64>().expect("the check is in f64")[0]);
    // At a kink the central difference is the mean of both slopes.
    if !has_kink(name) {
        assert!(
            (along - difference).abs() <= 1e-5 * (1.0 + along.abs()),
            "{name}: slope {along}, difference {difference}"
        );
    }
}

fn has_kink(name: &str) -> bool {
    if name == "adaptive_max.ties" {
        return true;
    }
    let kinks = ["relu", "elu", "hard_", "erf_inv"];
    kinks.iter().any(|kink| {
        name.strip_prefix("activation.")
            .is_some_and(|name| name.contains(kink))
    })
}
