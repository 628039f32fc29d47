//! Element types of programs.

use std::fmt;

use super::{
    float_format::FloatFormat,
    table::{DType, ElementType, Kind},
};

/// The families of [`ElementType`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum ElementClass {
    Bool,
    Signed,
    Unsigned,
    Float,
    Complex,
}

impl ElementType {
    /// The name in MLIR text: `i1`, `i32`, `ui8`, `f8E4M3FN`, `complex<f32>`.
    pub const fn name(self) -> &'static str {
        self.row().mlir
    }

    /// The element type with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        ElementType::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// Size in bytes of one element on the host: narrow types have a byte each.
    #[inline]
    pub const fn size(self) -> usize {
        self.bits().div_ceil(8)
    }

    /// Bits of one element in StableHLO, which `bitcast_convert` and packed constants count.
    #[inline]
    pub const fn bits(self) -> usize {
        self.row().bits
    }

    /// The family.
    #[inline]
    pub const fn class(self) -> ElementClass {
        match self.row().kind {
            Kind::Bool => ElementClass::Bool,
            Kind::Signed => ElementClass::Signed,
            Kind::Unsigned => ElementClass::Unsigned,
            Kind::Float(_) => ElementClass::Float,
            Kind::Complex(_) => ElementClass::Complex,
        }
    }

    /// The format of a float.
    #[inline]
    pub const fn float_format(self) -> Option<FloatFormat> {
        match self.row().kind {
            Kind::Float(format) => Some(format),
            _ => None,
        }
    }

    /// The element type of the real and imaginary parts of a complex type.
    #[inline]
    pub const fn part(self) -> Option<ElementType> {
        match self.row().kind {
            Kind::Complex(part) => Some(part),
            _ => None,
        }
    }

    /// The element type of arrays of a client; `None` if clients have no such arrays.
    #[inline]
    pub const fn dtype(self) -> Option<DType> {
        self.row().dtype
    }

    /// First version of StableHLO, major and minor, whose portable artifacts have the type; `None`
    /// for complex types, which have one code for all.
    pub const fn vhlo_since(self) -> Option<(u16, u16)> {
        self.row().vhlo_since
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        dtype.element_type()
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
