//! Convolutions as calls of halite's kernels: which ones, and with which attributes.

use expect_test::{Expect, expect};
use halite_core::{
    Capabilities, DType, DeviceId, Kernels, Mesh, MeshShape, PartitionSpec, TensorType,
    tree::{Empty, Leaf},
};
use halite_ir::Reduction;
use halite_nn::{ConvOptions, Function, Padding, ShardedType, Tensor, Trace, grad, lower};

type Pair<T> = (Leaf<T>, Leaf<T>);
/// A function of images and a kernel.
type Body = for<'t> fn(&'t Trace, Tensor<'t>, Tensor<'t>) -> Pair<Tensor<'t>>;

const COMPILER: Capabilities = Capabilities::PORTABLE;
const KERNELS: Capabilities = {
    let mut kernels = COMPILER;
    kernels.kernels = Kernels::On;
    kernels
};

fn spec(text: &str) -> PartitionSpec {
    text.parse().unwrap()
}

/// Text of the program of `body` on a mesh of `devices` that splits the images.
fn text(capabilities: &Capabilities, devices: usize, body: Body) -> String {
    let function = Function::<_, Pair<()>, Pair<()>>::stateless(move |cx, inputs| {
        let (Leaf(x), Leaf(kernel)) = inputs;
        body(cx, x, kernel)
    });
    let ty = |dims: [usize; 4]| TensorType::new(DType::F32, dims);
    let inputs = (
        Leaf(ShardedType::new(ty([8, 16, 16, 32]), spec("(data)"))),
        Leaf(ShardedType::replicated(ty([3, 3, 32, 64]))),
    );
    let mesh = MeshShape::new([("data", devices)]).unwrap();
    let lowered = lower(&function, &Empty::new(), &inputs, &mesh, capabilities).unwrap();
    String::from_utf8(lowered.program.code.bytes().to_vec()).unwrap()
}

/// Checks the calls and convolutions of the program of `body` on one device, without types.
fn check(body: Body, expected: Expect) {
    let text = text(&KERNELS, 1, body);
    let lines = text.lines().filter_map(|line| {
        let start = line
            .find("stablehlo.custom_call")
            .or(line.find("stablehlo.convolution"))?;
        let end = line.rfind(" : (")?;
        Some(line[start..end].to_owned() + "\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

fn gradients<'t>(x: Tensor<'t>, kernel: Tensor<'t>, options: &ConvOptions) -> Pair<Tensor<'t>> {
    let loss = x.conv(kernel, options).square().sum_all();
    grad(loss, &(Leaf(x), Leaf(kernel)))
}

fn same<'t>(_: &'t Trace, x: Tensor<'t>, kernel: Tensor<'t>) -> Pair<Tensor<'t>> {
    let options = ConvOptions {
        padding: Padding::Same,
        ..ConvOptions::default()
    };
    gradients(x, kernel, &options)
}

#[test]
fn convolution_has_calls_with_sizes() {
    check(
        same,
        expect![[r#"
            stablehlo.custom_call @"halite_convolution"(%arg0, %arg1) {api_version = 4 : i32, has_side_effect = false, backend_config = {"batch" = 8 : i64, "features" = 32 : i64, "outputs" = 64 : i64, "groups" = 1 : i64, "input0" = 16 : i64, "kernel0" = 3 : i64, "stride0" = 1 : i64, "dilation0" = 1 : i64, "low0" = 1 : i64, "high0" = 1 : i64, "input1" = 16 : i64, "kernel1" = 3 : i64, "stride1" = 1 : i64, "dilation1" = 1 : i64, "low1" = 1 : i64, "high1" = 1 : i64}, operand_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>], result_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>]}
            stablehlo.custom_call @"halite_convolution_input_gradient"(%arg1, %1) {api_version = 4 : i32, has_side_effect = false, backend_config = {"batch" = 8 : i64, "features" = 32 : i64, "outputs" = 64 : i64, "groups" = 1 : i64, "input0" = 16 : i64, "kernel0" = 3 : i64, "stride0" = 1 : i64, "dilation0" = 1 : i64, "low0" = 1 : i64, "high0" = 1 : i64, "input1" = 16 : i64, "kernel1" = 3 : i64, "stride1" = 1 : i64, "dilation1" = 1 : i64, "low1" = 1 : i64, "high1" = 1 : i64}, operand_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>], result_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>]}
            stablehlo.custom_call @"halite_convolution_kernel_gradient"(%arg0, %1) {api_version = 4 : i32, has_side_effect = false, backend_config = {"batch" = 8 : i64, "features" = 32 : i64, "outputs" = 64 : i64, "groups" = 1 : i64, "input0" = 16 : i64, "kernel0" = 3 : i64, "stride0" = 1 : i64, "dilation0" = 1 : i64, "low0" = 1 : i64, "high0" = 1 : i64, "input1" = 16 : i64, "kernel1" = 3 : i64, "stride1" = 1 : i64, "dilation1" = 1 : i64, "low1" = 1 : i64, "high1" = 1 : i64}, operand_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>], result_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>]}
        "#]],
    );
}

