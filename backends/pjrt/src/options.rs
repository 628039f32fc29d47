//! Compile options as XLA reads them: a few messages of `compile_options.proto`, and what is read
//! back of programs.

use std::collections::BTreeMap;

use halite_core::{FlagValue, ProgramFacts};
use prost::Message;

use crate::quirks::Quirks;

/// `CompileOptionsProto`.
#[derive(Clone, PartialEq, Message)]
struct CompileOptionsProto {
    #[prost(message, optional, tag = "3")]
    executable_build_options: Option<ExecutableBuildOptionsProto>,
    /// In the order of the names, so that equal options are equal bytes.
    #[prost(btree_map = "string, message", tag = "7")]
    env_option_overrides: BTreeMap<String, OptionOverrideProto>,
}

/// `ExecutableBuildOptionsProto`.
#[derive(Clone, PartialEq, Message)]
struct ExecutableBuildOptionsProto {
    #[prost(int64, tag = "1")]
    device_ordinal: i64,
    #[prost(int64, tag = "4")]
    num_replicas: i64,
    #[prost(int64, tag = "5")]
    num_partitions: i64,
    #[prost(bool, tag = "6")]
    use_spmd_partitioning: bool,
    #[prost(message, optional, tag = "9")]
    device_assignment: Option<DeviceAssignmentProto>,
    #[prost(bool, repeated, tag = "12")]
    allow_spmd_sharding_propagation_to_output: Vec<bool>,
    #[prost(bool, tag = "19")]
    use_shardy_partitioner: bool,
}

/// `DeviceAssignmentProto`: one entry of `computation_devices` per partition, one id in it per
/// replica.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeviceAssignmentProto {
    #[prost(int32, tag = "1")]
    pub(crate) replica_count: i32,
    #[prost(int32, tag = "2")]
    pub(crate) computation_count: i32,
    #[prost(message, repeated, tag = "3")]
    pub(crate) computation_devices: Vec<ComputationDevice>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ComputationDevice {
    #[prost(int64, repeated, tag = "1")]
    pub(crate) replica_device_ids: Vec<i64>,
}

/// `OptionOverrideProto`.
#[derive(Clone, PartialEq, Message)]
struct OptionOverrideProto {
    #[prost(oneof = "Override", tags = "1, 2, 3, 4")]
    value: Option<Override>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Override {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
}

/// The devices of a program, replicas outermost.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) replicas: usize,
    pub(crate) partitions: usize,
    /// `ids[replica * partitions + partition]`.
    pub(crate) ids: Vec<u32>,
}

/// The flag for the operations that the YNN library computes.
const YNN_FUSIONS: &str = "xla_cpu_experimental_ynn_fusion_type";

/// The user's flags after those without which the compiler would be wrong or slow on a program with
/// these facts. The user's values win.
pub(crate) fn with_defaults(
    quirks: Quirks,
    facts: &ProgramFacts,
    flags: &[(String, FlagValue)],
) -> Vec<(String, FlagValue)> {
    let mut defaults = Vec::new();
    if quirks.min_max_drops_nan {
        // StableHLO propagates NaN. With the fast form, `maximum(1, NaN)` is 1, so that a ReLU or a
        // max pooling hides that a model has diverged.
        defaults.push(("xla_cpu_enable_fast_min_max", FlagValue::Bool(false)));
    }
    if quirks.keeps_excess_precision {
        // A number that is rounded to 16 bits stays so, also where it is converted back in the same
        // fusion: a result must not depend on what is fused (decision 0054).
        defaults.push(("xla_allow_excess_precision", FlagValue::Bool(false)));
    }
    if quirks.compiles_functions && facts.one_function {
        // A function has no threads, and does not call the library.
        defaults.push(("xla_cpu_multi_thread_eigen", FlagValue::Bool(false)));
        defaults.push((YNN_FUSIONS, FlagValue::Str(String::new())));
    } else if quirks.fuses_with_ynn && facts.bf16 {
        // With all YNN fusions, one dot in bf16 makes a training step 18 times slower. Of the
        // settings that do not, dots alone is the fastest: steps of dense networks need 6 to 11 %
        // less processor time than without any (decision 0021).
        let dots = FlagValue::Str("LIBRARY_FUSION_TYPE_DOT".to_owned());
        defaults.push((YNN_FUSIONS, dots));
    }
    let is_set = |name: &str| flags.iter().any(|(flag, _)| flag == name);
    let defaults = (defaults.into_iter())
        .filter(|(name, _)| !is_set(name))
        .map(|(name, value)| (name.to_owned(), value));
    defaults.chain(flags.iter().cloned()).collect()
}

