//! Hyperparameters as arguments of a program, and constants as part of it.

use halite_core::{
    Client, DType, Null, Sharding, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{
    Adafactor, Adagrad, Adam, AdamW, ArraySpec, CrossEntropy, Init, Jit, Lamb, Lars, Linear, Lion,
    Lowered, Muon, Optimizer, Param, RmsProp, Schedule, Sgd, Tensor, Trace, grad,
    optim::{self, clip_global_norm, clip_value},
};

fn spec(client: &Client, dtype: DType, dims: &[usize]) -> ArraySpec {
    ArraySpec::new(
        TensorType::new(dtype, dims),
        &Sharding::single(client.local_devices()[0]),
    )
}

/// Traces `function` of the step count and of `x: f32[4]`.
fn lower(
    function: impl for<'t> Fn(&'t Trace, Tensor<'t>, Tensor<'t>) -> Tensor<'t> + Send + Sync + 'static,
) -> Lowered<Leaf<()>> {
    let client = Client::new(Null::new(1));
    let jit = Jit::<Empty<()>, [Leaf<()>; 2], Leaf<()>>::function(
        &client,
        move |cx, [Leaf(step), Leaf(x)]| Leaf(function(cx, step, x)),
    );
    let inputs = [
        spec(&client, DType::U32, &[]),
        spec(&client, DType::F32, &[4]),
    ]
    .map(Leaf);
    jit.lower(&Empty::new(), &inputs).unwrap()
}

/// An update of a linear layer, with its hyperparameters.
fn update<O: Optimizer>(optimizer: O) -> Lowered<Leaf<()>> {
    lower(move |cx, step, x| {
        let model = Linear::new(2, 2);
        let params = Tree::leaf_refs(&model)
            .map_leaves(|_, param| x.sum_all().broadcast_to(param.ty.dims()));
        let slots = optim::slots(&optimizer, &model)
            .map_leaves(|_, slot| x.sum_all().broadcast_to(slot.ty.dims()));
        let gradients = params.clone();
        let (next, _) = optim::update(&optimizer, cx, step, &model, params, gradients, slots);
        next.weight
    })
}

fn values(lowered: &Lowered<Leaf<()>>) -> Vec<f32> {
    lowered
        .hyperparameters
        .iter()
        .flat_map(|(_, values)| values.as_slice::<f32>().unwrap().to_vec())
        .collect()
}

/// Checks that both are one program with other values.
#[track_caller]
fn same([left, right]: [Lowered<Leaf<()>>; 2]) {
    let text =
        |lowered: &Lowered<_>| String::from_utf8(lowered.program.code.bytes().to_vec()).unwrap();
    assert_eq!(text(&left), text(&right));
    assert_ne!(values(&left), values(&right));
    assert_eq!(
        left.program.signature.inputs.len(),
        3,
        "step, x, and one array of all numbers"
    );
}

#[test]
fn optimizer_hyperparameters_are_arguments() {
    same([1e-3, 2e-3].map(|rate| update(Sgd::new(rate))));
    same([0.9, 0.5].map(|momentum| update(Sgd::new(0.1).momentum(momentum).nesterov())));
    same([0.1, 0.2].map(|dampening| update(Sgd::new(0.1).momentum(0.9).dampening(dampening))));
    // One of them is the learning rate.
    same([0.1, 0.2].map(|weight_decay| update(Sgd::new(0.1).weight_decay(weight_decay))));
    same([1e-3, 2e-3].map(|rate| update(Adam::new(rate))));
    same([0.9, 0.999].map(|b1| update(Adam::new(1e-3).betas(b1, 0.999))));
    same([1e-8, 1e-6].map(|eps| update(Adam::new(1e-3).eps(eps))));
    same([0.1, 0.2].map(|weight_decay| update(Adam::new(1e-3).weight_decay(weight_decay))));
    same([0.01, 0.1].map(|weight_decay| update(AdamW::new(1e-3).weight_decay(weight_decay))));
    same([1e-3, 2e-3].map(|rate| update(Lion::new(rate).betas(rate, 0.5).weight_decay(rate))));
    same([0.9, 0.5].map(|it| {
        update(
            RmsProp::new(it)
                .alpha(it)
                .eps(it)
                .momentum(it)
                .weight_decay(it),
        )
    }));
    same([0.1, 0.2].map(|it| update(Adagrad::new(it).eps(it).weight_decay(it))));
    same([0.1, 0.2].map(|it| update(Lamb::new(it).eps(it).weight_decay(it))));
    same([0.1, 0.2].map(|it| update(Lars::new(it).trust_coefficient(it).momentum(it))));
    same([0.1, 0.2].map(|it| {
        let adafactor = Adafactor::new(it).beta2_decay(-it).eps(it, 2.0 * it);
        update(
            adafactor
                .clipping_threshold(1.0 + it)
                .weight_decay(4.0 * it),
        )
    }));
    same([0.1, 0.2].map(|it| {
        let muon = Muon::new(it).momentum(it).weight_decay(it);
        update(Sgd::new(it).partition("weight", muon).unwrap())
    }));
    same([1.0, 5.0].map(|most| {
        lower(move |cx, _, x| {
            clip_global_norm(cx, &Leaf(Param::new([4], Init::Zeros)), Leaf(x), most)
                .0
                .0
        })
    }));
    same([1.0, 5.0].map(|most| lower(move |cx, _, x| clip_value(cx, Leaf(x), most).0)));
    same([0.1, 0.2].map(|part| {
        lower(move |_, step, x| {
            CrossEntropy::new()
                .label_smoothing(part)
                .loss(x, step)
                .value()
        })
    }));
}

