//! Plans of published architectures for four devices of each kind: what `halite plan` reports of
//! the whole training step. Tracing takes a tenth of a second; the rest is the vendors' compilers.

use halite::{
    models::{
        ClassifyColor, LanguageModel, Normalization, ResNet, ResNetConfig, TrainingOptions,
        TrainingStep, Vit, VitConfig,
    },
    nn::{Optimizer, Positions, RotaryScaling, TransformerConfig},
    plan::{Excess, Fit, Plan, plan},
    train::{LowerOptions, Strategy, Task},
    tree::Family,
};
use halite_ir::Remat;
use halite_nn::Param;

use halite_tests::targets::target;

const TPU: &str = "tpu:v5e:2x2";
const GPU: &str = "cuda:h100:1x4";

/// Devices of each target.
const DEVICES: usize = 4;

/// Samples of a device.
const IMAGES: usize = 32;

/// Plans a step on all devices of a target, with the precision of `halite plan`: bf16-mixed.
fn planned<K: Task, O: Optimizer>(
    name: &str,
    strategy: Strategy,
    samples: usize,
    step: TrainingStep<K, O>,
) -> Plan
where
    <K::Model as Family>::Of<Param>: Send + Sync,
{
    let target = target(name).unwrap();
    let mesh = target.mesh([("data", DEVICES)]).unwrap();
    let kind = target.target();
    let options = LowerOptions {
        clip: step.clip,
        precision: kind.default_policy(),
        ..LowerOptions::new(&mesh, strategy)
    };
    let (batch, optimizer) = (step.batch(samples * DEVICES), step.optimizer);
    let plan = plan(&target, step.task, step.model, optimizer, &batch, &options).unwrap();
    println!("{plan}");
    assert_eq!(plan.collective_loops_counted_once, 0);
    plan
}

fn options() -> TrainingOptions {
    TrainingOptions {
        schedule: 0.1.into(),
        clip: None,
    }
}

/// Bytes of the collectives of these kinds, which are among all devices.
fn bytes(plan: &Plan, kinds: &[&str]) -> u64 {
    let collectives = plan.collectives.as_ref().expect("it was compiled");
    let chosen = collectives.iter().filter(|one| kinds.contains(&&*one.kind));
    chosen
        .map(|one| {
            assert_eq!(one.group, DEVICES, "{one:?}");
            one.bytes
        })
        .sum()
}

/// Asserts that it fits, and that the arguments of a device are `expected` bytes of state and batch
/// and at most a hundredth more: what is small, or not divided.
#[track_caller]
fn check_memory(plan: &Plan, expected: u64) {
    assert!(plan.fits());
    let most = expected + expected / 100;
    assert!(
        (expected..most).contains(&plan.arguments),
        "{expected} bytes, not {}",
        plan.arguments
    );
    let memory = plan.memory.expect("it was compiled");
    // A TPU pads tensors to its tiles.
    assert!(memory.arguments >= plan.arguments, "{memory:?}");
    assert!(memory.peak > memory.arguments, "{memory:?}");
    assert!(
        memory.aliased > memory.arguments / 2,
        "the state is updated in place: {memory:?}"
    );
}

/// Checks a step under `fsdp` with Adam: a device has a quarter of the parameters and of their two
/// slots, gathers the parameters in bf16, and reduces all gradients; GPUs reduce them to the part of
/// each device.
fn check_fsdp(name: &str, plan: &Plan, parameters: u64, batch: u64) {
    assert_eq!(plan.parameters, parameters);
    check_memory(plan, 3 * 4 * parameters / DEVICES as u64 + batch);
    assert!(bytes(plan, &["all-gather"]) >= 2 * parameters);
    assert!(bytes(plan, &["all-reduce", "reduce-scatter"]) >= 3 * parameters);
    if name == GPU {
        assert!(bytes(plan, &["reduce-scatter"]) >= 3 * parameters);
    }
}

