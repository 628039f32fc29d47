//! Decoding of attributes.

use std::collections::HashSet;

use half::{bf16, f16};
use halite_core::Result;

use super::{
    cursor::{Cursor, corrupt, unsupported},
    pack,
    sections::{Dialect, Entry},
    table::Table,
    types::{TypeEntry, weight as type_weight},
};
use crate::{Attribute, Attributes, Dense, ElementType, ShardyDim, ShardySharding, Type, vhlo};

/// An attribute of the table.
#[derive(Clone, Debug)]
pub(super) enum AttributeEntry {
    Value(Attribute),
    /// The type `none`, in place of an attribute that is missing.
    Missing,
    /// The type of a function.
    Function {
        inputs: Vec<Type>,
        outputs: Vec<Type>,
    },
}

impl AttributeEntry {
    /// Approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let heap = match self {
            AttributeEntry::Value(attribute) => weight(attribute),
            AttributeEntry::Missing => 0,
            AttributeEntry::Function { inputs, outputs } => {
                inputs.iter().chain(outputs).map(type_weight).sum()
            }
        };
        size_of::<Self>() + heap
    }
}

/// Approximate size in memory, in bytes. Elements of constants are shared.
fn weight(attribute: &Attribute) -> usize {
    let heap = match attribute {
        Attribute::Str(text) | Attribute::Symbol(text) => text.len(),
        Attribute::Bytes(bytes) => bytes.len(),
        Attribute::Type(ty) => type_weight(ty),
        Attribute::Array(list) => list.iter().map(weight).sum(),
        Attribute::Dict(fields) => {
            let fields = fields.0.iter();
            fields
                .map(|(name, value)| size_of::<String>() + name.len() + weight(value))
                .sum()
        }
        Attribute::Dense(dense) => size_of_val(&dense.ty.dims[..]),
        Attribute::Sharding(sharding) => sharding_weight(sharding),
        Attribute::Shardings(list) => list.iter().map(sharding_weight).sum(),
        Attribute::Axes(axes) => size_of_val(&axes[..]),
        Attribute::Unit | Attribute::Bool(_) | Attribute::Int(..) | Attribute::Float(..) => 0,
    };
    size_of::<Attribute>() + heap
}

fn sharding_weight(sharding: &ShardySharding) -> usize {
    let ShardySharding {
        mesh,
        dims,
        replicated,
        unreduced,
    } = sharding;
    let dims = dims
        .iter()
        .map(|dim| size_of::<ShardyDim>() + size_of_val(&dim.axes[..]));
    size_of::<ShardySharding>()
        + mesh.len()
        + dims.sum::<usize>()
        + size_of_val(&replicated[..])
        + size_of_val(&unreduced[..])
}

