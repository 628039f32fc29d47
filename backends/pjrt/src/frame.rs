//! The frame around a serialized program: magic number, identity and digest.
//!
//! A serialized program has machine code, and plugins validate neither its origin nor its
//! integrity. So a plugin receives it only if it is unchanged, and was written by the same build of
//! the plugin on a processor with the same features. This detects damage and mistakes, not malice:
//! anybody can write a digest.
//!
//! ```text
//! magic        8 bytes, `HALITEXE`
//! version      u32, of this format
//! identity     u32 length, UTF-8
//! payload      u64 length, the plugin's bytes
//! digest       32 bytes, SHA-256 of everything before
//! ```
//! Numbers are little-endian.

use std::{fmt, fs::File, io, path::Path};

use halite_core::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256};

use crate::quirks::Quirks;

const MAGIC: &[u8; 8] = b"HALITEXE";
const VERSION: u32 = 1;
const DIGEST: usize = 32;
/// Magic, version, length of the identity.
const HEAD: usize = 8 + 4 + 4;

/// Frames the serialized bytes of a plugin with `identity`.
pub(crate) fn wrap(identity: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + identity.len() + 8 + payload.len() + DIGEST);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(
        &u32::try_from(identity.len())
            .expect("an identity is a line of text")
            .to_le_bytes(),
    );
    bytes.extend_from_slice(identity.as_bytes());
    bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes.extend_from_slice(payload);
    seal(bytes)
}

/// Appends the SHA-256 of `bytes` to them.
pub fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    bytes
}

/// Returns the plugin's bytes in a frame that is intact and has `identity`.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for other bytes, and for another identity, naming both;
/// [`ErrorKind::Unsupported`] for one of another version; [`ErrorKind::Corrupt`] for a damaged one.
pub(crate) fn unwrap<'a>(op: &'static str, identity: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    let frame = Frame::parse(bytes).map_err(|malformed| malformed.error(op, bytes.len()))?;
    if Sha256::digest(&bytes[..bytes.len() - DIGEST])[..] != *frame.digest {
        let message = "the serialized program is damaged: its SHA-256 is not the one written with \
                       it; compile the program again";
        return Err(Error::new(ErrorKind::Corrupt, op, message));
    }
    if frame.identity != identity.as_bytes() {
        let written_by = String::from_utf8_lossy(frame.identity);
        let message = format!(
            "the serialized program is machine code of [{written_by}], this is [{identity}]; \
             compile the program here"
        );
        return Err(Error::invalid(op, message));
    }
    Ok(frame.payload)
}

/// The parts of a frame, before its digest and its identity are checked.
struct Frame<'a> {
    identity: &'a [u8],
    payload: &'a [u8],
    digest: &'a [u8],
}

/// Reason why bytes are not a frame.
enum Malformed {
    Empty,
    OtherMagic,
    OtherVersion(u32),
    Truncated,
    /// This number of bytes follows the frame.
    TooLong(u64),
}

impl<'a> Frame<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let cut = || Malformed::Truncated;
        let (magic, rest) = bytes.split_at(bytes.len().min(MAGIC.len()));
        if magic.is_empty() {
            return Err(Malformed::Empty);
        }
        if !MAGIC.starts_with(magic) {
            return Err(Malformed::OtherMagic);
        }
        let (version, rest) = rest.split_first_chunk().ok_or_else(cut)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(Malformed::OtherVersion(version));
        }
        let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (identity, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
        let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
        let promised = u64::from_le_bytes(*length);
        let found = rest.len().checked_sub(DIGEST).ok_or_else(cut)?;
        match (found as u64).checked_sub(promised) {
            None => return Err(cut()),
            Some(0) => {}
            Some(surplus) => return Err(Malformed::TooLong(surplus)),
        }
        let (payload, digest) = rest.split_at(found);
        Ok(Frame {
            identity,
            payload,
            digest,
        })
    }
}

impl Malformed {
    /// The error for bytes of this length.
    fn error(self, op: &'static str, length: usize) -> Error {
        let corrupt = |message: String| {
            let message = format!("{message}; compile the program again");
            Error::new(ErrorKind::Corrupt, op, message)
        };
        match self {
            Malformed::Empty => {
                Error::invalid(op, "no bytes given; expected the result of `serialize`")
            }
            Malformed::OtherMagic => {
                let message = format!(
                    "these {length} bytes are not a serialized program; expected the result of \
                     `serialize`"
                );
                Error::invalid(op, message)
            }
            Malformed::OtherVersion(version) => {
                let message = format!(
                    "the serialized program is in version {version} of the format, this halite \
                     reads {VERSION}; compile the program again"
                );
                Error::new(ErrorKind::Unsupported, op, message)
            }
            Malformed::Truncated => corrupt(format!(
                "the serialized program is truncated: {length} bytes are left of it"
            )),
            Malformed::TooLong(surplus) => {
                corrupt(format!("{surplus} bytes follow the serialized program"))
            }
        }
    }
}

/// Identity of a build of a plugin: the size of its file, and the SHA-256 of its first and last
/// MiB, where a library has its headers, symbols and section tables. All of it would be hundreds of
/// megabytes at every start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Build(String);

