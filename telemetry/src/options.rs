//! Options of the output of telemetry, and the environment variables that set them.

use std::{ffi::OsString, path::PathBuf};

use halite_core::files::of_process;

/// Options of the output of telemetry. By default there is none: metrics are only counted.
///
/// ```
/// use halite_core::{Client, Null};
/// use halite_telemetry::TelemetryOptions;
///
/// let options = TelemetryOptions { dump_dir: Some("dumps".into()), ..Default::default() };
/// let client = options.attach(Client::new(Null::new(1)));
/// assert!(client.wants_graph());
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TelemetryOptions {
    /// Verbosity of the log on stderr (`HALITE_DEBUG`).
    pub verbosity: Verbosity,
    /// A directory for the graph, the StableHLO text, the optimized program and the sizes of every
    /// program that is compiled, and for programs that the compiler rejects (`HALITE_DUMP_DIR`).
    pub dump_dir: Option<PathBuf>,
    /// A file that a line of metrics is appended to, with steps at most once a second, and at the
    /// end (`HALITE_METRICS_FILE`).
    pub metrics_file: Option<PathBuf>,
    /// True if launches block until their results are ready (`HALITE_SYNC`): see
    /// [`Client::with_blocking_launches`](halite_core::Client::with_blocking_launches).
    pub blocking_launches: bool,
}

/// Verbosity of the log of telemetry on stderr.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Verbosity {
    /// Nothing.
    #[default]
    Quiet,
    /// Every compilation with its reason, and at the end the findings (`HALITE_DEBUG=1`).
    Compiles,
    /// Also every launch, and at the end all metrics (`HALITE_DEBUG=2`).
    Launches,
}

impl TelemetryOptions {
    /// Reads `HALITE_DEBUG`, `HALITE_DUMP_DIR`, `HALITE_METRICS_FILE` and `HALITE_SYNC`. A value
    /// that is not valid is a warning.
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// Reads the variables of [`from_env`](Self::from_env) from `get`.
    pub fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name| get(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let level = |name, expected| {
            let value = get(name).unwrap_or_default();
            match value.to_str().map(str::trim) {
                Some("" | "0") => Verbosity::Quiet,
                Some("1") => Verbosity::Compiles,
                Some("2") => Verbosity::Launches,
                _ => {
                    let value = value.display();
                    halite_core::warning!("{name}=`{value}` is ignored; expected {expected}");
                    Verbosity::Quiet
                }
            }
        };
        TelemetryOptions {
            verbosity: level("HALITE_DEBUG", "0, 1 or 2"),
            dump_dir: path("HALITE_DUMP_DIR"),
            metrics_file: path("HALITE_METRICS_FILE").map(|path| of_process(path, &get)),
            blocking_launches: level("HALITE_SYNC", "0 or 1") > Verbosity::Quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> TelemetryOptions {
        TelemetryOptions::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn variables_set_the_options() {
        assert_eq!(options(&[]), TelemetryOptions::default());
        let all = options(&[
            ("HALITE_DEBUG", " 2 "),
            ("HALITE_DUMP_DIR", "dumps"),
            ("HALITE_METRICS_FILE", "metrics.jsonl"),
            ("HALITE_SYNC", "1"),
        ]);
        let expected = TelemetryOptions {
            verbosity: Verbosity::Launches,
            dump_dir: Some("dumps".into()),
            metrics_file: Some("metrics.jsonl".into()),
            blocking_launches: true,
        };
        assert_eq!(all, expected);
        let of_job = options(&[
            ("HALITE_METRICS_FILE", "metrics.jsonl"),
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
        ]);
        assert_eq!(of_job.metrics_file, Some("metrics.1.jsonl".into()));
    }

    #[test]
    fn empty_or_invalid_variables_are_ignored() {
        let ignored = [
            ("HALITE_DEBUG", "yes"),
            ("HALITE_DUMP_DIR", ""),
            ("HALITE_METRICS_FILE", ""),
            ("HALITE_SYNC", "0"),
        ];
        assert_eq!(options(&ignored), TelemetryOptions::default());
    }
}
