//! Descriptions of packages.

use std::{collections::HashSet, fmt};

use halite_core::hex;
use sha2::{Digest, Sha256};

/// File name of the marker in an installed package's directory.
pub(crate) const MARKER: &str = "halite.json";

/// The program that downloads a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Client {
    /// `python3 -m pip download`, wheels only: building a source package would run its code before
    /// it is verified.
    Pip,
    /// As [`Pip`](Self::Pip), for a package that has a wheel for each version of Python: the one of
    /// `python` (`3.11`) and `platform` (`manylinux_2_31_x86_64`), whichever Python runs pip, so
    /// that there is one digest.
    Wheel {
        /// The version of CPython.
        python: &'static str,
        /// The platform's tag.
        platform: &'static str,
    },
    /// `npm pack`.
    Npm,
    /// `apt-get download`, and `dpkg-deb` to open the package.
    Apt,
}

impl Client {
    /// The name as used in directory names and messages: `pip`, `npm`, `apt`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pip | Self::Wheel { .. } => "pip",
            Self::Npm => "npm",
            Self::Apt => "apt",
        }
    }

    /// File extension of the archives of this client, without the dot.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Pip | Self::Wheel { .. } => "whl",
            Self::Npm => "tgz",
            Self::Apt => "deb",
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A pinned package of a registry, and the required files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// The client that downloads it.
    pub client: Client,
    /// The name in the registry.
    pub name: &'static str,
    /// The exact version. `apt-get` ignores it and takes the version of the distribution.
    pub version: &'static str,
    /// Size of the archive in bytes: exact if `archive_sha256` is given, else a hint for the
    /// progress bar.
    pub archive_size: u64,
    /// SHA-256 of the archive in lower-case hex. `None` if every distribution builds its own
    /// archive of the same files (apt, which verifies them against its signed lists); then only the
    /// digests of the files are verified.
    pub archive_sha256: Option<&'static str>,
    /// The files to unpack. Others are ignored.
    pub files: &'static [FileSpec],
    /// Packages to install into the same directory, for a library that loads others from there. All
    /// are installed, or none; parts of parts are ignored.
    pub parts: &'static [Package],
}

/// One file inside a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Path inside the archive, with `/`, without a leading `./`.
    pub inside: &'static str,
    /// Path in the package's directory of the cache, with `/`.
    pub name: &'static str,
    /// Size in bytes after the transform.
    pub size: u64,
    /// SHA-256 of the file after the transform, in lower-case hex.
    pub sha256: &'static str,
    /// Conversion while unpacking.
    pub transform: Transform,
}

/// Conversion of a file while unpacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transform {
    /// None.
    None,
    /// None; the file is executable.
    Executable,
    /// Decompression with gzip.
    Gunzip,
}

impl FileSpec {
    /// A file that is kept as the archive has it. `inside` is its path there, `name` that in the cache,
    /// `size` its number of bytes.
    pub const fn plain(
        inside: &'static str,
        name: &'static str,
        size: u64,
        sha256: &'static str,
    ) -> Self {
        FileSpec {
            inside,
            name,
            size,
            sha256,
            transform: Transform::None,
        }
    }

    /// Returns whether it is a library or a program.
    fn is_code(&self) -> bool {
        let name = self.name.rsplit('/').next().unwrap_or_default();
        let ends = [".so", ".dylib", ".dll"]
            .iter()
            .any(|end| name.ends_with(end));
        self.transform == Transform::Executable || ends || name.contains(".so.")
    }

    /// Returns whether it is a licence text, which a package works without.
    pub(crate) fn is_notice(&self) -> bool {
        let name = self
            .name
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_ascii_uppercase();
        [
            "LICENSE",
            "LICENCE",
            "NOTICE",
            "THIRD_PARTY_NOTICES",
            "COPYING",
        ]
        .iter()
        .any(|notice| name.starts_with(notice))
    }
}

impl Package {
    /// Total size of the installed files in bytes, of all parts.
    pub fn installed_size(&self) -> u64 {
        self.installed_files().map(|file| file.size).sum()
    }

    /// Total size of the archives in bytes, of all parts.
    pub fn download_size(&self) -> u64 {
        self.archives().map(|part| part.archive_size).sum()
    }

    /// Largest size of an archive without a digest, in bytes.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.archive_size.saturating_mul(4).saturating_add(1 << 20)
    }

    /// Largest size of a decompressed archive, in bytes.
    pub(crate) fn most_bytes_unpacked(&self) -> u64 {
        self.archive_size
            .saturating_mul(16)
            .saturating_add(64 << 20)
    }

    /// This package and its parts.
    pub fn archives(&self) -> impl Iterator<Item = &Package> {
        std::iter::once(self).chain(self.parts)
    }

    /// The files of this package and its parts.
    pub fn installed_files(&self) -> impl Iterator<Item = &'static FileSpec> {
        self.archives().flat_map(|part| part.files)
    }

    /// Returns whether it has libraries or programs.
    pub(crate) fn has_code(&self) -> bool {
        self.installed_files().any(FileSpec::is_code)
    }

    /// The directory name in the cache. It ends in a digest of the whole entry, so that a changed
    /// table entry never uses the files of an older one.
    pub(crate) fn key(&self) -> String {
        let mut entry = Sha256::new();
        for part in self.archives() {
            entry.update(part.archive_sha256.unwrap_or_default());
        }
        for file in self.installed_files() {
            let transform = match file.transform {
                Transform::None => "none",
                Transform::Executable => "executable",
                Transform::Gunzip => "gunzip",
            };
            entry.update(format!(
                "\n{} {} {} {} {transform}",
                file.inside, file.name, file.size, file.sha256
            ));
        }
        let digest = hex(&entry.finalize());
        let name: String = self
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let version: String = self
            .version
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '.' {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        format!(
            "{}-{}-{version}-{}",
            self.client,
            name.trim_matches('-'),
            &digest[..16]
        )
    }

    /// # Panics
    ///
    /// If the table entry is invalid, which is an error of the program, not of the download.
    pub(crate) fn assert_well_formed(&self) {
        let is_digest = |text: &str| {
            text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        for part in self.archives() {
            assert!(
                !part.files.is_empty(),
                "package {part}: the table names no file"
            );
            assert!(
                !part.name.starts_with('-') && !part.name.is_empty() && !part.version.is_empty(),
                "package {part}: a name cannot be empty or look like an option"
            );
            assert!(
                part.archive_sha256.is_none_or(is_digest),
                "package {part}: the digest of the archive is not 64 lower-case hex digits"
            );
        }
        let mut names = HashSet::new();
        for file in self.installed_files() {
            let plain = |name: &str| {
                !name.is_empty() && !name.starts_with('.') && !name.contains(['\\', ':'])
            };
            assert!(
                file.name.split('/').all(plain) && file.name != MARKER,
                "package {self}: {:?} is not a plain file name",
                file.name
            );
            assert!(
                is_digest(file.sha256),
                "package {self}: the digest of {} is not 64 hex digits",
                file.name
            );
            assert!(
                names.insert(file.name),
                "package {self}: two files are named {}",
                file.name
            );
        }
    }
}

/// `name version (client)`, as in messages.
impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.name, self.version, self.client)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A package without files.
    pub(crate) const PART: Package = Package {
        client: Client::Npm,
        name: "part",
        version: "1",
        archive_size: 0,
        archive_sha256: None,
        files: &[],
        parts: &[],
    };
}
