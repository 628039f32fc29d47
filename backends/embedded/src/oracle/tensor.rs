//! Values of a program, and the wide numbers that operations compute with.
//!
//! A [`Tensor`] is bytes. Operations that move elements copy bytes and keep every bit; operations
//! that compute decode all elements to [`Wide`] numbers, which hold every value of their class, and
//! round the results once, in [`Tensor::encode`]. For `add`, `subtract`, `multiply`, `divide` and
//! `sqrt` on floats of at most 32 bits, rounding an `f64` gives the correctly rounded result.

use std::sync::Arc;

use halite_core::{Error, ErrorKind, Result};
use halite_kernels::reserve;
use halite_stablehlo::{Dense, ElementClass, ElementType, RankedType, Type};

use super::complex::Complex;
use crate::storage::Storage;

/// A value of a program.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Tensor(Tensor),
    Token,
    Tuple(Vec<Value>),
}

impl Value {
    pub(crate) fn tensor(&self) -> Result<&Tensor> {
        match self {
            Value::Tensor(tensor) => Ok(tensor),
            Value::Token => Err(unexpected("a tensor", "a token")),
            Value::Tuple(_) => Err(unexpected("a tensor", "a tuple")),
        }
    }
}

/// A tensor: row-major elements of [`ElementType::size`] bytes each, as in a [`Dense`].
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) ty: RankedType,
    pub(crate) bytes: Arc<Storage>,
}

/// Elements in the widest type of their class.
#[derive(Clone, Debug)]
pub(super) enum Wide {
    /// Booleans as 0 and 1, and integers. Results wrap when they are encoded.
    Int(Vec<i128>),
    Float(Vec<f64>),
    Complex(Vec<Complex>),
}

impl Tensor {
    /// The tensor of a constant of the program.
    pub(crate) fn constant(dense: &Dense) -> Result<Self> {
        let length = dense.ty.bytes();
        let mut bytes = allocate(length)?;
        while bytes.len() < length {
            bytes.extend_from_slice(&dense.bytes[..dense.bytes.len().min(length - bytes.len())]);
        }
        Ok(Tensor::new(dense.ty.clone(), bytes))
    }

    pub(crate) fn new(ty: RankedType, bytes: Vec<u8>) -> Self {
        assert_eq!(
            ty.bytes(),
            bytes.len(),
            "a tensor has the bytes of its type"
        );
        let bytes = Arc::new(Storage::Bytes(bytes));
        Tensor { ty, bytes }
    }

    /// The bytes of one element.
    pub(super) fn element(&self, at: usize) -> &[u8] {
        let size = self.ty.element.size();
        &self.bytes[at * size..(at + 1) * size]
    }

    /// A scalar of one element.
    pub(super) fn scalar_at(&self, at: usize) -> Tensor {
        Tensor::new(
            RankedType::new(self.ty.element, []),
            self.element(at).to_vec(),
        )
    }

    /// The same elements with other dimensions.
    pub(super) fn reshape(&self, dims: &[usize]) -> Tensor {
        Tensor {
            ty: RankedType::new(self.ty.element, dims),
            bytes: self.bytes.clone(),
        }
    }

    /// All elements, decoded.
    pub(super) fn wide(&self) -> Result<Wide> {
        let element = self.ty.element;
        let each = || self.bytes.chunks_exact(element.size());
        let count = self.ty.elements();
        Ok(match element.class() {
            ElementClass::Bool | ElementClass::Signed | ElementClass::Unsigned => {
                Wide::Int(collect(count, each().map(|bytes| int_of(element, bytes)))?)
            }
            ElementClass::Float => Wide::Float(collect(
                count,
                each().map(|bytes| float_of(element, bytes)),
            )?),
            ElementClass::Complex => {
                let number = |bytes| complex_of(element, bytes);
                Wide::Complex(collect(count, each().map(number))?)
            }
        })
    }

    /// An integer or boolean at this position.
    pub(super) fn int_at(&self, at: usize) -> i128 {
        int_of(self.ty.element, self.element(at))
    }

    /// A float at this position.
    pub(super) fn float_at(&self, at: usize) -> f64 {
        float_of(self.ty.element, self.element(at))
    }

