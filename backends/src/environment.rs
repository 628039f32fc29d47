//! Environment variables that apply to the whole process, read when an accelerator is opened.

use std::{
    ffi::{OsStr, OsString},
    time::Duration,
};

use halite_core::{
    Capabilities, Error, Kernels, Result, WarningFilter, set_warning_filter,
    wait::set_default_limit,
};

/// Operation of errors whose message alone says why an accelerator cannot be opened.
pub(crate) const OPEN: &str = "open";

/// The variable by which users of PyTorch/XLA choose a platform.
pub(crate) const PLATFORM: &str = "PJRT_DEVICE";
/// The variable by which users of PyTorch/XLA choose a number of GPUs.
const GPUS: &str = "GPU_NUM_DEVICES";
const KERNELS: &str = "HALITE_KERNELS";
const PLUGIN_DEADLINE: &str = "HALITE_PLUGIN_DEADLINE";
/// The variable that allows plugins of a Python environment with an unknown digest.
pub(crate) const TRUST_PYTHON: &str = "HALITE_TRUST_PYTHON";
const UNROLL: &str = "HALITE_UNROLL";
const WAIT_LIMIT: &str = "HALITE_WAIT_LIMIT";
const WARNINGS: &str = "HALITE_LOG";

/// Values of the variables that are set.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Environment {
    /// The platform that [`Accelerator::Auto`](crate::Accelerator::Auto) is restricted to
    /// (`PJRT_DEVICE`).
    pub(crate) platform: Option<String>,
    /// Number of GPUs that `cuda` without a number takes (`GPU_NUM_DEVICES`).
    pub(crate) gpus: Option<u32>,
    /// Deadline for loading a plugin and finding its devices (`HALITE_PLUGIN_DEADLINE`).
    pub(crate) plugin_deadline: Option<Duration>,
    /// What programs for a CPU leave to halite (`HALITE_KERNELS`).
    pub(crate) kernels: Option<Kernels>,
    /// Most nodes of a loop that is unrolled (`HALITE_UNROLL`).
    pub(crate) unrolled: Option<usize>,
    /// Default limit of waits for a device (`HALITE_WAIT_LIMIT`).
    wait_limit: Option<Duration>,
    /// Warnings that a program without a `tracing` subscriber prints (`HALITE_LOG`).
    warnings: Option<WarningFilter>,
}

impl Environment {
    /// Reads the variables of this process.
    ///
    /// # Errors
    /// If a time or a number is not one, or the use of kernels is unknown.
    pub(crate) fn read() -> Result<Self> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let value = |name| get(name).filter(|value| !value.is_empty());
        let text = |name| value(name).and_then(|value| value.into_string().ok());
        Ok(Environment {
            platform: text(PLATFORM),
            gpus: value(GPUS).map(|value| gpus(&value)).transpose()?,
            plugin_deadline: value(PLUGIN_DEADLINE)
                .map(|value| plugin_deadline(&value))
                .transpose()?,
            kernels: value(KERNELS)
                .map(|value| value.to_string_lossy().parse())
                .transpose()
                .map_err(|error: Error| error.with_note(&format!("in {KERNELS}")))?,
            unrolled: value(UNROLL).map(|value| unrolled(&value)).transpose()?,
            wait_limit: value(WAIT_LIMIT)
                .map(|value| wait_limit(&value))
                .transpose()?,
            warnings: text(WARNINGS).map(|filter| WarningFilter::parse(&filter)),
        })
    }

    /// Sets the limit of waits and the filter of warnings in this process, where given.
    pub(crate) fn apply(&self) {
        if let Some(limit) = self.wait_limit {
            set_default_limit(limit);
        }
        if let Some(filter) = &self.warnings {
            set_warning_filter(filter.clone());
        }
    }
}

/// Capabilities of the devices of a platform that are not there, as this process may change them.
///
/// # Errors
/// As [`Environment::read`].
pub(crate) fn capabilities(platform: &str) -> Result<Capabilities> {
    let mut capabilities = halite_pjrt::capabilities(platform);
    capabilities.unrolled = (Environment::read()?.unrolled).unwrap_or(capabilities.unrolled);
    Ok(capabilities)
}

