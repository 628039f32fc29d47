//! Portable artifacts that JAX made (`data/make_artifacts.py`), read and written.

use std::{fmt::Write, fs, path::PathBuf};

use expect_test::{Expect, expect};
use halite_core::ErrorKind;
use halite_stablehlo::{
    Attribute, ElementType, Module, OpKind, Region, ShardySharding, ValueId, Version,
};

const CURRENT: Version = Version::new(1, 17, 0);

fn artifact(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    fs::read(path.join(format!("{name}.mlir.bc"))).unwrap()
}

fn module(name: &str) -> Module {
    Module::from_bytecode(&artifact(name)).unwrap()
}

/// The artifacts of the current version.
const PROGRAMS: [&str; 8] = [
    "constants.1.17.0",
    "control_flow.1.17.0",
    "convolution.1.17.0",
    "custom_call.1.17.0",
    "gather_scatter.1.17.0",
    "shard_map.1.17.0",
    "sharded.1.17.0",
    "training_step.1.17.0",
];

/// One line for each operation: `2 3 = add(0, 1) [4] {..}`.
fn summary(module: &Module) -> String {
    let mut text = String::new();
    for function in &module.functions {
        writeln!(text, "{}{:?}", function.name, ids(&function.body.arguments)).unwrap();
        region(&function.body, 1, &mut text);
    }
    text
}

fn ids(values: &[ValueId]) -> Vec<u32> {
    values.iter().map(|value| value.0).collect()
}

fn region(region: &Region, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for operation in &region.operations {
        let (name, _) = operation.kind.to_attributes();
        let (operands, results) = (ids(&operation.operands), ids(&operation.results));
        writeln!(text, "{indent}{results:?} = {name}{operands:?}").unwrap();
        for nested in &operation.regions {
            writeln!(text, "{indent}  region{:?}", ids(&nested.arguments)).unwrap();
            self::region(nested, depth + 2, text);
        }
    }
    writeln!(text, "{indent}return{:?}", ids(&region.results)).unwrap();
}

