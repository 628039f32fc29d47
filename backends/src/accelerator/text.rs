//! The text of accelerators: `auto`, `cpu:8`, `cuda:[5]`, `plugin:PATH`.

use std::{fmt, str::FromStr};

use halite_core::{Error, Result};

use super::Accelerator;
use crate::{
    devices::{Devices, MOST_CPU_DEVICES},
    vendor,
};

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu { devices } => counted(f, "cpu", *devices),
            Self::Embedded { devices } => counted(f, "embedded", *devices),
            Self::Cuda { devices } => write!(f, "cuda{devices}"),
            Self::Tpu { chips } => write!(f, "tpu{chips}"),
            Self::Vendor(platform) => f.write_str(platform),
            Self::Plugin(path) => write!(f, "plugin:{}", path.display()),
        }
    }
}

/// Writes `cpu`, or `cpu:8`.
fn counted(f: &mut fmt::Formatter<'_>, name: &str, count: Option<u32>) -> fmt::Result {
    f.write_str(name)?;
    count.map_or(Ok(()), |count| write!(f, ":{count}"))
}

/// Parses a number of virtual devices.
fn count(kind: &str, text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..=MOST_CPU_DEVICES) => Ok(count),
        _ => Err(format!(
            "`{text}` is not a number of devices from 1 to {MOST_CPU_DEVICES}; expected {kind} or \
             {kind}:8 (virtual devices, which have no indices)"
        )),
    }
}

/// Parses a number of devices such as `2`, or indices such as `[5]`, `[0,1]` or `0,1`.
fn devices(kind: &str, what: &str, text: &str) -> Result<Devices, String> {
    let expected = || {
        format!(
            "`{text}` is not a number of {what}s, nor a list of {what} indices; expected {kind}, \
             {kind}:2 (a number, from 1), or {kind}:[5] or {kind}:[0,1] (indices, from 0)"
        )
    };
    let listed = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let list = match listed {
        Some(list) => list,
        None if text.contains(',') => text,
        None => {
            let count = text.parse().ok().filter(|&count| count > 0);
            return count.map(Devices::Count).ok_or_else(expected);
        }
    };
    let indices: Result<Vec<u32>, _> = list.split(',').map(|one| one.trim().parse()).collect();
    let indices = indices.map_err(|_| expected())?;
    match (1..indices.len()).find(|&place| indices[..place].contains(&indices[place])) {
        Some(place) => Err(format!("{what} {} is named twice", indices[place])),
        None => Ok(Devices::Indices(indices)),
    }
}

/// Forms that [`Accelerator::from_str`] accepts.
const NAMES: &str = "auto, cpu, cpu:8, cuda, cuda:2, cuda:[0,1], tpu, tpu:4, tpu:[5], embedded, \
                     embedded:8, rocm, oneapi, tt, plugin:PATH";

/// Returns the platform of this name, if it is one of [`Accelerator::Vendor`].
fn of_vendor(name: &str) -> Option<&'static str> {
    let mut names = vendor::defaults().map(|plugin| plugin.platform);
    names.find(|platform| *platform == name)
}

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
                devices: Devices::All,
            }),
            ("cuda", Some(some)) => Ok(Self::Cuda {
                devices: devices("cuda", "device", some).map_err(refused)?,
            }),
            ("tpu", None) => Ok(Self::Tpu {
                chips: Devices::All,
            }),
            ("tpu", Some(some)) => Ok(Self::Tpu {
                chips: devices("tpu", "chip", some).map_err(refused)?,
            }),
            ("plugin", Some(path)) if !path.is_empty() => Ok(Self::Plugin(path.into())),
            ("plugin", _) => Err(refused(
                "the path is missing; expected plugin:/path/to/plugin.so".into(),
            )),
            _ => of_vendor(text).map(Self::Vendor).ok_or_else(|| {
                let message = format!("unknown accelerator `{text}`; expected one of {NAMES}");
                Error::invalid("accelerator", message)
            }),
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
            "cuda:3",
            "cuda:[0,3]",
            "tpu",
            "tpu:2",
            "tpu:[2]",
            "embedded",
            "embedded:8",
            "rocm",
            "oneapi",
            "tt",
            "plugin:/x.so",
        ] {
            assert_eq!(text.parse::<Accelerator>().unwrap().to_string(), text);
        }
        let error = |text: &str| text.parse::<Accelerator>().unwrap_err().to_string();
        assert!(error("cuda:1,1").ends_with("device 1 is named twice"));
        assert!(error("tpu:a").contains("nor a list of chip indices"));
        assert!(error("npu").contains("tpu:[5]"));
    }

    #[test]
    fn number_of_devices_is_that_of_the_text() {
        for kind in ["cpu", "embedded", "cuda", "tpu"] {
            let accelerator = kind.parse::<Accelerator>().unwrap();
            let eight = accelerator.clone().devices(8).unwrap();
            assert_eq!(eight, format!("{kind}:8").parse().unwrap());
            let error = accelerator.devices(0).unwrap_err().to_string();
            assert!(error.contains("`0` is not a number of"), "{error}");
        }
        for kind in ["auto", "rocm", "plugin:/x.so"] {
            let error = kind.parse::<Accelerator>().unwrap().devices(2).unwrap_err();
            assert!(error.to_string().contains("2 devices asked for"), "{error}");
        }
    }

    #[test]
    fn number_is_a_count_on_every_platform() {
        let accelerator = |text: &str| text.parse::<Accelerator>().unwrap();
        let (cuda, tpu) = (
            |devices| Accelerator::Cuda { devices },
            |chips| Accelerator::Tpu { chips },
        );
        assert_eq!(accelerator("cuda:8"), cuda(Devices::Count(8)));
        assert_eq!(accelerator("tpu:8"), tpu(Devices::Count(8)));
        let indices = |indices: &[u32]| Devices::Indices(indices.into());
        assert_eq!(accelerator("tpu:[5]"), tpu(indices(&[5])));
        assert_eq!(accelerator("cuda:0,1"), cuda(indices(&[0, 1])));
        assert_eq!(accelerator("cuda:[0, 1]"), cuda(indices(&[0, 1])));
        let error = |text: &str| text.parse::<Accelerator>().unwrap_err().to_string();
        for text in ["tpu:0", "cuda:[]", "cuda:[1", "cuda:1,", "cuda:-1"] {
            assert!(error(text).contains(":[5] or "), "{}", error(text));
        }
        assert!(error("cpu:[5]").contains("cpu:8 (virtual devices, which have no indices)"));
    }
}
