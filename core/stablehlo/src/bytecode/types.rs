//! Decoding of types.

use halite_core::Result;

use super::{
    cursor::{Cursor, corrupt, unsupported},
    sections::{Dialect, Entry},
    table::Table,
};
use crate::{ElementType, RankedType, Type};

/// A type of the table.
#[derive(Clone, Debug)]
pub(super) enum TypeEntry {
    /// The type of a value.
    Value(Type),
    /// The type of the elements of a tensor, and of numeric attributes.
    Element(ElementType),
    /// `index`, of attributes.
    Index,
    /// `tf32`, of the algorithm of a dot.
    Tf32,
    /// `none`, in place of attributes that are missing.
    None,
    /// The type of a function.
    Function {
        inputs: Vec<Type>,
        outputs: Vec<Type>,
    },
}

impl TypeEntry {
    /// Approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let heap = match self {
            TypeEntry::Value(ty) => weight(ty),
            TypeEntry::Function { inputs, outputs } => {
                inputs.iter().chain(outputs).map(weight).sum()
            }
            _ => 0,
        };
        size_of::<Self>() + heap
    }
}

/// Approximate size in memory, in bytes.
pub(super) fn weight(ty: &Type) -> usize {
    let heap = match ty {
        Type::Tensor(ty) => ty.dims.len() * size_of::<usize>(),
        Type::Token => 0,
        Type::Tuple(types) => types.iter().map(weight).sum(),
    };
    size_of::<Type>() + heap
}

impl<'a> Table<'a> {
    pub(super) fn decode_type(&mut self, entry: Entry<'a>, depth: u32) -> Result<TypeEntry> {
        let mut cursor = entry.contents;
        let position = cursor.position();
        if !entry.encoded {
            return text_type(cursor);
        }
        let code = cursor.varint()?;
        let ty = match entry.dialect {
            Dialect::Builtin => self.builtin_type(code, &mut cursor, depth)?,
            Dialect::Vhlo => self.vhlo_type(code, &mut cursor, depth)?,
            dialect => {
                let message = format_args!("a type of dialect `{}`", dialect.name());
                return Err(unsupported(position, message));
            }
        };
        cursor.finish("a type")?;
        Ok(ty)
    }

    fn vhlo_type(&mut self, code: u64, cursor: &mut Cursor<'a>, depth: u32) -> Result<TypeEntry> {
        let number = u32::try_from(code).ok();
        if let Some(element) = number.and_then(ElementType::from_vhlo_number) {
            return Ok(TypeEntry::Element(element));
        }
        let unsupported = |what: &str| Err(unsupported(cursor.position(), what));
        match code {
            1 => self.complex(cursor, depth),
            8 => self.function(cursor, depth),
            9 => Ok(TypeEntry::Index),
            20 => self.tensor(cursor, depth),
            21 => unsupported("a tensor type with bounds; only static shapes are supported"),
            22 => Ok(TypeEntry::Value(Type::Token)),
            23 => self.tuple(cursor, depth),
            24 | 30 => unsupported("a quantized type; quantized programs are not supported"),
            25 => unsupported("a tensor type without rank; only static shapes are supported"),
            26 => unsupported("the type `witness`"),
            33 => Ok(TypeEntry::None),
            34 => Ok(TypeEntry::Tf32),
            41 => unsupported("a buffer type; buffers are not supported"),
            42 => unsupported("a future type; asynchronous operations are not supported"),
            _ => Err(corrupt(
                cursor.position(),
                format_args!("unknown VHLO type {code}"),
            )),
        }
    }

    fn builtin_type(
        &mut self,
        code: u64,
        cursor: &mut Cursor<'a>,
        depth: u32,
    ) -> Result<TypeEntry> {
        let position = cursor.position();
        match code {
            0 => builtin_integer(cursor),
            1 => Ok(TypeEntry::Index),
            2 => self.function(cursor, depth),
            9 => self.complex(cursor, depth),
            12 => Ok(TypeEntry::None),
            13 => self.tensor(cursor, depth),
            15 => self.tuple(cursor, depth),
            21 => Ok(TypeEntry::Tf32),
            _ => {
                let number = u32::try_from(code).ok();
                let element = number.and_then(ElementType::from_builtin_number);
                element
                    .map(TypeEntry::Element)
                    .ok_or_else(|| unsupported(position, format_args!("builtin type {code}")))
            }
        }
    }

