//! Targets: their text, errors of invalid ones, and their specifications.

use halite_backends::{Gpu, Target, TpuGeneration};
use halite_core::ErrorKind;
use proptest::prelude::*;

#[test]
fn valid_targets_have_their_number_of_devices() {
    for (text, devices, slices) in [
        ("cpu:8", 8, 1),
        ("tpu:v2:2x2", 8, 1),
        ("tpu:v3:32x32", 2048, 1),
        ("tpu:v4:2x2x1", 8, 1),
        ("tpu:v4:4x4x4,megacore", 64, 1),
        ("tpu:v4:12x16x16", 6144, 1),
        ("tpu:v5e:1x1", 1, 1),
        ("tpu:v5e:1x8", 8, 1),
        ("tpu:v5e:16x16", 256, 1),
        ("tpu:v5p:16x16x24", 6144, 1),
        ("tpu:v6e:16x16,slices=4", 1024, 4),
        ("tpu:tpu7x:4x4x4", 128, 1),
        ("cuda:h100:1x8", 8, 1),
        ("cuda:h200:2x8", 16, 1),
        ("cuda:a100:1x1", 1, 1),
    ] {
        let target: Target = text.parse().unwrap();
        assert_eq!(
            (
                target.to_string().as_str(),
                target.device_count(),
                target.slices()
            ),
            (text, devices, slices)
        );
        assert!(text.starts_with(target.platform()));
    }
    for (short, long) in [
        ("cpu", "cpu:1"),
        ("cuda:b200", "cuda:b200:1x1"),
        ("tpu:v5e:2x2,slices=1", "tpu:v5e:2x2"),
    ] {
        assert_eq!(short.parse::<Target>().unwrap().to_string(), long);
    }
}

/// Checks that each text is refused with these words, which are the problem or an example.
fn check_refused(targets: &[(&str, &str)]) {
    for (text, words) in targets {
        let error = text.parse::<Target>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let error = error.to_string();
        assert!(
            error.starts_with(&format!("target {text}: ")) && error.contains(words),
            "{text}: {error}"
        );
    }
}

#[test]
fn invalid_targets_are_errors_with_examples() {
    check_refused(&[
        ("", "expected for instance tpu:v5e:4x4"),
        ("gpu:h100", "unknown target"),
        ("tpu", "the tpu devices are missing"),
        ("cpu:0", "number of devices `0`; expected 1 to 1024"),
        ("cpu:2000", "as in cpu:8"),
        ("cuda", "the cuda devices are missing"),
        ("cuda:v100", "expected one of a100, h100, h200, b200"),
        (
            "cuda:h100:8",
            "invalid shape `8`; expected hosts x devices per host, as in cuda:h100:1x8",
        ),
        ("cuda:h100:0x8", "invalid shape `0x8`"),
        ("cuda:h100:1x64", "1 hosts of 64 devices; expected at most"),
    ]);
}

#[test]
fn invalid_tpu_slices_are_errors_with_examples() {
    check_refused(&[
        ("tpu:v5e", "the shape of `v5e` is missing"),
        ("tpu:v5litepod:2x2", "use v5e for a v5litepod"),
        ("tpu:v7x:2x2x1", "use tpu7x for a v7x"),
        (
            "tpu:v9:2x2",
            "expected one of v2, v3, v4, v5e, v5p, v6e, tpu7x",
        ),
        (
            "tpu:v5e:4",
            "`4` has 1 axes, a v5e has 2; expected for instance tpu:v5e:4x4",
        ),
        ("tpu:v5e:2x2x1", "has 3 axes, a v5e has 2"),
        (
            "tpu:v4:4x4",
            "`4x4` has 2 axes, a v4 has 3; expected for instance tpu:v4:4x4x4",
        ),
        (
            "tpu:v5e:axb",
            "invalid shape `axb`; expected for instance tpu:v5e:4x4",
        ),
        ("tpu:v5e:0x4", "invalid shape"),
        ("tpu:v5e:4x", "invalid shape"),
        ("tpu:v5e:99999999999x1", "invalid shape"),
        (
            "tpu:v5e:32x32",
            "at most 16 chips along each axis; take tpu:v5e:16x16",
        ),
        ("tpu:v6e:16x32", "at most 16 chips"),
        ("tpu:v3:64x2", "at most 32 chips"),
        ("tpu:v5p:32x32x32", "is 32768 chips, a pod of v5p has 8960"),
        (
            "tpu:v4:4294967295x4294967295x4294967295",
            "a pod of v4 has 4096",
        ),
        ("tpu:v5e:3x3", "expected for instance tpu:v5e:4x4"),
        ("tpu:v4:3x2x3", "expected for instance tpu:v4:4x2x3"),
        ("tpu:v5e:4x4,megacore", "megacore is an option of v4"),
        ("tpu:v5e:4x4,megachip", "expected megacore or slices=4"),
        ("tpu:v5e:4x4,slices=0", "0 slices; expected 1 to 256"),
        ("tpu:v5e:4x4,slices=many", "invalid number of slices `many`"),
    ]);
}

