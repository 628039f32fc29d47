//! The training step as a program, without a device.

use halite_core::{DType, MeshShape, Result, TensorType, Tree, tree::Leaf};
use halite_data::Labeled;
use halite_nn::{
    Adam, Linear, Mean, Param, Sgd, Tensor, Trace, Transformer, TransformerConfig, cross_entropy,
};
use halite_train::{GradientClip, LowerOptions, LoweredStep, Strategy, Task, lower_step};

#[derive(Tree, Debug)]
struct Net<L> {
    hidden: Linear<L>,
    out: Linear<L>,
}

struct Classify;

impl Task for Classify {
    type Model = Net<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _cx: &'t Trace,
        model: &Net<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let logits = model.out.forward(model.hidden.forward(batch.input).relu());
        Mean::of(cross_entropy(logits, batch.target))
    }
}

fn net() -> Net<Param> {
    Net {
        hidden: Linear::new(64, 1 << 20),
        out: Linear::new(1 << 20, 1 << 17),
    }
}

fn options(strategy: &str) -> LowerOptions {
    let mesh = MeshShape::new([("data", 64), ("model", 16)]).unwrap();
    LowerOptions::new(&mesh, strategy.parse().unwrap())
}

fn lower(fields: &[TensorType], options: &LowerOptions) -> Result<LoweredStep> {
    lower_step(Classify, net(), Adam::new(1e-3), fields, options)
}

fn fields(samples: usize) -> [TensorType; 2] {
    [
        TensorType::new(DType::F32, [samples, 64]),
        TensorType::new(DType::S32, [samples]),
    ]
}

#[test]
fn terabyte_step_lowers_for_a_thousand_devices() {
    let options = options("fsdp+tp");
    let (step, mesh) = (lower(&fields(8192), &options).unwrap(), &options.mesh);
    let paths: Vec<&str> = step.inputs.iter().map(|(path, _)| &**path).collect();
    let expected = [
        "model.hidden.weight",
        "model.hidden.bias",
        "model.out.weight",
        "model.out.bias",
        "slots.hidden.weight.first",
        "slots.hidden.weight.second",
        "slots.hidden.bias.first",
        "slots.hidden.bias.second",
        "slots.out.weight.first",
        "slots.out.weight.second",
        "slots.out.bias.first",
        "slots.out.bias.second",
        "step",
        "key",
        "batch.input",
        "batch.target",
        "batch.weight",
        "window",
        "hyperparameters",
    ];
    assert_eq!(paths, expected);
    let outputs: Vec<&str> = step.outputs.iter().map(|(path, _)| &**path).collect();
    assert_eq!(outputs, [&expected[..14], &["window"]].concat());

    // The signature of one device follows from the shardings, and the whole state is donated.
    let program = &step.program;
    assert_eq!((program.partitions, program.replicas), (1024, 1));
    for ((path, spec), ty) in step.inputs.iter().zip(&program.signature.inputs) {
        assert_eq!(&spec.shard_type(mesh).unwrap(), ty, "{path}");
    }
    for ((path, spec), ty) in step.outputs.iter().zip(&program.signature.outputs) {
        assert_eq!(&spec.shard_type(mesh).unwrap(), ty, "{path}");
    }
    assert_eq!(program.signature.donated, (0..14).collect::<Vec<_>>());
}

#[test]
fn state_of_a_large_step_is_sharded() {
    let step = lower(&fields(8192), &options("fsdp+tp")).unwrap();
    let ty = |path: &str| {
        let mut paths = step.inputs.iter().map(|(path, _)| &**path);
        let index = paths.position(|known| known == path).unwrap();
        step.program.signature.inputs[index].to_string()
    };
    assert_eq!(
        ty("model.out.weight"),
        "f32[65536, 2048]",
        "rows over `model`, then fully sharded over `data`"
    );
    assert_eq!(
        ty("slots.out.weight.second"),
        ty("model.out.weight"),
        "slots have the sharding of their parameter"
    );
    assert_eq!(ty("batch.input"), "f32[128, 64]");
}

#[test]
fn graph_is_of_the_whole_step_over_all_devices() {
    let step = lower(&fields(8192), &options("fsdp+tp")).unwrap();
    assert_eq!(step.graph.inputs().len(), step.inputs.len());
    for ((path, spec), &value) in step.inputs.iter().zip(step.graph.inputs()) {
        assert_eq!(step.graph.ty(value), &spec.ty, "{path}");
    }
    let dots = step
        .graph
        .nodes()
        .iter()
        .filter(|node| node.op.name() == "dot")
        .count();
    assert_eq!(
        dots, 5,
        "two forward, and backward to both weights and the hidden layer"
    );
}

