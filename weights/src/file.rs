//! An opened file of tensors: where each one lies, and how it is read.

use std::{
    collections::BTreeMap,
    fmt,
    io::Read,
    ops::Range,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use halite_core::{AlignedBytes, DType, Result};

use crate::{
    Format, TensorInfo, TensorSource,
    archive::{Entry, Inflated},
    metadata::MetadataValue,
    place::{Deflated, Order, Place, extent},
    problems::{Problems, corrupt},
    source::{check_read, no_tensor},
    strides::{Axis, scatter},
};

/// An open file, or directory of files, of tensors; only headers have been read.
///
/// The files must not change while it is open; reads then fail or return different values.
pub struct WeightFile {
    pub(crate) format: Format,
    pub(crate) origin: String,
    pub(crate) tensors: Vec<TensorInfo>,
    /// Place of each tensor.
    pub(crate) places: Vec<Place>,
    pub(crate) metadata: BTreeMap<String, MetadataValue>,
    /// The last tensor that cannot be read in parts.
    whole: Mutex<Option<(usize, Arc<AlignedBytes>)>>,
    /// Entries of an archive whose checksums are compared when their tensors are first read, and
    /// whether they were. Empty for other formats.
    entries: Vec<(Entry, OnceLock<()>)>,
}

impl WeightFile {
    /// A file with these tensors and places.
    ///
    /// # Errors
    /// If two tensors have the same name.
    pub(crate) fn new(
        format: Format,
        origin: &str,
        tensors: Vec<(TensorInfo, Place)>,
    ) -> Result<Self> {
        let mut counts = BTreeMap::new();
        for (tensor, _) in &tensors {
            *counts.entry(&*tensor.name).or_insert(0) += 1;
        }
        let mut problems = Problems::default();
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 1) {
            problems.push(format!("{count} tensors have the name `{name}`"));
        }
        problems.into_result(halite_core::ErrorKind::Corrupt, origin)?;
        let (tensors, places) = tensors.into_iter().unzip();
        Ok(WeightFile {
            format,
            origin: origin.to_owned(),
            tensors,
            places,
            metadata: BTreeMap::new(),
            whole: Mutex::new(None),
            entries: Vec::new(),
        })
    }

    /// Compares the checksums of these entries, one for each tensor, before they are first read.
    pub(crate) fn checked_when_read(&mut self, entries: Vec<Entry>) {
        self.entries = entries
            .into_iter()
            .map(|entry| (entry, OnceLock::new()))
            .collect();
    }

    /// Compares the checksum of a tensor, if it has one that was not compared.
    fn check(&self, index: usize) -> Result<()> {
        if let Some((entry, checked)) = self.entries.get(index)
            && checked.get().is_none()
        {
            entry.check(&self.places[index].input, &self.tensors[index].name)?;
            let _ = checked.set(());
        }
        Ok(())
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What the file says beside its tensors: the metadata of a safetensors file, or of a GGUF
    /// file. Empty for other formats.
    pub fn metadata(&self) -> &BTreeMap<String, MetadataValue> {
        &self.metadata
    }

    /// Returns whether elements of the tensor at this index are read where they are. Otherwise, as
    /// in a compressed archive or in column-major order, each read needs the whole tensor, and the
    /// last one is kept.
    ///
    /// # Panics
    /// If `index` is not below the number of tensors.
    pub fn reads_parts(&self, index: usize) -> bool {
        let place = &self.places[index];
        place.deflated.is_none() && !matches!(place.order, Order::Strided(_))
    }

    /// Reads bytes of what is not compressed.
    fn read_raw(&self, place: &Place, offset: u64, into: &mut [u8]) -> Result<()> {
        place.input.read_at(place.offset + offset, into)
    }

    /// The elements of a tensor in row-major order, if it cannot be read in parts.
    fn whole(&self, index: usize) -> Result<Arc<AlignedBytes>> {
        let mut last = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = last.as_ref().filter(|(known, _)| *known == index) {
            return Ok(bytes.clone());
        }
        // Freed before the next one is read.
        *last = None;
        let (ty, place) = (&self.tensors[index].ty, &self.places[index]);
        let size = ty.dtype().size();
        let held = match &place.order {
            Order::Strided(strides) => extent(ty.dims(), strides) * size,
            _ => ty.bytes(),
        };
        let mut bytes = AlignedBytes::try_zeroed(held)?;
        match place.deflated {
            Some(entry) => inflate(place, entry, bytes.as_mut())?,
            None => self.read_raw(place, 0, bytes.as_mut())?,
        }
        if let Order::Strided(strides) = &place.order {
            let mut axes = Vec::new();
            let mut into = 1;
            for (&len, &from) in ty.dims().iter().zip(strides).rev() {
                axes.push(Axis { len, from, into });
                into *= len;
            }
            let mut dense = AlignedBytes::try_zeroed(ty.bytes())?;
            scatter(size, bytes.as_ref(), 0, &axes, dense.as_mut(), 0);
            bytes = dense;
        }
        let bytes = Arc::new(bytes);
        *last = Some((index, bytes.clone()));
        Ok(bytes)
    }
}

/// Inflates bytes of an entry, from the place's offset on.
fn inflate(place: &Place, entry: Deflated, into: &mut [u8]) -> Result<()> {
    let compressed = place.input.reader().at(entry.start).take(entry.compressed);
    let mut inflated = Inflated::new(compressed);
    let skipped = std::io::copy(
        &mut (&mut inflated).take(place.offset),
        &mut std::io::sink(),
    );
    let read = skipped.and_then(|_| inflated.read_exact(into));
    read.map_err(|error| {
        let what = format!("the compressed entry at {} is damaged", entry.start);
        corrupt(place.input.origin(), what).caused_by(error)
    })
}

impl TensorSource for WeightFile {
    fn origin(&self) -> String {
        self.origin.clone()
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn read_elements(&self, index: usize, elements: Range<usize>, into: &mut [u8]) -> Result<()> {
        let tensor = self.tensors.get(index);
        let tensor = tensor.ok_or_else(|| no_tensor(index, self.tensors.len()))?;
        check_read(tensor, &elements, into)?;
        self.check(index)?;
        let (size, place) = (tensor.ty.dtype().size(), &self.places[index]);
        match (&place.order, place.deflated) {
            (Order::RowMajor, None) => {
                self.read_raw(place, (elements.start * size) as u64, into)?;
            }
            (Order::Quantized(quantization), None) => {
                let read = |offset, into: &mut [u8]| self.read_raw(place, offset, into);
                quantization.read(elements, into, read)?;
            }
            _ => {
                let whole = self.whole(index)?;
                let part = elements.start * size..elements.end * size;
                into.copy_from_slice(&(*whole).as_ref()[part]);
            }
        }
        if tensor.ty.dtype() == DType::Bool && into.iter().any(|&byte| byte > 1) {
            let what = format!("`{}` has a boolean that is neither 0 nor 1", tensor.name);
            return Err(corrupt(&self.origin, what));
        }
        Ok(())
    }
}

impl fmt::Debug for WeightFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.tensors.len();
        write!(
            f,
            "WeightFile({}, {:?}, {count} tensors)",
            self.origin, self.format
        )
    }
}