#[test]
fn strides_of_a_gradient_are_those_of_the_forward_pass() {
    let strided: Body = |_, x, kernel| {
        let options = ConvOptions {
            strides: vec![2, 3],
            padding: Padding::Explicit(vec![(1, 0), (2, 1)]),
            kernel_dilation: vec![1, 2],
            ..ConvOptions::default()
        };
        gradients(x, kernel, &options)
    };
    check(
        strided,
        expect![[r#"
            stablehlo.custom_call @"halite_convolution"(%arg0, %arg1) {api_version = 4 : i32, has_side_effect = false, backend_config = {"batch" = 8 : i64, "features" = 32 : i64, "outputs" = 64 : i64, "groups" = 1 : i64, "input0" = 16 : i64, "kernel0" = 3 : i64, "stride0" = 2 : i64, "dilation0" = 1 : i64, "low0" = 1 : i64, "high0" = 0 : i64, "input1" = 16 : i64, "kernel1" = 3 : i64, "stride1" = 3 : i64, "dilation1" = 2 : i64, "low1" = 2 : i64, "high1" = 0 : i64}, operand_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>], result_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>]}
            stablehlo.custom_call @"halite_convolution_input_gradient"(%arg1, %1) {api_version = 4 : i32, has_side_effect = false, backend_config = {"batch" = 8 : i64, "features" = 32 : i64, "outputs" = 64 : i64, "groups" = 1 : i64, "input0" = 16 : i64, "kernel0" = 3 : i64, "stride0" = 2 : i64, "dilation0" = 1 : i64, "low0" = 1 : i64, "high0" = 0 : i64, "input1" = 16 : i64, "kernel1" = 3 : i64, "stride1" = 3 : i64, "dilation1" = 2 : i64, "low1" = 2 : i64, "high1" = 0 : i64}, operand_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>], result_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>]}
            stablehlo.custom_call @"halite_convolution_kernel_gradient"(%arg0, %1) {api_version = 4 : i32, has_side_effect = false, backend_config = {"batch" = 8 : i64, "features" = 32 : i64, "outputs" = 64 : i64, "groups" = 1 : i64, "input0" = 16 : i64, "kernel0" = 3 : i64, "stride0" = 2 : i64, "dilation0" = 1 : i64, "low0" = 1 : i64, "high0" = 0 : i64, "input1" = 16 : i64, "kernel1" = 3 : i64, "stride1" = 3 : i64, "dilation1" = 2 : i64, "low1" = 2 : i64, "high1" = 0 : i64}, operand_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>], result_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>]}
        "#]],
    );
}