    /// A complex number at this position.
    pub(super) fn complex_at(&self, at: usize) -> Complex {
        complex_of(self.ty.element, self.element(at))
    }

    /// Integers or booleans, decoded.
    pub(super) fn ints(&self) -> Result<Vec<i128>> {
        match self.wide()? {
            Wide::Int(values) => Ok(values),
            _ => Err(unexpected("integers or booleans", &self.ty.to_string())),
        }
    }

    /// Floats, decoded.
    pub(super) fn floats(&self) -> Result<Vec<f64>> {
        match self.wide()? {
            Wide::Float(values) => Ok(values),
            _ => Err(unexpected("floats", &self.ty.to_string())),
        }
    }

    /// Floats or complex numbers, as complex numbers.
    pub(super) fn complex(&self) -> Result<Vec<Complex>> {
        match self.wide()? {
            Wide::Complex(values) => Ok(values),
            Wide::Float(values) => collect(values.len(), values.into_iter().map(Complex::from)),
            Wide::Int(_) => Err(unexpected(
                "floats or complex numbers",
                &self.ty.to_string(),
            )),
        }
    }

    /// The only element, an integer or boolean.
    pub(super) fn int(&self) -> Result<i128> {
        match self.ints()?[..] {
            [value] => Ok(value),
            _ => Err(unexpected("a scalar", &self.ty.to_string())),
        }
    }

    /// A tensor of these elements: integers wrap, floats are rounded to nearest.
    pub(super) fn encode(ty: &RankedType, values: Wide) -> Result<Self> {
        let (element, length) = (ty.element, ty.bytes());
        let mut bytes = allocate(length)?;
        match (values, element.class()) {
            (
                Wide::Int(values),
                ElementClass::Bool | ElementClass::Signed | ElementClass::Unsigned,
            ) => values
                .iter()
                .for_each(|&value| push_int(element, value, &mut bytes)),
            (Wide::Float(values), ElementClass::Float) => {
                values
                    .iter()
                    .for_each(|&value| push_float(element, value, &mut bytes));
            }
            (Wide::Complex(values), ElementClass::Complex) => {
                let part = element.part().expect("a complex type has parts");
                for value in values {
                    push_float(part, value.re, &mut bytes);
                    push_float(part, value.im, &mut bytes);
                }
            }
            (Wide::Int(_), _) => return Err(unexpected(&ty.to_string(), "integers")),
            (Wide::Float(_), _) => return Err(unexpected(&ty.to_string(), "floats")),
            (Wide::Complex(_), _) => return Err(unexpected(&ty.to_string(), "complex numbers")),
        }
        if bytes.len() != length {
            let computed = format!("{} bytes", bytes.len());
            return Err(unexpected(&ty.to_string(), &computed));
        }
        Ok(Tensor::new(ty.clone(), bytes))
    }

    /// A tensor of these elements, of any float or complex type.
    pub(super) fn from_complex(ty: &RankedType, values: Vec<Complex>) -> Result<Self> {
        if ty.element.class() == ElementClass::Complex {
            return Tensor::encode(ty, Wide::Complex(values));
        }
        let parts = collect(values.len(), values.iter().map(|value| value.re))?;
        Tensor::encode(ty, Wide::Float(parts))
    }
}

/// The type of a tensor that a result has in the program.
pub(super) fn tensor_type(ty: &Type) -> Result<&RankedType> {
    ty.as_tensor()
        .ok_or_else(|| unexpected("a tensor type", &ty.to_string()))
}

/// An empty vector with room for `count` elements.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`].
pub(crate) fn allocate<T>(count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    reserve(&mut values, count).map_err(|failed| cannot_allocate(failed.bytes))?;
    Ok(values)
}

/// The error of a lack of memory.
pub(super) fn cannot_allocate(bytes: usize) -> Error {
    let message = format!("the host cannot allocate {bytes} bytes for a tensor");
    Error::new(ErrorKind::OutOfMemory, "run", message)
}

