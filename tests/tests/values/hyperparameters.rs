//! Hyperparameters on the real plugin: other values, the same program, and the results that
//! constants give.

use std::{path::Path, sync::Arc};

use halite::{
    backends::{Accelerator, CompileCacheOptions, OpenOptions},
    fetch::Bar,
};
use halite_core::{
    Array, Client, DType, HostArray, Mesh, PartitionSpec, Sharding,
    tree::{Leaf, Tree},
};
use halite_ir::Reduction;
use halite_nn::{
    Adam, AdamW, ArraySpec, CrossEntropy, Jit, Linear, Optimizer, Param, Schedule, Sgd, Tensor,
    Trace, grad, init, mse,
    optim::{self, SlotsOf, clip_global_norm, clip_value},
    rng,
};
use halite_telemetry::ClientMetrics;
use halite_tests::eval::{Function, eval, host, noise, try_eval_replicas};

/// That `function` gives the same with its hyperparameters as arguments, as [`Jit`] has them, and
/// as constants of a graph.
#[track_caller]
fn check(function: impl Function + Clone, inputs: &[HostArray]) {
    let constants = try_eval_replicas(&function, &[inputs.to_vec()])
        .unwrap()
        .remove(0);
    let arguments = eval(function, inputs);
    let doubles = |array: &HostArray| {
        array
            .to_float(DType::F64)
            .unwrap()
            .as_slice::<f64>()
            .unwrap()
            .to_vec()
    };
    for (argument, constant) in arguments
        .iter()
        .flat_map(doubles)
        .zip(constants.iter().flat_map(doubles))
    {
        // Compilers divide by a constant by multiplying.
        assert!(
            (argument - constant).abs() <= 1e-6 * constant.abs().max(0.1),
            "{argument} and {constant}"
        );
    }
    assert!(constants.iter().flat_map(doubles).any(|value| value != 0.0));
}

/// [`noise`] in `f32`.
fn floats(seed: u64, dims: &[usize]) -> HostArray {
    noise(seed, dims, -1.0, 1.0).to_float(DType::F32).unwrap()
}

#[test]
fn hyperparameters_work_inside_loops_or_branches() {
    let x = [floats(1, &[4])];
    check(
        |cx, x| {
            let scale = || cx.hyperparameter("scale", 0.7, DType::F32);
            let (sum, all) = cx.scan(Leaf(scale()), Leaf(x[0]), |sum, x| {
                let next = sum.0 * scale() + x.0;
                (
                    Leaf(next),
                    Leaf(next * cx.hyperparameter("only here", 3.0, DType::F32)),
                )
            });
            let Leaf(kept) = cx.checkpoint(|| Leaf((all.0 * scale()).exp()));
            let slopes = grad((sum.0 * kept).sum_all(), &[Leaf(x[0]), Leaf(scale())]);
            vec![sum.0, all.0, slopes[0].0, slopes[1].0]
        },
        &x,
    );
    check(
        |cx, x| {
            let limit = || cx.hyperparameter("limit", 9.0, DType::F32);
            let grown = cx.while_loop(
                Leaf(x[0]),
                |x| x.0.sum_all().lt(limit()),
                |x| Leaf(x.0 + 0.5),
            );
            let Leaf(chosen) = cx.cond(
                grown.0.sum_all().lt(100.0),
                || Leaf(limit() * 2.0),
                || Leaf(limit()),
            );
            vec![grown.0, chosen]
        },
        &x,
    );
}

