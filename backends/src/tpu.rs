//! Google TPUs: detection of chips, of the processes that hold them, and the options of libtpu.

mod machine;
mod processes;

use std::path::PathBuf;

use halite_core::{Error, ErrorKind, Result};
use halite_fetch::{Cache, Progress};

use self::machine::Machine;
pub use crate::options::TpuOptions;
use crate::{
    devices::Devices,
    load::load,
    locate::{Located, Search},
    opened::Opened,
    options::OpenOptions,
};

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
}