/// Valid targets, and some that are almost valid.
fn texts() -> impl Strategy<Value = String> {
    let generation = prop::sample::select(TpuGeneration::ALL.map(TpuGeneration::name).to_vec());
    let shape = prop::collection::vec(1u32..40, 1..4).prop_map(|sizes| {
        sizes
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join("x")
    });
    let options = prop::sample::select(vec![
        "",
        ",megacore",
        ",slices=3",
        ",slices=3,megacore",
        ",megacore,slices=1",
    ]);
    let tpu = (generation, shape, options)
        .prop_map(|(name, shape, options)| format!("tpu:{name}:{shape}{options}"));
    let gpu = prop::sample::select(Gpu::ALL.map(Gpu::name).to_vec());
    let cuda = (gpu, 0u32..5000, 0u32..20)
        .prop_map(|(name, hosts, devices)| format!("cuda:{name}:{hosts}x{devices}"));
    prop_oneof![
        tpu,
        cuda,
        (0u32..2000).prop_map(|count| format!("cpu:{count}"))
    ]
}

proptest! {
    #[test]
    fn targets_round_trip(text in texts()) {
        if let Ok(target) = text.parse::<Target>() {
            prop_assert_eq!(&target.to_string().parse::<Target>().unwrap(), &target);
            prop_assert!(target.device_count() > 0);
            prop_assert_eq!(target.device_count() % target.slices(), 0);
        }
    }

    #[test]
    fn parsing_never_panics(text in "(tpu|cuda|cpu)?[:x,=a-z0-9]{0,24}") {
        let _ = text.parse::<Target>();
    }
}

#[test]
fn newer_generations_have_higher_numbers() {
    let spec = |text: &str| text.parse::<Target>().unwrap().spec().unwrap();
    // The two cores of a chip share its compute and its memory.
    let (cores, chip) = (spec("tpu:v4:2x2x1"), spec("tpu:v4:2x2x1,megacore"));
    assert_eq!(
        (2.0 * cores.bf16_flops, 2.0 * cores.memory_bandwidth),
        (chip.bf16_flops, chip.memory_bandwidth)
    );
    for list in [
        [
            "tpu:v2:2x2",
            "tpu:v3:2x2",
            "tpu:v4:2x2x1",
            "tpu:v5p:2x2x1",
            "tpu:tpu7x:2x2x1",
        ]
        .as_slice(),
        &["cuda:a100", "cuda:h100", "cuda:b200"],
    ] {
        for pair in list.windows(2) {
            let (older, newer) = (spec(pair[0]), spec(pair[1]));
            assert!(
                older.bf16_flops < newer.bf16_flops
                    && older.memory_bandwidth < newer.memory_bandwidth,
                "{pair:?}"
            );
        }
    }
    for text in ["tpu:v5e:4x4", "tpu:v6e:4x4", "cuda:h200"] {
        let spec = spec(text);
        assert!(
            spec.bf16_flops >= spec.f32_flops && spec.f32_flops > spec.f32_highest_flops,
            "{text}"
        );
        // Operations per byte of memory traffic.
        assert!(
            (100.0..700.0).contains(&(spec.bf16_flops / spec.memory_bandwidth)),
            "{text}"
        );
        assert!(
            spec.interconnect_bandwidth < spec.memory_bandwidth && !spec.source.is_empty(),
            "{text}"
        );
    }
    assert_eq!("cpu:8".parse::<Target>().unwrap().spec(), None);
}

#[test]
fn every_generation_has_its_specification() {
    let gpus = Gpu::ALL.map(|gpu| format!("cuda:{}", gpu.name()));
    let tpus = TpuGeneration::ALL.map(|generation| {
        let chips = ["2x2", "2x2x1"].map(|chips| format!("tpu:{}:{chips}", generation.name()));
        let parses = |text: &&String| text.parse::<Target>().is_ok();
        chips
            .iter()
            .find(parses)
            .expect("two or three axes")
            .clone()
    });
    for text in gpus.iter().chain(&tpus) {
        let target: Target = text.parse().unwrap();
        assert!(target.spec().is_some(), "{text}");
    }
}
