//! Where tensors are read from.

use std::{collections::BTreeMap, ops::Range};

use halite_core::{Error, HostArray, Result, TensorType, edit_distance};

use crate::strides::{Axis, Elements, gather};

/// Name and type of a tensor in a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TensorInfo {
    /// The name in the file: `layer1.0.conv1.weight`.
    pub name: String,
    /// Element type and dimensions, as [`TensorSource::read`] returns them: `f32` for quantized
    /// tensors.
    pub ty: TensorType,
}

/// A collection of named tensors that are read on demand: an open file, or arrays in memory.
pub trait TensorSource: Send + Sync {
    /// Where the tensors are from, for messages: the path of the file.
    fn origin(&self) -> String;

    /// Names and types, in the order of the file. Names are unique.
    fn tensors(&self) -> &[TensorInfo];

    /// Reads elements of the tensor at `index` of [`tensors`](Self::tensors), counted row-major, in
    /// its element type.
    ///
    /// # Errors
    /// If the file cannot be read; if there are no such elements, or `into` has another size.
    fn read_elements(&self, index: usize, elements: Range<usize>, into: &mut [u8]) -> Result<()>;

    /// Position in [`tensors`](Self::tensors) of the tensor of this name.
    ///
    /// # Errors
    /// If there is no such tensor; the message suggests the closest name.
    fn find(&self, name: &str) -> Result<usize> {
        let tensors = self.tensors();
        let found = tensors.iter().position(|tensor| tensor.name == name);
        found.ok_or_else(|| {
            let nearest = (tensors.iter().take(10_000))
                .min_by_key(|tensor| edit_distance(&tensor.name, name));
            let nearest = nearest.map_or(String::new(), |tensor| {
                format!("; did you mean `{}`?", tensor.name.escape_debug())
            });
            let message = format!("no tensor `{name}` in {}{nearest}", self.origin());
            Error::invalid("weights", message)
        })
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// If there is none of this name, or the file cannot be read.
    fn read(&self, name: &str) -> Result<HostArray> {
        let index = self.find(name)?;
        let ty = &self.tensors()[index].ty;
        let mut array = HostArray::try_zeros(ty.clone())?;
        self.read_elements(index, 0..ty.elements(), array.bytes_mut())?;
        Ok(array)
    }

    /// Reads a part of a tensor: a range in each dimension.
    ///
    /// # Errors
    /// If there is none of this name, or the ranges do not lie in it, or the file cannot be read.
    fn read_range(&self, name: &str, ranges: &[Range<usize>]) -> Result<HostArray> {
        let index = self.find(name)?;
        let ty = &self.tensors()[index].ty;
        let inside =
            |(range, &dim): (&Range<usize>, &usize)| range.start <= range.end && range.end <= dim;
        if ranges.len() != ty.rank() || !ranges.iter().zip(ty.dims()).all(inside) {
            let message = format!("{ranges:?} of `{name}`, which is {ty}");
            return Err(Error::invalid("weights", message));
        }
        let lens: Vec<usize> = ranges.iter().map(Range::len).collect();
        let mut part = HostArray::try_zeros(ty.with_dims(&lens))?;
        let (mut from, mut into, mut base) = (1usize, 1usize, 0usize);
        let mut axes = Vec::new();
        for (range, &dim) in ranges.iter().zip(ty.dims()).rev() {
            let len = range.len();
            axes.push(Axis { len, from, into });
            base = base.saturating_add(range.start.saturating_mul(from));
            (from, into) = (from.saturating_mul(dim), into.saturating_mul(len));
        }
        axes.reverse();
        let dtype = ty.dtype();
        let read = |elements, into: &mut [u8]| self.read_elements(index, elements, into);
        let elements = Elements { dtype, read: &read };
        gather(&elements, base, &axes, dtype, part.bytes_mut(), 0)?;
        Ok(part)
    }
}

/// The error of an index beyond the tensors of a source.
pub(crate) fn no_tensor(index: usize, count: usize) -> Error {
    Error::invalid("weights", format!("tensor {index} of {count}"))
}

/// Checks the arguments of [`TensorSource::read_elements`].
pub(crate) fn check_read(tensor: &TensorInfo, elements: &Range<usize>, into: &[u8]) -> Result<()> {
    let TensorInfo { name, ty } = tensor;
    let len = elements.end.checked_sub(elements.start);
    let bytes = len.and_then(|len| len.checked_mul(ty.dtype().size()));
    if elements.end > ty.elements() || bytes != Some(into.len()) {
        let message = format!(
            "elements {elements:?} of `{name}`, which is {ty}, into {} bytes",
            into.len()
        );
        return Err(Error::invalid("weights", message));
    }
    Ok(())
}

/// Arrays in memory as a [`TensorSource`].
#[derive(Clone, Debug, Default)]
pub struct HostTensors {
    infos: Vec<TensorInfo>,
    arrays: Vec<HostArray>,
}

impl From<BTreeMap<String, HostArray>> for HostTensors {
    fn from(arrays: BTreeMap<String, HostArray>) -> Self {
        let info = |(name, array): (&String, &HostArray)| TensorInfo {
            name: name.clone(),
            ty: array.ty().clone(),
        };
        HostTensors {
            infos: arrays.iter().map(info).collect(),
            arrays: arrays.into_values().collect(),
        }
    }
}

impl<N: Into<String>> FromIterator<(N, HostArray)> for HostTensors {
    /// A later array of the same name replaces an earlier one.
    fn from_iter<I: IntoIterator<Item = (N, HostArray)>>(arrays: I) -> Self {
        let named = arrays.into_iter().map(|(name, array)| (name.into(), array));
        named.collect::<BTreeMap<String, HostArray>>().into()
    }
}

impl TensorSource for HostTensors {
    fn origin(&self) -> String {
        "memory".to_owned()
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn read_elements(&self, index: usize, elements: Range<usize>, into: &mut [u8]) -> Result<()> {
        let tensor = self.infos.get(index);
        check_read(
            tensor.ok_or_else(|| no_tensor(index, self.infos.len()))?,
            &elements,
            into,
        )?;
        let size = self.infos[index].ty.dtype().size();
        let bytes = self.arrays[index].bytes();
        into.copy_from_slice(&bytes[elements.start * size..elements.end * size]);
        Ok(())
    }
}

/// The tensors of a source below a prefix, whose names are what follows it. A file of a training
/// framework has the weights below `state_dict`, for example.
#[derive(Clone, Debug)]
pub struct Below<S> {
    source: S,
    infos: Vec<TensorInfo>,
    indices: Vec<usize>,
}

impl<S: TensorSource> Below<S> {
    /// The tensors whose names start with `prefix` and a dot.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(source: S, prefix: &str) -> Result<Self> {
        let inside = |name: &str| Some(name.strip_prefix(prefix)?.strip_prefix('.')?.to_owned());
        let (mut infos, mut indices) = (Vec::new(), Vec::new());
        for (index, tensor) in source.tensors().iter().enumerate() {
            if let Some(name) = inside(&tensor.name) {
                let ty = tensor.ty.clone();
                infos.push(TensorInfo { name, ty });
                indices.push(index);
            }
        }
        if infos.is_empty() {
            let first = source.tensors().first();
            let first = first.map_or(String::new(), |tensor| {
                format!("; the first one is `{}`", tensor.name.escape_debug())
            });
            let message = format!("no tensor below `{prefix}` in {}{first}", source.origin());
            return Err(Error::invalid("weights", message));
        }
        Ok(Below {
            source,
            infos,
            indices,
        })
    }
}

impl<S: TensorSource> TensorSource for Below<S> {
    fn origin(&self) -> String {
        self.source.origin()
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn read_elements(&self, index: usize, elements: Range<usize>, into: &mut [u8]) -> Result<()> {
        let of_source = self.indices.get(index);
        let of_source = of_source.ok_or_else(|| no_tensor(index, self.indices.len()))?;
        self.source.read_elements(*of_source, elements, into)
    }
}

impl<S: TensorSource + ?Sized> TensorSource for &S {
    fn origin(&self) -> String {
        (**self).origin()
    }

    fn tensors(&self) -> &[TensorInfo] {
        (**self).tensors()
    }

    fn read_elements(&self, index: usize, elements: Range<usize>, into: &mut [u8]) -> Result<()> {
        (**self).read_elements(index, elements, into)
    }
}
