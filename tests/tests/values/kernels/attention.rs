//! Attention and its gradients.

use halite_core::{
    Capabilities, DType, HostArray, Kernels, MeshShape, PartitionSpec, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{Dropout, Function, Mask, ShardedType, Tensor, attention, grad, lower};
use halite_tests::{long::count, random::Random};

use super::{compare, f32_noise, mesh, run, traced};

/// Attention and its gradients, by queries, keys and values.
fn with_gradients<'t>(inputs: &[Tensor<'t>], mask: Mask<'t>) -> Vec<Tensor<'t>> {
    let y = attention(inputs[0], inputs[1], inputs[2], mask, Dropout::new(0.0));
    let leaves: Vec<Leaf<Tensor<'t>>> = inputs.iter().copied().map(Leaf).collect();
    let back = grad((y * y.cos()).sum_all(), &leaves);
    [vec![y], back.into_leaves()].concat()
}

/// Sizes of queries, keys and values.
struct Case {
    dims: [Vec<usize>; 3],
    is_causal: bool,
}

impl Case {
    fn draw(index: u64) -> Self {
        let random = &mut Random::new(2, index);
        let (batch, kv_heads) = (1 + random.below(3), 1 + random.below(3));
        let heads = kv_heads * (1 + random.below(3));
        let (time, source) = (1 + random.below(150), 1 + random.below(150));
        let (width, any) = (1 + random.below(20), 1 + random.below(20));
        Case {
            dims: [
                vec![batch, time, heads, width],
                vec![batch, source, kv_heads, width],
                vec![batch, source, kv_heads, any],
            ],
            is_causal: random.percent(70),
        }
    }

    fn inputs(&self) -> Vec<(HostArray, PartitionSpec)> {
        let all = (1..).zip(&self.dims);
        all.map(|(seed, dims)| (f32_noise(seed, dims), PartitionSpec::replicated()))
            .collect()
    }
}

fn mask<'t>(is_causal: bool) -> Mask<'t> {
    if is_causal { Mask::Causal } else { Mask::None }
}

#[test]
fn random_attention_agrees() {
    for index in 0..count(10, 30) {
        let case = Case::draw(index);
        let is_causal = case.is_causal;
        let results = [Kernels::All, Kernels::Off].map(|kernels| {
            let function = traced(move |_, x| with_gradients(x, mask(is_causal)));
            run(kernels, &mesh(1), function, &case.inputs()).unwrap()
        });
        let name = format!("case {index}, {:?}, causal: {is_causal}", case.dims);
        compare(&name, &results[0], &results[1], 1e-5);
    }
}

#[test]
fn large_scores_and_empty_tensors_agree() {
    for (scale, dims) in [
        (50.0, [2, 7, 2, 5]),
        (1.0, [0, 7, 2, 5]),
        (1.0, [2, 7, 2, 0]),
    ] {
        let inputs = [1, 2, 3].map(|seed| (f32_noise(seed, &dims), PartitionSpec::replicated()));
        let results = [Kernels::All, Kernels::Off].map(|kernels| {
            let function =
                traced(move |_, x| with_gradients(&[x[0] * scale, x[1], x[2]], Mask::Causal));
            run(kernels, &mesh(1), function, &inputs).unwrap()
        });
        compare(
            &format!("{dims:?}, queries times {scale}"),
            &results[0],
            &results[1],
            1e-4,
        );
    }
}

/// Second derivatives go through the operations of the gradient, not the kernel.
#[test]
fn second_derivatives_agree() {
    let case = Case {
        dims: [vec![2, 9, 4, 3], vec![2, 9, 2, 3], vec![2, 9, 2, 5]],
        is_causal: true,
    };
    let twice = traced(|_, x| {
        let first = with_gradients(x, Mask::Causal);
        let sum = (first[1..].iter()).map(|slope| slope.sin().sum_all());
        let sum = sum.reduce(|a, b| a + b).unwrap();
        let leaves: Vec<Leaf<Tensor<'_>>> = x.iter().copied().map(Leaf).collect();
        grad(sum, &leaves).into_leaves()
    });
    let [own, xla] = [Kernels::All, Kernels::Off]
        .map(|kernels| run(kernels, &mesh(1), twice, &case.inputs()).unwrap());
    compare("second derivatives", &own, &xla, 1e-5);
}