#[test]
fn clipping_adds_operations_to_the_step() {
    let plain = options("dp+tp");
    let clipped = LowerOptions {
        clip: Some(GradientClip::Norm(1.0)),
        ..plain.clone()
    };
    let step = |options: &LowerOptions| {
        lower_step(Classify, net(), Sgd::new(0.1), &fields(64), options).unwrap()
    };
    let (plain, clipped) = (step(&plain), step(&clipped));
    assert!(clipped.graph.nodes().len() > plain.graph.nodes().len());
    assert!(
        !plain
            .inputs
            .iter()
            .any(|(path, _)| path.starts_with("slots")),
        "SGD without momentum keeps nothing"
    );
}

#[test]
fn errors_name_the_leaf_that_does_not_divide() {
    let error = |samples: usize, strategy: &str| {
        lower(&fields(samples), &options(strategy))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(100, "dp+tp"),
        "lower: `batch.input`: dimension 0 of f32[100, 64] is split 64 ways by (data) on mesh(data=64, model=16), and 100 is \
         not a multiple of 64"
    );
    let [input, target] = fields(128);
    let text = lower(&[input.clone(), target.with_dims([64])], &options("dp+tp"))
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with(
            "lower: `batch.target`: s32[64]: the first dimension of every field must be the number of samples"
        ),
        "{text}"
    );
    let text = lower(std::slice::from_ref(&input), &options("dp+tp"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "lower: the task's batch has 3 leaves (input, target, weight), but 1 types were given"
    );
    let strategy = Strategy::default()
        .and(Strategy::tensor_parallel())
        .rule("out.bias", "(data, model)")
        .unwrap();
    let text = lower(
        &fields(128),
        &LowerOptions {
            strategy,
            ..options("dp+tp")
        },
    )
    .unwrap_err()
    .to_string();
    assert!(
        text.contains("`out.bias` (f32[131072]): rule `out.bias`: (data, model) has 2 dimensions"),
        "{text}"
    );
    // Mistakes of the task's code.
    let text = lower(&[input.with_dims([128, 63]), target], &options("dp+tp"))
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("1 mistake in the traced code") && text.contains("lower.rs"),
        "{text}"
    );
}

struct Predict;

impl Task for Predict {
    type Model = Transformer<()>;
    type Batch = Leaf<()>;

    fn loss<'t>(
        &self,
        _cx: &'t Trace,
        model: &Transformer<Tensor<'t>>,
        Leaf(tokens): &Leaf<Tensor<'t>>,
    ) -> Mean<'t> {
        Mean::of(model.forward(*tokens).square())
    }
}

#[test]
fn transformer_activations_are_sharded_over_batch_axes() {
    let model = || Transformer::new(&TransformerConfig::tiny()).unwrap();
    let batch = [TensorType::new(DType::U32, [16, 8])];
    let constraints = |axes: &[(&'static str, usize)], strategy: &str| {
        let mesh = MeshShape::new(axes.iter().copied()).unwrap();
        let options = LowerOptions::new(&mesh, strategy.parse().unwrap());
        let step = lower_step(Predict, model(), Sgd::new(0.1), &batch, &options).unwrap();
        let text = String::from_utf8(step.program.code.bytes().to_vec()).unwrap();
        let of_line = |line: &str| {
            let (_, rest) = line.split_once("sdy.sharding_constraint ")?;
            let (_, spec) = rest.split_once("<@mesh, ")?;
            Some(spec.split_once('>')?.0.to_string())
        };
        let mut specs: Vec<String> = text.lines().filter_map(of_line).collect();
        // Open ones come from faults of compilers that a portable program is lowered around.
        specs.retain(|spec| !spec.contains('?'));
        specs.sort();
        specs.dedup();
        specs
    };
    assert_eq!(
        constraints(&[("replica", 2), ("fsdp", 4)], "fsdp"),
        [r#"[{"replica", "fsdp"}, {}, {}]"#]
    );
    assert_eq!(
        constraints(&[("data", 4), ("model", 2)], "dp+tp"),
        [r#"[{"data"}, {}, {}]"#]
    );
}