/// Targets of the calls of a program, in order, and the attributes of all of them that are not those of
/// a plain convolution.
fn calls(kernels: Kernels, x: [usize; 4], kernel: [usize; 4], options: ConvOptions) -> Vec<String> {
    let function = Function::<_, Pair<()>, Pair<()>>::stateless(move |_, inputs| {
        let (Leaf(x), Leaf(kernel)) = inputs;
        gradients(x, kernel, &options)
    });
    let ty = |dims: [usize; 4]| Leaf(ShardedType::replicated(TensorType::new(DType::F32, dims)));
    let mut capabilities = COMPILER;
    capabilities.kernels = kernels;
    let mesh = MeshShape::single();
    let inputs = (ty(x), ty(kernel));
    let lowered = lower(&function, &Empty::new(), &inputs, &mesh, &capabilities).unwrap();
    let text = String::from_utf8(lowered.program.code.bytes().to_vec()).unwrap();
    assert_eq!(
        text.matches("stablehlo.convolution").count() + text.matches("@\"halite").count(),
        3
    );
    let calls = text.lines().filter_map(|line| {
        let (_, call) = line.split_once("custom_call @\"halite_convolution")?;
        let target = call.split('"').next()?;
        let value = |name: &str| Some(call.split_once(name)?.1.split(' ').next()?.to_owned());
        let groups = value("\"groups\" = ")?;
        let dilation = value("\"input_dilation0\" = ").unwrap_or_default();
        Some(format!("convolution{target} {groups} {dilation}"))
    });
    calls.collect()
}

#[test]
fn convolutions_in_groups_have_calls() {
    let options = ConvOptions {
        groups: 8,
        padding: Padding::Same,
        ..ConvOptions::default()
    };
    let calls = calls(Kernels::All, [2, 9, 9, 16], [3, 3, 2, 24], options);
    let expected = ["", "_input_gradient", "_kernel_gradient"];
    assert_eq!(calls, expected.map(|kind| format!("convolution{kind} 8 ")));
}

#[test]
fn transposed_convolutions_have_calls() {
    let options = ConvOptions {
        input_dilation: vec![2; 2],
        padding: Padding::Explicit(vec![(2, 2); 2]),
        ..ConvOptions::default()
    };
    let calls = calls(Kernels::All, [2, 7, 7, 16], [4, 4, 16, 8], options);
    let expected = ["", "_input_gradient", "_kernel_gradient"];
    assert_eq!(calls, expected.map(|kind| format!("convolution{kind} 1 2")));
}

#[test]
fn depthwise_convolutions_call_the_faster_kernels() {
    let options = ConvOptions {
        groups: 32,
        padding: Padding::Same,
        ..ConvOptions::default()
    };
    let calls = calls(Kernels::On, [16, 16, 16, 32], [7, 7, 1, 32], options);
    assert_eq!(calls.len(), 3, "{calls:?}");
}

#[test]
fn programs_of_several_devices_have_no_calls() {
    let compiler = text(&COMPILER, 8, same);
    assert_eq!(text(&KERNELS, 8, same), compiler);
    assert!(!compiler.contains("custom_call"), "{compiler}");
}

#[test]
fn bodies_of_shard_maps_have_calls() {
    let by_device: Body = |cx, x, kernel| {
        let mesh = Mesh::new([("data", 8)], (0..8).map(DeviceId)).unwrap();
        let inputs = [spec("(data)"), spec("()")];
        let outputs = inputs.clone();
        let results = cx.shard_map(&mesh, &[x, kernel], &inputs, &outputs, |shards| {
            let (Leaf(dx), Leaf(dk)) = same(cx, shards[0], shards[1]);
            vec![dx, dk.all_reduce(Reduction::Sum, "data")]
        });
        (Leaf(results[0]), Leaf(results[1]))
    };
    let text = text(&KERNELS, 8, by_device);
    assert!(
        text.contains("custom_call @\"halite_convolution_kernel_gradient\""),
        "{text}"
    );
    assert!(text.contains("batch\" = 1 : i64"), "{text}");
}

#[test]
fn bodies_of_loops_have_calls() {
    let steps: Body = |cx, x, kernel| {
        cx.repeat(3, (Leaf(x), Leaf(kernel)), |_, (Leaf(x), Leaf(kernel))| {
            same(cx, x, kernel)
        })
    };
    let text = text(&KERNELS, 1, steps);
    assert!(
        text.contains("custom_call @\"halite_convolution_kernel_gradient\""),
        "{text}"
    );
}

#[test]
fn f16_convolutions_stay() {
    let narrow: Body = |_, x, kernel| {
        let (Leaf(dx), Leaf(dk)) = gradients(
            x.convert(DType::F16),
            kernel.convert(DType::F16),
            &ConvOptions::default(),
        );
        (Leaf(dx), Leaf(dk))
    };
    assert_eq!(text(&KERNELS, 1, narrow), text(&COMPILER, 1, narrow));
}