#[test]
fn every_device_of_a_shard_map_has_them() {
    if !halite_tests::eval::has_devices(4) {
        return;
    }
    let mesh = Arc::new(
        Mesh::new(
            [("data", 4)],
            halite_tests::eval::client().local_devices()[..4]
                .iter()
                .copied(),
        )
        .unwrap(),
    );
    let rows = Sharding::new(&mesh, PartitionSpec::first("data")).unwrap();
    let over = mesh.clone();
    let jit =
        Jit::<_, Leaf<()>, Leaf<()>>::function(halite_tests::eval::client(), move |cx, Leaf(x)| {
            let (taken, given) = (
                [PartitionSpec::first("data")],
                [PartitionSpec::replicated()],
            );
            let sum = cx.shard_map(&over, &[x], &taken, &given, |x| {
                vec![
                    (x[0] * cx.hyperparameter("scale", 0.25, DType::F32))
                        .all_reduce(Reduction::Sum, "data"),
                ]
            });
            Leaf(sum[0] + cx.hyperparameter("scale", 0.25, DType::F32))
        });
    let x = host(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[8]);
    let x = Array::upload(halite_tests::eval::client(), &x, &rows).unwrap();
    let sum = jit.run(&x).unwrap();
    assert_eq!(sum.read().unwrap().as_slice::<f32>().unwrap(), [4.25, 5.25]);
}

/// The weights of a layer after three updates, all in one program.
fn three_updates<'t>(
    optimizer: &impl Optimizer,
    cx: &'t Trace,
    given: &[Tensor<'t>],
) -> Vec<Tensor<'t>> {
    let dtype = given[0].dtype();
    let description = Linear::new(3, 2).map_leaves(|_, param| Param {
        ty: param.ty.with_dtype(dtype),
        ..param
    });
    let mut model = description.rebuild(given[..2].iter().copied());
    let described = optim::slots(optimizer, &description);
    let mut slots = Tree::leaf_refs(&described).map_leaves(|_, slot| cx.full(0.0, &slot.ty));
    for step in 0..3 {
        let target = cx.scalar(1.0, DType::S32).broadcast_to([8]);
        let loss = CrossEntropy::new()
            .label_smoothing(0.1)
            .loss(model.forward(given[2]), target)
            .value();
        let (gradients, _) = clip_global_norm(cx, &description, grad(loss, &model), 0.7);
        let gradients = clip_value(cx, gradients, 0.3);
        let step = cx.scalar(f64::from(step), DType::U32);
        (model, slots) = optim::update(optimizer, cx, step, &description, model, gradients, slots);
    }
    model.into_leaves()
}

#[test]
fn optimizers_compute_what_they_do_with_constants() {
    for dtype in [DType::F32, DType::F64] {
        let inputs = [floats(1, &[3, 2]), floats(2, &[2]), floats(3, &[8, 3])]
            .map(|input| input.to_float(dtype).unwrap());
        check(
            |cx, given| {
                let schedules = [
                    Schedule::constant(0.1),
                    Schedule::warmup(0.1, 2).then(Schedule::cosine(0.1, 7)),
                    Schedule::polynomial(0.1, 0.01, 1.5, 7),
                    Schedule::exponential(0.1, 0.9, 2)
                        .then_at(2, Schedule::step_decay(0.1, 0.5, 1)),
                    Schedule::piecewise(0.1, [(1, 0.05), (2, 0.01)]),
                ];
                let mut weights: Vec<_> = schedules
                    .into_iter()
                    .flat_map(|rate| three_updates(&Sgd::new(rate), cx, given))
                    .collect();
                let momentum = Sgd::new(0.1)
                    .momentum(0.9)
                    .dampening(0.1)
                    .nesterov()
                    .weight_decay(0.1);
                weights.extend(three_updates(&momentum, cx, given));
                weights.extend(three_updates(
                    &Adam::new(0.1).betas(0.8, 0.95).eps(1e-3).weight_decay(0.1),
                    cx,
                    given,
                ));
                weights.extend(three_updates(
                    &AdamW::new(0.1).betas(0.0, 0.95).weight_decay(0.5),
                    cx,
                    given,
                ));
                weights
            },
            &inputs,
        );
    }
}

type Step<O> = Jit<Training<O>, (Leaf<()>, Leaf<()>), Leaf<()>>;
type Training<O> = (Linear<()>, (SlotsOf<O, ()>, Leaf<()>));

