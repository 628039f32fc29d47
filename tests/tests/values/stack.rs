//! Stacked layers: values, gradients, initialization, and program size against depth.

use std::{sync::Arc, time::Instant};

use halite_core::{
    Array, CompileOptions, DType, HostArray, Mesh, PartitionSpec, ProgramMemory, Sharding,
    TensorType, Tree,
    tree::{Empty, Leaf},
};
use halite_ir::{Interface, Remat, cost, optimize};
use halite_nn::{
    Distribution, Dropout, Fan, Init, Jit, LayerNorm, Linear, Mean, Param, Stack, Tensor, Trace,
    grad, init,
    optim::{Decay, Named},
    rng,
};
use halite_tests::eval::{client, eval, has_devices, host, noise, program};

/// A residual MLP with a hidden layer of four times the width.
#[derive(Clone, Debug, Tree)]
struct Block<L> {
    norm: LayerNorm<L>,
    up: Linear<L>,
    down: Linear<L>,
    dropout: Dropout,
}

impl Block<Param> {
    fn new(width: usize) -> Self {
        let dropout = Dropout::new(0.0);
        Block {
            norm: LayerNorm::new(width),
            up: Linear::new(width, 4 * width),
            down: Linear::new(4 * width, width),
            dropout,
        }
    }
}

impl<'t> Block<Tensor<'t>> {
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        x + self.dropout.forward(
            self.down
                .forward(self.up.forward(self.norm.forward(x)).gelu()),
        )
    }
}

#[derive(Clone, Debug, Tree)]
struct Deep<L> {
    blocks: Stack<Block<L>>,
    out: Linear<L>,
}

impl Deep<Param> {
    fn new(layers: usize, width: usize) -> Self {
        Deep {
            blocks: Stack::new(layers, Block::new(width)),
            out: Linear::new(width, 1),
        }
    }
}

/// How the layers are run.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// One by one in a Rust loop.
    Unrolled,
    Scanned(Option<Remat>),
}

impl<'t> Deep<Tensor<'t>> {
    fn loss(&self, cx: &'t Trace, x: Tensor<'t>, run: Run) -> Tensor<'t> {
        let y = match run {
            Run::Unrolled => {
                (0..self.blocks.layers()).fold(x, |x, layer| self.blocks.layer(layer).forward(x))
            }
            Run::Scanned(None) => self.blocks.scan(cx, x, |block, x| block.forward(x)),
            Run::Scanned(Some(remat)) => self
                .blocks
                .scan_with(cx, Some(remat), x, |block, x| block.forward(x)),
        };
        self.out.forward(y).square().mean_all()
    }
}

const SCANNED: [Run; 3] = [
    Run::Scanned(None),
    Run::Scanned(Some(Remat::Full)),
    Run::Scanned(Some(Remat::SaveDots)),
];

#[test]
fn stack_equals_its_layers_unrolled() {
    let model = Deep::new(3, 4);
    let inputs: Vec<HostArray> = (model.leaves().iter().map(|param| param.ty.dims().to_vec()))
        .chain([vec![5, 4]])
        .zip(1..)
        .map(|(dims, seed)| noise(seed, &dims, -0.5, 0.5))
        .collect();
    for run in SCANNED {
        let model = model.clone();
        let results = eval(
            move |cx, inputs| {
                let (x, leaves) = inputs.split_last().expect("the last is x");
                let of = |run| {
                    let model: Deep<Tensor<'_>> = model.rebuild(leaves.iter().copied());
                    let loss = model.loss(cx, *x, run);
                    let (slopes, Leaf(slope)) = grad(loss, &(model, Leaf(*x)));
                    [vec![loss], slopes.into_leaves(), vec![slope]].concat()
                };
                of(run)
                    .into_iter()
                    .zip(of(Run::Unrolled))
                    .map(|(a, b)| (a - b).abs().flatten().max([0]))
                    .collect()
            },
            &inputs,
        );
        for (index, difference) in results.iter().enumerate() {
            let difference = difference.item::<f64>().unwrap();
            assert!(difference < 1e-12, "{run:?}, result {index}: {difference}");
        }
    }
}

/// Parameters of layers are split along their last dimension that is not that of the layers.
fn split(param: &Param) -> PartitionSpec {
    let last = param.ty.rank() - 1;
    let divides = last >= param.stacked && param.ty.dims()[last].is_multiple_of(8);
    PartitionSpec::new((0..=last).map(|dim| match divides && dim == last {
        true => vec!["data"],
        false => vec![],
    }))
}