#[test]
fn shard_maps_of_eight_devices_agree() {
    let specs = [const { "data" }; 3].map(PartitionSpec::first);
    let run_with = |by_device: bool, kernels| {
        let (mesh, specs) = (mesh(8), specs.clone());
        let shards = mesh.clone();
        let inner = specs.clone();
        let function = traced(move |cx, inputs| {
            if !by_device {
                return with_gradients(inputs, Mask::Causal);
            }
            let outputs = vec![inner[0].clone(); 4];
            cx.shard_map(&shards, inputs, &inner, &outputs, |shards| {
                with_gradients(shards, Mask::Causal)
            })
        });
        let inputs = [1, 2, 3].map(|seed| (f32_noise(seed, &[16, 12, 2, 4]), specs[0].clone()));
        run(kernels, &mesh, function, &inputs).unwrap()
    };
    let compiler = run_with(false, Kernels::Off);
    compare("shard map", &run_with(true, Kernels::All), &compiler, 1e-5);
    compare(
        "partitioned",
        &run_with(false, Kernels::All),
        &compiler,
        1e-5,
    );
}

#[test]
fn loops_agree() {
    let loops = traced(|cx, inputs| {
        let start: Vec<Leaf<Tensor<'_>>> = inputs.iter().copied().map(Leaf).collect();
        let last = cx.repeat(3, start, |_, x| {
            let x = x.into_leaves();
            let slopes = with_gradients(&x, Mask::Causal);
            let pairs = x.iter().zip(&slopes[1..]);
            pairs.map(|(&x, &slope)| Leaf(x - slope * 1e-2)).collect()
        });
        last.into_leaves()
    });
    let inputs =
        [1, 2, 3].map(|seed| (f32_noise(seed, &[2, 40, 3, 8]), PartitionSpec::replicated()));
    let [own, xla] =
        [Kernels::All, Kernels::Off].map(|kernels| run(kernels, &mesh(1), loops, &inputs).unwrap());
    compare("loop", &own, &xla, 1e-5);
}

/// The names of the kernels that a program of attention on tensors of this size calls.
fn calls(dtype: DType, positions: usize, kernels: Kernels, masked: bool) -> Vec<&'static str> {
    let function = Function::<Empty<()>, Vec<Leaf<()>>, Vec<Leaf<()>>>::stateless(move |cx, x| {
        let x: Vec<Tensor<'_>> = x.into_leaves();
        let allowed = cx.full(1.0, &TensorType::new(DType::Bool, [positions, positions]));
        let mask = if masked {
            Mask::Where(allowed)
        } else {
            Mask::Causal
        };
        with_gradients(&x, mask).into_iter().map(Leaf).collect()
    });
    let ty = ShardedType::replicated(TensorType::new(dtype, [1, positions, 4, 32]));
    let mut capabilities = Capabilities::PORTABLE;
    capabilities.kernels = kernels;
    let (inputs, mesh) = (vec![Leaf(ty); 3], MeshShape::new([("data", 1)]).unwrap());
    let lowered = lower(&function, &Empty::new(), &inputs, &mesh, &capabilities);
    let program = lowered.unwrap().program;
    let text = String::from_utf8_lossy(program.code.bytes());
    let known = ["halite_attention", "halite_attention_gradient"];
    known
        .into_iter()
        .filter(|name| text.contains(&format!("@\"{name}\"(")))
        .collect()
}

#[test]
fn kernels_are_called_where_they_pay() {
    let both = ["halite_attention", "halite_attention_gradient"];
    assert_eq!(calls(DType::F32, 256, Kernels::On, false), both);
    assert_eq!(calls(DType::F32, 2, Kernels::All, false), both);
    for other in [
        calls(DType::F32, 256, Kernels::Off, false),
        calls(DType::F32, 2, Kernels::On, false),
        calls(DType::Bf16, 256, Kernels::All, false),
        calls(DType::F32, 256, Kernels::All, true),
    ] {
        assert!(other.is_empty(), "{other:?}");
    }
}
