//! Compilation: programs, signatures and options that are rejected before or by the compiler.

use halite_core::{
    Arg, Backend, CompileOptions, DType, DeviceId, ErrorKind, Executable, FlagValue, Program,
    Result,
};
use halite_pjrt::{Pjrt, PjrtExecutable};

use crate::common::{self, *};

#[test]
fn wrong_signature_is_refused() {
    let client = cpu(1);
    let code = std::str::from_utf8(add(4, false).code.bytes())
        .unwrap()
        .to_owned();
    let four = || f32s(&[4]);
    for (inputs, outputs, expected) in [
        (
            vec![four()],
            vec![four()],
            "the program has 2 arguments, its signature has 1",
        ),
        (
            vec![four(), four()],
            vec![],
            "the program has 1 results, its signature has 0",
        ),
        (
            vec![four(), four()],
            vec![four(), four()],
            "the program has 1 results, its signature has 2",
        ),
        (
            vec![four(), ty(DType::S32, &[4])],
            vec![four()],
            "argument 1 of the program is f32[4] on each device, its signature has s32[4]",
        ),
        (
            vec![four(), four()],
            vec![f32s(&[2, 2])],
            "result 0 of the program is f32[4] on each device, its signature has f32[2, 2]",
        ),
    ] {
        let error = client
            .compile(
                &program(&code, &inputs, &outputs, &[]),
                &CompileOptions::default(),
            )
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.message(), format!("`test`: {expected}"));
    }
    for donated in [&[2][..], &[1, 0], &[0, 0]] {
        let wrong = program(&code, &[four(), four()], &[four()], donated);
        let error = client
            .compile(&wrong, &CompileOptions::default())
            .unwrap_err();
        assert!(
            error
                .message()
                .contains("are not ascending indices of 2 inputs"),
            "{error}"
        );
    }
}

#[test]
fn compile_error_has_the_compilers_message() {
    let client = cpu(1);
    for (code, expected) in [
        ("", "has no code"),
        ("garbage", "custom op 'garbage' is unknown"),
        ("module @m { }", "main"),
        (
            "func.func public @main(%a: tensor<4xf32>) -> tensor<5xf32> { return %a : \
             tensor<4xf32> }",
            "doesn't match function result type",
        ),
        (
            "func.func public @main() -> tensor<4xf32> {
               %0 = stablehlo.custom_call @nobody_wrote_this() {api_version = 4 : i32} : () -> tensor<4xf32>
               return %0 : tensor<4xf32> }",
            "nobody_wrote_this",
        ),
    ] {
        let error = client.compile(&program(code, &[], &[], &[]), &CompileOptions::default()).unwrap_err();
        assert!(error.message().starts_with("`test`: \
         ") && error.message().contains(expected), "{code}: {error}");
    }
    let error = client
        .compile(
            &program("garbage", &[], &[], &[]),
            &CompileOptions::default(),
        )
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    // Bytes that are not text, as text and as bytecode.
    for bytes in [
        &[0u8, 255, 254, 3][..],
        b"ML\xefR\x06StableHLO_v1.0.0\x00",
        b"\xff\xff\xff\xff",
    ] {
        let mut wrong = program("", &[], &[], &[]);
        wrong.code = bytes.into();
        client
            .compile(&wrong, &CompileOptions::default())
            .unwrap_err();
    }
}

/// Compiles `program` for devices with flags.
fn compile_with(
    client: &Pjrt,
    program: &Program,
    devices: &[u32],
    flags: &[(&str, FlagValue)],
) -> Result<PjrtExecutable> {
    let flags = flags
        .iter()
        .map(|(name, value)| (name.to_string(), value.clone()));
    let options = CompileOptions {
        devices: devices.iter().map(|&id| DeviceId(id)).collect(),
        flags: flags.collect(),
    };
    client.compile(program, &options)
}