/// Gradients and the loss of a model, over this number of devices.
fn gradients_on(
    count: usize,
    described: &Deep<Param>,
    inputs: &[(HostArray, PartitionSpec)],
) -> Vec<HostArray> {
    type Many = Vec<Leaf<()>>;
    let devices = client().local_devices()[..count].to_vec();
    let mesh = Arc::new(Mesh::new([("data", count)], devices).unwrap());
    let described = described.clone();
    let step = Jit::<Empty<()>, Many, Many>::function(client(), move |cx, inputs| {
        let inputs = inputs.into_leaves();
        let (x, leaves) = inputs.split_last().expect("the last is x");
        let model: Deep<Tensor<'_>> = described.rebuild(leaves.iter().copied());
        let loss = model.loss(cx, *x, Run::Scanned(Some(Remat::Full)));
        let gradients = grad(loss, &model).into_leaves();
        gradients.into_iter().chain([loss]).map(Leaf).collect()
    });
    let upload = |(input, spec): &(HostArray, PartitionSpec)| {
        let sharding = Sharding::new(&mesh, spec.clone()).unwrap();
        Leaf(Array::upload(client(), input, &sharding).unwrap())
    };
    let arrays: Vec<Leaf<Array>> = inputs.iter().map(upload).collect();
    let outputs = step.on(&mesh).run(&arrays).unwrap();
    outputs
        .iter()
        .map(|output| output.read().unwrap())
        .collect()
}

#[test]
fn sharded_stack_computes_the_same() {
    if !has_devices(8) {
        return;
    }
    let (layers, width) = (3, 16);
    let described = Deep::new(layers, width);
    let params = described.leaves().into_iter();
    let inputs: Vec<(HostArray, PartitionSpec)> = params
        .map(|param| (param.ty.dims().to_vec(), split(param)))
        .chain([(vec![8, width], PartitionSpec::first("data"))])
        .zip(1..)
        .map(|((dims, spec), seed)| (noise(seed, &dims, -0.5, 0.5), spec))
        .collect();
    let [one, eight] = [1, 8].map(|count| gradients_on(count, &described, &inputs));
    for (index, (one, eight)) in one.iter().zip(&eight).enumerate() {
        let (one, eight) = (one.as_slice::<f64>(), eight.as_slice::<f64>());
        for (a, b) in one.unwrap().iter().zip(eight.unwrap()) {
            assert!((a - b).abs() < 1e-12, "result {index}: {a} and {b}");
        }
    }
}

#[test]
fn each_layer_is_initialized_separately() {
    let layers = 7;
    let results = eval(
        move |cx, _| {
            let kaiming = |mode| Init::VarianceScaling {
                scale: 3.0,
                mode,
                distribution: Distribution::Uniform,
            };
            let layer = vec![
                Leaf(Param::new([64, 16], kaiming(Fan::In))),
                Leaf(Param::new([64, 16], kaiming(Fan::Out))),
                Leaf(Param::new([3], Init::Constant(0.5))),
            ];
            // Stacks of stacks, too.
            let model = (
                Stack::new(layers, layer.clone()),
                Stack::new(2, Stack::new(3, layer)),
            );
            init(cx, &model, rng::constant_key(cx, rng::key(1))).into_leaves()
        },
        &[],
    );
    let uniform_within = |values: &[f32], bound: f32| {
        let largest = values
            .iter()
            .fold(0.0f32, |largest, value| largest.max(value.abs()));
        assert!(
            largest <= bound && largest > 0.99 * bound,
            "{largest} of {bound}"
        );
    };
    for (stacked, count) in results.chunks(3).zip([layers, 6]) {
        // Variance 3 / fan: uniform within 3 / sqrt(fan).
        for (value, fan) in stacked.iter().zip([64.0f32, 16.0]) {
            let of_layers: Vec<&[f32]> = value.as_slice().unwrap().chunks(64 * 16).collect();
            assert_eq!(of_layers.len(), count);
            for (index, layer) in of_layers.iter().enumerate() {
                uniform_within(layer, 3.0 / fan.sqrt());
                assert!(
                    of_layers[..index].iter().all(|other| other != layer),
                    "layer {index} is one before"
                );
            }
        }
        assert!(
            stacked[2]
                .as_slice::<f32>()
                .unwrap()
                .iter()
                .all(|&value| value == 0.5)
        );
    }
    assert_eq!(results[3].ty().to_string(), "f32[2, 3, 64, 16]");
}

