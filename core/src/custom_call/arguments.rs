//! Arguments of a custom call: typed buffers and attributes.

use std::fmt;

use super::OP;
use crate::{DType, Element, Error, Result, TensorType};

/// Value of an attribute of a custom call. Floats are equal if their bits are.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the types of attributes")]
pub enum Attribute {
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
}

/// Arguments of one call, on one device.
pub struct Arguments<'a> {
    inputs: Vec<InputBuffer<'a>>,
    outputs: Vec<OutputBuffer<'a>>,
    attributes: Attributes<'a>,
}

/// Row-major elements of an operand.
#[derive(Clone, Debug)]
pub struct InputBuffer<'a>(Buffer<&'a [u8]>);

/// Row-major elements of a result. Their values are arbitrary until they are written.
#[derive(Debug)]
pub struct OutputBuffer<'a>(Buffer<&'a mut [u8]>);

/// Attributes of a call, by name.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(&'a [(String, Attribute)]);

#[derive(Clone)]
struct Buffer<B> {
    /// `input` or `output`, and its position.
    role: &'static str,
    index: usize,
    ty: TensorType,
    bytes: B,
}

impl<'a> Arguments<'a> {
    /// Arguments from host memory in the machine's byte order, for backends.
    ///
    /// # Errors
    /// If a buffer has not as many bytes as its type needs.
    pub fn new(
        inputs: impl IntoIterator<Item = (TensorType, &'a [u8])>,
        outputs: impl IntoIterator<Item = (TensorType, &'a mut [u8])>,
        attributes: &'a [(String, Attribute)],
    ) -> Result<Self> {
        let inputs = (inputs.into_iter().enumerate())
            .map(|(index, (ty, bytes))| Buffer::new("input", index, ty, bytes).map(InputBuffer));
        let outputs = (outputs.into_iter().enumerate())
            .map(|(index, (ty, bytes))| Buffer::new("output", index, ty, bytes).map(OutputBuffer));
        Ok(Arguments {
            inputs: inputs.collect::<Result<_>>()?,
            outputs: outputs.collect::<Result<_>>()?,
            attributes: Attributes(attributes),
        })
    }

    /// Exactly `I` inputs and `O` outputs: `let ([x, y], [sum]) = call.buffers()?;`.
    ///
    /// # Errors
    /// If the call has other numbers of inputs or outputs.
    pub fn buffers<const I: usize, const O: usize>(
        &mut self,
    ) -> Result<(&[InputBuffer<'a>; I], &mut [OutputBuffer<'a>; O])> {
        let found = (self.inputs.len(), self.outputs.len());
        let (inputs, outputs) = self.all_buffers();
        match (inputs.try_into(), outputs.try_into()) {
            (Ok(inputs), Ok(outputs)) => Ok((inputs, outputs)),
            _ => {
                let message = format!(
                    "called with {} inputs and {} outputs; the function has {I} and {O}",
                    found.0, found.1
                );
                Err(Error::invalid(OP, message))
            }
        }
    }

    /// All inputs and outputs, for functions of any number of them.
    pub fn all_buffers(&mut self) -> (&[InputBuffer<'a>], &mut [OutputBuffer<'a>]) {
        (&self.inputs, &mut self.outputs)
    }

    /// The attributes of the call.
    pub fn attributes(&self) -> Attributes<'a> {
        self.attributes
    }
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Arguments {
            inputs,
            outputs,
            attributes,
        } = self;
        write!(f, "Arguments({inputs:?}, {outputs:?}, {attributes:?})")
    }
}

impl<'a> InputBuffer<'a> {
    /// Element type and dimensions.
    pub fn ty(&self) -> &TensorType {
        &self.0.ty
    }

    /// The elements as bytes in the machine's byte order.
    pub fn bytes(&self) -> &'a [u8] {
        self.0.bytes
    }

    /// The elements.
    ///
    /// # Errors
    /// If `T` is not the element type, or bits are invalid for `T` (a `bool` that is neither 0 nor
    /// 1).
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        self.0.expect_dtype::<T>()?;
        if self.0.bytes.is_empty() {
            return Ok(&[]);
        }
        T::of_bytes(self.0.bytes).map_err(|error| self.0.misread(&error))
    }
}

impl OutputBuffer<'_> {
    /// Element type and dimensions.
    pub fn ty(&self) -> &TensorType {
        &self.0.ty
    }

    /// The elements as bytes in the machine's byte order.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes
    }

    /// The elements, all of which the function has to write.
    ///
    /// # Errors
    /// If `T` is not the element type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.0.expect_dtype::<T>()?;
        if self.0.bytes.is_empty() {
            return Ok(&mut []);
        }
        if T::DTYPE == DType::Bool {
            // Arbitrary bits are not all valid.
            self.0.bytes.fill(0);
        }
        let Buffer {
            role,
            index,
            ty,
            bytes,
        } = &mut self.0;
        T::of_bytes_mut(bytes).map_err(|error| misread(role, *index, ty, &error))
    }
}

