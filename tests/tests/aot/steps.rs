//! A whole training step (forward, backward, collectives, Adam, metrics) compiled for every kind of
//! target, and the memory that its compiler reports.

use halite::{
    models::{Classify, LanguageModel, Mlp},
    nn::{Adam, Transformer, TransformerConfig},
    train::{LowerOptions, LoweredStep, Strategy, lower_step},
};
use halite_backends::{OpenTarget, Target, TpuGeneration};
use halite_core::{CompileOptions, DType, DeviceSpec, ProgramMemory, TensorType};
use halite_pjrt::{CollectiveKind, CompiledProgram};

use halite_tests::targets::target;

/// Samples per device.
const BATCH: usize = 32;

/// The step of a perceptron for all devices of the target.
fn perceptron(target: &OpenTarget, axes: &[(&str, usize)], strategy: Strategy) -> LoweredStep {
    let mesh = target.mesh(axes.iter().copied()).unwrap();
    let samples = BATCH * mesh.size();
    let batch = [
        TensorType::new(DType::U8, [samples, 28, 28]),
        TensorType::new(DType::U8, [samples]),
    ];
    let model = Mlp::new(&[784, 512, 256, 10]);
    lower_step(
        Classify::<Mlp<()>>::new(),
        model,
        Adam::new(1e-3),
        &batch,
        &LowerOptions::new(&mesh, strategy),
    )
    .unwrap()
}

/// Bytes of a tensor in a device's memory.
///
/// A GPU and a CPU keep a tensor as it is. A TPU keeps the last two dimensions of its layout in
/// tiles of 8 by 128 elements; of 1, 2 or 4 by 128 where the first of the two is shorter, but a
/// tile has at least 512 bytes, 1024 on v2 and v3. A vector is one column of such rows. libtpu
/// chooses the last two dimensions so that padding is least.
fn bytes_in_memory(target: &Target, ty: &TensorType) -> u64 {
    let size = ty.dtype().size() as u64;
    let dims: Vec<u64> = ty.dims().iter().map(|&dim| dim as u64).collect();
    let count = dims.iter().product::<u64>();
    let least = match target {
        Target::Tpu(tpu) if matches!(tpu.generation, TpuGeneration::V2 | TpuGeneration::V3) => 1024,
        Target::Tpu(_) => 512,
        _ => return count * size,
    };
    let tiled = |rows: u64, columns: u64| {
        let rows = rows.max(least / (128 * size));
        let rows = if rows < 8 {
            rows.next_power_of_two()
        } else {
            rows.next_multiple_of(8)
        };
        rows * columns.next_multiple_of(128) * size
    };
    let pairs = (0..dims.len()).flat_map(|row| (0..dims.len()).map(move |column| (row, column)));
    let pairs = pairs.filter(|(row, column)| row != column);
    let by_pair = pairs
        .map(|(row, column)| count / (dims[row] * dims[column]) * tiled(dims[row], dims[column]));
    by_pair
        .min()
        .unwrap_or_else(|| tiled(count.div_ceil(128), 128))
}

/// The step of a small transformer.
fn transformer(target: &OpenTarget, axes: &[(&str, usize)], strategy: Strategy) -> LoweredStep {
    let mesh = target.mesh(axes.iter().copied()).unwrap();
    let config = TransformerConfig::tiny();
    let batch = [TensorType::new(
        DType::U32,
        [2 * mesh.size(), config.context_length + 1],
    )];
    let model = Transformer::new(&config).unwrap();
    lower_step(
        LanguageModel,
        model,
        Adam::new(1e-3),
        &batch,
        &LowerOptions::new(&mesh, strategy.min_elements(1)),
    )
    .unwrap()
}

/// Compiles the perceptron's step.
fn compiles(
    name: &str,
    axes: &[(&str, usize)],
    strategy: Strategy,
) -> (CompiledProgram, ProgramMemory) {
    let target = target(name).unwrap();
    let step = perceptron(&target, axes, strategy);
    compiles_step(name, &target, &step)
}

