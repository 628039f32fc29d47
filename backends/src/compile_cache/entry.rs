//! File format of a cached program.
//!
//! ```text
//! magic         8 bytes, `HALITEPC`
//! version       u32, of this format
//! key           32 bytes
//! compile time  u64, nanoseconds
//! name          u32 length, UTF-8
//! platform      u32 length, UTF-8
//! payload       u64 length, the serialized executable
//! digest        32 bytes, SHA-256 of everything before
//! ```
//! Numbers are little-endian.

use std::{io::Read, path::Path, time::Duration};

use halite_core::{Compiled, ProgramKey};
use halite_fetch::open_regular;
use halite_pjrt::seal;
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"HALITEPC";
pub(super) const VERSION: u32 = 1;
const DIGEST: usize = 32;
/// Maximum length of names in bytes; longer ones are truncated.
const LONGEST_NAME: usize = 200;
const LONGEST_HEADER: usize = 8 + 4 + 32 + 8 + 2 * (4 + LONGEST_NAME);

/// Header of a file: key and description of the program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub(super) key: ProgramKey,
    pub(super) name: String,
    pub(super) platform: String,
    pub(super) compile_time: Duration,
}

/// A cached program.
#[derive(Debug, PartialEq)]
pub(super) struct Entry<'a> {
    pub(super) header: Header,
    pub(super) payload: &'a [u8],
}

impl Header {
    pub(super) fn of(key: &ProgramKey, compiled: &Compiled<'_>) -> Self {
        let cut = |text: &str| text[..text.floor_char_boundary(LONGEST_NAME)].to_owned();
        Header {
            key: *key,
            name: cut(compiled.name),
            platform: cut(compiled.platform),
            compile_time: compiled.compile_time,
        }
    }

    /// Reads only the beginning of a file, for listings. It is not verified.
    pub(super) fn of_file(path: &Path) -> Result<Self, String> {
        let mut start = Vec::new();
        let file = open_regular(path).map_err(|error| error.to_string())?;
        file.take(LONGEST_HEADER as u64)
            .read_to_end(&mut start)
            .map_err(|error| error.to_string())?;
        Header::of_bytes(&start)
    }

    /// Parses the beginning of a file.
    pub(super) fn of_bytes(mut bytes: &[u8]) -> Result<Self, String> {
        bytes = &bytes[..bytes.len().min(LONGEST_HEADER)];
        Header::parse(&mut bytes)
    }

    fn parse(rest: &mut &[u8]) -> Result<Self, String> {
        if take(rest, MAGIC.len())? != MAGIC {
            return Err("it is not a compiled program".into());
        }
        let version = u32::from_le_bytes(array(rest)?);
        if version != VERSION {
            return Err(format!(
                "it has version {version} of the format, expected {VERSION}"
            ));
        }
        let key = ProgramKey(array(rest)?);
        let compile_time = Duration::from_nanos(u64::from_le_bytes(array(rest)?));
        let mut text = || {
            let length = u32::from_le_bytes(array(rest)?) as usize;
            String::from_utf8(take(rest, length)?.to_vec())
                .map_err(|_| "its name is not UTF-8".to_owned())
        };
        Ok(Header {
            key,
            name: text()?,
            platform: text()?,
            compile_time,
        })
    }
}

impl<'a> Entry<'a> {
    /// Parses a complete file, and verifies length, digest and key.
    pub(super) fn parse(bytes: &'a [u8], key: &ProgramKey) -> Result<Self, String> {
        let mut rest = bytes;
        let header = Header::parse(&mut rest)?;
        let length = u64::from_le_bytes(array(&mut rest)?);
        let there = rest.len().checked_sub(DIGEST).ok_or("it is truncated")?;
        if length != there as u64 {
            return Err(format!("it has {there} of {length} bytes of a program"));
        }
        let (payload, digest) = rest.split_at(there);
        if Sha256::digest(&bytes[..bytes.len() - DIGEST])[..] != *digest {
            return Err("it is damaged: its SHA-256 does not match".into());
        }
        if header.key != *key {
            return Err(format!("it contains the program {}", header.key));
        }
        Ok(Entry { header, payload })
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Header {
            key,
            name,
            platform,
            compile_time,
        } = &self.header;
        let mut bytes = Vec::with_capacity(128 + name.len() + platform.len() + self.payload.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&key.0);
        bytes.extend_from_slice(
            &u64::try_from(compile_time.as_nanos())
                .unwrap_or(u64::MAX)
                .to_le_bytes(),
        );
        for text in [name, platform] {
            bytes.extend_from_slice(
                &u32::try_from(text.len())
                    .expect("a name is short")
                    .to_le_bytes(),
            );
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&(self.payload.len() as u64).to_le_bytes());
        bytes.extend_from_slice(self.payload);
        seal(bytes)
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], String> {
    let (taken, left) = rest.split_at_checked(length).ok_or("it is truncated")?;
    *rest = left;
    Ok(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    Ok(take(rest, N)?.try_into().expect("`take` returns N bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ProgramKey = ProgramKey([7; 32]);

    fn bytes(name: &str, payload: &[u8]) -> Vec<u8> {
        let compiled = Compiled {
            name,
            platform: "cpu",
            compile_time: Duration::from_millis(1234),
        };
        Entry {
            header: Header::of(&KEY, &compiled),
            payload,
        }
        .to_bytes()
    }

    #[test]
    fn entry_round_trips() {
        for payload in [&b""[..], b"x", &[9; 1000]] {
            let bytes = bytes("train step", payload);
            let entry = Entry::parse(&bytes, &KEY).unwrap();
            assert_eq!(
                (entry.payload, &*entry.header.name, &*entry.header.platform),
                (payload, "train step", "cpu")
            );
            assert_eq!(entry.header.compile_time, Duration::from_millis(1234));
        }
        let long = "ä".repeat(300);
        assert_eq!(
            Entry::parse(&bytes(&long, b""), &KEY).unwrap().header.name,
            "ä".repeat(100)
        );
    }

    #[test]
    fn damaged_entry_is_rejected() {
        let whole = bytes("step", &[0xa5; 50]);
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Entry::parse(&damaged, &KEY).is_err(), "bit {bit}");
        }
        for length in 0..whole.len() {
            assert!(
                Entry::parse(&whole[..length], &KEY).is_err(),
                "{length} bytes"
            );
        }
        assert!(Entry::parse(&[&whole[..], b"x"].concat(), &KEY).is_err());
    }

    #[test]
    fn entry_of_another_program_is_rejected() {
        assert!(
            Entry::parse(&bytes("step", b"code"), &ProgramKey([8; 32]))
                .unwrap_err()
                .contains("0707")
        );
    }
}
