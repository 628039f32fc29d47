//! Options of the compile cache, and their environment variables.

use std::{
    env,
    path::{Path, PathBuf},
    str::FromStr,
};

use halite_core::{Error, Result};

/// Options of a [`CompileCache`](crate::CompileCache): access, directory and limit.
///
/// As text, and in the variable `HALITE_COMPILE_CACHE`: `on`, `off`, `readonly`, a `PATH`, or
/// `readonly:PATH`.
///
/// ```
/// use halite_backends::{Access, CompileCacheOptions};
///
/// let shared: CompileCacheOptions = "readonly:/mnt/programs".parse()?;
/// assert_eq!((shared.access, shared.directory), (Access::ReadOnly, Some("/mnt/programs".into())));
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CompileCacheOptions {
    /// Read and write access.
    pub access: Access,
    /// The directory; by default `programs` in the cache directory.
    pub directory: Option<PathBuf>,
    /// Maximum size on the disk in bytes; the least recently used programs are removed.
    pub limit: u64,
}

/// Access to a compile cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// No access.
    Off,
    /// Only reads, for a shared directory: not even times of use are written. Files are loaded
    /// whoever owns them, so trust the directory as you trust a program.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

impl CompileCacheOptions {
    /// 2 GiB.
    pub const LIMIT: u64 = 2 << 30;

    /// Reads `HALITE_COMPILE_CACHE` and `HALITE_COMPILE_CACHE_LIMIT` (bytes, or a size such as
    /// `500M` or `8G`).
    ///
    /// # Errors
    /// If one of them is invalid.
    pub fn from_environment() -> Result<Self> {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let mut options = match variable("HALITE_COMPILE_CACHE") {
            None => Self::default(),
            Some(value) => match value.to_str() {
                Some(text) => text.parse()?,
                None => CompileCacheOptions {
                    directory: Some(value.into()),
                    ..Self::default()
                },
            },
        };
        if let Some(value) = variable("HALITE_COMPILE_CACHE_LIMIT") {
            options.limit = value.to_str().and_then(parse_bytes).ok_or_else(|| {
                let message = format!(
                    "invalid size `{}`; expected bytes, or a size such as 500M or 8G",
                    value.display()
                );
                Error::invalid("HALITE_COMPILE_CACHE_LIMIT", message)
            })?;
        }
        Ok(options)
    }
}

impl Default for CompileCacheOptions {
    /// Read and write, in the cache directory, up to [`LIMIT`](Self::LIMIT).
    fn default() -> Self {
        CompileCacheOptions {
            access: Access::ReadWrite,
            directory: None,
            limit: Self::LIMIT,
        }
    }
}

impl FromStr for CompileCacheOptions {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (access, directory) = match text {
            "off" => (Access::Off, None),
            "on" => (Access::ReadWrite, None),
            "readonly" => (Access::ReadOnly, None),
            _ => match text.strip_prefix("readonly:") {
                Some(path) => (Access::ReadOnly, Some(path)),
                None => (Access::ReadWrite, Some(text)),
            },
        };
        // A single word is more likely a mistake than a directory.
        if directory.is_some_and(|path| Path::new(path).components().count() < 2) {
            let message = format!(
                "invalid setting `{text}`; expected on, off, readonly, PATH or readonly:PATH \
                 (write `./{text}` for a directory of this name)"
            );
            return Err(Error::invalid("compile cache", message));
        }
        Ok(CompileCacheOptions {
            access,
            directory: directory.map(PathBuf::from),
            ..Self::default()
        })
    }
}

/// Parses a size in bytes: `1048576`, `512K`, `500M`, `8G`, optionally followed by `B` or `iB`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.len()
        - text
            .trim_start_matches(|digit: char| digit.is_ascii_digit())
            .len();
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit
        .trim_start()
        .trim_end_matches('B')
        .trim_end_matches('i')
    {
        "" => 1,
        "k" | "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed() {
        let options = |text: &str| {
            text.parse::<CompileCacheOptions>()
                .map(|options| (options.access, options.directory))
        };
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(options("on").unwrap(), (Access::ReadWrite, None));
        assert_eq!(options("off").unwrap(), (Access::Off, None));
        assert_eq!(options("readonly").unwrap(), (Access::ReadOnly, None));
        assert_eq!(
            options("readonly:a/b").unwrap(),
            (Access::ReadOnly, path("a/b"))
        );
        assert_eq!(
            options("/mnt/programs").unwrap(),
            (Access::ReadWrite, path("/mnt/programs"))
        );
        assert!(
            options("readonly:")
                .unwrap_err()
                .message()
                .contains("readonly:PATH")
        );
        assert!(
            ["", "yes", "0", "readonly:programs"]
                .into_iter()
                .all(|text| options(text).is_err())
        );
    }

    #[test]
    fn sizes_are_parsed() {
        for (text, want) in [
            ("0", 0),
            ("12", 12),
            ("3K", 3 << 10),
            ("500M", 500 << 20),
            ("2GiB", 2 << 30),
            ("1 TB", 1 << 40),
        ] {
            assert_eq!(parse_bytes(text), Some(want), "{text}");
        }
        for text in [
            "",
            "M",
            "-1",
            "1.5G",
            "3X",
            "99999999999999999999",
            "99999999999T",
        ] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }
}
