//! Gradient rules against finite differences, and mistakes in them.

use std::sync::Arc;

use halite_core::{
    Array, DType, HostArray, Mesh, PartitionSpec, Sharding, TensorType,
    tree::{Empty, Leaf},
};
use halite_nn::{CustomOp, CustomVjp, Jit, Manual, ScanOptions, Tensor, Trace, grad};
use halite_tests::{
    differences::{check_differences, differences},
    eval::{Function, client, noise},
};

use crate::custom_ops::CUBE;

/// Compares first and second derivatives with finite differences, on all devices of `mesh`.
#[track_caller]
fn check(name: &str, mesh: &Arc<Mesh>, function: impl Function) {
    let program = differences(function, 1, vec![0], 1e-5);
    let jit = Jit::<_, Vec<Leaf<()>>, Vec<Leaf<()>>>::function(client(), move |cx, inputs| {
        let inputs: Vec<Tensor<'_>> = inputs.into_iter().map(|Leaf(input)| input).collect();
        program(cx, &inputs).into_iter().map(Leaf).collect()
    });
    let whole = Sharding::new(mesh, PartitionSpec::replicated()).unwrap();
    let inputs = [noise(1, &[8, 3], -2.0, 2.0), noise(2, &[8, 3], -1.0, 1.0)]
        .map(|host: HostArray| Leaf(Array::upload(client(), &host, &whole).unwrap()));
    let results = jit.on(mesh).run(&inputs.into_iter().collect::<Vec<_>>());
    let results = results.unwrap_or_else(|error| panic!("{name}: {error}"));
    let values: Vec<f64> = (results.iter())
        .map(|result| result.item::<f64>().unwrap())
        .collect();
    check_differences(name, &values, 1e-6);
}

fn mesh(devices: usize) -> Arc<Mesh> {
    let local = client().local_devices();
    Arc::new(Mesh::new([("data", devices)], local[..devices].iter().copied()).unwrap())
}

#[test]
fn gradient_matches_differences() {
    check("a call", &mesh(1), |cx, x| {
        let [y] = CUBE.call(cx, &[x[0] * 0.5]);
        vec![y.sin()]
    });
}

#[test]
fn gradient_in_scan_matches_differences() {
    check("a call in a scan", &mesh(1), |cx, x| {
        let options = ScanOptions {
            length: Some(3),
            ..ScanOptions::default()
        };
        let (Leaf(y), _) = cx.scan_with(options, Leaf(x[0]), Empty::new(), |Leaf(x), _| {
            let [y] = CUBE.call(cx, &[x.sin()]);
            (Leaf(y + x), Empty::new())
        });
        vec![y]
    });
}

#[test]
fn gradient_in_checkpoint_matches_differences() {
    check("a call in a checkpoint", &mesh(1), |cx, x| {
        let Leaf(y) = cx.checkpoint(|| {
            let [y] = CUBE.call(cx, &[x[0].sin()]);
            Leaf(y.sin())
        });
        vec![y]
    });
}

#[test]
fn gradient_in_shard_map_matches_differences() {
    let mesh = mesh(8);
    let over = Manual::over(&mesh);
    check("a call in shard_map", &mesh, move |cx, x| {
        let rows = [PartitionSpec::first("data")];
        cx.shard_map(over.clone(), x, &rows, &rows, |parts| {
            let [y] = CUBE.call(cx, parts);
            vec![y.sin()]
        })
    });
}

/// Compares the mistakes of `function` by lines below the call of this function.
#[track_caller]
fn mistakes(function: impl for<'t> Fn(&'t Trace, Tensor<'t>), expected: &[&str]) {
    let caller = std::panic::Location::caller().line();
    let cx = &Trace::new();
    function(cx, cx.input(TensorType::new(DType::F32, [2]), "x"));
    let lines: Vec<String> = (cx.mistakes().iter())
        .map(|mistake| {
            let line = mistake.location.line() - caller;
            format!("+{line}: {}: {}", mistake.op, mistake.message)
        })
        .collect();
    assert_eq!(lines, expected);
}

fn same(op: &str) -> CustomOp {
    CustomOp::new(op, |x| Ok(vec![x[0].clone()]))
}

#[test]
fn call_without_a_rule_has_no_gradient() {
    mistakes(
        |cx, x| {
            let [y] = same("test.no_rule").call(cx, &[x]);
            let _ = grad(y.sum_all(), &Leaf(x));
        },
        &[
            "+2: grad: `custom_call` has no gradient here: the derivative of `test.no_rule` is unknown; \
           call it as a `CustomOp` with a rule (`CustomOp::gradient`); or apply `stop_gradient`",
        ],
    );
}

#[test]
fn rule_for_other_numbers_is_a_mistake() {
    mistakes(
        |cx, x| {
            let op =
                same("test.two").gradient(|vjp: CustomVjp<2, 1>| [Some(vjp.cotangents[0]), None]);
            let [y] = op.call(cx, &[x]);
            let _ = grad(y.sum_all(), &Leaf(x));
        },
        &["+4: grad: the rule of `test.two` is for 2 operands and 1 results; the call has 1 and 1"],
    );
}

#[test]
fn rule_of_another_type_is_a_mistake() {
    mistakes(
        |cx, x| {
            let op = same("test.sum")
                .gradient(|vjp: CustomVjp<1, 1>| [Some(vjp.cotangents[0].sum_all())]);
            let [y] = op.call(cx, &[x]);
            let _ = grad(y.sum_all(), &Leaf(x));
        },
        &["+4: grad: the rule of `test.sum` returns f32[] for operand 0, which is f32[2]"],
    );
}

#[test]
fn refused_operands_are_a_mistake() {
    let op = CustomOp::new("test.matrices", |x| match x[0].dims() {
        [_, _] => Ok(vec![x[0].clone()]),
        _ => {
            let message = format!("takes a matrix, {} given", x[0]);
            Err(halite_core::Error::invalid("test", message))
        }
    });
    mistakes(
        move |cx, x| {
            let [y] = op.call(cx, &[x]);
            let [z] = op.call(cx, &[y]); // silent: the operand is an error tensor
            assert!(z.is_error());
            let [_, _] = op.call(cx, &[x.reshape([2, 1])]);
        },
        &[
            "+2: test.matrices: takes a matrix, f32[2] given (operand 0 is `x`)",
            "+5: test.matrices: has 1 results, 2 are used",
        ],
    );
}
