//! Google TPUs: detection of chips, of the processes that hold them, and the options of libtpu.

mod machine;
mod processes;

use std::path::PathBuf;

use halite_core::{Error, ErrorKind, Result};
use halite_fetch::{Cache, Progress};
use halite_pjrt::OptionValue;

use self::machine::Machine;
use crate::{
    accelerator::{Devices, OpenOptions, Opened, load},
    locate::{Located, Search},
};

/// Options of libtpu's client. Unset options have the plugin's defaults. Several processes on a pod
/// find each other by environment variables only. Those of several processes on a host are derived
/// where they are not set ([`OpenOptions::processes`]): `TPU_PROCESS_BOUNDS`,
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
    fn client(&self) -> Result<Vec<(String, OptionValue)>> {
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

/// The TPU chips of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chips {
    /// The device files: `/dev/accel0`, or `/dev/vfio/0`.
    pub files: Vec<PathBuf>,
}

/// Finds the chips of this machine.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if there are none, or if libtpu would wait for minutes for a metadata
/// server that does not exist.
pub fn probe() -> Result<Chips> {
    let cloud = |name: &str| std::env::var_os(name).is_some();
    Machine::real().probe(cloud("TPU_SKIP_MDS_QUERY") && cloud("TPU_ACCELERATOR_TYPE"))
}

/// Environment variables for libtpu that restrict a process to these chips of its host.
fn environment(chips: &[u32]) -> Result<Vec<(&'static str, String)>> {
    let bounds = match chips.len() {
        0 => return Ok(Vec::new()),
        1 => "1,1,1",
        2 => "1,2,1",
        4 => "2,2,1",
        8 => "2,4,1",
        count => {
            let message = format!(
                "libtpu does not support {count} chips; expected 1, 2, 4 or 8, or `tpu` for all"
            );
            return Err(Error::invalid("tpu", message));
        }
    };
    let visible: Vec<String> = chips.iter().map(u32::to_string).collect();
    Ok(vec![
        ("TPU_VISIBLE_CHIPS", visible.join(",")),
        ("TPU_CHIPS_PER_PROCESS_BOUNDS", bounds.to_string()),
        ("TPU_PROCESS_BOUNDS", "1,1,1".to_string()),
    ])
}

/// Opens these chips of this host.
pub(crate) fn open(
    chips: &Devices,
    options: &OpenOptions,
    progress: &mut dyn Progress,
) -> Result<Opened> {
    let found = probe()?;
    let count = found.files.len();
    let chips = chips.among(count, "chip", || format!("0 to {}", count - 1));
    let chips = chips.map_err(|message| Error::new(ErrorKind::Unavailable, "tpu", message))?;
    let environment = match &options.processes {
        Some(group) if group.local_size() > 1 && chips.is_empty() => {
            let place = [group.local_rank(), group.local_size()];
            processes::of_process(&|name| std::env::var(name).ok(), place, count)?
        }
        _ => environment(&chips)?,
    };
    let environment: Vec<(&str, &str)> = environment
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let client = options.tpu.client()?;
    let cache = Cache::open(options.cache.as_deref())?;
    let search = Search {
        trust_python: options.trust_python,
        ..Search::tpu(&cache)
    };
    let open = |located: Located| {
        load(
            located,
            client.iter().chain(&options.client).cloned().collect(),
            &environment,
            options.deadline,
            None,
        )
    };
    let opened = if options.offline {
        search.find_that(open)
    } else {
        search.ensure_that(progress, open)
    };
    opened.map_err(|failure| Machine::real().explain(&found, failure.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_of_a_host_are_selected_by_variables() {
        let one = environment(&[3]).unwrap();
        assert_eq!(one[0], ("TPU_VISIBLE_CHIPS", "3".to_string()));
        assert_eq!(one[1].1, "1,1,1");
        assert_eq!(environment(&[0, 1, 2, 3]).unwrap()[1].1, "2,2,1");
        assert!(environment(&[]).unwrap().is_empty());
        assert!(
            environment(&[0, 1, 2])
                .unwrap_err()
                .to_string()
                .contains("expected 1, 2, 4 or 8")
        );
    }

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