/// Compiles a step, checks what every compiler must report, and returns it.
fn compiles_step(
    name: &str,
    target: &OpenTarget,
    step: &LoweredStep,
) -> (CompiledProgram, ProgramMemory) {
    let signature = &step.program.signature;
    let compiled = target
        .compile(&step.program, &CompileOptions::default())
        .unwrap();
    let memory = compiled.memory().unwrap();
    println!(
        "{name}: {memory:?}, serialized {} bytes",
        compiled.serialize().unwrap().len()
    );

    let sum = |types: &mut dyn Iterator<Item = &TensorType>| {
        types
            .map(|ty| bytes_in_memory(target.target(), ty))
            .sum::<u64>()
    };
    assert_eq!(
        memory.arguments,
        sum(&mut signature.inputs.iter()),
        "{name}: arguments are what the shardings say"
    );
    let state = sum(&mut signature
        .donated
        .iter()
        .map(|&input| &signature.inputs[input]));
    assert_eq!(
        memory.aliased, state,
        "{name}: the memory of the whole state is reused"
    );
    // The table of a tuple's addresses is counted by some.
    let results = sum(&mut signature.outputs.iter());
    let table = 8 * (signature.outputs.len() as u64 + 1);
    assert!(
        (results..=results + table.next_multiple_of(1024)).contains(&memory.outputs),
        "{name}: results {results}: {memory:?}"
    );

    check_peak(name, target, &memory);
    // The table has devices by the names that plugins report.
    let published = DeviceSpec::of_kind(target.device_kind());
    let expected = target.target().spec();
    assert_eq!(published.is_some(), expected.is_some(), "{name}");
    // Of several slices it is the program of each.
    let devices = compiled.replicas().unwrap() * compiled.partitions().unwrap();
    assert_eq!(
        devices * target.target().slices(),
        target.devices().len(),
        "{name}"
    );
    let outputs: Vec<_> = compiled
        .output_types()
        .unwrap()
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(outputs, signature.outputs, "{name}");
    (compiled, memory)
}

/// Checks the peak of memory of a small model.
fn check_peak(name: &str, target: &OpenTarget, memory: &ProgramMemory) {
    let peak = memory.peak.expect("every compiler here knows its peak");
    assert!(peak >= memory.arguments, "{name}: {memory:?}");
    let all = memory.arguments + memory.outputs + memory.temporary + memory.code;
    // libtpu also counts copies in the chips' small fast memory, which may hold a small model whole.
    let most = match target.target().platform() {
        "tpu" => 2 * all,
        _ => all,
    };
    assert!(peak <= most, "{name}: {memory:?}");
    let limit = target.memory_per_device();
    assert!(
        limit.is_none_or(|limit| peak < limit / 100),
        "{name}: it is a small model"
    );
}

/// Every device has the whole model; gradients are all-reduced.
fn data_parallel(name: &str, devices: usize) {
    let (compiled, _) = compiles(name, &[("data", devices)], Strategy::data_parallel());
    let summed = sums(&compiled);
    // 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10 parameters in f32.
    let gradients = 535_818 * 4;
    if devices > 1 {
        assert!(
            summed >= gradients,
            "{name}: {summed} bytes are summed over the devices, the gradients are {gradients}"
        );
    } else {
        assert_eq!(summed, 0, "{name}");
    }
}

/// Bytes of all-reduces.
fn sums(compiled: &CompiledProgram) -> u64 {
    let collectives = compiled.collectives().unwrap();
    let is_sum = |kind| {
        matches!(
            kind,
            CollectiveKind::AllReduce | CollectiveKind::ReduceScatter
        )
    };
    collectives
        .uses
        .iter()
        .filter(|one| is_sum(one.kind))
        .map(|one| one.bytes)
        .sum()
}