#[test]
fn unknown_or_too_many_devices_are_refused() {
    let client = cpu(2);
    for (devices, expected) in [
        (&[2][..], "unknown device 2; expected one of [0, 1]"),
        (
            &[0, 1],
            "needs 1 devices (1 replicas of 1 partitions), 2 were given",
        ),
    ] {
        let error = compile_with(&client, &add(4, false), devices, &[]).unwrap_err();
        assert_eq!(error.message(), format!("`test`: {expected}"));
    }
}

#[test]
fn invalid_compiler_flags_are_refused() {
    let client = cpu(1);
    for (flag, value, expected) in [
        (
            "--xla_dump_to",
            FlagValue::Str("x".into()),
            "write the name without leading dashes",
        ),
        (
            "bogus",
            FlagValue::Bool(true),
            "No such compile option: 'bogus'",
        ),
        (
            "xla_backend_optimization_level",
            FlagValue::Str("abc".into()),
            "not a valid int32",
        ),
    ] {
        let error = compile_with(&client, &add(4, false), &[0], &[(flag, value)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(expected), "{flag}: {error}");
    }
}

#[test]
fn compiler_flags_of_every_type_are_taken() {
    let client = cpu(2);
    let flags = [
        (
            "xla_cpu_experimental_ynn_fusion_type",
            FlagValue::Str(String::new()),
        ),
        ("xla_backend_optimization_level", FlagValue::Int(0)),
        ("xla_cpu_enable_fast_math", FlagValue::Bool(false)),
    ];
    let add = compile_with(&client, &add(4, false), &[1], &flags).unwrap();
    assert_eq!(add.devices(), [DeviceId(1)]);
    let a = upload(&client, &[1.0f32; 4], &[4], 1);
    assert_eq!(
        read::<f32>(&run(&add, vec![Arg::Borrow(&a), Arg::Borrow(&a)]).unwrap()[0]),
        [2.0; 4]
    );
}

#[test]
fn one_dnn_is_refused_for_programs_with_convolutions() {
    let client = cpu(1);
    let code = "func.func public @main(%a: tensor<1x4x4x1xf32>, %b: tensor<1x1x1x1xf32>) -> \
     tensor<1x4x4x1xf32> {
        %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
            window = {stride = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (tensor<1x4x4x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x4x4x1xf32>
        return %0 : tensor<1x4x4x1xf32> }";
    let (image, kernel) = (f32s(&[1, 4, 4, 1]), f32s(&[1, 1, 1, 1]));
    let convolution = common::program(code, &[image.clone(), kernel], &[image], &[]);
    let one_dnn = |program: &Program, on: bool| {
        let flag = ("xla_cpu_use_onednn", FlagValue::Bool(on));
        compile_with(&client, program, &[0], &[flag])
    };
    let error = one_dnn(&convolution, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error
            .message()
            .contains("`xla_cpu_use_onednn` on a program with convolutions can end the process"),
        "{error}"
    );
    one_dnn(&convolution, false).unwrap();
    one_dnn(&add(4, false), true).unwrap();
}

#[test]
fn impossible_numbers_of_devices_are_refused() {
    let client = cpu(2);
    let refused = |replicas, partitions| {
        let program = Program {
            replicas,
            partitions,
            ..add(4, false)
        };
        let options = CompileOptions::default();
        client
            .compile(&program, &options)
            .unwrap_err()
            .message()
            .to_string()
    };
    assert!(refused(1, 0).contains("at least 1 device"));
    assert_eq!(
        refused(1, 3),
        "`test`: needs 3 devices (1 replicas of 3 partitions), 2 are available"
    );
    assert!(refused(2, usize::MAX).contains("at most 2147483647 devices"));
}

#[test]
fn mixed_partitioner_annotations_are_refused() {
    let client = cpu(8);
    let mut program = sharded(8);
    let code = std::str::from_utf8(program.code.bytes()).unwrap().replace(
        "tf.aliasing_output",
        "mhlo.sharding = \"{replicated}\", tf.aliasing_output",
    );
    program.code = code.into_bytes().into();
    let error = client
        .compile(&program, &CompileOptions::default())
        .unwrap_err();
    assert!(
        error.message().contains("mixes `sdy` and `mhlo.sharding`"),
        "{error}"
    );
}
