//! Programs as they were given, and serialized executables: such a program between a header and a
//! digest.
//!
//! ```text
//! magic        8 bytes, `HALITEPR`
//! version      u32 length, UTF-8: the version of this crate
//! replicas     u64
//! partitions   u64
//! code         u64 length, bytes
//! digest       32 bytes, SHA-256 of everything before
//! ```
//! Numbers are little-endian.

use std::sync::Arc;

use halite_core::{Code, Error, ErrorKind, Result};
use sha2::{Digest, Sha256};

const MAGIC: &[u8] = b"HALITEPR";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const DIGEST: usize = 32;

/// A program as it was given.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: Arc<str>,
    pub(crate) code: Code,
    pub(crate) replicas: usize,
    pub(crate) partitions: usize,
}

/// The bytes of a program.
pub(crate) fn write(source: &Source) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(VERSION.len() as u32).to_le_bytes());
    bytes.extend_from_slice(VERSION.as_bytes());
    bytes.extend_from_slice(&(source.replicas as u64).to_le_bytes());
    bytes.extend_from_slice(&(source.partitions as u64).to_le_bytes());
    let code = source.code.bytes();
    bytes.extend_from_slice(&(code.len() as u64).to_le_bytes());
    bytes.extend_from_slice(code);
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    bytes
}

/// The program in what [`write`] returned.
///
/// # Errors
/// If the bytes are damaged, or of another program or version.
pub(crate) fn read(bytes: &[u8], name: &Arc<str>) -> Result<Source> {
    let corrupt = |what: &str| {
        let message = format!(
            "`{name}`: {} bytes do not contain a serialized executable: {what}",
            bytes.len()
        );
        Error::new(ErrorKind::Corrupt, "load", message)
    };
    let Some((content, digest)) = bytes.split_last_chunk::<DIGEST>() else {
        return Err(corrupt("they are too short"));
    };
    if !content.starts_with(MAGIC) {
        return Err(corrupt("they do not start with `HALITEPR`"));
    }
    if Sha256::digest(content)[..] != *digest {
        return Err(corrupt("the digest is another one, so they were damaged"));
    }
    let mut reader = Reader(&content[MAGIC.len()..]);
    let malformed = || corrupt("a length is wrong");
    let length = reader.bytes(4).ok_or_else(malformed)?;
    let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
    let version = reader.bytes(length).ok_or_else(malformed)?;
    if version != VERSION.as_bytes() {
        let version = String::from_utf8_lossy(version);
        let message = format!(
            "`{name}` was serialized by version {version} of the embedded executor, this is \
             {VERSION}; compile it again"
        );
        return Err(Error::invalid("load", message));
    }
    let replicas = reader.number().ok_or_else(malformed)?;
    let partitions = reader.number().ok_or_else(malformed)?;
    let length = reader.number().ok_or_else(malformed)?;
    let code = reader
        .bytes(length)
        .filter(|_| reader.0.is_empty())
        .ok_or_else(malformed)?;
    Ok(Source {
        name: name.clone(),
        code: code.into(),
        replicas,
        partitions,
    })
}

/// Bytes that are not read yet.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (read, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(read)
    }

    fn number(&mut self) -> Option<usize> {
        let bytes = self.bytes(8)?;
        u64::from_le_bytes(bytes.try_into().ok()?).try_into().ok()
    }
}
