//! Text and tables that files have, as they are or compressed with gzip.

use std::{io::Read, path::Path};

use flate2::bufread::MultiGzDecoder;
use halite_core::{ErrorKind, files, guard};

/// The first bytes of what gzip wrote: its magic number and its only method.
pub(crate) const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// Most bytes that are decompressed in memory: some kilobytes of gzip can have any length.
const LONGEST: u64 = 1 << 30;

/// The whole content of a file that a user named, decompressed if it is compressed with gzip.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, (ErrorKind, String)> {
    let bytes = files::read_input(path).map_err(|error| (ErrorKind::Io, error.to_string()))?;
    if !bytes.starts_with(&GZIP_MAGIC) {
        files::check_uncompressed(&bytes)
            .map_err(|error| (ErrorKind::Corrupt, error.to_string()))?;
        return Ok(bytes);
    }
    gunzip(&bytes, LONGEST).map_err(|reason| (ErrorKind::Corrupt, reason))
}

fn gunzip(bytes: &[u8], longest: u64) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let mut reader = MultiGzDecoder::new(bytes).take(longest + 1);
    guard::call(|| reader.read_to_end(&mut content))?
        .map_err(|error| format!("it is compressed with gzip, and damaged or cut off: {error}"))?;
    if content.len() as u64 > longest {
        return Err(format!(
            "it is compressed with gzip, and has more than {longest} bytes; decompress it with \
             `gzip -d`"
        ));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text.gz");
        let content = b"two members ".repeat(1000);
        fs::write(&path, [gzip(&content), gzip(&content)].concat()).unwrap();
        assert_eq!(read(&path).unwrap(), content.repeat(2));
        let whole = gzip(&content);
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let (kind, reason) = read(&path).unwrap_err();
        assert_eq!(kind, ErrorKind::Corrupt);
        assert!(reason.contains("gzip, and damaged or cut off"), "{reason}");
    }

    #[test]
    fn decompressed_content_is_bounded() {
        let bomb = gzip(&[0; 5000]);
        assert_eq!(gunzip(&bomb, 5000).unwrap().len(), 5000);
        let reason = gunzip(&bomb, 4999).unwrap_err();
        assert!(
            reason.contains("more than 4999 bytes; decompress"),
            "{reason}"
        );
    }
}
