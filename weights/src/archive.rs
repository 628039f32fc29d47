//! Zip archives of tensors: entries as places in the file.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use halite_core::{ErrorKind, Result, guard};
use zip::{
    CompressionMethod, ZipArchive,
    read::{ArchiveOffset, Config},
};

use crate::{
    input::Input,
    place::{Deflated, Order, Place},
    problems::{Problems, corrupt},
};

pub(crate) const MAGIC: &[u8] = b"PK\x03\x04";

/// Most inflated bytes for one in the file; deflate reaches 1032.
const MOST_INFLATED: u64 = 1100;

/// The entries of an archive.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) input: Input,
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// An entry of an archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Position of its bytes in the file.
    pub(crate) start: u64,
    pub(crate) compressed: u64,
    pub(crate) size: u64,
    pub(crate) is_deflated: bool,
    /// Checksum of the inflated bytes.
    pub(crate) crc: u32,
}

/// The inflated bytes of an entry. A panic of the decoder is an error of the read.
pub(crate) struct Inflated<R>(flate2::read::DeflateDecoder<R>);

impl<R: Read> Inflated<R> {
    pub(crate) fn new(compressed: R) -> Self {
        Inflated(flate2::read::DeflateDecoder::new(compressed))
    }
}

impl<R: Read> Read for Inflated<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = guard::call(|| self.0.read(into));
        read.unwrap_or_else(|panic| Err(io::Error::other(panic)))
    }
}

impl Archive {
    /// Reads the directory of an archive.
    pub(crate) fn open(input: Input) -> Result<Self> {
        let origin = input.origin().to_owned();
        guard::call(|| Self::parse(input)).unwrap_or_else(|panic| {
            Err(corrupt(&origin, "the archive is damaged").caused_by(panic))
        })
    }

    fn parse(input: Input) -> Result<Self> {
        let origin = input.origin().to_owned();
        let broken = |error: zip::result::ZipError| {
            corrupt(&origin, "the archive is damaged or truncated").caused_by(error)
        };
        // The caller has seen the first entry at the start of the file. Without this the crate
        // guesses the offset, wrongly for some lengths of names.
        let config = Config {
            archive_offset: ArchiveOffset::Known(0),
        };
        let reader = std::io::BufReader::new(input.reader());
        let mut zip = ZipArchive::with_config(config, reader).map_err(broken)?;
        let mut problems = Problems::default();
        if zip.has_duplicate_names() {
            problems.push("two entries of the archive have the same name");
        }
        let mut entries = BTreeMap::new();
        for index in 0..zip.len() {
            let found = zip.by_index_raw(index).map_err(broken)?;
            let name = found.name().map_err(broken)?.into_owned();
            if found.is_dir() {
                continue;
            }
            let is_deflated = match found.compression() {
                CompressionMethod::Stored => false,
                CompressionMethod::Deflated => true,
                other => {
                    problems.push(format!(
                        "`{name}` is compressed by {other}; expected deflate"
                    ));
                    continue;
                }
            };
            let entry = Entry {
                start: found.data_start().unwrap_or(u64::MAX),
                compressed: found.compressed_size(),
                size: found.size(),
                is_deflated,
                crc: found.crc32(),
            };
            match entry.problem(found.encrypted(), input.len()) {
                Some(problem) => problems.push(format!("`{name}` {problem}")),
                None => drop(entries.insert(name, entry)),
            }
        }
        let spans = entries.iter();
        let spans =
            spans.map(|(name, entry)| (entry.start, entry.start + entry.compressed, &**name));
        problems.overlaps(spans.collect());
        problems.into_result(ErrorKind::Corrupt, &origin)?;
        Ok(Archive { input, entries })
    }

    /// The entry of this name.
    pub(crate) fn entry(&self, name: &str) -> Result<Entry> {
        self.entries.get(name).copied().ok_or_else(|| {
            corrupt(
                self.input.origin(),
                format!("the archive has no entry `{name}`"),
            )
        })
    }

    /// A reader of an entry's contents, and nothing beyond.
    pub(crate) fn reader(&self, entry: Entry) -> Box<dyn Read> {
        entry.reader(&self.input)
    }

    /// Place of what lies at `offset` of an entry.
    pub(crate) fn place(&self, entry: Entry, offset: u64, order: Order) -> Place {
        let (start, compressed) = (entry.start, entry.compressed);
        let deflated = entry.is_deflated.then_some(Deflated { start, compressed });
        Place {
            input: self.input.clone(),
            offset: if entry.is_deflated {
                offset
            } else {
                start + offset
            },
            order,
            deflated,
        }
    }
}

impl Entry {
    fn reader(self, input: &Input) -> Box<dyn Read> {
        let raw = input.reader().at(self.start).take(self.compressed);
        if self.is_deflated {
            Box::new(Inflated::new(raw).take(self.size))
        } else {
            Box::new(raw)
        }
    }

    /// Reads the whole entry and compares its checksum, as NumPy does. `torch.load` does not.
    ///
    /// # Errors
    /// If it is damaged.
    pub(crate) fn check(self, input: &Input, name: &str) -> Result<()> {
        let mut crc = flate2::Crc::new();
        let mut reader = self.reader(input);
        let mut buffer = vec![0; 1 << 16];
        let damaged = |what: &str| corrupt(input.origin(), format!("`{name}` is damaged: {what}"));
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => crc.update(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(damaged("it cannot be read").caused_by(error)),
            }
        }
        if crc.sum() == self.crc {
            Ok(())
        } else {
            Err(damaged("the archive has another checksum of it"))
        }
    }

    fn problem(&self, is_encrypted: bool, len: u64) -> Option<String> {
        let end = self.start.checked_add(self.compressed);
        let (size, compressed) = (self.size, self.compressed);
        if is_encrypted {
            Some("is encrypted".to_owned())
        } else if end.is_none_or(|end| end > len) {
            Some(format!(
                "has {compressed} bytes at {}, the file has {len}",
                self.start
            ))
        } else if !self.is_deflated && size != compressed {
            Some(format!("is stored in {compressed} bytes and says {size}"))
        } else if self.is_deflated && size / MOST_INFLATED > compressed {
            Some(format!("says that {compressed} bytes inflate to {size}"))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn panic_while_inflating_is_an_error() {
        struct Panics;

        impl Read for Panics {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                panic!("at byte 7")
            }
        }

        let error = Inflated::new(Panics).read(&mut [0; 4]).unwrap_err();
        assert!(error.to_string().contains("panicked: at byte 7"), "{error}");
    }
}
