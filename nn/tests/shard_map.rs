//! Messages of mistakes in `shard_map`, and accepted programs.

use expect_test::expect;
use halite_core::{DType, DeviceId, Mesh, PartitionSpec, tree::Leaf};
use halite_ir::Reduction;
use halite_nn::{Manual, Over, Tensor, Trace, grad};

use crate::shared::{check, input};

fn mesh() -> Mesh {
    Mesh::new([("data", 2), ("model", 4)], (0..8).map(DeviceId)).unwrap()
}

fn spec(text: &str) -> PartitionSpec {
    text.parse().unwrap()
}

/// Runs `body` on `x: f32[8, 16]` with the input sharding `taken` and the output sharding `given`.
#[track_caller]
fn one<'t>(
    cx: &'t Trace,
    taken: &str,
    given: &str,
    body: impl FnOnce(Tensor<'t>) -> Tensor<'t>,
) -> Tensor<'t> {
    cx.shard_map(
        &mesh(),
        &[input(cx, "x", &[8, 16])],
        &[spec(taken)],
        &[spec(given)],
        |x| vec![body(x[0])],
    )[0]
}

/// Runs `body` on `x: f32[8, 16]`, sharded over `data` before and after.
#[track_caller]
fn on_data<'t>(cx: &'t Trace, body: impl FnOnce(Tensor<'t>) -> Tensor<'t>) -> Tensor<'t> {
    one(cx, "(data)", "(data)", body)
}

