//! Digests of the chunks of a file. They detect damage, not forgery: XXH3 reads memory as fast as
//! the processor does, so that a save costs little of the time of a training step.

use std::io;

use twox_hash::XxHash3_128;

/// Bytes of a chunk: few enough for the caches of a core, so that a chunk that was just read or is
/// just written is digested without another access to memory.
pub(super) const CHUNK: u64 = 4 << 20;
const LENGTH: usize = CHUNK as usize;

/// The digest of a chunk, in hexadecimal.
pub(super) fn of_chunk(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// A stream of bytes in chunks, each of which is digested and passed on.
#[derive(Default)]
pub(super) struct Chunks {
    /// The chunk so far.
    begun: Vec<u8>,
    digests: Vec<String>,
}

impl Chunks {
    /// Adds the next bytes of the stream. Whole chunks are passed to `write`.
    ///
    /// # Errors
    /// Those of `write`.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if !self.begun.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(LENGTH - self.begun.len()));
            self.begun.extend_from_slice(now);
            bytes = later;
            if self.begun.len() < LENGTH {
                return Ok(());
            }
            self.digests.push(of_chunk(&self.begun));
            write(&self.begun)?;
            self.begun.clear();
        }
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % LENGTH);
        for chunk in whole.chunks(LENGTH) {
            self.digests.push(of_chunk(chunk));
            write(chunk)?;
        }
        self.begun.extend_from_slice(rest);
        Ok(())
    }

    /// Passes the last chunk to `write`, which may be shorter, and returns the digests of all.
    ///
    /// # Errors
    /// Those of `write`.
    pub(super) fn finish(
        mut self,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Vec<String>> {
        if !self.begun.is_empty() {
            self.digests.push(of_chunk(&self.begun));
            write(&self.begun)?;
        }
        Ok(self.digests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_has_the_digests_of_its_chunks() {
        let bytes: Vec<u8> = (0..2 * CHUNK + 5).map(|at| (at % 251) as u8).collect();
        let expected: Vec<String> = bytes.chunks(LENGTH).map(of_chunk).collect();
        assert_eq!(expected.len(), 3);
        for piece in [1 << 20, 3_000_001, LENGTH, LENGTH + 1, bytes.len()] {
            let (mut chunks, mut written) = (Chunks::default(), Vec::new());
            let mut write = |chunk: &[u8]| {
                written.extend_from_slice(chunk);
                Ok(())
            };
            for piece in bytes.chunks(piece) {
                chunks.push(piece, &mut write).unwrap();
            }
            assert_eq!(chunks.finish(&mut write).unwrap(), expected, "{piece}");
            assert!(written == bytes, "{piece}");
        }
        assert!(Chunks::default().finish(|_| Ok(())).unwrap().is_empty());
    }

    #[test]
    fn digest_is_that_of_xxhsum() {
        // `printf abc | xxhsum -H2`
        assert_eq!(of_chunk(b"abc"), "06b05ab6733a618578af5f94892f3950");
    }
}
