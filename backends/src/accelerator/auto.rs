//! The accelerator `auto`: the best platform that this machine has.

use halite_core::{Error, ErrorKind, Result, warning};
use halite_fetch::Progress;

use super::{Accelerator, words};
use crate::{
    cpu, cuda,
    devices::Devices,
    embedded,
    environment::{Environment, OPEN, PLATFORM},
    locate::Failure,
    opened::Opened,
    options::OpenOptions,
    tpu,
};

pub(super) fn auto(
    environment: &Environment,
    options: &OpenOptions,
    progress: &mut dyn Progress,
) -> Result<Opened> {
    let every = [
        Accelerator::Tpu {
            chips: Devices::All,
        },
        Accelerator::Cuda {
            devices: gpus(&Devices::All, environment.gpus, options),
        },
        Accelerator::cpu(),
    ];
    let platform = environment.platform.as_deref();
    let candidates = chosen(platform, every)?;
    let mut refused = Vec::new();
    let mut kind = ErrorKind::Unavailable;
    for candidate in &candidates {
        let opened = match candidate {
            Accelerator::Tpu { chips } => tpu::open(chips, options, progress),
            Accelerator::Cuda { devices } => cuda::open(devices, options, progress),
            _ => match cpu::open(1, options, progress) {
                Err(Failure::Absent(reason)) if platform.is_none() => {
                    return instead_of_cpu(reason, refused);
                }
                other => other.map_err(Error::from),
            },
        };
        match opened {
            Ok(opened) => return Ok(Opened { refused, ..opened }),
            Err(error) => {
                tracing::info!(accelerator = %candidate, reason = %words(&error), "not taken");
                kind = error.kind();
                refused.push(format!("{candidate}: {}", words(&error)));
            }
        }
    }
    let because = platform.map_or(String::new(), |name| format!("{PLATFORM}={name}; "));
    let message = format!("{because}{}", refused.join("; "));
    Err(Error::new(kind, OPEN, message))
}

/// Opens the embedded executor where no plugin for the CPU can be had, for this reason.
///
/// # Errors
/// The reason, if this build has no embedded executor.
fn instead_of_cpu(reason: Error, mut refused: Vec<String>) -> Result<Opened> {
    refused.push(format!("cpu: {}", words(&reason)));
    let opened =
        embedded::open(1).map_err(|_| Error::new(reason.kind(), OPEN, refused.join("; ")))?;
    warning!("{}", embedded_because(&reason));
    Ok(Opened { refused, ..opened })
}

/// Returns a line that says why the embedded executor is taken.
fn embedded_because(reason: &Error) -> String {
    let reason = words(reason);
    format!(
        "accelerator auto is `embedded`, the executor that is part of halite, because XLA's plugin \
         for the CPU, which is faster, cannot be had: {}",
        reason.lines().next().unwrap_or_default()
    )
}

/// Returns the GPUs of this process: without a number, and without other processes in its job, as
/// many as `GPU_NUM_DEVICES` says.
pub(super) fn gpus(devices: &Devices, variable: Option<u32>, options: &OpenOptions) -> Devices {
    let group = options.processes.as_ref();
    let is_alone = group.is_none_or(|group| group.size() == 1);
    match (devices, variable) {
        (Devices::All, Some(count)) if is_alone => Devices::Count(count),
        _ => devices.clone(),
    }
}

/// Returns the candidates that `choice`, the value of `PJRT_DEVICE`, allows.
fn chosen(choice: Option<&str>, every: [Accelerator; 3]) -> Result<Vec<Accelerator>> {
    let Some(name) = choice else {
        return Ok(every.into());
    };
    let kept: Vec<Accelerator> = every
        .into_iter()
        .filter(|candidate| match candidate {
            Accelerator::Tpu { .. } => name.eq_ignore_ascii_case("tpu"),
            Accelerator::Cuda { .. } => ["cuda", "gpu"]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known)),
            _ => name.eq_ignore_ascii_case("cpu"),
        })
        .collect();
    if kept.is_empty() {
        let message = format!("{PLATFORM} is `{name}`; expected TPU, CUDA or CPU, or unset");
        return Err(Error::invalid(OPEN, message));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::{super::Driver, *};
    use crate::locate::Search;

    #[test]
    fn auto_names_hosts_that_have_a_plugin() {
        let directory = tempfile::tempdir().unwrap();
        let cache = halite_fetch::Cache::at(directory.path());
        let search = Search {
            variable: "HALITE_TEST_NO_PLUGIN",
            host: ("macos", "aarch64"),
            ..Search::cpu(&cache)
        };
        let Err(Failure::Absent(reason)) = search.ensure_that(&mut halite_fetch::Quiet, Ok) else {
            panic!("there is no package for this host");
        };
        let line = embedded_because(&reason);
        let end = "there is no package of the cpu plugin for macos aarch64, only for linux x86_64; \
                   name another plugin with plugin:PATH or HALITE_TEST_NO_PLUGIN";
        assert!(line.ends_with(end) && line.lines().count() == 1, "{line}");
        let opened = instead_of_cpu(reason, Vec::new()).unwrap();
        assert!(matches!(opened.driver, Driver::Embedded), "{opened:?}");
        assert!(
            !directory.path().join(".partial").exists(),
            "nothing is downloaded"
        );
    }

    #[test]
    fn variable_is_the_number_of_gpus_where_none_is_given() {
        let gpus = |devices: &Devices, variable| gpus(devices, variable, &OpenOptions::default());
        assert_eq!(gpus(&Devices::All, Some(4)), Devices::Count(4));
        assert_eq!(gpus(&Devices::Count(2), Some(4)), Devices::Count(2));
        let second = Devices::Indices(vec![1]);
        assert_eq!(gpus(&second, Some(4)), second);
        assert_eq!(gpus(&Devices::All, None), Devices::All);
    }

    #[test]
    fn pjrt_device_chooses_the_platform() {
        let every = || {
            [
                Accelerator::Tpu {
                    chips: Devices::All,
                },
                Accelerator::Cuda {
                    devices: Devices::All,
                },
                Accelerator::cpu(),
            ]
        };
        assert_eq!(chosen(None, every()).unwrap(), every());
        assert_eq!(chosen(Some("TPU"), every()).unwrap(), every()[..1]);
        assert_eq!(chosen(Some("GPU"), every()).unwrap(), every()[1..2]);
        assert_eq!(chosen(Some("cpu"), every()).unwrap(), every()[2..]);
        let error = chosen(Some("NEURON"), every()).unwrap_err().to_string();
        assert!(
            error.contains("PJRT_DEVICE is `NEURON`; expected TPU, CUDA or CPU"),
            "{error}"
        );
    }
}
