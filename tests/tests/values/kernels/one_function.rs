//! Small programs as one function of XLA's CPU compiler.

use halite_core::{
    Capabilities, CompileOptions, DType, HostArray, Kernels, MeshShape, PartitionSpec, Program,
    TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{Function, ShardedType, Tensor, Trace, grad, lower};
use halite_tests::{eval::client, long::count, random::Random};

use super::{compare, f32_noise, mesh, run, traced};

/// A recurrent network of these sizes and its gradients. Inputs: the sequence `[time, batch, width]`
/// and the weights `[width, width]` of the inputs and of the state.
#[derive(Clone, Copy, Debug)]
struct Case {
    time: usize,
    batch: usize,
    width: usize,
    form: usize,
}

impl Case {
    fn draw(index: u64) -> Self {
        let random = &mut Random::new(3, index);
        Case {
            time: 2 + random.below(9),
            batch: 1 + random.below(12),
            width: 1 + random.below(40),
            form: random.below(4),
        }
    }

    fn dims(&self) -> [Vec<usize>; 3] {
        let Case {
            time, batch, width, ..
        } = *self;
        [
            vec![time, batch, width],
            vec![width, width],
            vec![width, width],
        ]
    }

    fn inputs(&self) -> Vec<(HostArray, PartitionSpec)> {
        let all = (1..).zip(self.dims());
        all.map(|(seed, dims)| (f32_noise(seed, &dims), PartitionSpec::replicated()))
            .collect()
    }

    fn network<'t>(&self, cx: &'t Trace, inputs: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let &[xs, from_input, from_state] = inputs else {
            unreachable!("a network has three inputs")
        };
        let form = self.form;
        let start = cx.full(0.5, &TensorType::new(xs.dtype(), &xs.dims()[1..]));
        let (last, outputs) = cx.scan(Leaf(start), Leaf(xs), |Leaf(state), Leaf(x)| {
            let sum = x.matmul(from_input) + state.matmul(from_state);
            let next = match form {
                0 => sum.tanh(),
                1 => sum.maximum(x) * 0.5,
                2 => (sum - sum.max_keep([1])).exp(),
                _ => sum.sigmoid() * x.sin() + state.mean([0]),
            };
            (Leaf(next), Leaf(next.sum([1])))
        });
        let loss = (last.0 * last.0.cos()).sum_all() + outputs.0.sum_all();
        let leaves: Vec<Leaf<Tensor<'t>>> = inputs.iter().copied().map(Leaf).collect();
        let slopes = grad(loss, &leaves).into_leaves();
        [vec![last.0, outputs.0], slopes].concat()
    }
}

#[test]
fn random_recurrent_networks_agree() {
    for index in 0..count(8, 24) {
        let case = Case::draw(index);
        let results = [Kernels::On, Kernels::Off].map(|kernels| {
            let network = traced(move |cx, inputs| case.network(cx, inputs));
            run(kernels, &mesh(1), network, &case.inputs()).unwrap()
        });
        compare(&format!("{case:?}"), &results[0], &results[1], 2e-5);
    }
}

/// The program of a function of `f32` inputs on this number of devices.
fn program(
    kernels: Kernels,
    devices: usize,
    dims: &[Vec<usize>],
    function: impl for<'t> Fn(&'t Trace, &[Tensor<'t>]) -> Vec<Tensor<'t>> + Send + Sync + 'static,
) -> Program {
    let function = Function::<Empty<()>, Vec<Leaf<()>>, Vec<Leaf<()>>>::stateless(move |cx, x| {
        let x: Vec<Tensor<'_>> = x.into_leaves();
        function(cx, &x).into_iter().map(Leaf).collect()
    });
    let inputs: Vec<_> = (dims.iter())
        .map(|dims| Leaf(ShardedType::replicated(TensorType::new(DType::F32, dims))))
        .collect();
    let mut capabilities = Capabilities::PORTABLE;
    capabilities.kernels = kernels;
    capabilities.one_function = true;
    let mesh = MeshShape::new([("data", devices)]).unwrap();
    let lowered = lower(&function, &Empty::new(), &inputs, &mesh, &capabilities);
    lowered.unwrap().program
}

fn is_one_function(program: &Program) -> bool {
    program.code.facts().unwrap().one_function
}

#[test]
fn small_loops_are_one_function() {
    let network = |kernels, devices, width: usize| {
        let case = Case {
            time: 4,
            batch: 8,
            width,
            form: 0,
        };
        let network = traced(move |cx, inputs| case.network(cx, inputs));
        is_one_function(&program(kernels, devices, &case.dims(), network))
    };
    assert!(network(Kernels::On, 1, 64));
    assert!(!network(Kernels::Off, 1, 64));
    assert!(!network(Kernels::On, 2, 64));
    assert!(!network(Kernels::On, 1, 128));

    let straight = |kernels| {
        let layer = traced(|_, x: &[Tensor<'_>]| vec![x[0].matmul(x[1]).tanh()]);
        is_one_function(&program(kernels, 1, &[vec![8, 8], vec![8, 8]], layer))
    };
    assert!(straight(Kernels::All));
    assert!(!straight(Kernels::On));

    let sorting = traced(|cx: &Trace, x: &[Tensor<'_>]| {
        let last = cx.repeat(4, Leaf(x[0]), |_, Leaf(x)| Leaf(x.sort(0, false)));
        vec![last.0]
    });
    assert!(!is_one_function(&program(
        Kernels::All,
        1,
        &[vec![8]],
        sorting
    )));
}

/// XLA's compiler aborts the process for a function that does not use an argument, also where the
/// argument was optimized away.
#[test]
fn arguments_may_be_unused() {
    let dims = [vec![4], vec![4], vec![4]];
    let inputs: Vec<_> = (1..)
        .zip(&dims)
        .map(|(seed, dims)| (f32_noise(seed, dims), PartitionSpec::replicated()))
        .collect();
    let function = traced(|cx: &Trace, x: &[Tensor<'_>]| {
        let position = cx.iota(&TensorType::new(DType::S32, [4]), 0);
        let chosen = position.ge(0.0).select(x[0], x[1]);
        vec![cx.repeat(4, Leaf(chosen), |_, Leaf(x)| Leaf(x.sin())).0]
    });
    assert!(is_one_function(&program(Kernels::On, 1, &dims, function)));
    let [own, xla] = [Kernels::On, Kernels::Off]
        .map(|kernels| run(kernels, &mesh(1), function, &inputs).unwrap());
    compare("unused", &own, &xla, 1e-6);
}

/// XLA's compiler keeps the call, and no library is called in it.
#[test]
fn the_compiler_makes_one_function() {
    let case = Case::draw(0);
    let network = traced(move |cx, inputs| case.network(cx, inputs));
    let program = program(Kernels::On, 1, &case.dims(), network);
    let loaded = client()
        .compile(&program, &CompileOptions::default())
        .unwrap();
    let (_, optimized) = loaded.optimized().unwrap();
    let has = |text: &[u8]| optimized.windows(text.len()).any(|part| part == text);
    assert!(has(b"xla_cpu_small_call"));
    assert!(!has(b"ynn_fusion"));
}
