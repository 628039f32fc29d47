//! Interfaces: types, shards and donated inputs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use expect_test::{Expect, expect};
use halite_core::{DType, ErrorKind, HloSharding, TensorType};
use halite_stablehlo::{Attribute, BinaryOp, ElementType, Module, OpKind, ShardyMesh};

use crate::programs::{
    program::{Edit, on, program, wrapped},
    valid,
};

/// An addition of tensors of 8 by 6 elements.
fn addition() -> Module {
    program(OpKind::Binary(BinaryOp::Add), "8x6xf32 8x6xf32", "8x6xf32")
}

/// The addition on 8 partitions, with this `mhlo.sharding` of its first input.
fn gspmd(text: &str) -> Module {
    let mut module = on(addition(), 8, 1);
    module.main_mut().input_attributes[0].push("mhlo.sharding", Attribute::Str(text.into()));
    module
}

/// The addition on a mesh of `x` 4 and `y` 2, with this sharding of its first input.
fn shardy(dims: &[&str]) -> Module {
    let mut module = valid::with_mesh(addition());
    let sharding = Attribute::Sharding(valid::sharding(dims));
    module.main_mut().input_attributes[0].push("sdy.sharding", sharding);
    module
}

fn first_sharding(module: &Module) -> Option<HloSharding> {
    module.interface().unwrap().inputs.swap_remove(0).sharding
}

#[track_caller]
fn check_sharding(module: &Module, expected: Expect) {
    let sharding = first_sharding(module).expect("a sharding");
    expected.assert_eq(&sharding.to_string());
}

#[track_caller]
fn refused(module: &Module, kind: ErrorKind, expected: Expect) {
    let error = module.interface().expect_err("the interface is refused");
    assert_eq!(error.kind(), kind);
    expected.assert_eq(&wrapped(&error.to_string()));
}

#[test]
fn interface_has_the_types_of_main() {
    let interface = addition().interface().unwrap();
    let ty = TensorType::new(DType::F32, [8, 6]);
    assert_eq!(&*interface.name, "test");
    assert_eq!((interface.partitions, interface.replicas), (1, 1));
    let signature = interface.signature();
    assert_eq!(signature.inputs, [ty.clone(), ty.clone()]);
    assert_eq!(signature.outputs, [ty]);
    assert_eq!(signature.donated, [0usize; 0]);
    assert_eq!(interface.inputs[0].sharding, None);
    let program = interface.program(&b"code"[..]);
    assert_eq!(program.signature, signature);
    assert_eq!(program.devices(), 1);
}

