//! Options of the CUDA plugin's client.

use std::{fmt, str::FromStr};

use halite_core::{Error, Result};
use halite_pjrt::OptionValue;

/// Options of XLA's CUDA client. Unset options have the plugin's defaults.
///
/// JAX has the same as `XLA_PYTHON_CLIENT_ALLOCATOR`, `XLA_PYTHON_CLIENT_MEM_FRACTION`,
/// `XLA_PYTHON_CLIENT_PREALLOCATE`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CudaOptions {
    /// The allocator of device memory.
    pub allocator: Option<CudaAllocator>,
    /// Fraction of each device's memory to use, above 0 and at most 1.
    pub memory_fraction: Option<f32>,
    /// Allocates the memory when the client is created.
    pub preallocate: Option<bool>,
    /// Bytes reserved for collectives.
    pub collective_memory: Option<u64>,
}

/// Allocators of device memory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum CudaAllocator {
    /// The plugin's default.
    Default,
    /// XLA's own pool, best fit with coalescing.
    Bfc,
    /// The driver's pool, `cudaMallocAsync`.
    CudaAsync,
    /// `cudaMalloc` for each buffer: slow, and frees memory at once.
    Platform,
}

impl CudaAllocator {
    const ALL: [CudaAllocator; 4] = [Self::Default, Self::Bfc, Self::CudaAsync, Self::Platform];

    /// The name in the plugin's options and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Bfc => "bfc",
            Self::CudaAsync => "cuda_async",
            Self::Platform => "platform",
        }
    }
}

impl fmt::Display for CudaAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CudaAllocator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|allocator| allocator.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                Error::invalid(
                    "allocator",
                    format!("unknown allocator `{text}`; expected one of {names}"),
                )
            })
    }
}

impl CudaOptions {
    /// Options of the plugin's client for these of the visible devices; all if `devices` is empty.
    pub(crate) fn client(&self, devices: &[u32]) -> Result<Vec<(String, OptionValue)>> {
        let invalid = |what: String| Err(Error::invalid("cuda options", what));
        let mut options: Vec<(String, OptionValue)> = vec![("platform_name".into(), "cuda".into())];
        if !devices.is_empty() {
            let devices = devices.iter().map(|&device| i64::from(device)).collect();
            options.push(("visible_devices".into(), OptionValue::Ints(devices)));
        }
        if let Some(allocator) = self.allocator {
            options.push(("allocator".into(), allocator.name().into()));
        }
        if let Some(fraction) = self.memory_fraction {
            if !(fraction > 0.0 && fraction <= 1.0) {
                return invalid(format!(
                    "`memory_fraction` is {fraction}; expected above 0 and at most 1"
                ));
            }
            options.push(("memory_fraction".into(), OptionValue::Float(fraction)));
        }
        if let Some(preallocate) = self.preallocate {
            options.push(("preallocate".into(), OptionValue::Bool(preallocate)));
        }
        if let Some(bytes) = self.collective_memory {
            let Ok(bytes) = i64::try_from(bytes) else {
                return invalid(format!(
                    "`collective_memory` is {bytes}; expected at most 2^63 - 1"
                ));
            };
            options.push(("collective_memory_size".into(), OptionValue::Int(bytes)));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let options = CudaOptions {
            allocator: Some("bfc".parse().unwrap()),
            memory_fraction: Some(0.5),
            preallocate: Some(false),
            collective_memory: Some(1024),
        };
        let names: Vec<String> = options
            .client(&[1])
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let expected = [
            "platform_name",
            "visible_devices",
            "allocator",
            "memory_fraction",
            "preallocate",
            "collective_memory_size",
        ];
        assert_eq!(names, expected);
        let error = |options: CudaOptions| options.client(&[]).unwrap_err().to_string();
        assert!(
            error(CudaOptions {
                memory_fraction: Some(1.5),
                ..CudaOptions::default()
            })
            .contains("1.5")
        );
        assert!(
            error(CudaOptions {
                memory_fraction: Some(f32::NAN),
                ..CudaOptions::default()
            })
            .contains("NaN")
        );
        assert!(
            "pool"
                .parse::<CudaAllocator>()
                .unwrap_err()
                .to_string()
                .contains("cuda_async")
        );
    }
}
