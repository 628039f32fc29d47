//! Flags that XLA's CPU client reads from `XLA_FLAGS` alone, when a process creates its first
//! client.
//!
//! A collective on the CPU ends the process if its devices arrive more than 40 seconds apart, as
//! devices with uneven work on a busy machine do. The limit is
//! `xla_cpu_collective_call_terminate_timeout_seconds`; the compile option of that name has no
//! effect, so it is raised here. A caller's wait for results has another limit: see
//! `Pjrt::set_wait_limit`.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use memchr::memmem;

use crate::{
    environment,
    plugin::Plugin,
    value::{OptionValue, Options},
};

const VARIABLE: &str = "XLA_FLAGS";
const LIMIT: &str = "xla_cpu_collective_call_terminate_timeout_seconds";
/// A year: longer than any wait, and far from where clocks overflow.
const SECONDS: u32 = 365 * 24 * 60 * 60;

/// Runs `create`, which creates a client, with the limit of collectives raised in `XLA_FLAGS`.
/// Flags of the user stay, also this one. Compilers do not see the change: it is undone when
/// `create` returns.
pub(crate) fn with_patient_collectives<R, E>(
    plugin: &Plugin,
    options: &Options,
    create: impl FnOnce() -> Result<R, E>,
) -> Result<R, E> {
    /// Plugins that have read the variable: they do so once.
    static HAVE_READ: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let have_read = || HAVE_READ.lock().unwrap_or_else(PoisonError::into_inner);

    let path = plugin.path();
    if !is_for_cpu(path, options) || have_read().contains(path) {
        return create();
    }
    let created = match raised(std::env::var_os(VARIABLE).as_deref()) {
        // A flag that is unknown to XLA ends the process.
        Some(flags) if knows(path, LIMIT).unwrap_or(false) => {
            environment::with_override(VARIABLE, &flags, create)
        }
        _ => create(),
    };
    if created.is_ok() {
        have_read().insert(path.to_owned());
    }
    created
}

/// Guesses whether the plugin is XLA's for the CPU, before it has a client.
fn is_for_cpu(path: &Path, options: &Options) -> bool {
    let option = |(name, value): &(String, OptionValue)| {
        name == "cpu_device_count" && matches!(value, OptionValue::Int(_))
    };
    options.iter().any(option)
        || path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains("cpu"))
}

/// The flags with the raised limit before those of the user; of two values XLA takes the later.
/// `None` if the variable names a file that cannot be read, which XLA reports itself.
fn raised(users: Option<&OsStr>) -> Option<Vec<u8>> {
    let users = users.unwrap_or_default();
    let mut flags = format!("--{LIMIT}={SECONDS} ").into_bytes();
    // As XLA reads it: a value that does not begin with a dash is the name of a file with flags.
    match users.as_encoded_bytes().trim_ascii_start().first() {
        Some(b'-') | None => flags.extend(users.as_encoded_bytes()),
        Some(_) => flags.extend(fs::read(users).ok()?),
    }
    Some(flags)
}

/// Returns whether a library has a flag of this name, as a C string among its bytes.
fn knows(library: &Path, flag: &str) -> io::Result<bool> {
    const CHUNK: u64 = 4 << 20;
    let name = [b"\0", flag.as_bytes(), b"\0"].concat();
    let finder = memmem::Finder::new(&name);
    let mut file = File::open(library)?;
    let mut bytes = Vec::new();
    loop {
        // The end of the chunk before stays, as the name may be cut in two.
        bytes.drain(..bytes.len().saturating_sub(name.len()));
        if file.by_ref().take(CHUNK).read_to_end(&mut bytes)? == 0 {
            return Ok(false);
        }
        if finder.find(&bytes).is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_user_follow_the_raised_limit() {
        let text = |users: Option<&str>| {
            raised(users.map(OsStr::new)).map(|flags| String::from_utf8(flags).unwrap())
        };
        let limit = format!("--{LIMIT}=31536000 ");
        assert_eq!(text(None).as_deref(), Some(&*limit));
        assert_eq!(text(Some("")).as_deref(), Some(&*limit));
        assert_eq!(text(Some(" --a=1 --b")), Some(format!("{limit} --a=1 --b")));
        assert_eq!(text(Some("/no/such/file")), None);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "--a=1\n--b=2\n").unwrap();
        assert_eq!(
            text(file.path().to_str()),
            Some(format!("{limit}--a=1\n--b=2\n"))
        );
    }

    #[test]
    fn flags_are_found_across_chunks() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for before in [0, 1, (4 << 20) - 5, 4 << 20, (8 << 20) - 1] {
            let bytes = [vec![7; before], b"\0a_flag\0".to_vec(), vec![7; 9]].concat();
            fs::write(&file, bytes).unwrap();
            assert!(knows(file.path(), "a_flag").unwrap(), "{before}");
            assert!(!knows(file.path(), "a_fla").unwrap(), "{before}");
        }
    }
}