impl<'a> Table<'a> {
    /// The attribute that the next index names, which is not missing.
    pub(super) fn next_value(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<Attribute> {
        let position = cursor.position();
        match self.next_attribute(cursor, depth)? {
            AttributeEntry::Value(value) => Ok(value),
            _ => Err(corrupt(position, "a type where a value is expected")),
        }
    }

    /// The text that the next index names: a string, or a symbol.
    pub(super) fn next_text(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<String> {
        let position = cursor.position();
        match self.next_value(cursor, depth)? {
            Attribute::Str(text) | Attribute::Symbol(text) => Ok(text),
            _ => Err(corrupt(
                position,
                "an attribute that is not a string where one is expected",
            )),
        }
    }

    /// The attributes by name that the next index names.
    pub(super) fn next_dict(&mut self, cursor: &mut Cursor<'a>) -> Result<Attributes> {
        let position = cursor.position();
        match self.next_value(cursor, 0)? {
            Attribute::Dict(fields) => Ok(fields),
            _ => Err(corrupt(
                position,
                "an attribute that is not a dictionary where one is expected",
            )),
        }
    }

    pub(super) fn decode_attribute(
        &mut self,
        entry: Entry<'a>,
        depth: u32,
    ) -> Result<AttributeEntry> {
        let mut cursor = entry.contents;
        let position = cursor.position();
        if !entry.encoded {
            let text = String::from_utf8_lossy(cursor.nul_terminated()?);
            let message = format_args!(
                "the attribute `{text}` is stored as text, as old versions of its dialect are; \
                 export the program again with a newer one"
            );
            return Err(unsupported(position, message));
        }
        let code = cursor.varint()?;
        let value = match entry.dialect {
            Dialect::Builtin => self.builtin_attribute(code, &mut cursor, depth)?,
            Dialect::Vhlo => self.vhlo_attribute(code, &mut cursor, depth)?,
            Dialect::Shardy => self.shardy_attribute(code, &mut cursor, depth)?,
            Dialect::Other(dialect) => {
                let message = format_args!("an attribute of dialect `{dialect}`");
                return Err(unsupported(position, message));
            }
        };
        cursor.finish("an attribute")?;
        Ok(value)
    }

    fn vhlo_attribute(
        &mut self,
        code: u64,
        cursor: &mut Cursor<'a>,
        depth: u32,
    ) -> Result<AttributeEntry> {
        let position = cursor.position();
        let enumeration = vhlo::ENUMERATIONS
            .iter()
            .find(|(_, enumeration)| enumeration.code == code);
        if let Some((name, enumeration)) = enumeration {
            let number = cursor.varint()?;
            let case = enumeration.case(number).ok_or_else(|| {
                corrupt(position, format_args!("unknown case {number} of `{name}`"))
            })?;
            return Ok(AttributeEntry::Value(Attribute::Str(case.into())));
        }
        let value = match code {
            1 => self.array(cursor, depth)?,
            2 => match cursor.varint()? {
                value @ (0 | 1) => Attribute::Bool(value == 1),
                value => return Err(corrupt(position, format_args!("the boolean {value}"))),
            },
            6 => self.dictionary(cursor, depth)?,
            8 => self.float(cursor, depth)?,
            9 => self.integer(cursor, depth)?,
            10 => output_operand_alias(cursor)?,
            14 => Attribute::string(self.strings.next_bytes(cursor)?.into()),
            15 => self.tensor_value(cursor, depth)?,
            17 => return self.type_value(cursor, depth),
            20 => self.result_accuracy(cursor, depth)?,
            18 => return Err(unsupported(position, "bounds of a dynamic shape")),
            21..=25 => {
                let message =
                    "replica groups by mesh axes; serialize for StableHLO 1.15.0 or older";
                return Err(unsupported(position, message));
            }
            _ => {
                return Err(corrupt(
                    position,
                    format_args!("unknown VHLO attribute {code}"),
                ));
            }
        };
        Ok(AttributeEntry::Value(value))
    }

    fn builtin_attribute(
        &mut self,
        code: u64,
        cursor: &mut Cursor<'a>,
        depth: u32,
    ) -> Result<AttributeEntry> {
        let position = cursor.position();
        let value = match code {
            0 => self.array(cursor, depth)?,
            1 => self.dictionary(cursor, depth)?,
            2 => Attribute::string(self.strings.next_bytes(cursor)?.into()),
            4 => Attribute::Symbol(self.next_text(cursor, depth)?),
            6 => return self.type_value(cursor, depth),
            7 => Attribute::Unit,
            8 => self.integer(cursor, depth)?,
            9 => self.float(cursor, depth)?,
            16 => {
                let message = "a constant in a resource section; only constants in the program \
                               itself are supported";
                return Err(unsupported(position, message));
            }
            17 => self.dense_array(cursor, depth)?,
            18 => self.tensor_value(cursor, depth)?,
            _ => {
                return Err(unsupported(
                    position,
                    format_args!("builtin attribute {code}"),
                ));
            }
        };
        Ok(AttributeEntry::Value(value))
    }

    fn array(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<Attribute> {
        let count = cursor.count("attributes")?;
        let list: Result<_> = (0..count).map(|_| self.next_value(cursor, depth)).collect();
        Ok(Attribute::Array(list?))
    }

    fn dictionary(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<Attribute> {
        let count = cursor.count("attributes")?;
        let (mut fields, mut names) = (Attributes::default(), HashSet::new());
        for _ in 0..count {
            let position = cursor.position();
            let name = self.next_text(cursor, depth)?;
            if !names.insert(name.clone()) {
                return Err(corrupt(position, format_args!("two attributes `{name}`")));
            }
            // Before version 5, the attributes of functions contain their type.
            if let AttributeEntry::Value(value) = self.next_attribute(cursor, depth)? {
                fields.push(name, value);
            }
        }
        Ok(Attribute::Dict(fields))
    }

    fn integer(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<Attribute> {
        let position = cursor.position();
        let ty = match self.next_type(cursor, depth)? {
            TypeEntry::Element(ty) => ty,
            TypeEntry::Index => ElementType::S64,
            _ => {
                return Err(corrupt(
                    position,
                    "an integer whose type is not an integer type",
                ));
            }
        };
        let bits = match ty.bits() {
            1..=8 => cursor.byte()?.into(),
            _ => cursor.signed()? as u64,
        };
        let unused = 64 - ty.bits().min(64) as u32;
        use crate::ElementClass::{Bool, Complex, Float, Signed, Unsigned};
        Ok(match ty.class() {
            Bool => Attribute::Bool(bits & 1 == 1),
            Signed => Attribute::Int((bits << unused) as i64 >> unused, ty),
            Unsigned => Attribute::Int((bits << unused >> unused) as i64, ty),
            Float | Complex => {
                return Err(corrupt(position, format_args!("an integer of type {ty}")));
            }
        })
    }

    fn float(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<Attribute> {
        let position = cursor.position();
        let ty = match self.next_type(cursor, depth)? {
            TypeEntry::Element(ty) => ty,
            _ => return Err(corrupt(position, "a float whose type is not a float type")),
        };
        let value = match ty {
            ElementType::Bf16 => bf16::from_bits(cursor.signed()? as u16).into(),
            ElementType::F16 => f16::from_bits(cursor.signed()? as u16).into(),
            ElementType::F32 => f32::from_bits(cursor.signed()? as u32).into(),
            ElementType::F64 => f64::from_bits(cursor.signed()? as u64),
            _ => {
                return Err(unsupported(
                    position,
                    format_args!("an attribute of type {ty}"),
                ));
            }
        };
        Ok(Attribute::Float(value, ty))
    }

    fn type_value(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<AttributeEntry> {
        let value = match self.next_type(cursor, depth)? {
            TypeEntry::Value(ty) => Attribute::Type(ty),
            TypeEntry::Element(ty) => Attribute::Str(ty.name().into()),
            TypeEntry::Index => Attribute::Str("index".into()),
            TypeEntry::Tf32 => Attribute::Str("tf32".into()),
            TypeEntry::None => return Ok(AttributeEntry::Missing),
            TypeEntry::Function { inputs, outputs } => {
                return Ok(AttributeEntry::Function { inputs, outputs });
            }
        };
        Ok(AttributeEntry::Value(value))
    }

    fn result_accuracy(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<Attribute> {
        let mut fields = Attributes::default();
        for name in ["atol", "rtol"] {
            let value = f64::from_bits(cursor.signed()? as u64);
            fields.push(name, Attribute::Float(value, ElementType::F64));
        }
        fields.push("ulps", Attribute::Int(cursor.signed()?, ElementType::S64));
        fields.push("mode", Attribute::Str(self.next_text(cursor, depth)?));
        Ok(Attribute::Dict(fields))
    }

    fn tensor_value(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<Attribute> {
        let position = cursor.position();
        let Type::Tensor(ty) = self.value_type(cursor, depth)? else {
            return Err(corrupt(position, "a constant that is not a tensor"));
        };
        let length = cursor.varint()?;
        let blob = cursor.part(length)?;
        match pack::unpack(ty, blob.rest()) {
            Ok(dense) => Ok(Attribute::Dense(dense)),
            Err(problem) => Err(corrupt(blob.position(), problem)),
        }
    }

    /// `array<i64: 1, 2>`.
    fn dense_array(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<Attribute> {
        let position = cursor.position();
        let TypeEntry::Element(element) = self.next_type(cursor, depth)? else {
            return Err(corrupt(position, "an array whose elements are not numbers"));
        };
        let count = cursor.count("elements")?;
        let length = cursor.varint()?;
        let blob = cursor.part(length)?;
        if blob.remaining() != count * element.size() {
            let message = format_args!("{length} bytes for {count} elements of type {element}");
            return Err(corrupt(blob.position(), message));
        }
        let ty = crate::RankedType::new(element, [count]);
        let bytes = blob.rest().into();
        Ok(Attribute::Dense(Dense { ty, bytes }))
    }
}

/// The fields of `#stablehlo.output_operand_alias`.
fn output_operand_alias(cursor: &mut Cursor<'_>) -> Result<Attribute> {
    let integer = |value| Attribute::Int(value, ElementType::S64);
    let list = |values: Vec<i64>| Attribute::Array(values.into_iter().map(integer).collect());
    let mut fields = Attributes::default();
    fields.push("output_tuple_indices", list(cursor.signed_list()?));
    fields.push("operand_index", integer(cursor.signed()?));
    fields.push("operand_tuple_indices", list(cursor.signed_list()?));
    Ok(Attribute::Dict(fields))
}