#[test]
fn wrong_specs_are_explained() {
    check(
        |cx| {
            one(cx, "(rows)", "()", |x| x);
            one(cx, "(data, data)", "()", |x| x);
            one(cx, "(None, None, data)", "()", |x| x);
            let odd = input(cx, "odd", &[6]);
            cx.shard_map(
                &mesh(),
                &[odd],
                &[spec("(model)")],
                &[spec("(model)")],
                |x| x.to_vec(),
            );
            one(cx, "(data)", "(rows)", |x| x);
            one(cx, "(data)", "(data, None, model)", |x| x);
            cx.shard_map(
                Manual::over(&mesh()).only(["rows"]),
                &[odd],
                &[spec("()")],
                &[spec("()")],
                |x| x.to_vec(),
            );
            cx.shard_map(
                Manual::over(&mesh()).only(["model"]),
                &[odd],
                &[spec("(data)")],
                &[spec("()")],
                |x| x.to_vec(),
            );
        },
        expect![[r#"
            +2: shard_map: input 0 (`x`): (rows) names axis `rows`, which is none of the manual axes (data=2, model=4)
            +3: shard_map: input 0 (`x`): (data, data) uses axis `data` twice; an axis can split one dimension
            +4: shard_map: input 0 (`x`): (None, None, data) has 3 dimensions, f32[8, 16] has 2
            +6: shard_map: input 0 (`odd`): dimension 0 of f32[6] is split 4 ways by (model) over mesh(data=2, model=4), and 6 is not a multiple of 4
            +13: shard_map: result 0: (rows) names axis `rows`, which is none of the manual axes (data=2, model=4) (operand 0 is `x`)
            +14: shard_map: result 0: (data, None, model) has 3 dimensions, f32[4, 16] has 2 (operand 0 is `x`)
            +15: shard_map: no axis `rows`; the mesh has data=2, model=4
            +22: shard_map: input 0 (`odd`): (data) names axis `data`, which is none of the manual axes (model=4)
        "#]],
    );
}

#[test]
fn wrong_counts_are_explained() {
    check(
        |cx| {
            let x = input(cx, "x", &[8]);
            cx.shard_map(&mesh(), &[x, x], &[spec("()")], &[spec("()")], |x| {
                x.to_vec()
            });
            let results = cx.shard_map(&mesh(), &[x], &[spec("()")], &[spec("()")], |x| {
                vec![x[0], x[0]]
            });
            assert_eq!(
                results.len(),
                1,
                "as many as there are specs, so that later code does not panic"
            );
            let pair = (Leaf(x), Leaf(x));
            cx.shard_map_tree(
                &mesh(),
                pair,
                &(Leaf(spec("()")), Leaf(spec("(data)"))),
                &vec![Leaf(spec("()"))],
                |_| -> Vec<Leaf<Tensor<'_>>> { vec![] },
            );
        },
        expect![[r#"
            +3: shard_map: 2 inputs and 1 specs of inputs; there must be one for each
            +6: shard_map: 2 outputs and 1 specs of outputs; there must be one for each
            +15: shard_map: the specs of the outputs and the outputs differ: the trees differ in structure: only the left has `0` (number of leaves: 1 left, 0 right)
        "#]],
    );
}

#[test]
fn collectives_name_axes_of_the_mesh() {
    check(
        |cx| {
            let _ = input(cx, "x", &[8]).all_reduce(Reduction::Sum, "data");
            let _ = cx.axis_index("data");
            on_data(cx, |x| x.all_reduce(Reduction::Sum, "rows"));
            on_data(cx, |x| x.all_reduce(Reduction::Sum, ["model", "model"]));
            on_data(cx, |x| x.all_reduce(Reduction::Sum, [""; 0]));
            on_data(cx, |x| x.sharding_constraint(spec("(model)")));
            on_data(cx, |x| one(cx, "()", "()", |_| x));
            let some = Manual::over(&mesh()).only(["model"]);
            cx.shard_map(
                some,
                &[input(cx, "x", &[8])],
                &[spec("()")],
                &[spec("()")],
                |x| {
                    vec![
                        x[0].all_reduce(Reduction::Sum, vec![vec![0, 1, 2, 3]]),
                        x[0].all_reduce(Reduction::Sum, "data"),
                    ]
                },
            );
        },
        expect![[r#"
            +2: all_reduce: ["data"]: mesh axes are known in `shard_map` only; elsewhere the compiler places collectives, and a sharding constraint sets the sharding
            +3: axis_index: ["data"]: mesh axes are known in `shard_map` only; elsewhere the compiler places collectives, and a sharding constraint sets the sharding
            +4: all_reduce: no axis `rows`; the manual axes here are data=2, model=4
            +5: all_reduce: axis `model` appears twice in (model=4, model=4)
            +6: all_reduce: no axis is named; name one of the mesh or more
            +7: sharding_constraint: (model) names axis `model`, which is manual in this shard_map; the shard of one device is not split further
            +8: shard_map: a shard_map within a shard_map; use the collectives of the outer one
            +17: all_reduce: not all axes are manual here; name some of model=4
            +18: all_reduce: no axis `data`; the manual axes here are model=4
            +10: shard_map: 2 outputs and 1 specs of outputs; there must be one for each
        "#]],
    );
}

#[test]
fn collectives_check_groups_against_the_mesh() {
    check(
        |cx| {
            on_data(cx, |x| {
                x.all_reduce(Reduction::Sum, vec![vec![0, 1], vec![1, 2]])
            });
            on_data(cx, |x| {
                x.all_reduce(Reduction::Sum, vec![vec![0, 1, 2], vec![4, 5, 6]])
            });
            on_data(cx, |x| x.all_gather(0, vec![vec![0, 8]]));
            on_data(cx, |x| {
                x.reduce_scatter(Reduction::Sum, 1, "model").reduce_scatter(
                    Reduction::Sum,
                    0,
                    ["data", "model"],
                )
            });
            on_data(cx, |x| x.all_to_all(0, 2, "model"));
            on_data(cx, |x| x.collective_permute([(0, 1), (1, 2)], "data"));
            on_data(cx, |x| {
                x.gt(0.0).convert(DType::S32).all_reduce_mean("model")
            });
            on_data(cx, |x| x.all_reduce(Reduction::And, "model"));
        },
        expect![[r#"
            +3: all_reduce: device 1 appears twice in groups [[0, 1], [1, 2]]
            +6: all_reduce: groups [[0, 1, 2], [4, 5, 6]] lack devices [3, 7]; each of 8 devices must be in one group
            +8: all_gather: device 8 takes part, there are 8, from 0
            +10: reduce_scatter: dimension 0 of f32[4, 4] is 4, not a multiple of the 8 members of a group
            +16: all_to_all: dimension 2 of f32[4, 16], whose dimensions are 0 to 1, or -2 to -1 from the last
            +17: collective_permute: member 2 in [(0, 1), (1, 2)] of a group of 2, from 0 to 1
            +19: all_reduce_mean: takes floats, not s32[4, 16] (convert first)
            +21: all_reduce: takes bool and integers, not f32[4, 16]
        "#]],
    );
}

#[test]
fn replicated_results_are_checked() {
    check(
        |cx| {
            one(cx, "(data, model)", "(data)", |x| {
                x.all_reduce(Reduction::Max, "data")
            });
            one(cx, "()", "()", |x| {
                x + cx.axis_index("model").convert(DType::F32)
            });
            one(cx, "()", "()", |x| {
                x.reduce_scatter(Reduction::Sum, 0, "data")
            });
            // Devices with different trip counts have different results.
            one(cx, "()", "()", |x| {
                cx.while_loop(
                    Leaf(x),
                    |x| x.0.sum_all().lt(cx.axis_index("data").convert(DType::F32)),
                    |x| x,
                )
                .0
            });
            // Each iteration, the first takes the previous value of the second.
            one(cx, "(data)", "()", |x| {
                let start = [Leaf(x.zeros_like()), Leaf(x.zeros_like()), Leaf(x)];
                cx.while_loop(start, |s| s[0].0.sum_all().lt(9.0), |[_, b, c]| [b, c, c])[0].0
            });
            one(cx, "(data)", "()", |x| {
                cx.cond(
                    x.sum_all().gt(0.0),
                    || Leaf(cx.scalar(1.0, DType::F32)),
                    || Leaf(cx.scalar(2.0, DType::F32)),
                )
                .0
            });
        },
        expect![[r#"
            +2: shard_map: output 0 must be the same along `model`, which (data) leaves out, but devices compute different values there: reduce or gather over `model`, or name it in the spec (`Manual::unchecked` if they are the same)
            +5: shard_map: output 0 must be the same along `model`, which () leaves out, but devices compute different values there: reduce or gather over `model`, or name it in the spec (`Manual::unchecked` if they are the same)
            +8: shard_map: output 0 must be the same along `data`, which () leaves out, but devices compute different values there: reduce or gather over `data`, or name it in the spec (`Manual::unchecked` if they are the same)
            +12: shard_map: output 0 must be the same along `data`, which () leaves out, but devices compute different values there: reduce or gather over `data`, or name it in the spec (`Manual::unchecked` if they are the same)
            +21: shard_map: output 0 must be the same along `data`, which () leaves out, but devices compute different values there: reduce or gather over `data`, or name it in the spec (`Manual::unchecked` if they are the same)
            +25: shard_map: output 0 must be the same along `data`, which () leaves out, but devices compute different values there: reduce or gather over `data`, or name it in the spec (`Manual::unchecked` if they are the same)
        "#]],
    );
}

#[test]
fn replicated_results_are_accepted() {
    check(
        |cx| {
            one(cx, "(data, model)", "(data)", |x| x.all_gather(1, "model"));
            one(cx, "(data, model)", "()", |x| {
                x.all_reduce(Reduction::Sum, Over::ALL)
            });
            one(cx, "()", "()", |x| x.tanh());
            on_data(cx, |x| x + cx.axis_index("data").convert(DType::F32));
            let trusted = Manual::over(&mesh()).unchecked();
            let x = input(cx, "x", &[8]);
            let sum = cx.shard_map(trusted, &[x], &[spec("(data)")], &[spec("()")], |x| {
                vec![x[0] + x[0].collective_permute([(0, 1), (1, 0)], "data")]
            });
            let _ = grad(sum[0].sum_all(), &Leaf(x));
            let one_device = Mesh::new([("data", 1)], [DeviceId(0)]).unwrap();
            cx.shard_map(&one_device, &[x], &[spec("(data)")], &[spec("()")], |x| {
                x.to_vec()
            });
        },
        expect![[""]],
    );
}

#[test]
fn shard_does_not_leave_its_device() {
    check(
        |cx| {
            let mut kept = None;
            on_data(cx, |x| {
                kept = Some(x);
                x
            });
            let _ = kept.unwrap() + 1.0;
        },
        expect![[r#"
            +7: add: operand 0 belongs to another trace, or to the body of a loop or branch that is closed; return it from the body instead
        "#]],
    );
}

#[test]
fn backward_pass_saves_expensive_values() {
    let cx = &Trace::new();
    let (x, w) = (input(cx, "x", &[8, 16]), input(cx, "w", &[16, 4]));
    let loss = cx.shard_map(
        &mesh(),
        &[x, w],
        &[spec("(data)"), spec("(model)")],
        &[spec("()")],
        |parts| {
            let w = parts[1].all_gather(0, "model");
            let y = parts[0].matmul(w).tanh();
            let scale = y.sum_all().all_reduce(Reduction::Sum, "data").exp();
            vec![(y * scale).sum_all().all_reduce(Reduction::Sum, "data")]
        },
    )[0];
    let gradients = grad(loss, &[Leaf(x), Leaf(w)]);
    // A second backward pass uses the residuals that are saved already.
    let again = grad(loss, &[Leaf(x), Leaf(w)]);
    let outputs: Vec<Tensor<'_>> = [loss]
        .into_iter()
        .chain(gradients.map(|g| g.0))
        .chain(again.map(|g| g.0))
        .collect();
    let graph = halite_ir::optimize(cx.graph(&[x, w], &outputs).unwrap());
    let bodies: Vec<Vec<&str>> = (graph.nodes().iter())
        .flat_map(|node| node.op.regions())
        .map(|body| body.nodes().iter().map(|node| node.op.name()).collect())
        .collect();
    assert_eq!(
        bodies.len(),
        2,
        "one forward pass, and one backward pass for both"
    );
    let count = |body: usize, name: &str| bodies[body].iter().filter(|op| **op == name).count();
    assert_eq!(
        [count(0, "tanh"), count(0, "all_gather"), count(0, "dot")],
        [1, 1, 1]
    );
    assert_eq!(
        [count(1, "tanh"), count(1, "all_gather"), count(1, "dot")],
        [0, 0, 2],
        "{bodies:?}"
    );
    assert_eq!(count(1, "exponential"), 1, "of a scalar");
}

#[test]
fn divergent_collective_is_a_mistake() {
    check(
        |cx| {
            fn choose<'t>(
                cx: &'t Trace,
                x: Tensor<'t>,
                decide: Tensor<'t>,
                axis: &str,
            ) -> Tensor<'t> {
                cx.cond(
                    decide.sum_all().gt(0.0),
                    || Leaf(x.all_reduce(Reduction::Sum, axis)),
                    || Leaf(x),
                )
                .0
            }
            on_data(cx, |x| choose(cx, x, x, "data"));
            on_data(cx, |x| {
                cx.while_loop(
                    Leaf(x),
                    |x| x.0.sum_all().lt(9.0),
                    |x| {
                        let total = x.0.all_gather(0, ["model", "data"]).sum_all();
                        Leaf(x.0 + total)
                    },
                )
                .0
            });
            // All participants decide alike.
            on_data(cx, |x| choose(cx, x, x, "model"));
            on_data(cx, |x| {
                choose(cx, x, x.all_reduce(Reduction::Sum, "data"), "data")
            });
        },
        expect![[r#"
            +10: all_reduce: devices along `data` may not all reach this collective: the condition of the `case` around it may differ between them, and the others would wait forever. Use a condition that is the same along `data`, such as a reduction over it
            +21: all_gather: devices along `data` may not all reach this collective: the condition of the `while` around it may differ between them, and the others would wait forever. Use a condition that is the same along `data`, such as a reduction over it
        "#]],
    );
}
