//! Programs: invalid arguments are rejected with an explanation before they reach the plugin;
//! donation by address; topologies. The conformance suite has the requirements of every backend;
//! these tests are specific to PJRT.

mod common;

use common::*;
use halite_core::{
    Arg, Backend, Buffer, CompileOptions, DType, DeviceId, ErrorKind, Executable, FlagValue,
    Launch, MemoryKind, Placement,
};
use halite_pjrt::PjrtBuffer;

#[test]
fn a_donated_buffer_gives_its_memory_to_the_result() {
    let client = cpu(1);
    let add = compile(&client, &add(1000, true));
    let one = upload(&client, &[1.0f32; 1000], &[1000], 0);
    let mut state = upload(&client, &[0.0f32; 1000], &[1000], 0);
    let address = state.device_address().unwrap();
    for _ in 0..5 {
        state = run(&add, vec![Arg::Donate(state), Arg::Borrow(&one)])
            .unwrap()
            .remove(0);
        assert_eq!(state.device_address().unwrap(), address);
    }
    assert_eq!(read::<f32>(&state), [5.0; 1000]);
}

#[test]
fn borrowed_buffer_survives_undeclared_donation() {
    let client = cpu(1);
    let mut program = add(4, true);
    program.signature.donated.clear();
    let add = compile(&client, &program);
    let (a, b) = (
        upload(&client, &[1.0f32; 4], &[4], 0),
        upload(&client, &[2.0f32; 4], &[4], 0),
    );
    run(&add, vec![Arg::Borrow(&a), Arg::Borrow(&b)]).unwrap();
    assert_eq!(read::<f32>(&a), [1.0; 4]);
}

#[test]
fn every_wrong_argument_is_refused_by_name() {
    let client = cpu(2);
    let other = cpu(1);
    let add = compile(&client, &add(4, true));
    let good = || upload(&client, &[1.0f32; 4], &[4], 0);
    let kept = good();
    let pinned = kept
        .copy_to(Placement {
            device: DeviceId(0),
            memory: MemoryKind::PinnedHost,
        })
        .unwrap();
    for (args, expected) in [
        (
            vec![good()],
            "`test`: got [1] arguments per device, expected 2 for each of 1 devices",
        ),
        (
            vec![good(), good(), good()],
            "`test`: got [3] arguments per device, expected 2 for each of 1 devices",
        ),
        (
            vec![],
            "`test`: got [0] arguments per device, expected 2 for each of 1 devices",
        ),
        // Same size in bytes: the plugin would take the bits as they are.
        (
            vec![good(), upload(&client, &[1i32; 4], &[4], 0)],
            "`test`: argument 1 for device 0 is s32[4], expected f32[4]",
        ),
        (
            vec![good(), upload(&client, &[1.0f32; 4], &[2, 2], 0)],
            "`test`: argument 1 for device 0 is f32[2, 2], expected f32[4]",
        ),
        (
            vec![upload(&client, &[1.0f32; 2], &[2], 0), good()],
            "`test`: argument 0 for device 0 is f32[2], expected f32[4]",
        ),
        (
            vec![good(), upload(&client, &[1.0f32; 4], &[4], 1)],
            "`test`: argument 1 for device 0 (f32[4]) is in Device memory of device 1, expected \
             Device of 0",
        ),
        (
            vec![good(), pinned],
            "`test`: argument 1 for device 0 (f32[4]) is in PinnedHost memory of device 0, expected \
             Device of 0",
        ),
        (
            vec![good(), upload(&other, &[1.0f32; 4], &[4], 0)],
            "`test`: argument 1 for device 0 is a buffer of another client",
        ),
    ] {
        let error = run(&add, args.iter().map(Arg::Borrow).collect()).unwrap_err();
        assert_eq!(
            (error.kind(), error.op(), error.platform()),
            (ErrorKind::InvalidArgument, "launch", Some("cpu"))
        );
        assert_eq!(error.message(), expected);
    }
    let error = run(&add, vec![Arg::Donate(good()), Arg::Donate(good())]).unwrap_err();
    let expected =
        "`test`: argument 1 for device 0 (f32[4]) cannot be donated; the program donates only [0]";
    assert_eq!(error.message(), expected);

    // All that, and the program still runs.
    assert_eq!(
        read::<f32>(&run(&add, vec![Arg::Borrow(&kept), Arg::Borrow(&kept)]).unwrap()[0]),
        [2.0; 4]
    );
}