impl Build {
    pub(crate) fn of_file(path: &Path) -> io::Result<Build> {
        use std::io::{Read, Seek, SeekFrom};
        const ENDS: u64 = 1 << 20;
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut ends = Vec::new();
        file.by_ref().take(ENDS).read_to_end(&mut ends)?;
        file.seek(SeekFrom::Start(
            size.saturating_sub(ENDS).max(ends.len() as u64),
        ))?;
        file.take(ENDS).read_to_end(&mut ends)?;
        let digest = halite_core::hex(&Sha256::digest(&ends)[..16]);
        Ok(Build(format!("{size} bytes {digest}")))
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identity of serialized programs: platform, API version, build of the plugin, and the features of
/// the processor where programs are compiled for it. The platform's own version is not in
/// it: the build decides it, and plugins word it differently for a client and for a topology.
pub(crate) fn identity(platform: &str, version: (i32, i32), build: &Build) -> String {
    let (major, minor) = version;
    let processor = if Quirks::of(platform, (major, minor)).runs_on_host {
        format!(", {}", processor())
    } else {
        String::new()
    };
    format!("{platform}, PJRT {major}.{minor}, plugin of {build}{processor}")
}

/// This machine's processor: architecture, and the features that compilers choose instructions by.
fn processor() -> String {
    let features = features()
        .into_iter()
        .filter(|(_, there)| *there)
        .map(|(name, _)| format!(" {name}"));
    std::iter::once(std::env::consts::ARCH.to_owned())
        .chain(features)
        .collect()
}

macro_rules! detected {
    ($detect:ident: $($name:tt)*) => { vec![$(($name, std::arch::$detect!($name))),*] };
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<(&'static str, bool)> {
    detected!(is_x86_feature_detected:
        "sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "aes" "pclmulqdq" "f16c" "fma" "avx" "avx2" "bmi1" "bmi2" "lzcnt" "movbe"
        "adx" "sha" "gfni" "vaes" "vpclmulqdq" "avx512f" "avx512cd" "avx512bw" "avx512dq" "avx512vl" "avx512ifma" "avx512vbmi"
        "avx512vbmi2" "avx512vnni" "avx512bitalg" "avx512vpopcntdq" "avx512bf16" "avx512fp16" "avx512vp2intersect" "avxvnni"
        "avxifma" "avxneconvert" "avxvnniint8" "avxvnniint16")
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<(&'static str, bool)> {
    detected!(is_aarch64_feature_detected:
        "neon" "fp16" "fhm" "dotprod" "bf16" "i8mm" "f32mm" "f64mm" "sve" "sve2" "sve2-bitperm" "sve2-aes" "sve2-sha3"
        "sve2-sm4" "lse" "rcpc" "rcpc2" "crc" "aes" "pmull" "sha2" "sha3" "sm4" "fcma" "rdm" "frintts" "jsconv" "flagm")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<(&'static str, bool)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OP: &str = "load";

    #[test]
    fn frame_round_trips() {
        for payload in [&b""[..], b"x", &[7; 1000]] {
            assert_eq!(unwrap(OP, "me", &wrap("me", payload)).unwrap(), payload);
        }
    }

    #[test]
    fn one_flipped_bit_anywhere_is_refused() {
        let whole = wrap("cpu, PJRT 0.115", &[0xa5; 100]);
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(
                unwrap(OP, "cpu, PJRT 0.115", &damaged).is_err(),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn every_shorter_or_longer_frame_is_refused() {
        let whole = wrap("me", &[1; 40]);
        for length in MAGIC.len()..whole.len() {
            let error = unwrap(OP, "me", &whole[..length]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{length}: {error}");
            assert!(
                error
                    .message()
                    .contains(&format!("truncated: {length} bytes")),
                "{error}"
            );
        }
        let longer = [&whole[..], &[0]].concat();
        assert!(
            unwrap(OP, "me", &longer)
                .unwrap_err()
                .message()
                .contains("1 bytes follow")
        );
    }

    #[test]
    fn lengths_that_no_memory_has_are_refused() {
        let mut bytes = wrap("me", b"payload");
        bytes[12..16].fill(0xff);
        assert_eq!(
            unwrap(OP, "me", &bytes).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        let mut bytes = wrap("me", b"payload");
        bytes[HEAD + 2..HEAD + 10].fill(0xff);
        assert_eq!(
            unwrap(OP, "me", &bytes).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
    }

    #[test]
    fn frames_of_another_plugin_are_refused() {
        let error = unwrap(OP, "cpu, PJRT 0.115", &wrap("cpu, PJRT 0.106", b"code")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            error
                .message()
                .contains("[cpu, PJRT 0.106], this is [cpu, PJRT 0.115]"),
            "{error}"
        );
    }

    #[test]
    fn frames_of_another_version_are_refused() {
        let mut bytes = wrap("me", b"code");
        bytes[8] = 2;
        let error = unwrap(OP, "me", &bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error
                .message()
                .contains("version 2 of the format, this halite reads 1"),
            "{error}"
        );
    }

    #[test]
    fn builds_of_one_size_differ_by_their_ends() {
        let directory = tempfile::tempdir().unwrap();
        let build = |at: Option<usize>, size: usize| {
            let mut bytes = vec![0; size];
            if let Some(at) = at {
                bytes[at] = 1;
            }
            let path = directory.path().join("plugin.so");
            std::fs::write(&path, bytes).unwrap();
            Build::of_file(&path).unwrap()
        };
        for size in [1000, 1 << 20, (1 << 20) + 1, 3 << 20] {
            assert_eq!(build(None, size), build(None, size));
            assert_ne!(build(None, size), build(Some(0), size), "{size}");
            assert_ne!(build(None, size), build(Some(size - 1), size), "{size}");
            assert_ne!(build(None, size), build(None, size + 1));
        }
    }

    #[test]
    fn identity_has_the_processor_of_host_platforms() {
        let build = Build("9 bytes ab".to_owned());
        let cpu = identity("cpu", (0, 115), &build);
        assert!(
            cpu.starts_with(&format!(
                "cpu, PJRT 0.115, plugin of 9 bytes ab, {}",
                std::env::consts::ARCH
            )),
            "{cpu}"
        );
        assert_eq!(
            identity("tpu", (0, 116), &build),
            "tpu, PJRT 0.116, plugin of 9 bytes ab"
        );
    }
}
