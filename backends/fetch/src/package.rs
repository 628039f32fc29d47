//! What a package is, as data.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::manifest::{MARKER, hex};

/// The program that downloads a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Client {
    /// `python3 -m pip download`, wheels only: building a source package would run its code before it is verified.
    Pip,
    /// `npm pack`.
    Npm,
    /// `apt-get download`, and `dpkg-deb` to open the package.
    Apt,
}

impl Client {
    /// The name as used in directory names and messages: `pip`, `npm`, `apt`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
            Self::Apt => "apt",
        }
    }

    /// How the archives of this client end, without the dot.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Pip => "whl",
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

/// One pinned package of a registry, and the files that are wanted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// Who downloads it.
    pub client: Client,
    /// The name in the registry.
    pub name: &'static str,
    /// The exact version. `apt-get` takes the distribution's version, whatever is named here.
    pub version: &'static str,
    /// Size of the archive in bytes: exact where `archive_sha256` is given, else only a hint for the progress bar.
    pub archive_size: u64,
    /// SHA-256 of the archive in lower-case hex. `None` where every distribution builds its own archive around the
    /// same files (apt); the digests of the files decide alone then.
    pub archive_sha256: Option<&'static str>,
    /// The files to take out of the archive. Everything else in it is ignored.
    pub files: &'static [FileSpec],
}

/// One file inside a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Path inside the archive, with `/`, without a leading `./`.
    pub inside: &'static str,
    /// File name in the cache: no directories.
    pub name: &'static str,
    /// Size in bytes after the transform.
    pub size: u64,
    /// SHA-256 of the file after the transform, in lower-case hex.
    pub sha256: &'static str,
    /// What is done to the bytes on the way out of the archive.
    pub transform: Transform,
}

/// What is done to a file on the way out of its archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transform {
    /// Taken as it is.
    None,
    /// Decompressed with gzip.
    Gunzip,
}

impl Package {
    /// Total size of the installed files in bytes.
    pub fn installed_size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// The directory name in the cache. It ends in a digest of the whole entry, so that a changed table entry never
    /// meets the files of an older one.
    pub(crate) fn key(&self) -> String {
        let mut entry = Sha256::new();
        entry.update(self.archive_sha256.unwrap_or_default());
        for file in self.files {
            let transform = match file.transform {
                Transform::None => "none",
                Transform::Gunzip => "gunzip",
            };
            entry.update(format!("\n{} {} {} {} {transform}", file.inside, file.name, file.size, file.sha256));
        }
        let digest = hex(&entry.finalize());
        let name: String = self.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let version: String = self.version.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
        format!("{}-{}-{version}-{}", self.client, name.trim_matches('-'), &digest[..16])
    }

    /// # Panics
    ///
    /// When the table entry itself is wrong: that is a mistake in the program, not in what was downloaded.
    pub(crate) fn assert_well_formed(&self) {
        let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        assert!(!self.files.is_empty(), "package {self}: the table names no file");
        assert!(
            !self.name.starts_with('-') && !self.name.is_empty() && !self.version.is_empty(),
            "package {self}: a name cannot be empty or look like an option"
        );
        assert!(
            self.archive_sha256.is_none_or(is_digest),
            "package {self}: the digest of the archive is not 64 lower-case hex digits"
        );
        for (index, file) in self.files.iter().enumerate() {
            let plain = !file.name.is_empty() && !file.name.starts_with('.') && !file.name.contains(['/', '\\', ':']);
            assert!(plain && file.name != MARKER, "package {self}: {:?} is not a plain file name", file.name);
            assert!(is_digest(file.sha256), "package {self}: the digest of {} is not 64 hex digits", file.name);
            assert!(
                self.files[..index].iter().all(|other| other.name != file.name),
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
