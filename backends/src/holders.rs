//! Processes that have a device's file open, read from the file system of `/proc`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A process that has a device open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The process id.
    pub(crate) process: u32,
    /// The command line.
    pub(crate) command: String,
    /// The device's file.
    pub(crate) file: PathBuf,
}

/// Other processes that have one of these files open, by process id, as far as this process can
/// see. `root` is the directory in which `proc` is.
pub(crate) fn holders(root: &Path, files: &[PathBuf]) -> Vec<Holder> {
    let processes = fs::read_dir(root.join("proc"));
    let mut holders: Vec<Holder> = processes
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse::<u32>().ok()?;
            if process == std::process::id() {
                return None;
            }
            let open = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
            let file = open
                .filter_map(|link| fs::read_link(link.path()).ok())
                .find(|target| files.contains(target))?;
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            Some(Holder {
                process,
                command: shortened(&command),
                file,
            })
        })
        .collect();
    holders.sort_by_key(|holder| holder.process);
    holders
}

/// The first line of a command line as `/proc` has it, up to 80 characters.
fn shortened(command: &[u8]) -> String {
    let text = String::from_utf8_lossy(command).replace('\0', " ");
    let text = text.trim();
    let line: String = text
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(80)
        .collect();
    let line = line.trim_end();
    if line.len() < text.len() {
        format!("{line} ..")
    } else {
        line.to_owned()
    }
}

/// Device files of `directory` whose names are `prefix` and a number, by number.
pub(crate) fn numbered(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix(prefix)?.parse::<u32>().ok()
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some((number(&entry.path())?, entry.path())))
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_one_short_line() {
        assert_eq!(shortened(b"python3\0train.py\0"), "python3 train.py");
        assert_eq!(
            shortened(b"python3\0-c\0import x\ny()\0"),
            "python3 -c import x .."
        );
        assert_eq!(shortened(&[b'a'; 90]), format!("{} ..", "a".repeat(80)));
        assert_eq!(shortened(b""), "");
    }
}
