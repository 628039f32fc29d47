//! Convolutions and their gradients.

use halite_core::{DType, HostArray, Kernels, PartitionSpec, tree::Leaf};
use halite_ir::Reduction;
use halite_nn::{ConvOptions, CustomOp, Padding, Tensor, grad};
use halite_tests::{eval::try_eval, long::count, random::Random};

use super::{compare, f32_noise, mesh, run, traced};

/// A convolution and its gradients.
fn with_gradients<'t>(x: Tensor<'t>, kernel: Tensor<'t>, options: &ConvOptions) -> Vec<Tensor<'t>> {
    let y = x.conv(kernel, options);
    let (Leaf(dx), Leaf(dk)) = grad(y.square().sum_all(), &(Leaf(x), Leaf(kernel)));
    vec![y, dx, dk]
}

/// A convolution with a result that is not empty.
struct Case {
    x: Vec<usize>,
    kernel: Vec<usize>,
    options: ConvOptions,
}

impl Case {
    fn draw(index: u64) -> Self {
        let random = &mut Random::new(1, index);
        let spatial = 1 + random.below(3);
        let groups = *random.pick(&[1, 1, 2, 3]);
        let (mut inputs, mut sizes, mut padding) = (vec![], vec![], vec![]);
        let (mut strides, mut kernel_dilation) = (vec![], vec![]);
        for _ in 0..spatial {
            let (size, dilation) = (1 + random.below(3), 1 + random.below(2));
            inputs.push((size - 1) * dilation + 2 + random.below(6));
            sizes.push(size);
            // -1 removes an element.
            padding.push((random.below(3) as i64, random.below(4) as i64 - 1));
            strides.push(1 + random.below(3));
            kernel_dilation.push(dilation);
        }
        let mut features = || groups * (1 + random.below(5));
        let (features, outputs) = (features(), features());
        Case {
            x: [&[1 + random.below(3)], &inputs[..], &[features]].concat(),
            kernel: [&sizes[..], &[features / groups, outputs]].concat(),
            options: ConvOptions {
                strides,
                padding: Padding::Explicit(padding),
                input_dilation: vec![1 + usize::from(random.percent(10)); spatial],
                kernel_dilation,
                groups,
            },
        }
    }
}

#[test]
fn random_convolutions_agree() {
    for index in 0..count(12, 30) {
        let Case { x, kernel, options } = Case::draw(index);
        let inputs = [(1, &x), (2, &kernel)]
            .map(|(seed, dims)| (f32_noise(seed, dims), PartitionSpec::replicated()));
        // In bf16, sums that are added in another order are rounded to neighbors.
        for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::Bf16, 1e-2)] {
            let results = [Kernels::All, Kernels::Off].map(|kernels| {
                let options = options.clone();
                let function = traced(move |_, x| {
                    let (x, kernel) = (x[0].convert(dtype), x[1].convert(dtype));
                    let results = with_gradients(x, kernel, &options);
                    let widened = results.iter().map(|result| result.convert(DType::F32));
                    widened.collect()
                });
                run(kernels, &mesh(1), function, &inputs).unwrap()
            });
            let name = format!("case {index} in {dtype}, {x:?} by {kernel:?}, {options:?}");
            compare(&name, &results[0], &results[1], tolerance);
        }
    }
}

/// A convolution of 16 images with 3 features, and its gradients, on shards of the images.
fn sharded(by_device: bool, kernels: Kernels) -> Vec<HostArray> {
    let mesh = mesh(8);
    let shards = mesh.clone();
    let data = PartitionSpec::first("data");
    let specs = [data.clone(), PartitionSpec::replicated()];
    let function = traced(move |cx, inputs| {
        if !by_device {
            return with_gradients(inputs[0], inputs[1], &ConvOptions::default());
        }
        let outputs = [data.clone(), data.clone(), PartitionSpec::replicated()];
        cx.shard_map(&shards, inputs, &specs, &outputs, |shards| {
            let mut results = with_gradients(shards[0], shards[1], &ConvOptions::default());
            results[2] = results[2].all_reduce(Reduction::Sum, "data");
            results
        })
    });
    let inputs = [
        (f32_noise(1, &[16, 8, 8, 3]), PartitionSpec::first("data")),
        (f32_noise(2, &[3, 3, 3, 5]), PartitionSpec::replicated()),
    ];
    run(kernels, &mesh, function, &inputs).unwrap()
}

#[test]
fn shard_maps_of_eight_devices_agree() {
    let compiler = sharded(false, Kernels::Off);
    compare("shard map", &sharded(true, Kernels::All), &compiler, 1e-5);
    compare(
        "partitioned",
        &sharded(false, Kernels::All),
        &compiler,
        1e-5,
    );
}

#[test]
fn loops_agree() {
    let loops = traced(|cx, inputs| {
        let steps = cx.repeat(
            3,
            (Leaf(inputs[0]), Leaf(inputs[1])),
            |_, (Leaf(x), Leaf(k))| {
                let results = with_gradients(x, k, &ConvOptions::default());
                (Leaf(x - results[1] * 1e-3), Leaf(k - results[2] * 1e-3))
            },
        );
        vec![steps.0.0, steps.1.0]
    });
    let inputs = [(1, vec![2, 6, 6, 3]), (2, vec![3, 3, 3, 4])]
        .map(|(seed, dims)| (f32_noise(seed, &dims), PartitionSpec::replicated()));
    let [own, xla] =
        [Kernels::All, Kernels::Off].map(|kernels| run(kernels, &mesh(1), loops, &inputs).unwrap());
    compare("loop", &own, &xla, 1e-5);
}

#[test]
fn wrong_attributes_are_errors() {
    let error_of = |attributes: &[(&str, i64)]| {
        let op = CustomOp::new("halite_convolution", |x| Ok(vec![x[0].clone()]));
        let op = (attributes.iter()).fold(op, |op, &(name, value)| op.attribute(name, value));
        let call = traced(move |cx, x| op.call::<1>(cx, x).to_vec());
        let inputs = [1, 2].map(|seed| f32_noise(seed, &[2, 3]));
        try_eval(call, &inputs).unwrap_err().to_string()
    };
    let sizes = [("batch", 2), ("features", 3), ("outputs", 3), ("groups", 1)];
    let negative = [("batch", -2)];
    for (attributes, expected) in [
        (&sizes[..2], "no attribute `outputs`"),
        (&sizes[..], "operands and result have [6, 6, 6] elements"),
        (&negative[..], "the attribute `batch` is -2, out of range"),
    ] {
        let error = error_of(attributes);
        assert!(error.contains(expected), "{error}");
    }
    let error = error_of(&[sizes[0], sizes[1], sizes[2], ("groups", 2)]);
    assert!(error.contains("2 groups do not divide 3"), "{error}");
}