/// Serializes the options of a program on these devices, of which there must be at least one: XLA
/// aborts the process on options without replicas or partitions.
pub(crate) fn encode(
    devices: &Assignment,
    facts: &ProgramFacts,
    flags: &[(String, FlagValue)],
) -> Vec<u8> {
    let Assignment {
        replicas,
        partitions,
        ids,
    } = devices;
    assert!(
        !ids.is_empty() && ids.len() == replicas * partitions,
        "every replica and partition has a device"
    );
    let on = |partition: usize| ComputationDevice {
        replica_device_ids: ids[partition..]
            .iter()
            .step_by(*partitions)
            .map(|id| i64::from(*id))
            .collect(),
    };
    let overrides = flags.iter().map(|(name, value)| {
        let value = match value {
            FlagValue::Bool(value) => Override::Bool(*value),
            FlagValue::Int(value) => Override::Int(*value),
            FlagValue::Float(value) => Override::Double(*value),
            FlagValue::Str(value) => Override::Text(value.clone()),
        };
        (name.clone(), OptionOverrideProto { value: Some(value) })
    });
    let options = CompileOptionsProto {
        executable_build_options: Some(ExecutableBuildOptionsProto {
            device_ordinal: -1,
            num_replicas: *replicas as i64,
            num_partitions: *partitions as i64,
            use_spmd_partitioning: true,
            device_assignment: Some(DeviceAssignmentProto {
                replica_count: *replicas as i32,
                computation_count: *partitions as i32,
                computation_devices: (0..*partitions).map(on).collect(),
            }),
            // Without it GSPMD replicates outputs; Shardy ignores it.
            allow_spmd_sharding_propagation_to_output: vec![true],
            // Shardy fails on a program without its annotations, GSPMD on one with them.
            use_shardy_partitioner: facts.shardy,
        }),
        env_option_overrides: overrides.collect(),
    };
    options.encode_to_vec()
}

/// See [`fuzz::compile_options`](crate::fuzz::compile_options).
pub(crate) fn fuzz(data: &[u8]) -> bool {
    let Ok(options) = CompileOptionsProto::decode(data) else {
        return false;
    };
    let printed = options.encode_to_vec();
    let again = CompileOptionsProto::decode(&*printed).expect("what is encoded is decoded");
    // As bytes: a NaN among the overrides is not equal to itself.
    assert_eq!(again.encode_to_vec(), printed, "options have one form");
    true
}

