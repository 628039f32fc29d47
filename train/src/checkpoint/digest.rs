//! Digests of the chunks of a file. They detect damage, not forgery: XXH3 reads memory as fast as
//! the processor does, so that a save costs little of the time of a training step.

use twox_hash::XxHash3_128;

/// Bytes of a chunk: few enough for the caches of a core, so that a chunk that was just read or is
/// just written is digested without another access to memory.
pub(super) const CHUNK: u64 = 4 << 20;

/// The digest of a chunk, in hexadecimal.
pub(super) fn of_chunk(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// Digests of the chunks of a stream of bytes.
pub(super) struct ChunkDigests {
    chunk: XxHash3_128,
    /// Bytes of the chunk so far.
    length: u64,
    done: Vec<String>,
}

impl ChunkDigests {
    pub(super) fn new() -> Self {
        ChunkDigests {
            chunk: XxHash3_128::new(),
            length: 0,
            done: Vec::new(),
        }
    }

    /// Adds the next bytes of the stream.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(CHUNK - self.length).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.chunk.write(now);
            self.length += now.len() as u64;
            if self.length == CHUNK {
                self.end_chunk();
            }
            bytes = later;
        }
    }

    fn end_chunk(&mut self) {
        let chunk = std::mem::replace(&mut self.chunk, XxHash3_128::new());
        self.done.push(format!("{:032x}", chunk.finish_128()));
        self.length = 0;
    }

    /// The digests of all chunks, the last of which may be shorter.
    pub(super) fn finish(mut self) -> Vec<String> {
        if self.length > 0 {
            self.end_chunk();
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_has_the_digests_of_its_chunks() {
        let bytes: Vec<u8> = (0..2 * CHUNK + 5).map(|at| (at % 251) as u8).collect();
        let expected: Vec<String> = bytes.chunks(CHUNK as usize).map(of_chunk).collect();
        assert_eq!(expected.len(), 3);
        for piece in [1 << 20, 3_000_001, bytes.len()] {
            let mut digests = ChunkDigests::new();
            bytes.chunks(piece).for_each(|piece| digests.push(piece));
            assert_eq!(digests.finish(), expected, "{piece}");
        }
        assert!(ChunkDigests::new().finish().is_empty());
    }

    #[test]
    fn digest_is_that_of_xxhsum() {
        // `printf abc | xxhsum -H2`
        assert_eq!(of_chunk(b"abc"), "06b05ab6733a618578af5f94892f3950");
    }
}