/// A client that keeps programs in `directory`, or nowhere.
fn client(directory: Option<&Path>) -> Client {
    let cache = directory.map(|directory| CompileCacheOptions {
        directory: Some(directory.into()),
        ..Default::default()
    });
    let options = OpenOptions {
        compile_cache: cache,
        ..OpenOptions::default()
    };
    Accelerator::Cpu { devices: Some(2) }
        .open_with(&options, &mut Bar::default())
        .expect("the CPU plugin")
        .client
}

/// Losses of twenty steps on two devices, and how often the step was compiled and found.
fn train<O: Optimizer + Clone>(client: &Client, optimizer: O) -> (Vec<f32>, [u64; 2]) {
    let mesh = Arc::new(Mesh::new([("data", 2)], client.local_devices()).unwrap());
    let (rule, whole) = (optimizer.clone(), Sharding::replicated(&mesh));
    let first = Jit::<_, Leaf<()>, Training<O>>::function(client, move |cx, Leaf(key)| {
        let described = optim::slots(&rule, &Linear::new(3, 2));
        (
            init(cx, &Linear::new(3, 2), key),
            (init(cx, &described, key), Leaf(cx.scalar(0.0, DType::U32))),
        )
    });
    let step = Step::<O>::new(
        client,
        move |cx, (model, (slots, Leaf(step))), (Leaf(x), Leaf(y))| {
            let loss = mse(model.forward(x), y).mean_all();
            let gradients = grad(loss, &model);
            let (model, slots): (_, SlotsOf<O, Tensor<'_>>) = optim::update(
                &optimizer,
                cx,
                step,
                &Linear::new(3, 2),
                model,
                gradients,
                slots,
            );
            ((model, (slots, Leaf(step + 1))), Leaf(loss))
        },
    );
    let upload = |seed, dims: &[usize]| {
        let rows = Sharding::new(&mesh, PartitionSpec::first("data")).unwrap();
        Leaf(Array::upload(client, &floats(seed, dims), &rows).unwrap())
    };
    let batch = (upload(1, &[8, 3]), upload(2, &[8, 2]));
    let key = Array::upload(client, &host(&rng::key(0), &[2]), &whole).unwrap();
    let mut state = first.run(&Leaf(key)).unwrap();
    let before = client.counters().snapshot();
    step.prepare(
        &Tree::leaf_refs(&state).map_leaves(|_, array| ArraySpec::of(array)),
        &Tree::leaf_refs(&batch).map_leaves(|_, array| ArraySpec::of(array)),
    )
    .unwrap();
    let after = client.counters().snapshot();
    let mut losses = Vec::new();
    for _ in 0..20 {
        let (next, loss) = step.call(state, &batch).unwrap();
        losses.push(loss.read().unwrap().item().unwrap());
        state = next;
    }
    assert_eq!(step.compiles(), 1);
    (
        losses,
        [
            after.compiles - before.compiles,
            after.cache_hits - before.cache_hits,
        ],
    )
}

/// That a run with the second is one with the program of the first, and learns as if it was the
/// first.
#[track_caller]
fn finds<O: Optimizer + Clone>([first, second]: [O; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let (one, compiled) = train(&client(Some(directory.path())), first);
    assert_eq!(compiled, [1, 0]);
    let (other, found) = train(&client(Some(directory.path())), second.clone());
    assert_eq!(found, [0, 1]);
    assert_ne!(one, other);
    assert_eq!(
        other,
        train(&client(None), second).0,
        "what a fresh compile gives"
    );
}

#[test]
fn other_rates_reuse_the_cached_program() {
    finds([1e-2, 2e-2].map(Adam::new));
    finds([0.1, 0.2].map(|weight_decay| AdamW::new(1e-2).weight_decay(weight_decay)));
    finds(
        [10, 20].map(|steps| Sgd::new(Schedule::warmup(0.1, 3).then(Schedule::cosine(0.1, steps)))),
    );
}