#[test]
fn schedule_hyperparameters_are_arguments() {
    let schedules: [[Schedule; 2]; 12] = [
        [Schedule::constant(1.0), Schedule::constant(2.0)],
        [Schedule::warmup(1.0, 10), Schedule::warmup(2.0, 20)],
        [
            Schedule::linear(1.0, 0.0, 10),
            Schedule::linear(2.0, 1.0, 20),
        ],
        [
            Schedule::polynomial(1.0, 0.0, 2.0, 10),
            Schedule::polynomial(2.0, 1.0, 3.0, 20),
        ],
        [Schedule::cosine(1.0, 10), Schedule::cosine_to(2.0, 1.0, 20)],
        [
            Schedule::exponential(1.0, 0.5, 10),
            Schedule::exponential(2.0, 0.1, 20),
        ],
        [
            Schedule::step_decay(1.0, 0.5, 10),
            Schedule::step_decay(2.0, 0.1, 20),
        ],
        [
            Schedule::piecewise(1.0, [(10, 0.5), (20, 0.1)]),
            Schedule::piecewise(1.0, [(10, 1.0), (10, 1.0)]),
        ],
        [
            Schedule::inverse_sqrt(1.0, 10),
            Schedule::inverse_sqrt(2.0, 20),
        ],
        [
            Schedule::warm_restarts(1.0, 0.0, 10, 1),
            Schedule::warm_restarts(2.0, 0.1, 20, 1),
        ],
        [
            Schedule::step_decay(1.0, 0.5, 1)
                .per_epoch(10)
                .with_warmup(3),
            Schedule::step_decay(2.0, 0.1, 2)
                .per_epoch(20)
                .with_warmup(4),
        ],
        // The second part begins at the length of the first, which may equal that of the second.
        [
            Schedule::warmup(1.0, 10).then(Schedule::cosine(1.0, 90)),
            Schedule::warmup(2.0, 10).then(Schedule::cosine(3.0, 10)),
        ],
    ];
    for schedules in schedules {
        same(schedules.map(|schedule| lower(move |_, step, _| schedule.at(step))));
    }
}

#[test]
fn values_that_decide_structure_are_in_the_program() {
    let plain = update(Sgd::new(0.1));
    for other in [
        update(Sgd::new(0.1).weight_decay(0.1)),
        update(Sgd::new(0.1).momentum(0.9)),
    ] {
        assert_ne!(plain.program.code, other.program.code);
        assert!(values(&other).len() > 1);
    }
    assert_eq!(values(&plain), [0.1]);
    let none = lower(|_, _, x| x * 3.0);
    assert!(none.hyperparameters.is_empty() && none.program.signature.inputs.len() == 2);
}

#[test]
fn hyperparameters_share_one_array_per_dtype() {
    let lowered = lower(|cx, _, x| {
        let same = [0, 1].map(|_| cx.hyperparameter("rate", 0.1, DType::F32));
        let double = cx
            .hyperparameter("rate", 0.1, DType::F64)
            .convert(DType::F32);
        let other = cx.hyperparameter("rate", 0.2, DType::F32);
        let count = cx
            .hyperparameter("count", 7.0, DType::S32)
            .convert(DType::F32);
        x * same[0] + same[1] * double + other * count
    });
    let given: Vec<String> = lowered
        .hyperparameters
        .iter()
        .map(|(spec, _)| spec.to_string())
        .collect();
    assert_eq!(given, ["f32[2]", "f64[1]", "s32[1]"]);
    let [(_, floats), (_, doubles), (_, integers)] = &lowered.hyperparameters[..] else {
        unreachable!()
    };
    assert_eq!(floats.as_slice::<f32>().unwrap(), [0.1, 0.2]);
    assert_eq!(doubles.as_slice::<f64>().unwrap(), [0.1]);
    assert_eq!(integers.as_slice::<i32>().unwrap(), [7]);
}

#[test]
fn gradients_flow_into_hyperparameters() {
    let cx = Trace::new();
    let x = cx.input(TensorType::new(DType::F32, [4]), "x");
    // First requested in a body, used after it.
    let y = cx.repeat(3, Leaf(x), |_, Leaf(x)| {
        Leaf(x * cx.hyperparameter("scale", 0.5, DType::F32))
    });
    let scale = cx.hyperparameter("scale", 0.5, DType::F32);
    let Leaf(slope) = grad((y.0 * scale).sum_all(), &Leaf(scale));
    let graph = cx.graph(&[x], &[slope]).unwrap();
    assert_eq!(graph.inputs().len(), 1);
    let of_half = |op: &halite_ir::Op| matches!(op, halite_ir::Op::Constant(half) if half.to_host().item::<f32>().ok() == Some(0.5));
    assert_eq!(
        graph
            .nodes()
            .iter()
            .filter(|node| of_half(&node.op))
            .count(),
        1
    );
}

#[test]
fn unrepresentable_hyperparameter_is_a_mistake() {
    let cx = Trace::new();
    assert!(cx.hyperparameter("count", 0.5, DType::U8).is_error());
    assert_eq!(
        cx.mistakes()[0].message,
        "`count` is 0.5, which u8 cannot represent"
    );
    assert!(!cx.hyperparameter("count", 0.1, DType::Bf16).is_error());
}
