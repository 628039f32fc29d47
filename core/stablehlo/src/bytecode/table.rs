//! The table of attributes and types, which refer to each other.

use std::sync::Arc;

use halite_core::Result;

use super::{
    attributes::AttributeEntry,
    cursor::{Cursor, check_index, corrupt, unsupported},
    sections::{Entry, Sections, Strings},
    types::TypeEntry,
};
use crate::SourceLine;

/// Greatest depth of attributes and types in each other.
const MOST_DEPTH: u32 = 64;

/// Bound on the memory for copies of attributes and types, in bytes, besides
/// [`MEMORY_PER_BYTE`].
const MEMORY: usize = 64 << 20;
/// Bound on the memory for copies of attributes and types, for each byte of the bytecode.
const MEMORY_PER_BYTE: usize = 1 << 10;

/// The attributes and types of an artifact, decoded when they are first used.
pub(super) struct Table<'a> {
    pub(super) strings: Strings<'a>,
    pub(super) attributes: Vec<Entry<'a>>,
    types: Vec<Entry<'a>>,
    decoded_attributes: Vec<Option<Decoded<AttributeEntry>>>,
    decoded_types: Vec<Option<Decoded<TypeEntry>>>,
    pub(super) locations: Vec<Option<Option<Arc<SourceLine>>>>,
    /// Bytes that are left for copies of entries. It stops programs that are short but describe
    /// huge attributes: lists of lists of one list.
    memory: usize,
}

struct Decoded<T> {
    value: T,
    /// Approximate size of a copy, in bytes.
    weight: usize,
}

impl<'a> Table<'a> {
    /// Takes the tables out of the sections of an artifact of `length` bytes.
    pub(super) fn new(sections: &mut Sections<'a>, length: usize) -> Self {
        let attributes = std::mem::take(&mut sections.attributes);
        let types = std::mem::take(&mut sections.types);
        Table {
            strings: std::mem::take(&mut sections.strings),
            decoded_attributes: empty(attributes.len()),
            decoded_types: empty(types.len()),
            locations: empty(attributes.len()),
            attributes,
            types,
            memory: MEMORY.saturating_add(length.saturating_mul(MEMORY_PER_BYTE)),
        }
    }

    /// The attribute that the next index names.
    pub(super) fn next_attribute(
        &mut self,
        cursor: &mut Cursor<'a>,
        depth: u32,
    ) -> Result<AttributeEntry> {
        let position = cursor.position();
        let index = cursor.index(self.attributes.len(), "attribute")?;
        self.attribute(index, position, depth)
    }

    /// The attribute with this index, which the bytecode has at `position`.
    pub(super) fn attribute_at(&mut self, index: u64, position: usize) -> Result<AttributeEntry> {
        let index = check_index(index, self.attributes.len(), position, "attribute")?;
        self.attribute(index, position, 0)
    }

    fn attribute(&mut self, index: usize, position: usize, depth: u32) -> Result<AttributeEntry> {
        if self.decoded_attributes[index].is_none() {
            let depth = deeper(depth, position)?;
            let value = self.decode_attribute(self.attributes[index], depth)?;
            let weight = value.weight();
            self.decoded_attributes[index] = Some(Decoded { value, weight });
        }
        let decoded = self.decoded_attributes[index].as_ref();
        let decoded = decoded.expect("the attribute was decoded");
        spend(&mut self.memory, decoded.weight, position)?;
        Ok(decoded.value.clone())
    }

    /// The type that the next index names.
    pub(super) fn next_type(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<TypeEntry> {
        let position = cursor.position();
        self.type_at(cursor.varint()?, position, depth)
    }

    /// The type with this index, which the bytecode has at `position`.
    pub(super) fn type_at(&mut self, index: u64, position: usize, depth: u32) -> Result<TypeEntry> {
        let index = check_index(index, self.types.len(), position, "type")?;
        if self.decoded_types[index].is_none() {
            let depth = deeper(depth, position)?;
            let value = self.decode_type(self.types[index], depth)?;
            let weight = value.weight();
            self.decoded_types[index] = Some(Decoded { value, weight });
        }
        let decoded = self.decoded_types[index]
            .as_ref()
            .expect("the type was decoded");
        spend(&mut self.memory, decoded.weight, position)?;
        Ok(decoded.value.clone())
    }

    /// Accounts for a value of this size that is not an entry.
    pub(super) fn spend(&mut self, weight: usize, position: usize) -> Result<()> {
        spend(&mut self.memory, weight, position)
    }
}

fn spend(memory: &mut usize, weight: usize, position: usize) -> Result<()> {
    match memory.checked_sub(weight) {
        Some(left) => {
            *memory = left;
            Ok(())
        }
        None => Err(unsupported(
            position,
            "attributes and types need too much memory; they repeat each other too often",
        )),
    }
}

fn deeper(depth: u32, position: usize) -> Result<u32> {
    if depth < MOST_DEPTH {
        return Ok(depth + 1);
    }
    let message = format_args!("attributes nest deeper than {MOST_DEPTH}, or contain themselves");
    Err(corrupt(position, message))
}

fn empty<T>(count: usize) -> Vec<Option<T>> {
    std::iter::repeat_with(|| None).take(count).collect()
}