#[test]
fn wrong_signature_is_refused() {
    let client = cpu(1);
    let code = std::str::from_utf8(&add(4, false).code).unwrap().to_owned();
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
    // Bytes that are no text, as text and as bytecode.
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

#[test]
fn compile_options_are_checked() {
    let client = cpu(2);
    let program = add(4, false);
    let compile = |devices: &[u32], flags: Vec<(String, FlagValue)>| {
        let devices = devices.iter().map(|&id| DeviceId(id)).collect();
        client.compile(&program, &CompileOptions { devices, flags })
    };
    for (devices, expected) in [
        (&[2][..], "unknown device 2; expected one of [0, 1]"),
        (
            &[0, 1],
            "needs 1 devices (1 replicas of 1 partitions), 2 were given",
        ),
    ] {
        assert_eq!(
            compile(devices, vec![]).unwrap_err().message(),
            format!("`test`: {expected}")
        );
    }
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
        let error = compile(&[0], vec![(flag.into(), value)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(expected), "{flag}: {error}");
    }
    let good = [
        (
            "xla_cpu_experimental_ynn_fusion_type",
            FlagValue::Str(String::new()),
        ),
        ("xla_backend_optimization_level", FlagValue::Int(0)),
        ("xla_cpu_enable_fast_math", FlagValue::Bool(false)),
    ];
    let add = compile(
        &[1],
        good.map(|(name, value)| (name.to_owned(), value)).into(),
    )
    .unwrap();
    assert_eq!(add.devices(), [DeviceId(1)]);
    let a = upload(&client, &[1.0f32; 4], &[4], 1);
    assert_eq!(
        read::<f32>(&run(&add, vec![Arg::Borrow(&a), Arg::Borrow(&a)]).unwrap()[0]),
        [2.0; 4]
    );

    // oneDNN is for programs without convolutions.
    let code = "func.func public @main(%a: tensor<1x4x4x1xf32>, %b: tensor<1x1x1x1xf32>) -> \
     tensor<1x4x4x1xf32> {
        %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
            window = {stride = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (tensor<1x4x4x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x4x4x1xf32>
        return %0 : tensor<1x4x4x1xf32> }";
    let (image, kernel) = (f32s(&[1, 4, 4, 1]), f32s(&[1, 1, 1, 1]));
    let convolution = common::program(code, &[image.clone(), kernel], &[image], &[]);
    let compile_with = |flags| {
        client.compile(
            &convolution,
            &CompileOptions {
                flags,
                ..Default::default()
            },
        )
    };
    let error =
        compile_with(vec![("xla_cpu_use_onednn".into(), FlagValue::Bool(true))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error
            .message()
            .contains("`xla_cpu_use_onednn` on a program with convolutions can end the process"),
        "{error}"
    );
    compile_with(vec![("xla_cpu_use_onednn".into(), FlagValue::Bool(false))]).unwrap();
    compile(
        &[0],
        vec![("xla_cpu_use_onednn".into(), FlagValue::Bool(true))],
    )
    .unwrap();

    let mut impossible = program.clone();
    impossible.partitions = 0;
    assert!(
        client
            .compile(&impossible, &CompileOptions::default())
            .unwrap_err()
            .message()
            .contains("at least 1 device")
    );
    impossible.partitions = 3;
    let error = client
        .compile(&impossible, &CompileOptions::default())
        .unwrap_err();
    assert_eq!(
        error.message(),
        "`test`: needs 3 devices (1 replicas of 3 partitions), 2 are available"
    );
    impossible.partitions = usize::MAX;
    impossible.replicas = 2;
    client
        .compile(&impossible, &CompileOptions::default())
        .unwrap_err();
}

/// `x [16, 4]` cut over 8 devices by rows; gives `2 x` cut the same way and the sum of all, whole
/// on each.
fn sharded(devices: usize) -> halite_core::Program {
    let rows = 2 * devices;
    let code = format!(
        r#"module @sharded {{
  sdy.mesh @mesh = <["data"={devices}]>
  func.func public @main(%x: tensor<{rows}x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>, tf.aliasing_output = 0 : i32}})
      -> (tensor<{rows}x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>}},
          tensor<f32> {{sdy.sharding = #sdy.sharding<@mesh, []>}}) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %twice = stablehlo.add %x, %x : tensor<{rows}x4xf32>
    %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<{rows}x4xf32>, tensor<f32>) -> tensor<f32>
    return %twice, %sum : tensor<{rows}x4xf32>, tensor<f32>
  }}
}}"#
    );
    let mut program = program(&code, &[f32s(&[2, 4])], &[f32s(&[2, 4]), f32s(&[])], &[0]);
    program.partitions = devices;
    program
}

#[test]
fn calls_are_timed_on_request() {
    let client = cpu(1);
    let sum = compile(&client, &add(4, false));
    let x = upload(&client, &[1.0f32; 4], &[4], 0);
    let launches = || {
        client
            .plugin()
            .call_times()
            .into_iter()
            .find(|call| call.function == "PJRT_LoadedExecutable_Execute")
    };
    client.plugin().time_calls();
    let before = launches().map_or(0, |call| call.count);
    run(&sum, vec![Arg::Borrow(&x), Arg::Borrow(&x)]).unwrap();
    let after = launches().unwrap();
    // Other tests of this process launch too.
    assert!(
        after.count > before && !after.total.is_zero(),
        "{before} launches before, then {after:?}"
    );
}

