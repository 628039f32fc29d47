//! Files of records: TFRecord data sets, and the event files of TensorBoard.
//!
//! A record is the length of its payload (`u64`, little-endian), a checksum of the length, the
//! payload, and a checksum of that. Nothing here knows what a payload means.
//!
//! ```
//! use halite_data::records::{Records, write_record};
//!
//! let mut file = Vec::new();
//! for payload in ["one", "two"] {
//!     write_record(&mut file, payload.as_bytes())?;
//! }
//! let records: Vec<Vec<u8>> = Records::new(&file[..]).collect::<Result<_, _>>()?;
//! assert_eq!(records, [b"one", b"two"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod crc32c;
mod example;
mod indexed;

use std::io::{self, Read, Write};

use halite_core::{Error, ErrorKind, Result, files};

pub use self::{
    example::Example,
    indexed::{IndexedRecords, RecordDataset},
};

/// Bytes before a payload: its length, and the checksum of that.
const HEADER: usize = 12;

/// Appends a record. A file is written in few calls through an [`io::BufWriter`].
///
/// # Errors
/// Those of the writer, after which a part of the record may be written.
pub fn write_record(writer: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    let length = (payload.len() as u64).to_le_bytes();
    writer.write_all(&length)?;
    writer.write_all(&crc32c::masked(&length).to_le_bytes())?;
    writer.write_all(payload)?;
    writer.write_all(&crc32c::masked(payload).to_le_bytes())
}

/// The payloads of the records of a reader, in order. Nothing follows an error.
///
/// A file is read in few calls through an [`io::BufReader`], a compressed one through a decoder of
/// gzip.
#[derive(Debug)]
pub struct Records<R> {
    reader: R,
    /// Number of the records before.
    number: u64,
    /// Where the next record begins, in bytes.
    offset: u64,
    is_done: bool,
}

impl<R: Read> Records<R> {
    /// The records of a reader at the start of one.
    pub fn new(reader: R) -> Self {
        Records {
            reader,
            number: 0,
            offset: 0,
            is_done: false,
        }
    }

    /// The next payload; `None` at the end.
    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        let mut header = [0; HEADER];
        match self.fill(&mut header)? {
            0 => return Ok(None),
            HEADER => {}
            _ => return Err(self.corrupt("is cut off in its length")),
        }
        let (length, checksum) = header.split_at(8);
        if crc32c::masked(length).to_le_bytes() != checksum {
            if self.offset == 0 {
                let compressed = files::check_uncompressed(&header);
                compressed.map_err(|error| {
                    Error::new(ErrorKind::Corrupt, "records", error.to_string())
                })?;
            }
            return Err(
                self.corrupt("has another checksum than its length: no records, or damaged")
            );
        }
        let length = u64::from_le_bytes(length.try_into().expect("8 of 12 bytes"));
        // What is allocated is what is there: a length may be wrong although its checksum is right.
        let mut payload = self.read_up_to(length.saturating_add(4))?;
        let missing = || self.corrupt(&format!("is cut off: it has {length} bytes"));
        let end = usize::try_from(length).map_err(|_| missing())?;
        if payload.len() as u64 != length.saturating_add(4) {
            return Err(missing());
        }
        if crc32c::masked(&payload[..end]).to_le_bytes() != payload[end..] {
            return Err(self.corrupt("has another checksum than its payload: it is damaged"));
        }
        payload.truncate(end);
        self.number += 1;
        self.offset += HEADER as u64 + length + 4;
        Ok(Some(payload))
    }

    /// Reads this many bytes, fewer at the end of the file.
    fn read_up_to(&mut self, length: u64) -> Result<Vec<u8>> {
        // A length that is wrong takes little memory.
        let capacity = length.min(1 << 20) as usize;
        let mut bytes = Vec::with_capacity(capacity);
        let read = self.reader.by_ref().take(length).read_to_end(&mut bytes);
        read.map_err(|error| self.unread(error))?;
        Ok(bytes)
    }

    /// Fills a buffer, less of it at the end of the file; returns the number of bytes.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut length = 0;
        while length < into.len() {
            match self.reader.read(&mut into[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unread(error)),
            }
        }
        Ok(length)
    }

    fn unread(&self, error: io::Error) -> Error {
        let message = format!("record {} cannot be read", self.number);
        Error::new(ErrorKind::Io, "records", message).caused_by(error)
    }

    fn corrupt(&self, what: &str) -> Error {
        let message = format!("record {}, at byte {}, {what}", self.number, self.offset);
        Error::new(ErrorKind::Corrupt, "records", message)
    }
}

impl<R: Read> Iterator for Records<R> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let next = self.read().transpose();
        self.is_done = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        for payload in payloads {
            write_record(&mut file, payload).unwrap();
        }
        file
    }

    fn read(file: &[u8]) -> (Vec<Vec<u8>>, Option<String>) {
        let mut payloads = Vec::new();
        for record in Records::new(file) {
            match record {
                Ok(payload) => payloads.push(payload),
                Err(error) => return (payloads, Some(error.to_string())),
            }
        }
        (payloads, None)
    }

    #[test]
    fn records_come_back() {
        let payloads: [&[u8]; 3] = [b"one", b"", &[7; 1000]];
        assert_eq!(read(&file(&payloads)).0, payloads);
    }

    /// The bytes are those that the `RecordWriter` of TensorBoard 2.21 writes.
    #[test]
    fn framing_is_that_of_tensorboard() {
        let expected = [
            6, 0, 0, 0, 0, 0, 0, 0, 0x73, 0x69, 0xd5, 0x37, b'h', b'a', b'l', b'i', b't', b'e',
            0xe0, 0x78, 0x9b, 0x6d,
        ];
        assert_eq!(file(&[b"halite"]), expected);
    }

    #[test]
    fn every_cut_is_found() {
        let whole = file(&[b"one", b"three"]);
        for end in 0..whole.len() {
            let (payloads, error) = read(&whole[..end]);
            let is_boundary = end == 0 || end == 19;
            assert_eq!(error.is_none(), is_boundary, "{end}: {error:?}");
            assert_eq!(payloads.len(), usize::from(end >= 19));
        }
    }

    #[test]
    fn every_changed_bit_is_found() {
        let whole = file(&[b"one"]);
        for bit in 0..8 * whole.len() {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&changed).1.is_some(), "bit {bit}");
        }
    }

    #[test]
    fn damaged_record_is_named() {
        let mut changed = file(&[b"one", b"two"]);
        changed[19 + HEADER] ^= 1;
        assert_eq!(
            read(&changed).1.unwrap(),
            "records: record 1, at byte 19, has another checksum than its payload: it is damaged"
        );
    }

    #[test]
    fn length_alone_allocates_nothing() {
        let length = u64::MAX.to_le_bytes();
        let checksum = crc32c::masked(&length).to_le_bytes();
        let (payloads, error) = read(&[&length[..], &checksum, b"abc"].concat());
        assert!(payloads.is_empty());
        assert!(error.unwrap().contains("is cut off: it has"), "a length");
    }
}
