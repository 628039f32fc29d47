//! Rejected programs, before the call of the compiler or by it, and the errors.

use std::time::Instant;

use halite_backends::{OpenOptions, Target};
use halite_core::{CompileOptions, DType, ErrorKind, Program, Signature, TensorType};
use halite_fetch::Quiet;

use halite_tests::targets::target;

/// `a @ b` of square matrices with this many rows.
fn product(rows: usize) -> Program {
    let ty = TensorType::new(DType::F32, [rows, rows]);
    let code = format!(
        "module @product {{ func.func public @main(%a: tensor<{rows}x{rows}xf32>, %b: tensor<{rows}x{rows}xf32>) -> \
         tensor<{rows}x{rows}xf32> {{ %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : \
         (tensor<{rows}x{rows}xf32>, tensor<{rows}x{rows}xf32>) -> tensor<{rows}x{rows}xf32>
           return %0 : tensor<{rows}x{rows}xf32> }} }}"
    );
    let signature = Signature {
        inputs: vec![ty.clone(), ty.clone()],
        outputs: vec![ty],
        donated: vec![],
    };
    Program {
        name: "product".into(),
        code: code.into_bytes().into(),
        signature,
        partitions: 1,
        replicas: 1,
    }
}

#[test]
fn program_too_large_is_rejected_with_sizes() {
    // Three matrices of 37.25 GiB each.
    let program = product(100_000);
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    for (name, holds) in [
        ("tpu:v5e:1x1", 15.75),
        ("tpu:v3:1x1", 15.48),
        ("tpu:v5p:1x1x1", 95.73),
        ("cuda:a100", 79.25),
    ] {
        let target = target(name).unwrap();
        let started = Instant::now();
        let error = target
            .compile(&program, &CompileOptions::default())
            .unwrap_err();
        let took = started.elapsed();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{name}: {error}");
        let shortage = error
            .shortage()
            .unwrap_or_else(|| panic!("{name}: {error}"));
        // libtpu may count two of the three.
        assert!(
            (74.0..140.0).contains(&gib(shortage.required)),
            "{name}: {error}"
        );
        assert!(
            (gib(shortage.available) - holds).abs() < 0.02,
            "{name}: {error}"
        );
        let limit = target.memory_per_device().unwrap();
        assert!(
            shortage.available <= limit + (16 << 20),
            "{name}: {shortage:?}, the devices' own words are {limit}"
        );
        assert!(error.to_string().contains("`product`"), "{error}");
        assert!(
            took.as_secs() < 60,
            "{name}: {took:?}, on a machine that may be busy"
        );
    }
}

#[test]
fn mesh_must_cover_all_partitions() {
    // libtpu ends the process on it.
    let code = "module @m { sdy.mesh @mesh = <[\"d\"=8]>\n func.func public @main(%a: tensor<8xf32> {sdy.sharding = \
                #sdy.sharding<@mesh, [{\"d\"}]>}) -> tensor<8xf32> { return %a : tensor<8xf32> } }";
    let code = code.replace("{ sdy.mesh", "{\n sdy.mesh");
    let mut program = Program {
        code: code.into_bytes().into(),
        replicas: 2,
        partitions: 4,
        ..product(8)
    };
    program.signature = Signature::default();
    for name in ["tpu:v5e:2x4", "cuda:h100:1x8", "cpu:8"] {
        let error = target(name)
            .unwrap()
            .compile(&program, &CompileOptions::default())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            error
                .to_string()
                .contains("a mesh of 8 devices and 4 partitions"),
            "{name}: {error}"
        );
    }
}

#[test]
fn program_for_too_many_devices_is_rejected() {
    for name in ["tpu:v5e:2x2", "cuda:h100:1x4", "cpu:4"] {
        let target = target(name).unwrap();
        let program = Program {
            partitions: 5,
            ..product(8)
        };
        let error = target
            .compile(&program, &CompileOptions::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("needs 5 devices") && error.contains('4'),
            "{name}: {error}"
        );
        let error = target.mesh([("data", 5)]).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("mesh: mesh(data=5) needs 5 devices, but {name} has 4")
        );
    }
}

#[test]
fn offline_error_says_how_to_install_the_plugin() {
    let empty = tempfile::tempdir().unwrap();
    for (name, plugin) in [("tpu:v5e:4x4", "tpu"), ("cuda:h200", "cuda")] {
        let options = OpenOptions {
            cache: Some(empty.path().into()),
            offline: true,
            ..OpenOptions::default()
        };
        let error = name
            .parse::<Target>()
            .unwrap()
            .open(&options, &mut Quiet)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let words = error.to_string();
        assert!(
            words.starts_with(&format!("target {name}"))
                || words.starts_with("target cuda:h200:1x1"),
            "{words}"
        );
        assert!(
            words.contains(&format!(
                "install one with `halite plugins install {plugin}`"
            )),
            "{words}"
        );
        assert!(
            words.contains(&format!(
                "HALITE_{}_PLUGIN is not set",
                plugin.to_uppercase()
            )),
            "{words}"
        );
    }
}
