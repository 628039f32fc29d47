//! What the processes of a job know and prove to each other: a key, which others do not know.

use std::{fs::File, io::Read};

use halite_core::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256};

/// Environment variable with the secret of a job, the same in all of its processes.
pub(crate) const SECRET: &str = "HALITE_JOB_SECRET";

/// What the processes of one job know, and those of another one do not.
#[derive(Clone)]
pub(crate) struct Key([u8; 32]);

impl Key {
    /// The key of a job with a secret.
    pub(crate) fn secret(secret: &str) -> Self {
        Key(digest(&[b"secret\n", secret.as_bytes()]))
    }

    /// The key of a job without one: of what its launcher calls it, which others may guess.
    pub(crate) fn of(size: usize, identity: &[String]) -> Self {
        let identity = format!("job of {size}\n{}", identity.join("\n"));
        Key(digest(&[identity.as_bytes()]))
    }

    /// The proof of one side, an HMAC (RFC 2104).
    pub(crate) fn proof(&self, text: &str) -> String {
        let pad = |byte: u8| {
            let mut block = [byte; 64];
            for (one, key) in block.iter_mut().zip(self.0) {
                *one ^= key;
            }
            block
        };
        let inner = digest(&[&pad(0x36), text.as_bytes()]);
        hex(&digest(&[&pad(0x5c), &inner]))
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize().into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that nobody else knows.
///
/// # Errors
/// If the system has none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| bytes).map_err(|error| {
        let message = "cannot read random numbers from /dev/urandom";
        Error::new(ErrorKind::Unavailable, "job", message).caused_by(error)
    })
}

/// Compares two proofs in a time that does not tell where they differ.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    one.len() == other.len() && pairs.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2, whose key is shorter than a block.
    #[test]
    fn proof_is_an_hmac() {
        let mut padded = [0; 32];
        padded[..4].copy_from_slice(b"Jefe");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(Key(padded).proof("what do ya want for nothing?"), expected);
    }
}
