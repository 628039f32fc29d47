//! Options of libtpu's client.

use halite_core::{Error, Result};
use halite_pjrt::OptionValue;

/// Options of libtpu's client. Unset options have the plugin's defaults. Several processes on a pod
/// find each other by environment variables only. Those of several processes on a host are derived
/// where they are not set ([`OpenOptions::processes`](super::OpenOptions::processes)): `TPU_PROCESS_BOUNDS`,
/// `TPU_CHIPS_PER_PROCESS_BOUNDS`, `TPU_PROCESS_ADDRESSES`, `TPU_PROCESS_PORT`,
/// `TPU_VISIBLE_CHIPS`, `CLOUD_TPU_TASK_ID`. One that is set to another value, as a cloud does for
/// one process a host, is an error.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TpuOptions {
    /// Maximum number of programs queued on a device.
    pub max_inflight_computations: Option<u32>,
    /// Bytes of host memory to map for transfers when the client is created.
    pub premapped_buffer_size: Option<u64>,
    /// Allows devices to allocate memory while programs run.
    pub allow_async_allocations: Option<bool>,
}

impl TpuOptions {
    /// Options of the plugin's client.
    pub(crate) fn client(&self) -> Result<Vec<(String, OptionValue)>> {
        let mut options = vec![("ml_framework_name".to_string(), OptionValue::from("halite"))];
        options.push((
            "ml_framework_version".into(),
            env!("CARGO_PKG_VERSION").into(),
        ));
        if let Some(count) = self.max_inflight_computations {
            if count == 0 {
                return Err(Error::invalid(
                    "tpu options",
                    "`max_inflight_computations` is 0; expected at least 1",
                ));
            }
            options.push(("max_inflight_computations".into(), count.into()));
        }
        if let Some(bytes) = self.premapped_buffer_size {
            let bytes = i64::try_from(bytes).map_err(|_| {
                Error::invalid(
                    "tpu options",
                    format!("`premapped_buffer_size` is {bytes}; expected at most 2^63 - 1"),
                )
            })?;
            options.push(("premapped_buffer_size".into(), bytes.into()));
        }
        if let Some(allow) = self.allow_async_allocations {
            options.push(("tpu_allow_async_allocations".into(), allow.into()));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_rejected() {
        let none = TpuOptions {
            max_inflight_computations: Some(0),
            ..TpuOptions::default()
        };
        assert!(
            none.client()
                .unwrap_err()
                .to_string()
                .contains("expected at least 1")
        );
        let options = TpuOptions {
            premapped_buffer_size: Some(1 << 30),
            ..TpuOptions::default()
        };
        assert_eq!(
            options.client().unwrap()[2],
            (
                "premapped_buffer_size".to_string(),
                OptionValue::Int(1 << 30)
            )
        );
    }
}
