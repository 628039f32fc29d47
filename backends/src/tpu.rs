//! Google TPUs: detection of chips, of the processes that hold them, and the options of libtpu.

use std::{
    fs,
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, Result};
use halite_fetch::{Cache, Progress};
use halite_pjrt::OptionValue;

use crate::{
    accelerator::{OpenOptions, Opened, load},
    locate::{Located, Search},
};

/// Options of libtpu's client. Unset options have the plugin's defaults. Several processes on a pod
/// find each other by environment variables only: `TPU_PROCESS_BOUNDS`,
/// `TPU_CHIPS_PER_PROCESS_BOUNDS`, `TPU_PROCESS_ADDRESSES`, `TPU_PROCESS_PORT`,
/// `TPU_VISIBLE_CHIPS`, `CLOUD_TPU_TASK_ID`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TpuOptions {
    /// Maximum number of programs queued on a device.
    pub max_inflight_computations: Option<u32>,
    /// Bytes of host memory to map for transfers when the client is created.
    pub premapped_buffer_size: Option<u64>,
    /// Whether devices may allocate memory while programs run.
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

/// A process that has a chip open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process id.
    pub process: u32,
    /// The command line.
    pub command: String,
    /// The chip's device file.
    pub file: PathBuf,
}

/// Google's PCI vendor id.
const GOOGLE: &str = "0x1ae0";
/// Name of the file that libtpu creates in the temporary directory while it holds the chips.
const LOCK_FILE: &str = "libtpu_lockfile";

/// Finds the chips of this machine.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if there are none, or if libtpu would wait for minutes for a metadata
/// server that does not exist.
pub fn probe() -> Result<Chips> {
    let cloud = |name: &str| std::env::var_os(name).is_some();
    Machine::real().probe(cloud("TPU_SKIP_MDS_QUERY") && cloud("TPU_ACCELERATOR_TYPE"))
}

/// The file system of a machine.
struct Machine {
    root: PathBuf,
    temporary: PathBuf,
}