/// See [`fuzz::compile_options_seeds`](crate::fuzz::compile_options_seeds).
pub(crate) fn fuzz_seeds() -> Vec<Vec<u8>> {
    let flags = [
        ("xla_text".to_owned(), FlagValue::Str("value".to_owned())),
        ("xla_bool".to_owned(), FlagValue::Bool(true)),
        ("xla_int".to_owned(), FlagValue::Int(-7)),
        ("xla_float".to_owned(), FlagValue::Float(f64::NAN)),
    ];
    let over = |replicas: usize, ids: &[u32]| Assignment {
        replicas,
        partitions: ids.len() / replicas,
        ids: ids.to_vec(),
    };
    let shardy = ProgramFacts {
        shardy: true,
        ..ProgramFacts::default()
    };
    vec![
        encode(&over(1, &[0]), &ProgramFacts::default(), &[]),
        encode(&over(2, &[0, 1, 2, 3, 4, 5]), &shardy, &flags),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_yield_to_flags_of_the_user() {
        let flag = |value| {
            (
                "xla_cpu_enable_fast_min_max".to_owned(),
                FlagValue::Bool(value),
            )
        };
        let ynn = |value: &str| (YNN_FUSIONS.to_owned(), FlagValue::Str(value.to_owned()));
        let other = ("xla_dump_to".to_owned(), FlagValue::Str("here".to_owned()));
        let given = [other.clone()];
        let f32 = ProgramFacts::default();
        let bf16 = ProgramFacts {
            bf16: true,
            ..f32.clone()
        };
        let with = |platform, version, facts: &ProgramFacts, flags: &[_]| {
            with_defaults(Quirks::of(platform, version), facts, flags)
        };
        assert_eq!(
            with("cpu", (0, 115), &f32, &given),
            [flag(false), other.clone()]
        );
        assert_eq!(with("cpu", (0, 115), &f32, &[flag(true)]), [flag(true)]);
        assert_eq!(
            with("cpu", (0, 115), &bf16, &given),
            [flag(false), ynn("LIBRARY_FUSION_TYPE_DOT"), other.clone()]
        );
        assert_eq!(
            with("cpu", (0, 115), &bf16, &[ynn("")]),
            [flag(false), ynn("")]
        );
        // A version without the flag.
        assert_eq!(with("cpu", (0, 114), &bf16, &given), [flag(false), other]);
        assert_eq!(with("tpu", (0, 116), &bf16, &given), given);
        let excess = |value| {
            (
                "xla_allow_excess_precision".to_owned(),
                FlagValue::Bool(value),
            )
        };
        assert_eq!(with("cuda", (0, 116), &bf16, &[]), [excess(false)]);
        assert_eq!(
            with("cuda", (0, 116), &f32, &[excess(true)]),
            [excess(true)]
        );

        let function = ProgramFacts {
            one_function: true,
            ..f32
        };
        let serial = (
            "xla_cpu_multi_thread_eigen".to_owned(),
            FlagValue::Bool(false),
        );
        let newer = with("cpu", (0, 115), &function, &[]);
        assert_eq!(newer, [flag(false), serial, ynn("")]);
        assert_eq!(with("cpu", (0, 114), &function, &[]), [flag(false)]);
        assert_eq!(with("tpu", (0, 116), &function, &[]), []);
    }

    #[test]
    fn options_have_the_wire_format_of_xla() {
        let bytes = encode(&over(1, &[0]), &ProgramFacts::default(), &[]);
        let options = CompileOptionsProto::decode(&*bytes)
            .unwrap()
            .executable_build_options
            .unwrap();
        assert_eq!(
            (
                options.num_replicas,
                options.num_partitions,
                options.use_shardy_partitioner
            ),
            (1, 1, false)
        );
        // Field 3, then device_ordinal -1 as a ten-byte varint, one replica, one partition, SPMD.
        assert_eq!(bytes[0], 0x1a);
        let inner = [
            0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x20, 0x01, 0x28,
            0x01, 0x30, 0x01,
        ];
        assert_eq!(&bytes[2..2 + inner.len()], inner);
    }

    #[test]
    fn overrides_keep_their_types() {
        let flags = [
            ("a".to_owned(), FlagValue::Bool(true)),
            ("b".to_owned(), FlagValue::Str(String::new())),
        ];
        let options = CompileOptionsProto::decode(&*encode(
            &over(1, &[3, 1]),
            &ProgramFacts::default(),
            &flags,
        ))
        .unwrap();
        assert_eq!(
            options.env_option_overrides["a"].value,
            Some(Override::Bool(true))
        );
        // An empty text is still a text: it is how the CPU plugin's library fusions are turned off.
        assert_eq!(
            options.env_option_overrides["b"].value,
            Some(Override::Text(String::new()))
        );
    }

    #[test]
    fn device_assignment_is_partition_major() {
        for (replicas, ids, expected) in [
            (1, &[3, 1][..], vec![vec![3], vec![1]]),
            (2, &[3, 1], vec![vec![3, 1]]),
            (
                2,
                &[0, 1, 2, 3, 4, 5],
                vec![vec![0, 3], vec![1, 4], vec![2, 5]],
            ),
        ] {
            let options = CompileOptionsProto::decode(&*encode(
                &over(replicas, ids),
                &ProgramFacts::default(),
                &[],
            ))
            .unwrap();
            let assignment = options
                .executable_build_options
                .unwrap()
                .device_assignment
                .unwrap();
            assert_eq!(assignment.replica_count, replicas as i32);
            let devices: Vec<_> = assignment
                .computation_devices
                .into_iter()
                .map(|device| device.replica_device_ids)
                .collect();
            assert_eq!(devices, expected);
        }
    }

    fn over(replicas: usize, ids: &[u32]) -> Assignment {
        Assignment {
            replicas,
            partitions: ids.len() / replicas,
            ids: ids.to_vec(),
        }
    }
}
