//! A small file system. Where the system does not allow to mount one in a user namespace, tests
//! report that they skip.

use std::{path::Path, process::Command};

/// Set in the process that may mount.
const INSIDE: &str = "HALITE_TEST_MAY_MOUNT";

/// A mounted file system, which is unmounted on drop.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts a file system of this size for the test of this name, in a namespace of mounts, which
    /// end with its process, also if it is killed. The process of the test runs the test again
    /// there, and gets `None`.
    pub(crate) fn for_test(kilobytes: u32, test: &str) -> Option<Self> {
        if std::env::var_os(INSIDE).is_some() {
            let disk = SmallDisk(tempfile::tempdir().unwrap());
            let size = format!("size={kilobytes}k");
            disk.mount(&["-t", "tmpfs", "-o", &size, "halite-test"]);
            return Some(disk);
        }
        let unshared = |program: &Path| {
            let mut command = Command::new("unshare");
            command
                .args(["--user", "--map-root-user", "--mount"])
                .arg(program);
            command
        };
        let mut probe = unshared(Path::new("mount"));
        probe.args(["-t", "tmpfs", "halite-test", "/tmp"]);
        if !probe.output().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: this account cannot mount a file system in a namespace");
            return None;
        }
        let mut command = unshared(&std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        let output = command.env(INSIDE, "1").output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && stdout.contains(" 1 passed"),
            "{stdout}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        None
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Remounts it `ro` or `rw`. `bind` remounts only the mount point: the options of the file
    /// system name users that do not exist in the namespace.
    pub(crate) fn remount(&self, mode: &str) {
        self.mount(&["-o", &format!("remount,bind,{mode}")]);
    }

    fn mount(&self, arguments: &[&str]) {
        let mut command = Command::new("mount");
        let status = command.args(arguments).arg(self.path()).status();
        assert!(status.unwrap().success(), "mount {arguments:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The directory outlives the namespace, and can be removed only without the mount.
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}