impl Machine {
    fn real() -> Self {
        Machine {
            root: PathBuf::from("/"),
            temporary: std::env::temp_dir(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn probe(&self, has_configuration: bool) -> Result<Chips> {
        let unavailable = |message: String| Err(Error::new(ErrorKind::Unavailable, "tpu", message));
        let files = self.chips();
        if files.is_empty() {
            return unavailable(
                "no TPU devices were found (no /dev/accel*, and no PCI device of Google behind \
                 /dev/vfio); start a container on a TPU VM with `--privileged --net=host`"
                    .into(),
            );
        }
        let product = fs::read_to_string(self.at("sys/devices/virtual/dmi/id/product_name"))
            .unwrap_or_default();
        if !has_configuration && product.trim() != "Google Compute Engine" {
            return unavailable(format!(
                "this machine (`{}`) has {} chips and is not on Google Compute Engine; libtpu \
                 would query its metadata server for minutes. Set TPU_SKIP_MDS_QUERY=1, \
                 TPU_ACCELERATOR_TYPE (for instance v5litepod-4), TPU_WORKER_ID=0 and \
                 TPU_WORKER_HOSTNAMES=localhost",
                product.trim(),
                files.len()
            ));
        }
        Ok(Chips { files })
    }

    /// Device files of the older driver, else those of VFIO if there is a PCI device of Google.
    fn chips(&self) -> Vec<PathBuf> {
        let numbered = |directory: &str, prefix: &str| -> Vec<PathBuf> {
            let entries = fs::read_dir(self.at(directory))
                .into_iter()
                .flatten()
                .flatten();
            let number = |path: &Path| {
                path.file_name()?
                    .to_str()?
                    .strip_prefix(prefix)?
                    .parse::<u32>()
                    .ok()
            };
            let mut found: Vec<_> = entries
                .filter_map(|entry| Some((number(&entry.path())?, entry.path())))
                .collect();
            found.sort();
            found.into_iter().map(|(_, path)| path).collect()
        };
        let accel = numbered("dev", "accel");
        if !accel.is_empty() {
            return accel;
        }
        let mut devices = fs::read_dir(self.at("sys/bus/pci/devices"))
            .into_iter()
            .flatten()
            .flatten();
        let is_google = |entry: fs::DirEntry| {
            fs::read_to_string(entry.path().join("vendor"))
                .is_ok_and(|vendor| vendor.trim() == GOOGLE)
        };
        if devices.any(is_google) {
            numbered("dev/vfio", "")
        } else {
            Vec::new()
        }
    }

    /// Other processes that have one of these files open, as far as this process can see.
    fn holders(&self, files: &[PathBuf]) -> Vec<Holder> {
        let mut holders = Vec::new();
        let processes = fs::read_dir(self.at("proc"))
            .into_iter()
            .flatten()
            .flatten();
        for entry in processes {
            let name = entry.file_name();
            let Some(process) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if process == std::process::id() {
                continue;
            }
            let open = fs::read_dir(entry.path().join("fd"))
                .into_iter()
                .flatten()
                .flatten();
            let held = open
                .filter_map(|link| fs::read_link(link.path()).ok())
                .find(|target| files.contains(target));
            if let Some(file) = held {
                let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let command = String::from_utf8_lossy(&command)
                    .replace('\0', " ")
                    .trim()
                    .to_owned();
                holders.push(Holder {
                    process,
                    command,
                    file,
                });
            }
        }
        holders.sort_by_key(|holder| holder.process);
        holders
    }

    /// Adds the cause of libtpu's error, as far as the machine shows it.
    fn explain(&self, chips: &Chips, error: Error) -> Error {
        let holders = self.holders(&chips.files);
        let lock = self.temporary.join(LOCK_FILE);
        let message = if let Some(Holder {
            process,
            command,
            file,
        }) = holders.first()
        {
            format!(
                "{} is held by process {process} (`{command}`); wait for it, or end it with \
                 `kill {process}`",
                file.display()
            )
        } else if error.to_string().contains("lockfile") && lock.exists() {
            format!(
                "an ended process, or one of another user, left the lock file {}; if \
                 `sudo lsof -w {}` shows no process, remove it",
                lock.display(),
                chips
                    .files
                    .first()
                    .map_or_else(String::new, |file| file.display().to_string())
            )
        } else if error.kind() == ErrorKind::DeadlineExceeded {
            "libtpu waits for the metadata server, or for the other hosts of its slice, which must \
             all start the same program at the same time; for a single host, set \
             TPU_SKIP_MDS_QUERY=1, TPU_ACCELERATOR_TYPE, TPU_WORKER_ID=0 and \
             TPU_WORKER_HOSTNAMES=localhost"
                .to_string()
        } else {
            return error;
        };
        Error::new(error.kind(), "tpu", message).caused_by(error)
    }
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

/// Opens these chips of this host; all if `chips` is empty.
pub(crate) fn open(
    chips: &[u32],
    options: &OpenOptions,
    progress: &mut dyn Progress,
) -> Result<Opened> {
    let found = probe()?;
    if let Some(missing) = chips
        .iter()
        .find(|&&chip| chip as usize >= found.files.len())
    {
        let message = format!(
            "unknown chip {missing}; this host has {}, numbered from 0",
            found.files.len()
        );
        return Err(Error::new(ErrorKind::Unavailable, "tpu", message));
    }
    let environment = environment(chips)?;
    let environment: Vec<(&str, &str)> = environment
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let client = options.tpu.client()?;
    let cache = Cache::open(options.cache.as_deref())?;
    let search = Search::tpu(&cache);
    let open = |located: Located| {
        load(
            located,
            client.iter().chain(&options.client).cloned().collect(),
            &environment,
            options.deadline,
        )
    };
    let opened = if options.offline {
        search.find_that(open)
    } else {
        search.ensure_that(progress, open)
    };
    opened.map_err(|error| Machine::real().explain(&found, error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Creates a machine with these files, `(path, contents)`.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let directory = tempfile::tempdir().unwrap();
        for (path, contents) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }
        let machine = Machine {
            root: directory.path().to_owned(),
            temporary: directory.path().join("tmp"),
        };
        (directory, machine)
    }

    const PRODUCT: &str = "sys/devices/virtual/dmi/id/product_name";

    #[test]
    fn chips_of_both_drivers_are_found_in_order() {
        let accel: Vec<(String, &str)> = (0..12)
            .map(|index| (format!("dev/accel{index}"), ""))
            .collect();
        let mut files: Vec<(&str, &str)> = accel
            .iter()
            .map(|(path, contents)| (path.as_str(), *contents))
            .collect();
        files.push((PRODUCT, "Google Compute Engine\n"));
        let (_held, it) = machine(&files);
        let chips = it.probe(false).unwrap();
        assert_eq!(chips.files.len(), 12);
        assert!(chips.files[10].ends_with("dev/accel10"));

        let vfio = [
            ("dev/vfio/0", ""),
            ("dev/vfio/1", ""),
            ("dev/vfio/vfio", ""),
            (PRODUCT, "Google Compute Engine\n"),
        ];
        let pci = ("sys/bus/pci/devices/0000:00:05.0/vendor", "0x1ae0\n");
        let (_held, it) = machine(&[&vfio[..], &[pci]].concat());
        assert_eq!(it.probe(false).unwrap().files.len(), 2);
        let (_held, it) = machine(&[&vfio[..], &[(pci.0, "0x8086\n")]].concat());
        assert!(
            it.probe(false)
                .unwrap_err()
                .to_string()
                .contains("no TPU devices were found"),
            "other VFIO devices are not TPUs"
        );
    }

    #[test]
    fn missing_metadata_server_is_an_error() {
        let (_held, it) = machine(&[("dev/accel0", ""), (PRODUCT, "Laptop 5\n")]);
        let error = it.probe(false).unwrap_err().to_string();
        assert!(
            error.contains("`Laptop 5`") && error.contains("TPU_SKIP_MDS_QUERY=1"),
            "{error}"
        );
        assert_eq!(
            it.probe(true).unwrap().files.len(),
            1,
            "the variables replace the metadata server"
        );
    }

    #[test]
    fn error_names_the_process_that_holds_a_chip() {
        let (held, it) = machine(&[
            ("dev/accel0", ""),
            ("proc/4242/cmdline", "python3\0train.py\0"),
            ("proc/7/cmdline", "sh\0"),
        ]);
        fs::create_dir_all(held.path().join("proc/4242/fd")).unwrap();
        symlink(
            held.path().join("dev/accel0"),
            held.path().join("proc/4242/fd/9"),
        )
        .unwrap();
        let chips = Chips {
            files: vec![held.path().join("dev/accel0")],
        };
        let error = || {
            Error::new(
                ErrorKind::Unavailable,
                "open",
                "ABORTED: libtpu multi-process lockfile",
            )
        };
        let text = it.explain(&chips, error()).to_string();
        assert!(
            text.contains("held by process 4242 (`python3 train.py`)") && text.contains("ABORTED"),
            "{text}"
        );

        fs::remove_file(held.path().join("proc/4242/fd/9")).unwrap();
        assert_eq!(
            it.explain(&chips, error()).to_string(),
            error().to_string(),
            "nothing is known then"
        );
        fs::create_dir_all(&it.temporary).unwrap();
        fs::write(it.temporary.join(LOCK_FILE), "").unwrap();
        let text = it.explain(&chips, error()).to_string();
        assert!(
            text.contains("lock file") && text.contains("libtpu_lockfile"),
            "{text}"
        );
        let late = Error::new(
            ErrorKind::DeadlineExceeded,
            "open",
            "took longer than 180 s",
        );
        assert!(
            it.explain(&chips, late)
                .to_string()
                .contains("metadata server")
        );
    }

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