    fn complex(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<TypeEntry> {
        let position = cursor.position();
        match self.next_type(cursor, depth)? {
            TypeEntry::Element(ElementType::F32) => Ok(TypeEntry::Element(ElementType::C64)),
            TypeEntry::Element(ElementType::F64) => Ok(TypeEntry::Element(ElementType::C128)),
            _ => Err(unsupported(
                position,
                "a complex type of parts other than f32 or f64",
            )),
        }
    }

    fn tensor(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<TypeEntry> {
        let position = cursor.position();
        let dims = cursor.signed_list()?;
        let element = match self.next_type(cursor, depth)? {
            TypeEntry::Element(element) => element,
            // Layouts of custom calls.
            TypeEntry::Index => ElementType::S64,
            _ => return Err(corrupt(position, "a tensor whose elements are not numbers")),
        };
        let dims: Option<Vec<usize>> = dims.into_iter().map(|dim| dim.try_into().ok()).collect();
        let Some(dims) = dims else {
            let message =
                "a tensor type with a dynamic dimension; only static shapes are supported";
            return Err(unsupported(position, message));
        };
        let ty = RankedType::new(element, dims);
        if isize::try_from(ty.bytes()).is_err() {
            return Err(unsupported(
                position,
                format_args!("{ty} does not fit the address space"),
            ));
        }
        Ok(TypeEntry::Value(Type::Tensor(ty)))
    }

    fn tuple(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<TypeEntry> {
        Ok(TypeEntry::Value(Type::Tuple(
            self.value_types(cursor, depth)?,
        )))
    }

    fn function(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<TypeEntry> {
        Ok(TypeEntry::Function {
            inputs: self.value_types(cursor, depth)?,
            outputs: self.value_types(cursor, depth)?,
        })
    }

    /// A list of types of values.
    pub(super) fn value_types(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<Vec<Type>> {
        let count = cursor.count("types")?;
        let types = (0..count).map(|_| self.value_type(cursor, depth));
        types.collect()
    }

    /// The type of a value.
    pub(super) fn value_type(&mut self, cursor: &mut Cursor<'a>, depth: u32) -> Result<Type> {
        let position = cursor.position();
        let index = cursor.varint()?;
        self.value_type_at(index, position, depth)
    }

    /// The type of a value, with this index, which the bytecode has at `position`.
    pub(super) fn value_type_at(
        &mut self,
        index: u64,
        position: usize,
        depth: u32,
    ) -> Result<Type> {
        match self.type_at(index, position, depth)? {
            TypeEntry::Value(ty) => Ok(ty),
            _ => Err(corrupt(position, "a type that values do not have")),
        }
    }
}

/// `i32`, `ui8`, ..: the width, and whether signedness is unspecified (0), signed or unsigned.
fn builtin_integer(cursor: &mut Cursor<'_>) -> Result<TypeEntry> {
    let position = cursor.position();
    let value = cursor.varint()?;
    let element = match (value >> 2, value & 3) {
        (1, 0) => Some(ElementType::Bool),
        (width, 0 | 1) => ElementType::from_name(&format!("i{width}")),
        (width, 2) => ElementType::from_name(&format!("ui{width}")),
        _ => None,
    };
    let message = format_args!("an integer type of {} bits", value >> 2);
    element
        .map(TypeEntry::Element)
        .ok_or_else(|| unsupported(position, message))
}

/// The text of a type, which old versions of MLIR write for narrow floats.
fn text_type(mut cursor: Cursor<'_>) -> Result<TypeEntry> {
    let position = cursor.position();
    let text = String::from_utf8_lossy(cursor.nul_terminated()?);
    match ElementType::from_name(&text) {
        Some(element) => Ok(TypeEntry::Element(element)),
        None => Err(unsupported(position, format_args!("the type `{text}`"))),
    }
}
