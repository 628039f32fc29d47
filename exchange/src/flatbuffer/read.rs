use std::cell::Cell;

use halite_core::{Error, ErrorKind, Result, format_count};

/// A file, with a bound on what is read of it: offsets may share vectors, so that a short file
/// could otherwise describe a very large tree.
#[derive(Debug)]
pub(crate) struct Buffer<'a> {
    bytes: &'a [u8],
    /// Number of elements of vectors that may still be read.
    left: Cell<usize>,
}

/// A table of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    buffer: &'a Buffer<'a>,
    at: usize,
    /// Offsets of the fields from the table, 16 bits each.
    fields: &'a [u8],
}

impl<'a> Buffer<'a> {
    /// A file of these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        // Each element has a byte of its own in files that are not hostile.
        let left = Cell::new(bytes.len());
        Buffer { bytes, left }
    }

    /// The root table.
    pub(crate) fn root(&self) -> Result<Table<'_>> {
        Table::at(self, self.follow(0)?)
    }

    /// Position and bytes of the elements of the vector at `at`.
    fn vector(&self, at: usize, element: usize) -> Result<(usize, &[u8])> {
        let length = u32::from_le_bytes(self.take(at)?) as usize;
        let elements = (length.checked_mul(element))
            .and_then(|bytes| self.bytes.get(at + 4..)?.get(..bytes))
            .ok_or_else(|| {
                let length = format_count(length as u64);
                corrupt(format!(
                    "the vector of {length} elements at byte {at} does not fit in the file"
                ))
            })?;
        let left = self.left.get().checked_sub(length).ok_or_else(|| {
            corrupt(
                "its vectors overlap so that they have more elements than the file bytes".into(),
            )
        })?;
        self.left.set(left);
        Ok((at + 4, elements))
    }

    /// The string whose offset is at `at`.
    fn text(&self, at: usize) -> Result<&str> {
        let at = self.follow(at)?;
        let (_, bytes) = self.vector(at, 1)?;
        std::str::from_utf8(bytes)
            .map_err(|_| corrupt(format!("the string at byte {at} is not UTF-8")))
    }

    /// The position that the offset at `at` points to.
    fn follow(&self, at: usize) -> Result<usize> {
        Ok(at.saturating_add(u32::from_le_bytes(self.take(at)?) as usize))
    }

    fn take<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        (self.bytes.get(at..))
            .and_then(|rest| rest.first_chunk().copied())
            .ok_or_else(|| outside(at))
    }
}

impl<'a> Table<'a> {
    fn at(buffer: &'a Buffer<'a>, at: usize) -> Result<Self> {
        let to_vtable = i64::from(i32::from_le_bytes(buffer.take(at)?));
        let vtable = usize::try_from(at as i64 - to_vtable).map_err(|_| outside(at))?;
        let length = usize::from(u16::from_le_bytes(buffer.take(vtable)?));
        let fields = (buffer.bytes.get(vtable..))
            .and_then(|vtable| vtable.get(4..length))
            .ok_or_else(|| outside(vtable))?;
        Ok(Table { buffer, at, fields })
    }

    /// Position of the field; `None` if the table lacks it.
    fn field(&self, slot: usize) -> Option<usize> {
        let offset = self.fields.get(2 * slot..2 * slot + 2)?;
        match u16::from_le_bytes([offset[0], offset[1]]) {
            0 => None,
            offset => Some(self.at + usize::from(offset)),
        }
    }

    fn scalar<const N: usize>(&self, slot: usize) -> Result<[u8; N]> {
        self.field(slot)
            .map_or(Ok([0; N]), |at| self.buffer.take(at))
    }

    /// A byte, 0 by default.
    pub(crate) fn u8(&self, slot: usize) -> Result<u8> {
        Ok(u8::from_le_bytes(self.scalar(slot)?))
    }

    /// 16 bits, 0 by default.
    pub(crate) fn u16(&self, slot: usize) -> Result<u16> {
        Ok(u16::from_le_bytes(self.scalar(slot)?))
    }

    /// 32 bits, 0 by default.
    pub(crate) fn u32(&self, slot: usize) -> Result<u32> {
        Ok(u32::from_le_bytes(self.scalar(slot)?))
    }

    /// A table, if there is one.
    pub(crate) fn table(&self, slot: usize) -> Result<Option<Table<'a>>> {
        (self.field(slot))
            .map(|at| Table::at(self.buffer, self.buffer.follow(at)?))
            .transpose()
    }

    /// A string, if there is one.
    pub(crate) fn text(&self, slot: usize) -> Result<Option<&'a str>> {
        (self.field(slot))
            .map(|at| self.buffer.text(at))
            .transpose()
    }

    /// A vector of bytes, empty by default.
    pub(crate) fn bytes(&self, slot: usize) -> Result<&'a [u8]> {
        Ok(self.vector(slot, 1)?.1)
    }

    /// A vector of 16-bit numbers, empty by default.
    pub(crate) fn u16s(&self, slot: usize) -> Result<Vec<u16>> {
        let (_, bytes) = self.vector(slot, 2)?;
        let numbers = bytes.as_chunks().0.iter();
        Ok(numbers.map(|&bytes| u16::from_le_bytes(bytes)).collect())
    }

    /// A vector of 32-bit numbers, empty by default.
    pub(crate) fn u32s(&self, slot: usize) -> Result<Vec<u32>> {
        let (_, bytes) = self.vector(slot, 4)?;
        let numbers = bytes.as_chunks().0.iter();
        Ok(numbers.map(|&bytes| u32::from_le_bytes(bytes)).collect())
    }

    /// A vector of tables, empty by default.
    pub(crate) fn tables(&self, slot: usize) -> Result<Vec<Table<'a>>> {
        let (at, bytes) = self.vector(slot, 4)?;
        (0..bytes.len() / 4)
            .map(|index| Table::at(self.buffer, self.buffer.follow(at + 4 * index)?))
            .collect()
    }

    /// A vector of strings, empty by default.
    pub(crate) fn texts(&self, slot: usize) -> Result<Vec<&'a str>> {
        let (at, bytes) = self.vector(slot, 4)?;
        (0..bytes.len() / 4)
            .map(|index| self.buffer.text(at + 4 * index))
            .collect()
    }

    /// Position and bytes of a vector's elements.
    fn vector(&self, slot: usize, element: usize) -> Result<(usize, &'a [u8])> {
        let Some(at) = self.field(slot) else {
            return Ok((0, &[]));
        };
        self.buffer.vector(self.buffer.follow(at)?, element)
    }
}

fn outside(at: usize) -> Error {
    corrupt(format!(
        "an offset points to byte {at}, outside of the file"
    ))
}

fn corrupt(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, "flatbuffer", message)
}
