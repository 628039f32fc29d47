//! Flags of compilers in the environment, as they are part of cache keys: read when a plugin is
//! loaded, and compared with the environment of later.

use std::{
    env,
    fmt::Write,
    fs,
    io::Read,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use halite_core::{Error, Result};
use sha2::{Digest, Sha256};

use crate::quirks::Quirks;

/// Environment variables that compilers read.
const VARIABLES: [&str; 4] = [
    XLA_FLAGS,
    LIBTPU_INIT_ARGS,
    TF_XLA_FLAGS,
    "NVIDIA_TF32_OVERRIDE",
];
const XLA_FLAGS: &str = "XLA_FLAGS";
const TF_XLA_FLAGS: &str = "TF_XLA_FLAGS";
const LIBTPU_INIT_ARGS: &str = "LIBTPU_INIT_ARGS";

/// Flags that are read when a program runs and change nothing in its code: how long a collective
/// waits for its devices. halite sets some of them itself.
const RUN_TIME_FLAGS: [&str; 2] = [
    "--xla_cpu_collective_call_",
    "--xla_cpu_collective_timeout_",
];

/// A directory of the CUDA toolkit, whose contents are not digested.
const CUDA_DIRECTORY: &str = "xla_gpu_cuda_data_dir";

/// Largest file of flags, or file that a flag names, that is digested.
const LARGEST_FILE: u64 = 64 << 20;

/// Values of [`VARIABLES`] when a plugin was loaded.
///
/// XLA reads its flags once in a process, at a moment between loading the plugin and the first
/// compilation that no caller can observe. A key therefore exists only while the environment
/// is unchanged since the plugin was loaded.
#[derive(Debug)]
pub(crate) struct EnvironmentFlags {
    at_load: [Option<String>; VARIABLES.len()],
    /// True for each variable that has changed since.
    changed: [AtomicBool; VARIABLES.len()],
}

impl EnvironmentFlags {
    /// Reads the variables, and the files that they name.
    fn read() -> Self {
        EnvironmentFlags {
            at_load: VARIABLES.map(effective_value),
            changed: Default::default(),
        }
    }

    /// Like [`read`](Self::read), but refuses an unreadable file of flags, for which XLA ends the
    /// process.
    pub(crate) fn checked() -> Result<Self> {
        if let Some(value) = env::var_os(XLA_FLAGS)
            && !value.is_empty()
            && !value.to_string_lossy().trim_start().starts_with('-')
            && let Err(reason) = is_readable(Path::new(&value))
        {
            let shown = value.display();
            let message = format!(
                "{XLA_FLAGS} is `{shown}`, which does not begin with `-` and so names a file of \
                 flags, and that cannot be \
                 read: {reason}; want flags such as `--xla_dump_to=DIR`, or the path of a file of \
                 them"
            );
            return Err(Error::invalid("load plugin", message));
        }
        Ok(Self::read())
    }

    /// The flags of all variables that a compiler may read. `None` if a variable has changed since
    /// the plugin was loaded, if a file cannot be read, and where flags ask for dumps.
    pub(crate) fn current(&self, quirks: Quirks) -> Option<String> {
        self.note_changes();
        let mut text = String::new();
        for ((name, value), changed) in VARIABLES.iter().zip(&self.at_load).zip(&self.changed) {
            // Opening a target sets this one for libtpu alone.
            if *name == LIBTPU_INIT_ARGS && !quirks.reads_libtpu_args {
                continue;
            }
            if changed.load(Relaxed) {
                return None;
            }
            _ = writeln!(text, "{name}={}", value.as_deref()?);
        }
        Some(text)
    }

    /// Compares the environment with what it was when the plugin was loaded.
    pub(crate) fn note_changes(&self) {
        for ((name, value), changed) in VARIABLES.iter().zip(&self.at_load).zip(&self.changed) {
            if !changed.load(Relaxed) && effective_value(name) != *value {
                changed.store(true, Relaxed);
            }
        }
    }
}

/// The flags in a variable. `None` where programs must not be cached under them.
///
/// XLA takes the value as a file name where it does not begin with `-`.
fn effective_value(name: &str) -> Option<String> {
    let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else {
        return Some(String::new());
    };
    let text = value.to_str()?;
    if ![XLA_FLAGS, TF_XLA_FLAGS, LIBTPU_INIT_ARGS].contains(&name) {
        return Some(text.to_owned());
    }
    if text.trim_start().starts_with('-') {
        effective_flags(text)
    } else {
        effective_flags(std::str::from_utf8(&read_regular(Path::new(text))?).ok()?)
    }
}

/// Flags as text, without those that change no code, and with digests of the files that they name.
fn effective_flags(text: &str) -> Option<String> {
    let mut tokens = Vec::new();
    for token in text.split_ascii_whitespace() {
        // The second and third are flags that read other flags: from a file, or from variables.
        if ["xla_dump", "flagfile", "fromenv", "tryfromenv"]
            .iter()
            .any(|word| token.contains(word))
        {
            return None;
        }
        if RUN_TIME_FLAGS.iter().any(|flag| token.starts_with(flag)) {
            continue;
        }
        tokens.push(token.to_owned());
        if let Some((name, value)) = token.split_once('=') {
            tokens.extend(named_files(name, value)?);
        }
    }
    // Where whitespace may be part of a value, it is part of the key. halite's own flags are the
    // first.
    if text.contains(['"', '\'', '\\']) {
        let mut rest = text.trim_ascii();
        while RUN_TIME_FLAGS.iter().any(|flag| rest.starts_with(flag)) {
            rest = rest
                .split_once(|c: char| c.is_ascii_whitespace())
                .map_or("", |(_, rest)| rest.trim_ascii_start());
        }
        tokens.push(rest.to_owned());
    }
    Some(tokens.join(" "))
}

/// Digests of the files that the value of a flag names, of which it may list several. `None` for
/// directories, whose contents may change.
pub(crate) fn named_files(flag: &str, value: &str) -> Option<Vec<String>> {
    let mut digests = Vec::new();
    for path in value
        .split([',', ':', '"', '\''])
        .filter(|path| path.contains(['/', '.']))
    {
        let Ok(metadata) = fs::metadata(path) else {
            continue;
        };
        if metadata.is_dir() && flag.ends_with(CUDA_DIRECTORY) {
            continue;
        }
        let digest = Sha256::digest(read_regular(Path::new(path))?);
        digests.push(halite_core::hex(&digest));
    }
    Some(digests)
}

/// Checks that a path is of a regular file that can be opened.
fn is_readable(path: &Path) -> std::io::Result<()> {
    // Before it is opened: opening a pipe waits for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    fs::File::open(path).map(|_| ())
}

/// The bytes of a regular file of at most [`LARGEST_FILE`].
fn read_regular(path: &Path) -> Option<Vec<u8>> {
    // Before it is opened: opening a pipe waits for a writer.
    let metadata = fs::metadata(path)
        .ok()
        .filter(|metadata| metadata.is_file())?;
    if metadata.len() > LARGEST_FILE {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(path)
        .ok()?
        .take(LARGEST_FILE + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    (bytes.len() as u64 <= LARGEST_FILE).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_run_time_are_left_out() {
        let flags = "--a=1  --xla_cpu_collective_call_terminate_timeout_seconds=900\n--b=x";
        assert_eq!(effective_flags(flags).as_deref(), Some("--a=1 --b=x"));
        let quoted = "--a='b  c'";
        let longer = format!("--xla_cpu_collective_call_terminate_timeout_seconds=900 {quoted}\n");
        assert_eq!(effective_flags(&longer), effective_flags(quoted));
    }

    #[test]
    fn flags_that_read_other_flags_forbid_caching() {
        for flags in [
            "--flagfile=/etc/flags",
            "--fromenv=a",
            "--tryfromenv=b",
            "--xla_dump_to=dump",
        ] {
            assert_eq!(effective_flags(&format!("--a=1 {flags}")), None, "{flags}");
        }
    }

    #[test]
    fn whitespace_in_quotes_is_kept() {
        assert_ne!(effective_flags("--a='b c'"), effective_flags("--a='b  c'"));
    }

    #[test]
    fn contents_of_named_files_are_digested() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("results.txt");
        let flags = format!(
            "--a=1 --xla_gpu_load_autotune_results_from={}",
            file.display()
        );
        let missing = effective_flags(&flags).unwrap();
        fs::write(&file, "one").unwrap();
        let one = effective_flags(&flags).unwrap();
        fs::write(&file, "two").unwrap();
        let two = effective_flags(&flags).unwrap();
        assert!(missing != one && one != two && missing != two);
    }

    #[test]
    fn flag_with_a_directory_forbids_caching() {
        let directory = tempfile::tempdir().unwrap();
        let flag =
            |name: &str| effective_flags(&format!("--{name}={}", directory.path().display()));
        assert_eq!(flag("xla_gpu_per_fusion_autotune_cache_dir"), None);
        assert!(flag(CUDA_DIRECTORY).is_some());
    }
}
