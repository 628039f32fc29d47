//! Tensors known while tracing.

use std::{fmt, sync::Arc};

use halite_core::{Element, Error, HostArray, Result, TensorType};

use crate::op::Literal;

impl Literal {
    /// All elements are `value`.
    pub fn splat<T: Element>(value: T, dims: impl AsRef<[usize]>) -> Self {
        Literal {
            ty: TensorType::new(T::DTYPE, dims),
            bytes: Arc::from(bytemuck::bytes_of(&value)),
        }
    }

    /// All elements have zero bits.
    pub fn zero(ty: &TensorType) -> Self {
        Literal {
            ty: ty.clone(),
            bytes: Arc::from(vec![0; ty.dtype().size()]),
        }
    }

    /// `values`, row-major, as a tensor of `dims`.
    ///
    /// # Errors
    /// If the number of values is not the product of `dims`.
    pub fn new<T: Element>(values: &[T], dims: impl AsRef<[usize]>) -> Result<Self> {
        Literal::from_bytes(
            bytemuck::cast_slice(values),
            TensorType::new(T::DTYPE, dims),
        )
    }

    /// Row-major `bytes` of a tensor of type `ty`.
    ///
    /// # Errors
    /// If the number of bytes is not that of `ty`.
    pub fn from_bytes(bytes: &[u8], ty: TensorType) -> Result<Self> {
        let needed = ty.checked_bytes()?;
        if bytes.len() != needed {
            return Err(Error::invalid(
                "constant",
                format!("{} bytes given, {ty} needs {needed}", bytes.len()),
            ));
        }
        let size = ty.dtype().size();
        let same = !bytes.is_empty()
            && bytes
                .chunks_exact(size)
                .all(|element| element == &bytes[..size]);
        Ok(Literal {
            bytes: Arc::from(if same { &bytes[..size] } else { bytes }),
            ty,
        })
    }

    /// A tensor of type `ty` whose elements are all `element`, given by its bytes.
    ///
    /// # Errors
    /// If the number of bytes is not that of one element.
    pub fn from_element(element: &[u8], ty: TensorType) -> Result<Self> {
        ty.checked_bytes()?;
        let needed = ty.dtype().size();
        if element.len() != needed {
            let message = format!(
                "{} bytes given, an element of {ty} needs {needed}",
                element.len()
            );
            return Err(Error::invalid("constant", message));
        }
        let bytes = Arc::from(element);
        Ok(Literal { ty, bytes })
    }

    /// Element type and dimensions.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The bytes of the one element that all are, if all are the same.
    pub fn as_splat(&self) -> Option<&[u8]> {
        (self.bytes.len() == self.ty.dtype().size()).then_some(&*self.bytes)
    }

    /// All elements, row-major.
    pub fn to_host(&self) -> HostArray {
        let mut host = HostArray::zeros(self.ty.clone());
        match self.as_splat() {
            Some(element) => host
                .bytes_mut()
                .chunks_exact_mut(element.len())
                .for_each(|into| into.copy_from_slice(element)),
            None => host.bytes_mut().copy_from_slice(&self.bytes),
        }
        host
    }
}

impl From<&HostArray> for Literal {
    fn from(host: &HostArray) -> Self {
        Literal::from_bytes(host.bytes(), host.ty().clone())
            .expect("a host array has the bytes of its type")
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Literal({}{})",
            self.ty,
            if self.as_splat().is_some() {
                ", splat"
            } else {
                ""
            }
        )
    }
}