/// The first `count` of `values`, in memory that is allocated with an error.
pub(crate) fn collect<T>(count: usize, values: impl Iterator<Item = T>) -> Result<Vec<T>> {
    let mut all = allocate(count)?;
    all.extend(values.take(count));
    Ok(all)
}

/// The error of a program that `Module::verify` would refuse.
pub(super) fn unexpected(wanted: &str, found: &str) -> Error {
    let message = format!("the interpreter expected {wanted}, found {found}; please report this");
    Error::new(ErrorKind::Internal, "run", message)
}

fn little_endian<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes
        .try_into()
        .expect("an element has the size of its type")
}

/// One integer or boolean.
fn int_of(element: ElementType, bytes: &[u8]) -> i128 {
    match element {
        ElementType::S16 => i16::from_le_bytes(little_endian(bytes)).into(),
        ElementType::S32 => i32::from_le_bytes(little_endian(bytes)).into(),
        ElementType::S64 => i64::from_le_bytes(little_endian(bytes)).into(),
        ElementType::U16 => u16::from_le_bytes(little_endian(bytes)).into(),
        ElementType::U32 => u32::from_le_bytes(little_endian(bytes)).into(),
        ElementType::U64 => u64::from_le_bytes(little_endian(bytes)).into(),
        ElementType::S2 | ElementType::S4 | ElementType::S8 => i128::from(bytes[0] as i8),
        _ => bytes[0].into(),
    }
}

/// One float.
fn float_of(element: ElementType, bytes: &[u8]) -> f64 {
    match element {
        ElementType::F64 => f64::from_le_bytes(little_endian(bytes)),
        ElementType::F32 => f32::from_le_bytes(little_endian(bytes)).into(),
        _ => {
            let bits = bytes
                .iter()
                .rev()
                .fold(0, |bits, &byte| bits << 8 | u64::from(byte));
            let format = element.float_format().expect("a float has a format");
            format.decode(bits)
        }
    }
}

/// One complex number.
fn complex_of(element: ElementType, bytes: &[u8]) -> Complex {
    let part = element.part().expect("a complex type has parts");
    let (re, im) = bytes.split_at(part.size());
    Complex::new(float_of(part, re), float_of(part, im))
}

/// Encodes a number as an element of any type.
pub(crate) fn push_count(element: ElementType, count: usize, bytes: &mut Vec<u8>) {
    match (element.class(), element.part()) {
        (ElementClass::Float, _) => push_float(element, count as f64, bytes),
        (_, Some(part)) => {
            push_float(part, count as f64, bytes);
            push_float(part, 0.0, bytes);
        }
        _ => push_int(element, count as i128, bytes),
    }
}

fn push_int(element: ElementType, value: i128, bytes: &mut Vec<u8>) {
    match element {
        ElementType::Bool => bytes.push((value != 0).into()),
        ElementType::U2 | ElementType::U4 => bytes.push(wrap(element, value) as u8),
        ElementType::S2 | ElementType::S4 => bytes.push(wrap(element, value) as i8 as u8),
        _ => bytes.extend_from_slice(&value.to_le_bytes()[..element.size()]),
    }
}

pub(super) fn push_float(element: ElementType, value: f64, bytes: &mut Vec<u8>) {
    match element {
        ElementType::F64 => bytes.extend_from_slice(&value.to_le_bytes()),
        ElementType::F32 => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
        _ => {
            let format = element.float_format().expect("a float has a format");
            bytes.extend_from_slice(&format.encode(value).to_le_bytes()[..element.size()]);
        }
    }
}

/// `value` as an element of a float type.
pub(super) fn rounded(element: ElementType, value: f64) -> f64 {
    let mut bytes = Vec::with_capacity(element.size());
    push_float(element, value, &mut bytes);
    float_of(element, &bytes)
}

/// `value` modulo the range of an integer type; 0 or 1 for booleans.
pub(super) fn wrap(element: ElementType, value: i128) -> i128 {
    let unused = 128 - element.bits() as u32;
    match element.class() {
        ElementClass::Bool => (value != 0).into(),
        ElementClass::Signed => value << unused >> unused,
        _ => ((value as u128) << unused >> unused) as i128,
    }
}
