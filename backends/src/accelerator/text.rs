//! The text of accelerators: `auto`, `cpu:8`, `plugin:PATH`.

use std::{fmt, str::FromStr};

use halite_core::{Error, Result};

use super::{Accelerator, MOST_CPU_DEVICES};

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu { devices } => counted(f, "cpu", *devices),
            Self::Embedded { devices } => counted(f, "embedded", *devices),
            Self::Cuda { devices } => listed(f, "cuda", devices),
            Self::Tpu { chips } => listed(f, "tpu", chips),
            Self::Plugin(path) => write!(f, "plugin:{}", path.display()),
        }
    }
}

/// Writes `cpu`, or `cpu:8`.
fn counted(f: &mut fmt::Formatter<'_>, name: &str, count: Option<u32>) -> fmt::Result {
    f.write_str(name)?;
    count.map_or(Ok(()), |count| write!(f, ":{count}"))
}

/// Writes `cuda`, or `cuda:0,1`.
fn listed(f: &mut fmt::Formatter<'_>, name: &str, numbers: &[u32]) -> fmt::Result {
    f.write_str(name)?;
    for (index, number) in numbers.iter().enumerate() {
        write!(f, "{}{number}", if index == 0 { ":" } else { "," })?;
    }
    Ok(())
}

/// Parses a number of virtual devices.
fn count(kind: &str, text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..=MOST_CPU_DEVICES) => Ok(count),
        _ => Err(format!(
            "`{text}` is not a number of devices from 1 to {MOST_CPU_DEVICES}; expected {kind} or \
             {kind}:8"
        )),
    }
}

/// Parses a list of indices such as `0,1`.
fn numbers(kind: &str, what: &str, list: &str) -> Result<Vec<u32>, String> {
    let numbers: Result<Vec<u32>, _> = list.split(',').map(str::parse).collect();
    let numbers = numbers.map_err(|_| {
        format!("`{list}` is not a list of {what} indices; expected {kind} or {kind}:0,1")
    })?;
    match (1..numbers.len()).find(|&index| numbers[..index].contains(&numbers[index])) {
        Some(index) => Err(format!("{what} {} is named twice", numbers[index])),
        None => Ok(numbers),
    }
}

/// Forms that [`Accelerator::from_str`] accepts.
const NAMES: &str =
    "auto, cpu, cpu:8, cuda, cuda:0,1, tpu, tpu:0, embedded, embedded:8, plugin:PATH";

impl FromStr for Accelerator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |reason: String| Error::invalid(format!("accelerator {text}"), reason);
        let (kind, rest) = text
            .split_once(':')
            .map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match (kind, rest) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu { devices: None }),
            ("cpu", Some(devices)) => Ok(Self::Cpu {
                devices: Some(count(kind, devices).map_err(refused)?),
            }),
            ("embedded", None) => Ok(Self::Embedded { devices: None }),
            ("embedded", Some(devices)) => Ok(Self::Embedded {
                devices: Some(count(kind, devices).map_err(refused)?),
            }),
            ("cuda", None) => Ok(Self::Cuda {
                devices: Vec::new(),
            }),
            ("cuda", Some(list)) => Ok(Self::Cuda {
                devices: numbers("cuda", "device", list).map_err(refused)?,
            }),
            ("tpu", None) => Ok(Self::Tpu { chips: Vec::new() }),
            ("tpu", Some(list)) => Ok(Self::Tpu {
                chips: numbers("tpu", "chip", list).map_err(refused)?,
            }),
            ("plugin", Some(path)) if !path.is_empty() => Ok(Self::Plugin(path.into())),
            ("plugin", _) => Err(refused(
                "the path is missing; expected plugin:/path/to/plugin.so".into(),
            )),
            _ => Err(Error::invalid(
                "accelerator",
                format!("unknown accelerator `{text}`; expected one of {NAMES}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accelerator_round_trips_as_text() {
        for text in [
            "auto",
            "cpu",
            "cpu:8",
            "cuda",
            "cuda:0,3",
            "tpu",
            "tpu:2",
            "embedded",
            "embedded:8",
            "plugin:/x.so",
        ] {
            assert_eq!(text.parse::<Accelerator>().unwrap().to_string(), text);
        }
        let error = |text: &str| text.parse::<Accelerator>().unwrap_err().to_string();
        assert!(error("cuda:1,1").ends_with("device 1 is named twice"));
        assert!(error("tpu:a").contains("not a list of chip indices"));
        assert!(error("npu").contains("tpu:0"));
    }
}