impl<B: AsRef<[u8]>> Buffer<B> {
    fn new(role: &'static str, index: usize, ty: TensorType, bytes: B) -> Result<Self> {
        let (found, needed) = (bytes.as_ref().len(), ty.checked_bytes()?);
        if found != needed {
            let message = format!("{role} {index} has {found} bytes, {ty} needs {needed}");
            return Err(Error::invalid(OP, message));
        }
        Ok(Buffer {
            role,
            index,
            ty,
            bytes,
        })
    }
}

impl<B> Buffer<B> {
    fn expect_dtype<T: Element>(&self) -> Result<()> {
        if T::DTYPE == self.ty.dtype() {
            return Ok(());
        }
        let Buffer {
            role, index, ty, ..
        } = self;
        let message = format!("{role} {index} is {ty}, used as {}", T::DTYPE);
        Err(Error::invalid(OP, message))
    }

    fn misread(&self, error: &bytemuck::checked::CheckedCastError) -> Error {
        misread(self.role, self.index, &self.ty, error)
    }
}

fn misread(
    role: &str,
    index: usize,
    ty: &TensorType,
    error: &bytemuck::checked::CheckedCastError,
) -> Error {
    let message = format!("the bytes of {role} {index} are not a valid {ty}: {error}");
    Error::invalid(OP, message)
}

impl<B> fmt::Debug for Buffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.role, self.index, self.ty)
    }
}

impl<'a> Attributes<'a> {
    /// The attribute with this name, if there is one.
    pub fn get(self, name: &str) -> Option<&'a Attribute> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }

    /// All attributes, in the order of the call.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a Attribute)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// A boolean.
    ///
    /// # Errors
    /// If there is no attribute of this name, or it has another type.
    pub fn bool(self, name: &str) -> Result<bool> {
        match self.expect(name)? {
            Attribute::Bool(value) => Ok(*value),
            other => Err(wrong_type(name, other, "a bool")),
        }
    }

    /// An integer.
    ///
    /// # Errors
    /// If there is no attribute of this name, or it has another type.
    pub fn int(self, name: &str) -> Result<i64> {
        match self.expect(name)? {
            Attribute::Int(value) => Ok(*value),
            other => Err(wrong_type(name, other, "an integer")),
        }
    }

    /// A float.
    ///
    /// # Errors
    /// If there is no attribute of this name, or it has another type.
    pub fn float(self, name: &str) -> Result<f64> {
        match self.expect(name)? {
            Attribute::Float(value) => Ok(*value),
            other => Err(wrong_type(name, other, "a float")),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// If there is no attribute of this name, or it has another type.
    pub fn str(self, name: &str) -> Result<&'a str> {
        match self.expect(name)? {
            Attribute::Str(value) => Ok(value),
            other => Err(wrong_type(name, other, "a string")),
        }
    }

    fn expect(self, name: &str) -> Result<&'a Attribute> {
        self.get(name).ok_or_else(|| {
            let known: Vec<_> = self.iter().map(|(name, _)| format!("`{name}`")).collect();
            let known = match &known[..] {
                [] => "none".to_owned(),
                known => known.join(", "),
            };
            let message = format!("no attribute `{name}`; the call has {known}");
            Error::invalid(OP, message)
        })
    }
}

fn wrong_type(name: &str, found: &Attribute, wanted: &str) -> Error {
    let message = format!("the attribute `{name}` is {found}, not {wanted}");
    Error::invalid(OP, message)
}

impl PartialEq for Attribute {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Attribute::Bool(a), Attribute::Bool(b)) => a == b,
            (Attribute::Int(a), Attribute::Int(b)) => a == b,
            (Attribute::Float(a), Attribute::Float(b)) => a.to_bits() == b.to_bits(),
            (Attribute::Str(a), Attribute::Str(b)) => a == b,
            (
                Attribute::Bool(_) | Attribute::Int(_) | Attribute::Float(_) | Attribute::Str(_),
                _,
            ) => false,
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Bool(value) => write!(f, "{value}"),
            Attribute::Int(value) => write!(f, "{value}"),
            Attribute::Float(value) => write!(f, "{value:?}"),
            Attribute::Str(value) => write!(f, "{value:?}"),
        }
    }
}

macro_rules! attribute_from {
    ($($rust:ty => $variant:ident),* $(,)?) => {
        $(impl From<$rust> for Attribute {
            fn from(value: $rust) -> Self {
                Attribute::$variant(value.into())
            }
        })*
    };
}

attribute_from! {
    bool => Bool, i32 => Int, i64 => Int, u32 => Int, f32 => Float, f64 => Float,
    &str => Str, String => Str,
}