#[test]
fn types_without_arrays_are_refused() {
    refused(
        &program(OpKind::Convert, "2xf6E2M3FN", "2xf32"),
        ErrorKind::Unsupported,
        expect![[r#"
            program: input 0 of `main`: tensor<2xf6E2M3FN> is not a type of arrays of a
            client; convert it inside of the program"#]],
    );
    refused(
        &valid::tuple(),
        ErrorKind::Unsupported,
        expect![[r#"
        program: input 1 of `main`: !stablehlo.token is not a type of arrays of a
        client; convert it inside of the program"#]],
    );
}

#[test]
fn donated_inputs_are_listed() {
    let donor = |name: &str, value: Attribute| {
        let mut module = addition();
        module.main_mut().input_attributes[1].push(name, value);
        module
    };
    let index = |output| Attribute::Int(output, ElementType::S32);
    let donated = |module: Module| module.interface().unwrap().donated;
    assert_eq!(donated(donor("tf.aliasing_output", index(0))), [1]);
    assert_eq!(
        donated(donor("jax.buffer_donor", Attribute::Bool(true))),
        [1]
    );
    assert_eq!(
        donated(donor("jax.buffer_donor", Attribute::Bool(false))),
        [0usize; 0]
    );
    refused(
        &donor("tf.aliasing_output", index(1)),
        ErrorKind::InvalidArgument,
        expect![[r#"
            program: input 1 of `main`: `tf.aliasing_output` is 1; it must be the index of
            an output, below 1"#]],
    );
    refused(
        &donor("tf.aliasing_output", Attribute::Unit),
        ErrorKind::InvalidArgument,
        expect!["program: input 1 of `main`: `tf.aliasing_output` is Unit; it must be an integer"],
    );
    let mut twice = donor("tf.aliasing_output", index(0));
    twice.main_mut().input_attributes[0].push("tf.aliasing_output", index(0));
    refused(
        &twice,
        ErrorKind::InvalidArgument,
        expect!["program: input 1 of `main`: output 0 reuses the memory of another input, too"],
    );
}

#[test]
fn shardy_axes_split_dimensions() {
    check_sharding(
        &shardy(&["x", "y"]),
        expect!["in [4, 2] parts, by device [0, 1, 2, 3, 4, 5, 6, 7]"],
    );
    check_sharding(
        &shardy(&["y", ""]),
        expect!["in [2, 1] parts, by device [0, 1, 0, 1, 0, 1, 0, 1]"],
    );
    check_sharding(
        &shardy(&["", ""]),
        expect!["in [1, 1] parts, by device [0, 0, 0, 0, 0, 0, 0, 0]"],
    );
    let shard = &shardy(&["x", "y"]).interface().unwrap().inputs[0].shard;
    assert_eq!(shard.dims(), [2, 3]);
}

#[test]
fn parts_of_axes_split_dimensions() {
    let part = |part| {
        let mut module = valid::with_mesh(addition());
        let mut sharding = valid::sharding(&["x", ""]);
        sharding.dims[0].axes[0].part = Some(part);
        let attribute = Attribute::Sharding(sharding);
        module.main_mut().input_attributes[0].push("sdy.sharding", attribute);
        module
    };
    check_sharding(
        &part((1, 2)),
        expect!["in [2, 1] parts, by device [0, 0, 0, 0, 1, 1, 1, 1]"],
    );
    check_sharding(
        &part((2, 2)),
        expect!["in [2, 1] parts, by device [0, 0, 1, 1, 0, 0, 1, 1]"],
    );
}

#[test]
fn meshes_place_partitions() {
    let mut module = shardy(&["x", ""]);
    module.meshes[0].devices = vec![7, 6, 5, 4, 3, 2, 1, 0];
    check_sharding(
        &module,
        expect!["in [4, 1] parts, by device [3, 3, 2, 2, 1, 1, 0, 0]"],
    );
    let mut small = shardy(&["y", ""]);
    small.meshes[0].axes.remove(0);
    refused(
        &small,
        ErrorKind::Unsupported,
        expect![[r#"
        program: input 0 of `main`: mesh `mesh` has 2 devices; it must have all 8
        partitions"#]],
    );
    let mut placed = shardy(&["", ""]);
    placed.meshes[0] = ShardyMesh {
        name: "mesh".into(),
        axes: Vec::new(),
        devices: vec![3],
    };
    refused(
        &placed,
        ErrorKind::Unsupported,
        expect![[r#"
        program: input 0 of `main`: mesh `mesh` has one device; it must have all 8
        partitions"#]],
    );
}

#[test]
fn uneven_shards_are_refused() {
    refused(
        &shardy(&["", "x"]),
        ErrorKind::InvalidArgument,
        expect![[r#"
        program: input 0 of `main`: f32[8, 6] is split into [1, 4] parts; each
        dimension must be a multiple of its parts"#]],
    );
    refused(
        &gspmd("{devices=[1,8]<=[8]}"),
        ErrorKind::InvalidArgument,
        expect![[r#"
            program: input 0 of `main`: f32[8, 6] is split into [1, 8] parts; each
            dimension must be a multiple of its parts"#]],
    );
}

#[test]
fn gspmd_shardings_are_read() {
    check_sharding(
        &gspmd("{devices=[4,2]<=[8]}"),
        expect!["in [4, 2] parts, by device [0, 1, 2, 3, 4, 5, 6, 7]"],
    );
    check_sharding(
        &gspmd("{devices=[2,2,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
        expect!["in [2, 2] parts, by device [0, 1, 2, 3, 0, 1, 2, 3]"],
    );
    check_sharding(
        &gspmd("{devices=[8,1]7,6,5,4,3,2,1,0}"),
        expect!["in [8, 1] parts, by device [7, 6, 5, 4, 3, 2, 1, 0]"],
    );
    check_sharding(
        &gspmd("{devices=[4,1,2]<=[8] last_tile_dims={replicated}}"),
        expect!["in [4, 1] parts, by device [0, 0, 1, 1, 2, 2, 3, 3]"],
    );
    check_sharding(
        &gspmd("{replicated}"),
        expect!["in [1, 1] parts, by device [0, 0, 0, 0, 0, 0, 0, 0]"],
    );
    assert_eq!(first_sharding(&gspmd("{unknown}")), None);
}

#[test]
fn other_gspmd_shardings_are_refused() {
    refused(
        &gspmd("{manual}"),
        ErrorKind::Unsupported,
        expect![[r#"
        program: input 0 of `main`: `mhlo.sharding` is `{manual}`; inputs and outputs
        must be split over all partitions"#]],
    );
    refused(
        &gspmd("{maximal device=3}"),
        ErrorKind::Unsupported,
        expect![[r#"
            program: input 0 of `main`: `mhlo.sharding` is `{maximal device=3}`; inputs and
            outputs must be split over all partitions"#]],
    );
    refused(
        &gspmd("{devices=[4]<=[8]}"),
        ErrorKind::InvalidArgument,
        expect![[r#"
            program: input 0 of `main`: `mhlo.sharding` is `{devices=[4]<=[8]}`; it must be
            such as `{devices=[2,1]<=[2]}`, for 2 dimensions and 8 partitions"#]],
    );
    for text in [
        "",
        "{",
        "{}",
        "replicated",
        "{devices=[8,1]<=[4]}",
        "{devices=[8,1]0,1,2,3,4,5,6,6}",
        "{devices=[8,1]<=[2,4]T(0,2)}",
        "{devices=[8,1]<=[8]T(}",
        "{devices=[0,1]}",
        "{devices=[99999999999999999999,1]<=[8]}",
        "{devices=[9223372036854775807,9223372036854775807]<=[8]}",
        "{devices=[8,1,1]<=[8] last_tile_dims={manual}}",
    ] {
        let error = gspmd(text).interface().expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
    }
}

#[test]
fn partitions_are_bounded() {
    let huge = on(addition(), i64::MAX, 1);
    refused(
        &huge,
        ErrorKind::InvalidArgument,
        expect![[r#"
        program: it has 9223372036854775807 partitions in each of 1 replicas; their
        product must not exceed 1048576"#]],
    );
}

/// A program on the most devices, with these attributes of its inputs.
fn on_most_devices(meshes: &str, inputs: &[String]) -> Module {
    let inputs: Vec<_> = (inputs.iter().enumerate())
        .map(|(index, attributes)| format!("%a{index}: tensor<8xf32> {{{attributes}}}"))
        .collect();
    let (devices, inputs) = (Module::MAX_DEVICES, inputs.join(", "));
    let text = format!(
        "module @m attributes {{mhlo.num_partitions = {devices} : i32}} {{
           {meshes}
           func.func @main({inputs}) -> tensor<8xf32> {{ return %a0 : tensor<8xf32> }}
         }}"
    );
    Module::parse(&text).unwrap()
}

#[test]
fn equal_shardings_are_expanded_once() {
    let sharding = "mhlo.sharding = \"{devices=[1,1048576]<=[1048576] last_tile_dim_replicate}\"";
    let module = on_most_devices("", &vec![sharding.to_owned(); 1000]);
    let inputs = module.interface().unwrap().inputs;
    let devices = |index: usize| &inputs[index].sharding.as_ref().unwrap().of_device;
    assert!(Arc::ptr_eq(devices(0), devices(999)));
}

#[test]
fn too_many_shards_are_refused() {
    let sharding = |size: usize| {
        let rest = Module::MAX_DEVICES / size;
        format!(
            "mhlo.sharding = \"{{devices=[1,{size},{rest}]<=[1048576] \
             last_tile_dims={{replicated, replicated}}}}\""
        )
    };
    let shardings: Vec<_> = (0..9).map(|power| sharding(1 << power)).collect();
    on_most_devices("", &shardings[..8]).interface().unwrap();
    refused(
        &on_most_devices("", &shardings),
        ErrorKind::Unsupported,
        expect![[r#"
            program: input 8 of `main`: 9 different shardings of 1048576 partitions; at
            most 8 are supported"#]],
    );
}

#[test]
fn axes_of_one_device_cost_nothing() {
    let names: Vec<_> = (0..60).map(|index| format!("\"a{index}\"")).collect();
    let axes: Vec<_> = names.iter().map(|name| format!("{name}=1")).collect();
    let mesh = format!("sdy.mesh @mesh = <[\"x\"=1048576, {}]>", axes.join(", "));
    let shardy = format!(
        "sdy.sharding = #sdy.sharding<@mesh, [{{{}}}]>",
        names.join(", ")
    );
    let ones = "1,".repeat(60);
    let gspmd = format!(
        "mhlo.sharding = \"{{devices=[1,1048576]<=[{ones}1048576] last_tile_dim_replicate}}\""
    );
    let transposed: Vec<_> = (0..61).rev().map(|dim| dim.to_string()).collect();
    let transposed = gspmd.replace("] last", &format!("]T({}) last", transposed.join(",")));
    let started = Instant::now();
    for (mesh, sharding) in [(&*mesh, shardy), ("", gspmd), ("", transposed)] {
        let sharding = first_sharding(&on_most_devices(mesh, &[sharding])).unwrap();
        assert_eq!(sharding.parts, [1]);
        assert!(sharding.of_device.iter().all(|&shard| shard == 0));
    }
    assert!(started.elapsed() < Duration::from_secs(5));
}
