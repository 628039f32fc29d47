//! Reading of operations without their regions.

use std::sync::Arc;

use halite_core::Result;

use super::{
    attributes::AttributeEntry,
    cursor::{Cursor, corrupt, unsupported},
    properties::is_empty,
    reader::Reader,
    sections::{Dialect, part},
};
use crate::{Attribute, Attributes, SourceLine, Type, ValueId, ops::row};

/// An operation as bytecode has it, without its regions.
pub(super) struct Encoded<'a> {
    /// Offset of the operation.
    pub(super) position: usize,
    /// Index of its name.
    pub(super) name: usize,
    pub(super) location: Option<Arc<SourceLine>>,
    pub(super) attributes: Attributes,
    pub(super) properties: Option<Cursor<'a>>,
    pub(super) results: Vec<Type>,
    pub(super) operands: Vec<ValueId>,
    /// Number of its regions.
    pub(super) regions: usize,
    /// Whether its regions number values on their own.
    pub(super) isolated: bool,
}

/// The types of a function's arguments and results.
pub(super) struct Signature {
    pub(super) inputs: Vec<Type>,
    pub(super) outputs: Vec<Type>,
}

impl<'a> Reader<'a> {
    /// Reads an operation up to its regions.
    pub(super) fn encoded(&mut self, cursor: &mut Cursor<'a>) -> Result<Encoded<'a>> {
        let position = cursor.position();
        let name = cursor.index(self.operations.len(), "operation name")?;
        let mask = cursor.byte()?;
        let has = |part: u8| mask & part != 0;
        let location = self.table.next_location(cursor)?;
        let attributes = match has(part::ATTRIBUTES) {
            true => self.table.next_dict(cursor)?,
            false => Attributes::default(),
        };
        let properties = match has(part::PROPERTIES) {
            true => Some(self.properties[cursor.index(self.properties.len(), "properties")?]),
            false => None,
        };
        let results = match has(part::RESULTS) {
            true => self.table.value_types(cursor, 0)?,
            false => Vec::new(),
        };
        let operands = match has(part::OPERANDS) {
            true => {
                let count = cursor.count("operands")?;
                let operands = (0..count).map(|_| {
                    let position = cursor.position();
                    self.scopes.get(cursor.varint()?, position)
                });
                operands.collect::<Result<_>>()?
            }
            false => Vec::new(),
        };
        if has(part::SUCCESSORS) {
            return Err(unsupported(position, "a branch to another block"));
        }
        if has(part::USE_LISTS) {
            skip_use_lists(cursor, results.len())?;
        }
        let (regions, isolated) = match has(part::REGIONS) {
            true => {
                let position = cursor.position();
                let (regions, isolated) = cursor.flagged()?;
                (cursor.check_count(regions, position, "regions")?, isolated)
            }
            false => (0, false),
        };
        Ok(Encoded {
            position,
            name,
            location,
            attributes,
            properties,
            results,
            operands,
            regions,
            isolated,
        })
    }

    /// Adds the attributes in the properties of an operation to the others; returns the type of a
    /// function.
    pub(super) fn take_properties(
        &mut self,
        operation: &mut Encoded<'a>,
    ) -> Result<Option<Signature>> {
        let mut signature = None;
        let Some(mut properties) = operation.properties.take() else {
            return Ok(signature);
        };
        let name = &self.operations[operation.name];
        let mut attributes = Attributes::default();
        let names = match (name.dialect, name.vhlo) {
            _ if !name.registered => {
                attributes = self.table.next_dict(&mut properties)?;
                Vec::new()
            }
            (Dialect::Vhlo, Some(op)) => op.attributes.clone(),
            (Dialect::Shardy, _) => match row(&name.to_string()) {
                Some(row) => row.attributes.iter().map(|it| it.name).collect(),
                None => return Ok(signature),
            },
            // The operation is refused later, by its name.
            _ => return Ok(signature),
        };
        for name in names {
            match self.table.next_attribute(&mut properties, 0)? {
                // Every `custom_call` of 1.18.0 has it, most of them empty.
                AttributeEntry::Value(value) if name == "result_tilings" && is_empty(&value) => {}
                AttributeEntry::Value(value) => attributes.push(name, value),
                AttributeEntry::Missing => {}
                AttributeEntry::Function { inputs, outputs } => {
                    signature = Some(Signature { inputs, outputs });
                }
            }
        }
        properties.finish("the properties of an operation")?;
        attributes.0.append(&mut operation.attributes.0);
        operation.attributes = attributes;
        Ok(signature)
    }

    /// The properties of an operation that has some.
    pub(super) fn some_properties(&self, operation: &Encoded<'a>) -> Result<Cursor<'a>> {
        let name = &self.operations[operation.name];
        let message = format_args!("`{name}` without properties");
        operation
            .properties
            .ok_or_else(|| corrupt(operation.position, message))
    }

    /// A string that may be missing.
    pub(super) fn optional_text(&mut self, cursor: &mut Cursor<'a>) -> Result<Option<String>> {
        let position = cursor.position();
        let (index, present) = cursor.flagged()?;
        if !present {
            return Ok(None);
        }
        match self.table.attribute_at(index, position)? {
            AttributeEntry::Value(Attribute::Str(text)) => Ok(Some(text)),
            _ => Err(corrupt(
                position,
                "an attribute that is not a string where one is expected",
            )),
        }
    }
}

/// Skips the orders of uses of values.
pub(super) fn skip_use_lists(cursor: &mut Cursor<'_>, values: usize) -> Result<()> {
    let lists = match values {
        1 => 1,
        _ => cursor.count("lists of uses")?,
    };
    for _ in 0..lists {
        if values != 1 {
            cursor.varint()?;
        }
        let position = cursor.position();
        let (count, _) = cursor.flagged()?;
        for _ in 0..cursor.check_count(count, position, "uses")? {
            cursor.varint()?;
        }
    }
    Ok(())
}
