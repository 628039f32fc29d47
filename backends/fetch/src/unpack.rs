//! Unpacking of the required files of a verified archive, with verification of their digests.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read, Write},
    path::Path,
};

use flate2::read::{GzDecoder, MultiGzDecoder};
use halite_core::{guard, hex};
use sha2::{Digest, Sha256};

use crate::{
    client::{Work, file_name},
    error::{Error, Result},
    package::{Client, FileSpec, Transform},
    progress::{Progress, Step},
};

/// Unpacks every required file of `archive` into `directory`, synced to disk.
pub(crate) fn unpack(
    work: &Work<'_>,
    archive: &Path,
    directory: &Path,
    progress: &mut dyn Progress,
) -> Result<()> {
    let mut unpacker = Unpacker {
        work,
        archive,
        directory,
        progress,
        done: 0,
    };
    let unpacked = guard::call(|| unpacker.all());
    unpacked.unwrap_or_else(|panic| Err(unpacker.broken(panic)))
}

struct Unpacker<'a> {
    work: &'a Work<'a>,
    archive: &'a Path,
    directory: &'a Path,
    progress: &'a mut dyn Progress,
    /// Bytes written so far.
    done: u64,
}

impl Unpacker<'_> {
    fn all(&mut self) -> Result<()> {
        match self.work.context.package.client {
            Client::Pip | Client::Wheel { .. } => self.zip(),
            Client::Npm => {
                let reader = GzDecoder::new(self.open(self.archive)?);
                self.tar(reader)
            }
            Client::Apt => {
                let tar = self.work.deb_to_tar(self.archive)?;
                let reader = self.open(&tar)?;
                self.tar(reader)
            }
        }
    }

    fn zip(&mut self) -> Result<()> {
        let reader = self.open(self.archive)?;
        let mut zip = zip::ZipArchive::new(reader).map_err(|error| self.broken(error))?;
        for file in self.work.context.package.files {
            let Some(index) = zip.index_for_name(file.inside) else {
                let names = zip.file_names().flatten().map(String::from).collect();
                return Err(self.missing(file, names));
            };
            let entry = zip.by_index(index).map_err(|error| self.broken(error))?;
            self.file(file, entry)?;
        }
        Ok(())
    }

    fn tar(&mut self, reader: impl Read) -> Result<()> {
        let mut wanted: Vec<&FileSpec> = self.work.context.package.files.iter().collect();
        let mut seen = Vec::new();
        let mut tar = tar::Archive::new(reader);
        for entry in tar.entries().map_err(|error| self.broken(error))? {
            let entry = entry.map_err(|error| self.broken(error))?;
            if entry.header().entry_type() != tar::EntryType::Regular {
                continue;
            }
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let path = path.trim_start_matches("./").to_string();
            if let Some(index) = wanted.iter().position(|file| file.inside == path) {
                let file = wanted.swap_remove(index);
                self.file(file, entry)?;
            }
            if wanted.is_empty() {
                return Ok(());
            }
            seen.push(path);
        }
        match wanted.first() {
            Some(file) => Err(self.missing(file, seen)),
            None => Ok(()),
        }
    }

    fn file(&mut self, file: &FileSpec, content: impl Read) -> Result<()> {
        match file.transform {
            Transform::None | Transform::Executable => self.copy(file, content),
            // Many tools write gzip files of several members, which together are the file.
            Transform::Gunzip => self.copy(file, MultiGzDecoder::new(content)),
        }
    }

    fn copy(&mut self, file: &FileSpec, mut content: impl Read) -> Result<()> {
        let package = self.work.context.package;
        let path = self.directory.join(file.name);
        let cannot_write = |error| self.work.context.error("write", &path, error);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(cannot_write)?;
        }
        let mut target = File::create_new(&path).map_err(cannot_write)?;
        let (mut hasher, mut size) = (Sha256::new(), 0);
        let mut piece = vec![0; 1 << 18];
        let total = package.files.iter().map(|file| file.size).sum();
        loop {
            let count = match content.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.broken(format!("{}: {error}", file.inside))),
            };
            hasher.update(&piece[..count]);
            size += count as u64;
            if size > file.size {
                // Not read to the end, as a small archive can unpack to any size.
                let found = format!("more than {} bytes", file.size);
                return Err(self.wrong(file, hex(&hasher.finalize()), found));
            }
            target.write_all(&piece[..count]).map_err(cannot_write)?;
            self.progress.step(Step::Unpacking {
                package,
                done: self.done + size,
                total,
            });
        }
        let digest = hex(&hasher.finalize());
        if size != file.size || digest != file.sha256 {
            return Err(self.wrong(file, digest, format!("{size} bytes")));
        }
        if file.transform == Transform::Executable {
            make_executable(&target).map_err(cannot_write)?;
        }
        target.sync_all().map_err(cannot_write)?;
        self.done += size;
        Ok(())
    }

    fn open(&self, path: &Path) -> Result<BufReader<File>> {
        let file =
            File::open(path).map_err(|error| self.work.context.error("open", path, error))?;
        Ok(BufReader::with_capacity(1 << 16, file))
    }

    fn broken(&self, reason: impl ToString) -> Error {
        Error::ArchiveBroken {
            package: self.work.context.package.to_string(),
            archive: file_name(self.archive),
            reason: reason.to_string(),
        }
    }

    fn missing(&self, file: &FileSpec, mut holds: Vec<String>) -> Error {
        const SHOWN: usize = 8;
        let more = holds.len().saturating_sub(SHOWN);
        holds.truncate(SHOWN);
        let mut list = if holds.is_empty() {
            "no files".to_string()
        } else {
            holds.join(", ")
        };
        if more > 0 {
            list.push_str(&format!(" and {more} more"));
        }
        let package = self.work.context.package.to_string();
        Error::FileMissing {
            package,
            inside: file.inside,
            holds: list,
        }
    }

    fn wrong(&self, file: &FileSpec, found: String, found_size: String) -> Error {
        Error::FileDigest {
            package: self.work.context.package.to_string(),
            inside: file.inside,
            expected: file.sha256,
            expected_size: file.size,
            found,
            found_size,
        }
    }
}

/// Makes the file executable for everyone who may read it, on systems with such permissions.
fn make_executable(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = file.metadata()?.permissions().mode();
        file.set_permissions(fs::Permissions::from_mode(mode | (mode & 0o444) >> 2))?;
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}