#[test]
fn dropout_mask_differs_between_layers() {
    let results = eval(
        |cx, x| {
            cx.set_mode(true, Some(rng::constant_key(cx, rng::key(5))));
            let stack = Stack::<Vec<Leaf<Param>>>::new(8, vec![]).map_leaves(|_, _| x[0]);
            let before = cx.next_key();
            let mut given = vec![];
            for remat in [None, Some(Remat::Full)] {
                let start = Leaf(x[0]);
                let (Leaf(last), Leaf(all)) =
                    stack.scan_over(cx, remat, start, Empty::new(), |_, Leaf(x), _: Empty<_>| {
                        let y = Dropout::new(0.5).forward(x * 0.0 + 1.0) * 0.5;
                        (Leaf(x + y), Leaf(y))
                    });
                // What is not dropped has the gradient 1 / (1 - rate), of 0 x + 1: seen by a weight
                // of all elements.
                let w = x[1];
                let (Leaf(sum), _) = stack.scan_over(
                    cx,
                    remat,
                    Leaf(x[0]),
                    Empty::new(),
                    |_, Leaf(x), nothing: Empty<_>| {
                        (Leaf(x + Dropout::new(0.5).forward(w)), nothing)
                    },
                );
                let Leaf(slope) = grad(sum.sum_all(), &Leaf(w));
                given.extend([last, all, sum - x[0], slope * w]);
            }
            given.extend([
                before.convert(DType::F64),
                cx.next_key().convert(DType::F64),
            ]);
            given
        },
        &[noise(1, &[64], 0.0, 1.0), noise(2, &[64], 0.5, 1.0)],
    );
    for given in results[..8].chunks(4) {
        let masks: Vec<&[f64]> = given[1].as_slice().unwrap().chunks(64).collect();
        for (index, mask) in masks.iter().enumerate() {
            assert!(mask.iter().all(|&value| value == 0.0 || value == 1.0));
            assert!(
                masks[..index].iter().all(|other| other != mask),
                "layer {index} drops what one before drops"
            );
        }
        // Linear in `w`, so the gradient times `w` is the value: if the same elements are dropped.
        for (value, slope) in given[2]
            .as_slice::<f64>()
            .unwrap()
            .iter()
            .zip(given[3].as_slice::<f64>().unwrap())
        {
            assert!((value - slope).abs() < 1e-12, "{value} and {slope}");
        }
    }
}

#[test]
fn scan_returns_layer_metrics_with_states() {
    #[derive(Clone, Debug, Tree)]
    struct Counting<L> {
        seen: L,
        scale: L,
    }
    for remat in [None, Some(Remat::Full)] {
        let results = eval(
            move |cx, x| {
                let (seen, scale) = (Param::state([], Init::Zeros), Param::new([], Init::Ones));
                let values = Counting {
                    seen: x[0],
                    scale: x[1],
                };
                let stack: Stack<Counting<Tensor<'_>>> =
                    Stack::new(3, Counting { seen, scale }).rebuild(values.into_leaves());
                let y = stack.scan_with(cx, remat, x[2], |layer, x| {
                    let y = x * layer.scale;
                    cx.update(layer.seen, cx.updated(layer.seen) + y.sum_all());
                    cx.update(layer.seen, cx.updated(layer.seen) + 100.0);
                    cx.metric(
                        "mean",
                        Mean {
                            total: y.sum_all(),
                            weight: layer.scale,
                        },
                    );
                    y
                });
                let Leaf(slope) = grad(y.sum_all(), &Leaf(x[1]));
                let (name, mean) = &cx.metrics()[0];
                assert_eq!((&**name, cx.metrics().len()), ("mean", 1));
                vec![y, cx.updated(x[0]), mean.total, mean.weight, slope]
            },
            &[
                host(&[1.0, 2.0, 3.0], &[3]),
                host(&[2.0, 3.0, 4.0], &[3]),
                host(&[1.0, -0.5], &[2]),
            ],
        );
        // The sum is 0.5 before, then 1, 3, 12.
        let expected = [
            host(&[24.0, -12.0], &[2]),
            host(&[102.0, 105.0, 115.0], &[3]),
            host(&[16.0], &[]),
            host(&[9.0], &[]),
            host(&[6.0, 4.0, 3.0], &[3]),
        ];
        assert_eq!(results, expected, "{remat:?}");
    }
}

#[test]
fn stacked_biases_do_not_decay() {
    let model = Deep::new(2, 4);
    let decays: Vec<String> = (model.named().into_iter())
        .filter(|(path, param)| Decay::Matrices.applies(Named { path, param }))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(
        decays,
        ["blocks.up.weight", "blocks.down.weight", "out.weight"]
    );
}