macro_rules! steps {
    ($($(#[$ignored:meta])? $test:ident: $name:literal, $devices:literal;)*) => {
        $(#[test]
        $(#[$ignored])?
        fn $test() {
            data_parallel($name, $devices);
        })*
    };
}

steps! {
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_a_v3_of_eight_cores: "tpu:v3:2x2", 8;
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_a_v4_of_eight_cores: "tpu:v4:2x2x1", 8;
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_a_v4_of_four_chips: "tpu:v4:2x2x1,megacore", 4;
    the_step_compiles_for_a_v5e_of_sixteen_chips: "tpu:v5e:4x4", 16;
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_a_v5p_of_four_chips: "tpu:v5p:2x2x1", 4;
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_a_v6e_of_sixteen_chips: "tpu:v6e:4x4", 16;
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_a_tpu7x_of_eight_cores: "tpu:tpu7x:2x2x1", 8;
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_an_a100: "cuda:a100", 1;
    the_step_compiles_for_eight_h100: "cuda:h100:1x8", 8;
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_two_hosts_of_four_h100: "cuda:h100:2x4", 8;
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_an_h200: "cuda:h200:1x1", 1;
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_two_hosts_of_eight_h200: "cuda:h200:2x8", 16;
    #[ignore = "takes minutes: `.ci/full`"]
    the_step_compiles_for_eight_b200: "cuda:b200:1x8", 8;
    the_step_compiles_for_eight_virtual_cpus: "cpu:8", 8;
}

#[test]
fn fsdp_devices_hold_their_part_of_the_state() {
    for name in ["tpu:v5e:4x4", "cuda:h200:2x8"] {
        let (_, whole) = compiles(name, &[("data", 16)], Strategy::data_parallel());
        let (compiled, parts) = compiles(name, &[("data", 16)], Strategy::fsdp());
        // Small parameters stay whole, and a part may fill its tiles less.
        assert!(
            parts.arguments < whole.arguments / 6,
            "{name}: {parts:?} {whole:?}"
        );
        let collectives = compiled.collectives().unwrap();
        let gathered = collectives
            .uses
            .iter()
            .any(|one| one.kind == CollectiveKind::AllGather);
        assert!(
            gathered,
            "{name}: parameters are gathered where they are used: {collectives:?}"
        );
    }
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn two_axis_mesh_splits_batch_by_layers() {
    let strategy = || Strategy::data_parallel().and(Strategy::tensor_parallel());
    for name in ["tpu:v5e:4x4", "cuda:h200:2x8"] {
        let (_, memory) = compiles(name, &[("data", 4), ("model", 4)], strategy());
        let (_, whole) = compiles(name, &[("data", 16)], Strategy::data_parallel());
        assert!(
            memory.arguments < whole.arguments,
            "{name}: {memory:?} {whole:?}"
        );
    }
}

#[test]
fn gradients_are_reduced_between_slices() {
    let (compiled, _) = compiles(
        "tpu:v5e:2x2,slices=2",
        &[("replica", 2), ("data", 4)],
        Strategy::data_parallel(),
    );
    // Within a slice they are summed as on one; each device then exchanges its part over the data
    // centre's network.
    assert!(sums(&compiled) > 0, "{:?}", compiled.collectives());
    let (_, code) = compiled.optimized().unwrap();
    let exchange = b"_xla_megascale_reduce_operation";
    assert!(
        code.windows(exchange.len()).any(|bytes| bytes == exchange),
        "nothing is reduced between slices"
    );
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn scanned_transformer_compiles_under_fsdp() {
    for (name, devices) in [("tpu:v5e:2x2", 4), ("cuda:h100:1x4", 4)] {
        let target = target(name).unwrap();
        let step = transformer(&target, &[("data", devices)], Strategy::fsdp());
        assert!(
            String::from_utf8_lossy(step.program.code.bytes()).contains("stablehlo.while"),
            "the layers are one loop"
        );
        let (compiled, _) = compiles_step(name, &target, &step);
        let collectives = compiled.collectives().unwrap();
        assert_eq!(collectives.loops_counted_once, 0, "{name}: {collectives:?}");
        assert!(
            collectives
                .uses
                .iter()
                .any(|one| one.kind == CollectiveKind::AllGather),
            "{name}: {collectives:?}"
        );
    }
}

#[test]
#[ignore = "takes minutes: `.ci/full`"]
fn tensor_parallel_reduces_activations_per_layer() {
    // After attention and after the dense layers, forwards and backwards.
    let sums_of_layers = 4 * TransformerConfig::tiny().layers as u64;
    for name in ["tpu:v5e:1x2", "cuda:h100:1x2"] {
        let target = target(name).unwrap();
        let step = transformer(&target, &[("model", 2)], Strategy::tensor_parallel());
        let (compiled, _) = compiles_step(name, &target, &step);
        let collectives = compiled.collectives().unwrap();
        assert_eq!(collectives.loops_counted_once, 0, "{name}: {collectives:?}");
        let is_sum = |kind| {
            matches!(
                kind,
                CollectiveKind::AllReduce | CollectiveKind::ReduceScatter
            )
        };
        let count: u64 = collectives
            .uses
            .iter()
            .filter(|one| is_sum(one.kind))
            .map(|one| one.count)
            .sum();
        assert!(count >= sums_of_layers, "{name}: {collectives:?}");
        assert!(
            collectives.uses.iter().all(|one| one.group == 2),
            "{name}: {collectives:?}"
        );
    }
}
