//! Messages about `shard_map` operations that are not valid.

use expect_test::{Expect, expect};
use halite_core::TensorType;
use halite_ir::{Groups, Op, ShardMap, infer};

use crate::shard_map::{all_reduce, axes, f32, map, push, spec};

fn check<const N: usize>(cases: [(ShardMap, TensorType); N], expected: Expect) {
    let error = |(map, ty)| infer(&Op::ShardMap(map), &[&ty]).unwrap_err();
    let errors: Vec<String> = cases.map(|case| format!("{}\n", error(case))).into();
    expected.assert_eq(&errors.concat());
}

/// A valid operation on `f32[8, 16]`.
fn valid() -> ShardMap {
    map(f32(&[4, 4]), "(data, model)", &["(data, model)"], |_, x| {
        vec![x]
    })
}

/// A valid operation with changes, and its operand.
fn changed(change: fn(&mut ShardMap)) -> (ShardMap, TensorType) {
    let mut map = valid();
    change(&mut map);
    (map, f32(&[8, 16]))
}

/// An operation whose body applies `op` to its input.
fn with_op(op: Op) -> (ShardMap, TensorType) {
    let specs = ["(data, model)"];
    let map = map(f32(&[4, 4]), "(data, model)", &specs, |body, x| {
        vec![push(body, op, &[x])]
    });
    (map, f32(&[8, 16]))
}

#[test]
fn operand_errors_have_the_numbers() {
    check(
        [
            (valid(), f32(&[8, 18])),
            (valid(), f32(&[8])),
            (valid(), f32(&[8, 32])),
        ],
        expect![[r#"
            shard_map: operand 0: dimension 1 of f32[8, 18] is split 4 ways by (data, model) over mesh(data=2, model=4), and 18 is not a multiple of 4
            shard_map: operand 0: (data, model) has 2 dimensions, f32[8] has 1
            shard_map: the body takes [f32[4, 4]], the operands are [f32[4, 8]]; number 0 is f32[4, 4] and f32[4, 8]
        "#]],
    );
}

#[test]
fn signature_errors_have_the_numbers() {
    check(
        [
            changed(|map| map.mesh = axes(&[])),
            changed(|map| map.mesh = axes(&[("data", 0), ("model", 4)])),
            changed(|map| map.mesh = axes(&[("data", usize::MAX), ("model", 4)])),
            changed(|map| map.mesh = axes(&[("data", 2), ("data", 4)])),
            changed(|map| map.manual = vec![]),
            changed(|map| map.manual = vec!["model".into(), "data".into()]),
            changed(|map| map.manual = vec!["model".into()]),
            changed(|map| map.inputs = vec![]),
            changed(|map| map.outputs = vec![]),
            changed(|map| map.outputs = vec![spec("(data, data)")]),
        ],
        expect![[r#"
            shard_map: no axis is named; name one of the mesh or more
            shard_map: (data=0, model=4) has no devices, or more than can be counted
            shard_map: (data=18446744073709551615, model=4) has no devices, or more than can be counted
            shard_map: axis `data` appears twice in (data=2, data=4)
            shard_map: no axis of (data=2, model=4) is manual; name one or more
            shard_map: manual axes ["model", "data"] are not axes of (data=2, model=4), in its order
            shard_map: operand 0: (data, model) names axis `data`, which is none of the manual axes (model=4)
            shard_map: 0 specs for 1 operands; there must be one for each
            shard_map: 0 specs for 1 results; there must be one for each
            shard_map: result 0: (data, data) uses axis `data` twice; an axis can split one dimension
        "#]],
    );
}

#[test]
fn body_errors_have_the_numbers() {
    let over = |axis, size| all_reduce(Groups::Axes(axes(&[(axis, size)])));
    let inner = map(f32(&[2, 1]), "(data, model)", &["(data, model)"], |_, x| {
        vec![x]
    });
    check(
        [
            with_op(over("model", 2)),
            with_op(over("rows", 2)),
            with_op(all_reduce(vec![vec![0, 8]].into())),
            with_op(all_reduce(vec![vec![0, 1], vec![2, 3]].into())),
            with_op(Op::ShardingConstraint(spec("(data)"))),
            with_op(Op::ShardMap(inner)),
        ],
        expect![[r#"
            shard_map: node 0 of the body, all_reduce: axis `model` is declared with 2 devices; the mesh has 4
            shard_map: node 0 of the body, all_reduce: no manual axis `rows`; the manual axes are (data=2, model=4)
            shard_map: node 0 of the body, all_reduce: device 8 takes part, there are 8, from 0
            shard_map: node 0 of the body, all_reduce: groups [[0, 1], [2, 3]] lack devices [4, 5, 6, 7]; each of 8 devices must be in one group
            shard_map: node 0 of the body, sharding_constraint: (data) names axis `data`, which is manual here; the shard of one device is not split further
            shard_map: node 0 of the body, shard_map: a shard_map within a shard_map; use the collectives of the outer one
        "#]],
    );
}

#[test]
fn axis_index_errors_have_the_numbers() {
    for (axes, problem) in [
        (axes(&[]), "no axis is named; name one of the mesh or more"),
        (
            axes(&[("a", 2), ("a", 2)]),
            "axis `a` appears twice in (a=2, a=2)",
        ),
        (
            axes(&[("a", usize::MAX), ("b", 2)]),
            "has no devices, or more than can be counted",
        ),
    ] {
        let error = infer(&Op::AxisIndex(axes), &[]).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
