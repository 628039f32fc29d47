//! Types of values.

use std::fmt;

use halite_core::TensorType;
pub use halite_core::{ElementClass, ElementType};

/// Type of a tensor of static dimensions.
///
/// The number of its elements, and of its bytes, fits `isize`: readers refuse other types.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RankedType {
    /// Type of each element.
    pub element: ElementType,
    /// Sizes of the dimensions, outermost first.
    pub dims: Vec<usize>,
}

impl RankedType {
    /// The type of a tensor of `dims`.
    pub fn new(element: ElementType, dims: impl Into<Vec<usize>>) -> Self {
        let dims = dims.into();
        RankedType { element, dims }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements. Saturates, which no type that a reader accepts does.
    pub fn elements(&self) -> usize {
        (self.dims.iter()).fold(1, |elements: usize, &dim| elements.saturating_mul(dim))
    }

    /// Row-major strides, in elements.
    pub fn strides(&self) -> Vec<usize> {
        let inner = |dim| {
            self.dims[dim..]
                .iter()
                .fold(1, |product: usize, &size| product.saturating_mul(size))
        };
        (1..=self.rank()).map(inner).collect()
    }

    /// Number of bytes, row-major. Saturates, which no type that a reader accepts does.
    pub fn bytes(&self) -> usize {
        self.elements().saturating_mul(self.element.size())
    }

    /// The type of arrays of a client; `None` if clients have no such arrays.
    pub fn tensor_type(&self) -> Option<TensorType> {
        Some(TensorType::new(self.element.dtype()?, &self.dims))
    }
}

impl From<&TensorType> for RankedType {
    fn from(ty: &TensorType) -> Self {
        RankedType::new(ty.dtype().into(), ty.dims())
    }
}

impl fmt::Display for RankedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor<")?;
        for dim in &self.dims {
            write!(f, "{dim}x")?;
        }
        write!(f, "{}>", self.element)
    }
}

/// The form in a [`Dense`](crate::Dense) of an element of less than a byte: integers are extended
/// with their sign, floats are in the low bits. Bytes of wider elements are the same.
pub(crate) fn canonical(element: ElementType, byte: u8) -> u8 {
    let unused = 8_u32.saturating_sub(element.bits() as u32);
    match element.class() {
        ElementClass::Signed => ((byte << unused) as i8 >> unused) as u8,
        _ => byte << unused >> unused,
    }
}

/// Type of a value.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Type {
    /// A tensor.
    Tensor(RankedType),
    /// Orders operations with side effects.
    Token,
    /// Several values as one.
    Tuple(Vec<Type>),
}

impl Type {
    /// The type of the tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&RankedType> {
        match self {
            Type::Tensor(ty) => Some(ty),
            Type::Token | Type::Tuple(_) => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(ty) => ty.fmt(f),
            Type::Token => f.write_str("!stablehlo.token"),
            Type::Tuple(types) => {
                f.write_str("tuple<")?;
                for (index, ty) in types.iter().enumerate() {
                    write!(f, "{}{ty}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str(">")
            }
        }
    }
}