#[test]
fn a_sharded_program_runs_on_eight_devices() {
    let client = cpu(8);
    let double = compile(&client, &sharded(8));
    assert_eq!(double.devices(), (0..8).map(DeviceId).collect::<Vec<_>>());
    assert_eq!(double.program().parameter_shardings().unwrap().len(), 1);
    let mut shards: Vec<_> = (0..8)
        .map(|device| upload(&client, &[device as f32; 8], &[2, 4], device))
        .collect();
    for round in 0..3 {
        let addresses: Vec<_> = shards
            .iter()
            .map(|shard| shard.device_address().unwrap())
            .collect();
        let launched = double
            .launch(Launch {
                args: shards
                    .into_iter()
                    .map(|shard| vec![Arg::Donate(shard)])
                    .collect(),
            })
            .unwrap();
        let scale = f32::powi(2.0, round);
        shards = Vec::new();
        for (device, mut outputs) in launched.outputs.into_iter().enumerate() {
            assert_eq!(outputs[0].placement(), DeviceId(device as u32).into());
            assert_eq!(outputs[0].device_address().unwrap(), addresses[device]);
            assert_eq!(read::<f32>(&outputs[0]), [2.0 * scale * device as f32; 8]);
            assert_eq!(read::<f32>(&outputs[1]), [scale * 8.0 * 28.0]);
            shards.push(outputs.remove(0));
        }
    }
}

#[test]
fn wrong_arguments_of_one_device_are_refused() {
    let client = cpu(8);
    let double = compile(&client, &sharded(8));
    let good = |device: u32| upload(&client, &[1.0f32; 8], &[2, 4], device);
    let launch = |shards: &[PjrtBuffer]| {
        double
            .launch(Launch {
                args: shards
                    .iter()
                    .map(|shard| vec![Arg::Borrow(shard)])
                    .collect(),
            })
            .unwrap_err()
    };
    let all = |at: u32, wrong: PjrtBuffer| {
        let mut shards: Vec<_> = (0..8).map(good).collect();
        shards[at as usize] = wrong;
        shards
    };
    assert_eq!(
        launch(&all(7, upload(&client, &[1.0f32; 4], &[1, 4], 7))).message(),
        "`test`: argument 0 for device 7 is f32[1, 4], expected f32[2, 4]"
    );
    assert_eq!(
        launch(&all(0, upload(&client, &[1i32; 8], &[2, 4], 0))).message(),
        "`test`: argument 0 for device 0 is s32[2, 4], expected f32[2, 4]"
    );
    assert_eq!(
        launch(&all(3, good(4))).message(),
        "`test`: argument 0 for device 3 (f32[2, 4]) is in Device memory of device 4, expected Device \
         of 3"
    );
    let mut deleted = good(5);
    deleted.delete().unwrap();
    assert_eq!(
        launch(&all(5, deleted)).message(),
        "`test`: argument 0 for device 5 (f32[2, 4]) was deleted"
    );
    assert_eq!(
        launch(&[good(0)]).message(),
        "`test`: got [1] arguments per device, expected 1 for each of 8 devices"
    );
}

