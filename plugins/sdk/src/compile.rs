//! Compile options and device assignments, which the C API passes as protobufs.
//!
//! The messages have only the fields that are read; `halite-pjrt` declares those that it writes.

use std::collections::BTreeMap;

use halite_core::{CompileOptions, DeviceId, FlagValue};
use prost::Message;

use crate::status::{Outcome, Status};

/// `CompileOptionsProto` of `compile_options.proto`.
#[derive(Clone, PartialEq, Message)]
struct CompileOptionsProto {
    #[prost(message, optional, tag = "3")]
    executable_build_options: Option<ExecutableBuildOptionsProto>,
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
    #[prost(message, optional, tag = "9")]
    device_assignment: Option<DeviceAssignmentProto>,
}

/// `DeviceAssignmentProto`: one entry of `computation_devices` per partition, one id in it per
/// replica.
#[derive(Clone, PartialEq, Message)]
struct DeviceAssignmentProto {
    #[prost(int32, tag = "1")]
    replica_count: i32,
    #[prost(int32, tag = "2")]
    computation_count: i32,
    #[prost(message, repeated, tag = "3")]
    computation_devices: Vec<ComputationDevice>,
}

#[derive(Clone, PartialEq, Message)]
struct ComputationDevice {
    #[prost(int64, repeated, tag = "1")]
    replica_device_ids: Vec<i64>,
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

/// The options of a compilation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Compilation {
    pub(crate) replicas: usize,
    pub(crate) partitions: usize,
    /// Devices, replicas outermost, and flags.
    pub(crate) options: CompileOptions,
}

impl Compilation {
    /// Reads a serialized `CompileOptionsProto`. Without devices, the program runs on the first of
    /// `local`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for other bytes, counts that are not positive, an assignment that does not
    /// fit them, and a device id that cannot be one.
    pub(crate) fn decode(bytes: &[u8], local: &[DeviceId]) -> Outcome<Self> {
        let proto = CompileOptionsProto::decode(bytes)
            .map_err(|error| Status::invalid(format!("compile options: {error}")))?;
        let build = proto.executable_build_options.unwrap_or_default();
        // Unset is 0, and means 1.
        let count = |name: &str, count: i64| match usize::try_from(count) {
            Ok(0) => Ok(1),
            Ok(count) if count <= 1 << 16 => Ok(count),
            _ => Err(Status::invalid(format!(
                "compile options: {name} is {count}"
            ))),
        };
        let replicas = count("num_replicas", build.num_replicas)?;
        let partitions = count("num_partitions", build.num_partitions)?;
        let devices = match build.device_assignment {
            Some(assignment) => assigned(&assignment, replicas, partitions)?,
            None if build.device_ordinal > 0 && replicas * partitions == 1 => {
                vec![device_id(build.device_ordinal)?]
            }
            None if replicas * partitions <= local.len() => local[..replicas * partitions].to_vec(),
            None => {
                return Err(Status::invalid(format!(
                    "{replicas} replicas of {partitions} partitions need {} devices, the client \
                     has {}",
                    replicas * partitions,
                    local.len()
                )));
            }
        };
        let flags = proto
            .env_option_overrides
            .into_iter()
            .filter_map(|(name, value)| {
                let value = match value.value? {
                    Override::Text(text) => FlagValue::Str(text),
                    Override::Bool(yes) => FlagValue::Bool(yes),
                    Override::Int(number) => FlagValue::Int(number),
                    Override::Double(number) => FlagValue::Float(number),
                };
                Some((name, value))
            });
        Ok(Compilation {
            replicas,
            partitions,
            options: CompileOptions {
                devices,
                flags: flags.collect(),
            },
        })
    }

    /// The serialized `DeviceAssignmentProto`.
    pub(crate) fn device_assignment(&self) -> Vec<u8> {
        let ids = &self.options.devices;
        let on = |partition: usize| ComputationDevice {
            replica_device_ids: ids[partition..]
                .iter()
                .step_by(self.partitions)
                .map(|id| i64::from(id.0))
                .collect(),
        };
        DeviceAssignmentProto {
            replica_count: self.replicas as i32,
            computation_count: self.partitions as i32,
            computation_devices: (0..self.partitions).map(on).collect(),
        }
        .encode_to_vec()
    }
}

fn assigned(
    assignment: &DeviceAssignmentProto,
    replicas: usize,
    partitions: usize,
) -> Outcome<Vec<DeviceId>> {
    let rows = &assignment.computation_devices;
    if rows.len() != partitions
        || rows
            .iter()
            .any(|row| row.replica_device_ids.len() != replicas)
    {
        let sizes: Vec<_> = rows
            .iter()
            .map(|row| row.replica_device_ids.len())
            .collect();
        return Err(Status::invalid(format!(
            "compile options: the device assignment has {sizes:?} replicas per partition, expected \
             {replicas} for each of {partitions} partitions"
        )));
    }
    let places = (0..replicas).flat_map(|replica| (0..partitions).map(move |it| (replica, it)));
    places
        .map(|(replica, partition)| device_id(rows[partition].replica_device_ids[replica]))
        .collect()
}

fn device_id(id: i64) -> Outcome<DeviceId> {
    u32::try_from(id)
        .map(DeviceId)
        .map_err(|_| Status::invalid(format!("compile options: {id} is not a device id")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(build: ExecutableBuildOptionsProto) -> Vec<u8> {
        CompileOptionsProto {
            executable_build_options: Some(build),
            ..CompileOptionsProto::default()
        }
        .encode_to_vec()
    }

    #[test]
    fn assignment_is_replica_major() {
        let row = |ids: &[i64]| ComputationDevice {
            replica_device_ids: ids.to_vec(),
        };
        let bytes = options(ExecutableBuildOptionsProto {
            num_replicas: 2,
            num_partitions: 3,
            device_assignment: Some(DeviceAssignmentProto {
                replica_count: 2,
                computation_count: 3,
                computation_devices: vec![row(&[0, 3]), row(&[1, 4]), row(&[2, 5])],
            }),
            ..ExecutableBuildOptionsProto::default()
        });
        let read = Compilation::decode(&bytes, &[]).unwrap();
        assert_eq!(read.options.devices, [0, 1, 2, 3, 4, 5].map(DeviceId));
        let written = read.device_assignment();
        let again = DeviceAssignmentProto::decode(&*written).unwrap();
        assert_eq!(assigned(&again, 2, 3).unwrap(), read.options.devices);
    }

    #[test]
    fn empty_options_are_one_local_device() {
        let read = Compilation::decode(&[], &[DeviceId(7), DeviceId(8)]).unwrap();
        assert_eq!((read.replicas, read.partitions), (1, 1));
        assert_eq!(read.options.devices, [DeviceId(7)]);
    }

    #[test]
    fn impossible_options_are_errors() {
        let build = |num_replicas| ExecutableBuildOptionsProto {
            num_replicas,
            ..ExecutableBuildOptionsProto::default()
        };
        for (bytes, word) in [
            (vec![0xff; 4], "compile options"),
            (options(build(-1)), "num_replicas is -1"),
            (options(build(i64::MAX)), "num_replicas is 9"),
            (options(build(2)), "need 2 devices, the client has 1"),
        ] {
            let message = Compilation::decode(&bytes, &[DeviceId(0)])
                .unwrap_err()
                .message;
            assert!(message.contains(word), "{message}");
        }
    }
}