/// Text size, compile time and memory of a training step.
struct Measured {
    text: usize,
    seconds: f64,
    memory: ProgramMemory,
}

/// Of the gradients of `layers` blocks of this width on this many rows.
fn measured(layers: usize, width: usize, rows: usize, run: Run) -> Measured {
    let cx = Trace::new();
    let model =
        Deep::new(layers, width).map_leaves(|path, param| cx.input(param.ty, path.to_string()));
    let x = cx.input(TensorType::new(DType::F32, [rows, width]), "x");
    let loss = model.loss(&cx, x, run);
    let slopes = grad(loss, &model).into_leaves();
    let inputs: Vec<Tensor<'_>> = model.into_leaves().into_iter().chain([x]).collect();
    let graph = optimize(cx.graph(&inputs, &[&slopes[..], &[loss]].concat()).unwrap());
    let program = program(&graph, &Interface::new("stack")).unwrap();
    let start = Instant::now();
    let loaded = client()
        .compile(&program, &CompileOptions::default())
        .unwrap();
    Measured {
        text: program.code.bytes().len(),
        seconds: start.elapsed().as_secs_f64(),
        memory: loaded.memory().unwrap(),
    }
}

#[test]
fn scan_text_is_independent_of_depth() {
    for run in SCANNED {
        // Depths whose numbers have as many digits.
        let [few, many] = [measured(11, 8, 4, run), measured(91, 8, 4, run)];
        assert_eq!(few.text, many.text, "{run:?}");
    }
    let [few, many] = [
        measured(2, 8, 4, Run::Unrolled),
        measured(8, 8, 4, Run::Unrolled),
    ];
    assert!(many.text > 3 * few.text, "{} and {}", few.text, many.text);
}

#[test]
fn more_rematerialization_uses_less_memory() {
    let [saved, full, dots] = SCANNED.map(|run| measured(16, 32, 256, run));
    println!(
        "bytes: {:?}",
        [&saved, &full, &dots].map(|costs| costs.memory.temporary)
    );
    println!(
        "seconds: {:?}",
        [&saved, &full, &dots].map(|costs| costs.seconds)
    );
    assert!(
        full.memory.temporary < dots.memory.temporary,
        "{:?}, {:?}",
        full.memory,
        dots.memory
    );
    assert!(
        dots.memory.temporary < saved.memory.temporary,
        "{:?}, {:?}",
        dots.memory,
        saved.memory
    );
    // The input of each layer is saved, `f32[256, 32]`, and little more than one layer's work.
    let inputs = 16 * 256 * 32 * 4;
    assert!(
        full.memory.temporary < 3 * inputs,
        "{:?}, inputs {inputs}",
        full.memory
    );
}

#[test]
fn cost_counts_iterations_with_rematerialization() {
    // `h = tanh(h w)`, 5 times.
    let (layers, rows, width) = (5, 3, 4);
    let of = |run: Option<Remat>| {
        let cx = &Trace::new();
        let stack = Stack::new(layers, Linear::new(width, width).without_bias());
        let stack = stack.map_leaves(|path, param: Param| cx.input(param.ty, path.to_string()));
        let x = cx.input(TensorType::new(DType::F32, [rows, width]), "x");
        let y = stack.scan_with(cx, run, x, |layer, x| layer.forward(x).tanh());
        let inputs: Vec<Tensor<'_>> = stack.leaves().into_iter().copied().chain([x]).collect();
        let forward = cost(&optimize(cx.graph(&inputs, &[y]).unwrap()));
        let slopes = grad(y.sum_all(), &stack).into_leaves();
        (
            forward,
            cost(&optimize(cx.graph(&inputs, &slopes).unwrap())),
        )
    };
    let dot = (layers * 2 * rows * width * width) as f64;
    let tanh = (layers * rows * width) as f64;
    for (run, dots, tanhs) in [
        (None, 3.0, 1.0),
        (Some(Remat::Full), 4.0, 2.0),
        (Some(Remat::SaveDots), 3.0, 2.0),
    ] {
        let (forward, both) = of(run);
        assert_eq!(
            (forward.dot, forward.transcendental),
            (dot, tanh),
            "{run:?}"
        );
        // Back into the layer's input, and into its weight.
        assert_eq!(
            (both.dot, both.transcendental),
            (dots * dot, tanhs * tanh),
            "{run:?}"
        );
        assert_eq!(both.counted_once, [], "{run:?}");
    }
}