/// Under `dp` each device has the whole model, and all gradients are summed, in bf16.
fn resnet50(name: &str) {
    let (parameters, statistics, side) = (25_557_032, 53_120, 224);
    let net = ResNet::new(&ResNetConfig {
        blocks: [3, 4, 6, 3],
        bottleneck: true,
        width: 64,
        classes: 1000,
    });
    let task = ClassifyColor::<ResNet<()>>::new(Normalization::IMAGENET).mirror();
    let step = task.sgd_step(side, net, &options());
    let plan = planned(name, Strategy::data_parallel(), IMAGES, step);
    assert_eq!(plan.parameters, parameters);
    let batch = (IMAGES * (side * side * 3 + 4 + 4)) as u64;
    check_memory(&plan, 4 * (2 * parameters + statistics) + batch);
    let summed = bytes(&plan, &["all-reduce", "reduce-scatter"]);
    assert!(
        (2 * parameters..5 * parameters).contains(&summed),
        "{summed}"
    );
}

/// The layers are a loop with rematerialization. Without it halite unrolls them for GPUs, and XLA
/// takes minutes to compile all twelve.
fn vit_s16(name: &str) {
    let task = ClassifyColor::<Vit<()>>::new(Normalization::IMAGENET).mirror();
    let config = VitConfig {
        remat: Some(Remat::Full),
        ..VitConfig::s16(1000)
    };
    let step = task.adamw_step(224, Vit::new(&config).unwrap(), &options());
    let plan = planned(name, Strategy::fsdp(), IMAGES, step);
    let batch = IMAGES as u64 * (224 * 224 * 3 + 4 + 4);
    check_fsdp(name, &plan, 22_050_664, batch);
}

/// Llama 3.2 1B, in windows of 2,048 tokens, one a device.
fn llama3_1b(name: &str) {
    let scaling = RotaryScaling::Llama3 {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192.0,
    };
    let config = TransformerConfig {
        vocab_size: 128_256,
        context_length: 2048,
        heads: 32,
        kv_heads: 8,
        norm_eps: 1e-5,
        tied: true,
        positions: Positions::Rotary {
            theta: 500_000.0,
            scaling: Some(scaling),
        },
        remat: Some(Remat::Full),
        ..TransformerConfig::llama(16, 2048, 8192)
    };
    let step = LanguageModel::step(&config, &options()).unwrap();
    let plan = planned(name, Strategy::fsdp(), 1, step);
    check_fsdp(name, &plan, 1_235_814_400, 4 * 2049);
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn resnet50_is_planned_for_h100() {
    resnet50(GPU);
}

/// The longest of these tests: libtpu takes 220 CPU-seconds, about three for each convolution with its
/// gradients.
#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn resnet50_is_planned_for_v5e() {
    resnet50(TPU);
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn vit_is_planned_for_h100() {
    vit_s16(GPU);
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn vit_is_planned_for_v5e() {
    vit_s16(TPU);
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn llama3_is_planned_for_h100() {
    llama3_1b(GPU);
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn llama3_is_planned_for_v5e() {
    llama3_1b(TPU);
}

/// Parameters and slots of Llama 3 8B are 24 GB a device: nothing is compiled.
#[test]
fn llama3_8b_does_not_fit_four_v5e() {
    let config = "llama3-8b".parse::<TransformerConfig>().unwrap();
    let step = LanguageModel::step(&config, &options()).unwrap();
    let plan = planned(TPU, Strategy::fsdp(), 1, step);
    assert_eq!(plan.parameters, 8_030_261_248);
    let Fit::TooLarge { required, what, .. } = plan.fit else {
        panic!("it fits: {plan}");
    };
    assert_eq!(what, Excess::Arguments);
    assert!(
        (24_000_000_000..24_200_000_000).contains(&required),
        "{required}"
    );
    assert!(plan.memory.is_none());
}
