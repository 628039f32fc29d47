use std::time::Duration;

use halite_backends::{
    Accelerator,
    pjrt::{CollectiveKind, Collectives},
};
use halite_core::{DTypePolicy, ProcessGroup, ThreadProcess};
use halite_nn::{Adam, Linear, Mean, optim::WeightAveraging};

use super::*;

struct Fit;

impl Task for Fit {
    type Model = Linear<()>;
    type Batch = Leaf<()>;

    fn loss<'t>(
        &self,
        _cx: &'t Trace,
        model: &Linear<Tensor<'t>>,
        Leaf(x): &Leaf<Tensor<'t>>,
    ) -> Mean<'t> {
        Mean::of(model.forward(*x))
    }
}

#[test]
fn init_never_holds_a_whole_split_parameter() {
    let client = Accelerator::Cpu { devices: Some(8) }.open().unwrap();
    let mesh = Arc::new(Mesh::new([("data", 8)], client.local_devices()).unwrap());
    let (params, adam) = (Arc::new(Linear::new(2048, 4096)), Arc::new(Adam::new(1e-3)));
    let whole: u64 = params.weight.ty.bytes() as u64;
    let memory_of = |strategy: Strategy| {
        let parts = StepParts {
            task: &Arc::new(Fit),
            params: &params,
            optimizer: &adam,
            options: StepOptions::new(DTypePolicy::F32),
            strategy: &strategy,
        };
        let options = parts.options.state(&strategy);
        let state = crate::strategy::state_specs::<Linear<()>, _>(
            &mesh,
            &strategy,
            &params,
            adam.clone(),
            options,
        )
        .unwrap();
        let shards = state
            .leaves()
            .into_iter()
            .map(|ty| ty.shard_type(&mesh).unwrap().bytes() as u64)
            .sum::<u64>();
        let init = init_function(&parts, &state).jit(&client).on(&mesh);
        let key = TensorType::new(DType::U32, [2]);
        let key = ShardedType::replicated(key).on(&mesh).unwrap();
        init.prepare(&Empty::new(), &Leaf(key)).unwrap();
        (
            shards,
            init.with_loaded(|loaded| loaded.memory()).unwrap().unwrap(),
        )
    };
    let (shards, memory) = memory_of(Strategy::fsdp());
    assert!(
        shards < 3 * whole / 8 + (1 << 17),
        "parameter and two slots, an eighth each: {shards} of {whole}"
    );
    // The outputs of the program, and the pointers to them.
    assert!(
        (shards..shards + 4096).contains(&memory.outputs),
        "{shards}: {memory:?}"
    );
    assert!(memory.temporary < whole / 4, "{whole}: {memory:?}");
    // The control: replicated parameters need whole copies.
    let (shards, memory) = memory_of(Strategy::data_parallel());
    assert!(
        shards > 3 * whole && memory.outputs >= shards,
        "{shards}: {memory:?}"
    );
}

/// The programs of the first of this number of processes, of two devices each.
fn programs_of(processes: usize, strategy: &Strategy) -> (Programs<Fit, Adam>, Arc<Mesh>) {
    let client = Accelerator::Cpu { devices: Some(2) }.open().unwrap();
    let mesh = Arc::new(Mesh::new([("data", 2)], client.local_devices()).unwrap());
    let first = ThreadProcess::group(processes).into_iter().next().unwrap();
    let group: Arc<dyn ProcessGroup> = Arc::new(first);
    let processes = Processes::new(&group, &mesh, Duration::from_secs(1)).unwrap();
    let parts = StepParts {
        task: &Arc::new(Fit),
        params: &Arc::new(Linear::new(512, 1024)),
        optimizer: &Arc::new(Adam::new(1e-3)),
        options: StepOptions {
            average: Some(WeightAveraging::ema(0.9)),
            processes: Some(processes),
            ..StepOptions::new(DTypePolicy::F32)
        },
        strategy,
    };
    let x = TensorType::new(DType::F32, [8, 512]);
    let x = ShardedType::new(x, strategy.batch_spec(&mesh))
        .on(&mesh)
        .unwrap();
    let programs = Programs::new(&client, &mesh, &parts, &Leaf(x), &[], 1).unwrap();
    (programs, mesh)
}

#[test]
fn state_of_a_process_is_its_part() {
    for processes in [2, 4] {
        let (programs, mesh) = programs_of(processes, &Strategy::zero1());
        let key = ShardedType::replicated(TensorType::new(DType::U32, [2]));
        let key = Leaf(key.on(&mesh).unwrap());
        programs.init.prepare(&Empty::new(), &key).unwrap();
        let memory = programs.init.with_loaded(|loaded| loaded.memory());
        let memory = memory.unwrap().unwrap();
        // On each device: the parameters, and a part of two slots and the averages.
        let whole = 4 * (512 * 1024 + 1024);
        let expected = whole + 3 * whole / (2 * processes as u64);
        let most = expected + 4096;
        assert!((expected..most).contains(&memory.outputs), "{memory:?}");
    }
}

#[test]
fn parameters_alone_are_gathered() {
    let (programs, mesh) = programs_of(2, &Strategy::zero1());
    let inputs = programs.inputs(&mesh);
    programs.step.prepare(&programs.state, &inputs).unwrap();
    let code = programs.step.with_loaded(|loaded| loaded.optimized());
    let (format, code) = code.unwrap().unwrap();
    let mut uses = Collectives::read(&format, &code, 2).unwrap().uses;
    uses.retain(|one| one.kind != CollectiveKind::AllReduce);
    // The new parameters, once.
    let gathers: Vec<(&str, u64, u64)> = (uses.iter())
        .map(|one| (one.kind.name(), one.count, one.bytes))
        .collect();
    let parameters = 4 * (512 * 1024 + 1024);
    assert_eq!(gathers, [("all-gather", 1, parameters)], "{uses:#?}");
}