/// The axes of each dimension: `{x}, {}`.
fn dims(sharding: &ShardySharding) -> String {
    let dims = sharding.dims.iter().map(|dim| {
        let names: Vec<_> = dim.axes.iter().map(|axis| axis.name.as_str()).collect();
        format!("{{{}}}", names.join(" "))
    });
    dims.collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(name: &str, expected: Expect) {
    expected.assert_eq(&summary(&module(name)));
}

#[test]
fn every_program_is_read_as_written() {
    for name in PROGRAMS {
        let written = module(name).to_bytecode(CURRENT).unwrap();
        let again = Module::from_bytecode(&written).unwrap();
        assert_eq!(summary(&again), summary(&module(name)), "{name}");
        assert_eq!(again.attributes, module(name).attributes, "{name}");
        assert_eq!(again.meshes, module(name).meshes, "{name}");
        assert_eq!(again.to_bytecode(CURRENT).unwrap(), written, "{name}");
    }
}

#[test]
fn old_versions_are_the_same_program() {
    let current = |name| module(name).to_bytecode(CURRENT).unwrap();
    let step = current("training_step.1.17.0");
    assert_eq!(current("training_step.1.0.0"), step);
    assert_eq!(current("training_step.0.9.0"), step);
    assert_eq!(
        current("gather_scatter.1.1.0"),
        current("gather_scatter.1.17.0")
    );
}

#[test]
fn program_of_an_old_version_is_the_same() {
    let program = module("training_step.1.17.0");
    let written = program.to_bytecode(Version::new(1, 0, 0)).unwrap();
    let again = Module::from_bytecode(&written).unwrap();
    assert_eq!(
        again.to_bytecode(CURRENT).unwrap(),
        program.to_bytecode(CURRENT).unwrap()
    );
}

#[test]
fn regions_use_values_around_them() {
    check(
        "control_flow.1.17.0",
        expect![[r#"
        main[0, 1]
          [2] = constant[]
          [3] = constant[]
          [4] = constant[]
          [5] = constant[]
          [6] = constant[]
          [7] = constant[]
          [8] = constant[]
          [23, 24, 25, 26, 27] = while[1, 0, 8, 8, 0]
            region[9, 10, 11, 12, 13]
              [14] = compare[11, 7]
              return[14]
            region[15, 16, 17, 18, 19]
              [20, 21] = func.call[15, 16, 18, 19]
              [22] = add[17, 6]
              return[15, 16, 22, 20, 21]
          [28] = clamp[5, 1, 4]
          [31] = case[28]
            region[]
              return[0]
            region[]
              [29] = cosine[0]
              return[29]
            region[]
              [30] = multiply[0, 27]
              return[30]
          [32] = slice[31]
          [33] = reshape[32]
          [34] = broadcast_in_dim[3]
          [49, 50, 51, 52] = while[27, 8, 33, 34]
            region[35, 36, 37, 38]
              [39] = compare[36, 2]
              return[39]
            region[40, 41, 42, 43]
              [44] = func.call[40, 41]
              [45, 46] = func.call[42, 44]
              [47] = func.call[43, 46, 41]
              [48] = add[41, 6]
              return[40, 48, 45, 47]
          return[51, 52]
        closed_call[0, 1, 2, 3]
          [4] = constant[]
          [5] = add[2, 4]
          [6] = convert[2]
          [7] = compare[6, 0]
          [8] = convert[7]
          [11] = case[8]
            region[]
              [9] = sine[3]
              return[9]
            region[]
              [10] = add[3, 1]
              return[10]
          return[5, 11]
        dynamic_index_in_dim[0, 1]
          [2] = constant[]
          [3] = dynamic_slice[0, 1, 2]
          [4] = reshape[3]
          return[4]
        closed_call_0[0, 1]
          [2] = add[0, 1]
          return[2, 0]
        dynamic_update_index_in_dim[0, 1, 2]
          [3] = constant[]
          [4] = broadcast_in_dim[1]
          [5] = dynamic_update_slice[0, 4, 2, 3]
          return[5]
    "#]],
    );
}

#[test]
fn manual_computation_has_its_shardings() {
    check(
        "shard_map.1.17.0",
        expect![[r#"
        main[0, 1]
          [10, 11] = sdy.manual_computation[0, 1]
            region[2, 3]
              [4] = dot_general[2, 3]
              [8] = all_reduce[4]
                region[5, 6]
                  [7] = add[5, 6]
                  return[7]
              [9] = collective_permute[3]
              return[8, 9]
          return[10, 11]
    "#]],
    );
    let module = module("shard_map.1.17.0");
    assert_eq!(module.meshes[0].axes, [("x".into(), 4), ("y".into(), 2)]);
    let operations = &module.main().unwrap().body.operations;
    let OpKind::ManualComputation(manual) = &operations[0].kind else {
        panic!("{:?}", operations[0].kind);
    };
    let dims = |shardings: &[ShardySharding]| shardings.iter().map(dims).collect::<Vec<_>>();
    assert_eq!(dims(&manual.inputs), ["{x}, {y}", "{y}, {}"]);
    assert_eq!(dims(&manual.outputs), ["{x}, {}", "{x y}, {}"]);
    assert_eq!(manual.axes.len(), 2);
}

#[test]
fn sharding_constraint_has_its_axes() {
    let module = module("sharded.1.17.0");
    let operations = &module.main().unwrap().body.operations;
    let constraint = operations
        .iter()
        .find_map(|operation| match &operation.kind {
            OpKind::ShardingConstraint(sharding) => Some(sharding),
            _ => None,
        });
    assert_eq!(dims(constraint.unwrap()), "{}, {x y}");
}

#[test]
fn constants_of_every_element_type_are_read() {
    let module = module("constants.1.17.0");
    let mut text = String::new();
    for operation in &module.main().unwrap().body.operations {
        if let OpKind::Constant(dense) = &operation.kind {
            let bytes: String = dense
                .bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            writeln!(text, "{} {bytes}", dense.ty).unwrap();
        }
    }
    expect![[r#"
        tensor<i64> 0000000000000000
        tensor<i64> 0200000000000000
        tensor<3xi1> 000101
        tensor<3xi2> 0001ff
        tensor<3xi4> 0001ff
        tensor<3xi8> 0001ff
        tensor<3xi16> 00000100ffff
        tensor<3xi32> 0000000001000000ffffffff
        tensor<3xi64> 00000000000000000100000000000000ffffffffffffffff
        tensor<3xui2> 000103
        tensor<3xui4> 000103
        tensor<3xui8> 000103
        tensor<3xui16> 000001000300
        tensor<3xui32> 000000000100000003000000
        tensor<3xui64> 000000000000000001000000000000000300000000000000
        tensor<3xf4E2M1FN> 00020a
        tensor<3xf8E3M4> 0030b0
        tensor<3xf8E4M3> 0038b8
        tensor<3xf8E4M3FN> 0038b8
        tensor<3xf8E4M3FNUZ> 0040c0
        tensor<3xf8E4M3B11FNUZ> 0058d8
        tensor<3xf8E5M2> 003cbc
        tensor<3xf8E5M2FNUZ> 0040c0
        tensor<3xf8E8M0FNU> ff7fff
        tensor<3xbf16> 0000803f80bf
        tensor<3xf16> 0000003c00bc
        tensor<3xf32> 000000000000803f000080bf
        tensor<3xf64> 0000000000000000000000000000f03f000000000000f0bf
        tensor<3xcomplex<f32>> 00000000000000000000803f00000000000080bf00000000
        tensor<3xcomplex<f64>> 00000000000000000000000000000000000000000000f03f0000000000000000000000000000f0bf0000000000000000
        tensor<i1> 01
    "#]].assert_eq(&text);
}

#[test]
fn custom_call_has_its_layouts() {
    let module = module("custom_call.1.17.0");
    let mut calls = module
        .functions
        .iter()
        .flat_map(|function| &function.body.operations);
    let call = calls.find_map(|operation| match &operation.kind {
        OpKind::CustomCall(call) => Some(call),
        _ => None,
    });
    let call = call.unwrap();
    assert_eq!(call.target, "lapack_ssyevd_ffi");
    let Some(Attribute::Array(layouts)) = &call.operand_layouts else {
        panic!("{:?}", call.operand_layouts);
    };
    assert!(
        matches!(&layouts[0], Attribute::Dense(layout) if layout.ty.element == ElementType::S64)
    );
}

#[test]
fn operations_have_their_source_lines() {
    let module = module("training_step.1.17.0");
    let operations = &module.main().unwrap().body.operations;
    let line = operations
        .iter()
        .find_map(|operation| operation.location.as_deref());
    assert_eq!(line.unwrap().file, "make_artifacts.py");
}

#[test]
fn inputs_have_their_attributes() {
    let module = module("training_step.1.17.0");
    let main = module.main().unwrap();
    let donated = main.input_attributes[0].get("tf.aliasing_output");
    assert_eq!(donated, Some(&Attribute::Int(1, ElementType::S32)));
    assert_eq!(module.partitions(), 1);
}

#[test]
fn every_truncation_is_an_error_with_its_offset() {
    let bytes = artifact("control_flow.1.17.0");
    for length in 0..bytes.len() {
        let error = Module::from_bytecode(&bytes[..length]).unwrap_err();
        assert!(error.message().starts_with("byte "), "{length}: {error}");
    }
}

#[test]
fn feature_of_a_newer_version_is_refused_by_name() {
    let refused =
        |name: &str, version: Version| module(name).to_bytecode(version).unwrap_err().to_string();
    expect!["bytecode: a mesh of Shardy needs StableHLO 1.11.0 or newer; asked for 1.10.0"]
        .assert_eq(&refused("shard_map.1.17.0", Version::new(1, 10, 0)));
    expect!["bytecode: `gather` with `operand_batching_dims` needs StableHLO 1.1.0 or newer; asked for 1.0.0"].assert_eq(&refused("gather_scatter.1.17.0", Version::new(1, 0, 0)));
    expect!["bytecode: the element type i2 needs StableHLO 1.2.0 or newer; asked for 1.1.0"]
        .assert_eq(&refused("constants.1.17.0", Version::new(1, 1, 0)));
    expect!["bytecode: artifacts of StableHLO 2.0.0 are not written; expected 1.0.0 to 1.17.0"]
        .assert_eq(&refused("training_step.1.17.0", Version::new(2, 0, 0)));
}

#[test]
fn newer_artifact_is_refused() {
    let mut bytes = artifact("training_step.1.17.0");
    let at = bytes
        .windows(4)
        .position(|window| window == b"1.17")
        .unwrap();
    bytes[at..at + 4].copy_from_slice(b"9.17");
    let error = Module::from_bytecode(&bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    expect!["bytecode: byte 5: StableHLO 9.17.0; versions up to 1.20.0 are known: serialize the program for one of them"].assert_eq(&error.to_string());
}

#[test]
fn native_bytecode_is_refused_with_a_remedy() {
    let error = Module::from_bytecode(&artifact("native")).unwrap_err();
    expect!["bytecode: byte 193: `func.func` is not an operation of portable artifacts, which have the dialect VHLO; serialize the program as one (in JAX: `jax.export`), or pass its text"].assert_eq(&error.to_string());
}

#[test]
fn bytes_without_magic_number_are_refused() {
    expect![[r#"bytecode: byte 0: not MLIR bytecode, which starts with `ML\xEFR`"#]]
        .assert_eq(&Module::from_bytecode(b"module {}").unwrap_err().to_string());
}