/// True if `HALITE_TRUST_PYTHON` is set, and not to `0`.
pub(crate) fn trust_python() -> bool {
    std::env::var_os(TRUST_PYTHON).is_some_and(|value| !value.is_empty() && value != "0")
}

fn gpus(value: &OsStr) -> Result<u32> {
    let count = value.to_str().and_then(|text| text.trim().parse().ok());
    count.filter(|count| *count > 0).ok_or_else(|| {
        let value = value.display();
        let message = format!("{GPUS} is `{value}`; expected a positive number of devices");
        Error::invalid(OPEN, message)
    })
}

fn unrolled(value: &OsStr) -> Result<usize> {
    let nodes = value.to_str().and_then(|text| text.trim().parse().ok());
    nodes.ok_or_else(|| {
        let value = value.display();
        let message = format!("{UNROLL} is `{value}`; expected a number of nodes, 0 to keep loops");
        Error::invalid(OPEN, message)
    })
}

fn plugin_deadline(value: &OsStr) -> Result<Duration> {
    let seconds = value.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(|| {
        let value = value.display();
        let message =
            format!("{PLUGIN_DEADLINE} is `{value}`; expected a positive whole number of seconds");
        Error::invalid(OPEN, message)
    })
}

fn wait_limit(value: &OsStr) -> Result<Duration> {
    let seconds = value.to_str().and_then(|text| text.trim().parse().ok());
    let limit = seconds
        .filter(|&seconds: &f64| seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.ok_or_else(|| {
        let value = value.display();
        let message = format!(
            "{WAIT_LIMIT} is `{value}`; expected a positive number of seconds, such as 3600"
        );
        Error::invalid(OPEN, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment> {
        Environment::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn variables_are_parsed() {
        assert_eq!(read(&[]).unwrap(), Environment::default());
        let all = read(&[
            (PLATFORM, "TPU"),
            (GPUS, "4"),
            (PLUGIN_DEADLINE, "30"),
            (WAIT_LIMIT, " 0.5 "),
            (WARNINGS, "off"),
            (KERNELS, "off"),
            (UNROLL, "0"),
        ]);
        let expected = Environment {
            platform: Some("TPU".to_string()),
            gpus: Some(4),
            plugin_deadline: Some(Duration::from_secs(30)),
            kernels: Some(Kernels::Off),
            unrolled: Some(0),
            wait_limit: Some(Duration::from_millis(500)),
            warnings: Some(WarningFilter::parse("off")),
        };
        assert_eq!(all.unwrap(), expected);
    }

    #[test]
    fn empty_variables_are_ignored() {
        let empty = [
            PLATFORM,
            GPUS,
            PLUGIN_DEADLINE,
            WAIT_LIMIT,
            WARNINGS,
            KERNELS,
            UNROLL,
        ]
        .map(|name| (name, ""));
        assert_eq!(read(&empty).unwrap(), Environment::default());
    }

    #[test]
    fn unknown_use_of_kernels_is_an_error() {
        let error = read(&[(KERNELS, "no")]).unwrap_err().to_string();
        let expected = "`no` is unknown; expected on, off or all; in HALITE_KERNELS";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn invalid_number_of_nodes_is_an_error() {
        for wrong in ["-1", "off", "4096.5"] {
            let error = read(&[(UNROLL, wrong)]).unwrap_err().to_string();
            let expected = format!("HALITE_UNROLL is `{wrong}`; expected a number of nodes");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn invalid_number_of_gpus_is_an_error() {
        for wrong in ["0", "-1", "all", "99999999999"] {
            let error = read(&[(GPUS, wrong)]).unwrap_err().to_string();
            let expected = format!("GPU_NUM_DEVICES is `{wrong}`; expected a positive number");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn invalid_times_are_errors() {
        for wrong in ["0", "-1", "ten", "inf", "NaN", "1e30"] {
            let error = read(&[(WAIT_LIMIT, wrong)]).unwrap_err().to_string();
            let expected = format!("HALITE_WAIT_LIMIT is `{wrong}`; expected a positive number");
            assert!(error.contains(&expected), "{error}");
        }
        for wrong in ["0", "-1", "ten", "0.5"] {
            let error = read(&[(PLUGIN_DEADLINE, wrong)]).unwrap_err().to_string();
            let expected =
                format!("HALITE_PLUGIN_DEADLINE is `{wrong}`; expected a positive whole");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