#[test]
fn mixed_partitioner_annotations_are_refused() {
    let client = cpu(8);
    let mut program = sharded(8);
    let code = std::str::from_utf8(&program.code).unwrap().replace(
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

#[test]
fn serialized_program_keeps_donation() {
    let client = cpu(4);
    let compiled = compile(&client, &add(4, true));
    let bytes = compiled.serialize().unwrap();
    let signature = compiled.signature().clone();
    let elsewhere = CompileOptions {
        devices: vec![DeviceId(2)],
        ..Default::default()
    };
    for (options, device) in [(CompileOptions::default(), 0), (elsewhere, 2)] {
        let loaded = client
            .load(&bytes, &"add".into(), &signature, &options)
            .unwrap();
        assert_eq!(loaded.devices(), [DeviceId(device)]);
        let (a, b) = (
            upload(&client, &[1.0f32; 4], &[4], device),
            upload(&client, &[2.0f32; 4], &[4], device),
        );
        let address = a.device_address().unwrap();
        let sum = run(&loaded, vec![Arg::Donate(a), Arg::Borrow(&b)]).unwrap();
        assert_eq!(read::<f32>(&sum[0]), [3.0; 4]);
        assert_eq!(
            sum[0].device_address().unwrap(),
            address,
            "donation is kept"
        );
    }

    let sharded = compile(&client, &sharded(4));
    let bytes = sharded.serialize().unwrap();
    let devices: Vec<_> = [3, 1, 0, 2].map(DeviceId).to_vec();
    let moved = client
        .load(
            &bytes,
            &"sharded".into(),
            sharded.signature(),
            &CompileOptions {
                devices: devices.clone(),
                ..Default::default()
            },
        )
        .unwrap();
    assert_eq!(moved.devices(), devices);
}

#[test]
fn what_is_no_serialized_program_is_refused() {
    let client = cpu(1);
    let compiled = compile(&client, &add(4, false));
    let bytes = compiled.serialize().unwrap();
    let load = |bytes: &[u8], signature| {
        client
            .load(bytes, &"kept".into(), signature, &CompileOptions::default())
            .unwrap_err()
    };
    let signature = compiled.signature();
    assert_eq!(
        load(&[], signature).message(),
        "no bytes given, want what `serialize` returned"
    );
    assert_eq!(
        load(&bytes[..bytes.len() / 2], signature).kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(
        load(b"not a program", signature).kind(),
        ErrorKind::InvalidArgument
    );
    // A bit of the machine code.
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 8;
    let error = load(&flipped, signature);
    assert_eq!(
        (error.kind(), error.platform()),
        (ErrorKind::Corrupt, Some("cpu"))
    );
    assert!(
        error.message().contains("its SHA-256 is not the one"),
        "{error}"
    );
    // Of another program: the types are compared with what is loaded.
    let error = load(&bytes, compile(&client, &add(5, false)).signature());
    assert_eq!(
        error.message(),
        "`kept`: argument 0 of the program is f32[4] on each device, its signature has f32[5]"
    );
}

#[test]
fn program_reports_memory() {
    let client = cpu(1);
    let compiled = compile(&client, &add(1000, true));
    let memory = compiled.memory().unwrap();
    assert_eq!(
        (memory.arguments, memory.outputs, memory.aliased),
        (8000, 4000, 4000)
    );
    let (format, bytes) = compiled.program().optimized().unwrap();
    assert_eq!(format, "hlo_with_config");
    assert!(bytes.len() > 100);
    assert_eq!(compiled.program().name().unwrap(), "add");
    assert_eq!(
        compiled.program().output_types().unwrap(),
        [Some(f32s(&[1000]))]
    );
    assert_eq!(
        (
            compiled.program().replicas().unwrap(),
            compiled.program().partitions().unwrap()
        ),
        (1, 1)
    );
    let again = compile(&client, &add(1000, true));
    assert_eq!(
        compiled.program().fingerprint().unwrap(),
        again.program().fingerprint().unwrap()
    );
    assert_ne!(
        compiled.program().fingerprint().unwrap(),
        compile(&client, &add(999, true))
            .program()
            .fingerprint()
            .unwrap()
    );
    // This plugin has no cost analysis, and says so.
    if let Err(error) = compiled.cost() {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn program_compiled_for_a_topology_loads() {
    let client = cpu(2);
    let topology = client.topology().unwrap();
    assert_eq!(&**topology.platform(), "cpu");
    assert_eq!(
        topology
            .devices()
            .unwrap()
            .iter()
            .map(|device| device.id.0)
            .collect::<Vec<_>>(),
        [0, 1]
    );
    let again = client
        .plugin()
        .deserialize_topology(&topology.serialize().unwrap())
        .unwrap();
    assert_eq!(
        again.fingerprint().unwrap(),
        topology.fingerprint().unwrap()
    );
    client
        .plugin()
        .deserialize_topology(b"not a topology")
        .unwrap_err();

    let program = add(4, false);
    let compiled = again.compile(&program, &CompileOptions::default()).unwrap();
    assert_eq!(compiled.memory().unwrap().arguments, 32);
    let loaded = client
        .load(
            &compiled.serialize().unwrap(),
            &program.name,
            &program.signature,
            &CompileOptions::default(),
        )
        .unwrap();
    let a = upload(&client, &[1.0f32; 4], &[4], 0);
    assert_eq!(
        read::<f32>(&run(&loaded, vec![Arg::Borrow(&a), Arg::Borrow(&a)]).unwrap()[0]),
        [2.0; 4]
    );

    let wrong = CompileOptions {
        devices: vec![DeviceId(9)],
        ..Default::default()
    };
    assert_eq!(
        again.compile(&program, &wrong).unwrap_err().message(),
        "`test`: unknown device 9; expected one of [0, 1]"
    );
    let error = client.plugin().topology("v5e:32x32", vec![]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error
            .message()
            .starts_with("`v5e:32x32`: a v5e has at most 16 chips along each axis"),
        "{error}"
    );
    let error = client.plugin().topology("v5e:2x2", vec![]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().starts_with("`v5e:2x2`: "), "{error}");
}
