//! Chips of a machine, and the processes that hold them, read from its file system.

use std::{fs, path::PathBuf};

use halite_core::{Error, ErrorKind, Result};

use super::Chips;
use crate::holders::{Holder, holders, numbered};

/// Google's PCI vendor id.
const GOOGLE: &str = "0x1ae0";
/// Name of the file that libtpu creates in the temporary directory while it holds the chips.
const LOCK_FILE: &str = "libtpu_lockfile";

/// The file system of a machine.
pub(super) struct Machine {
    root: PathBuf,
    temporary: PathBuf,
}

impl Machine {
    /// The machine of this process.
    pub(super) fn real() -> Self {
        Machine {
            root: PathBuf::from("/"),
            temporary: std::env::temp_dir(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The chips of the machine. `has_configuration` means that variables replace the metadata
    /// server.
    pub(super) fn probe(&self, has_configuration: bool) -> Result<Chips> {
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
        let numbered = |directory: &str, prefix| numbered(&self.at(directory), prefix);
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

    /// Adds the cause of libtpu's error, as far as the machine shows it.
    pub(super) fn explain(&self, chips: &Chips, error: Error) -> Error {
        let holders = holders(&self.root, &chips.files);
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
}
