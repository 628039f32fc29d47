//! Datasets: samples by index, each a row of named fields.

use std::sync::Arc;

use bytemuck::AnyBitPattern;
use halite_core::{Element, Error, HostArray, Result, TensorType};

use crate::Key;

/// One part of a sample: `image: u8[28, 28]`. The type is that of one sample, without a batch
/// dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, for messages.
    pub name: String,
    /// Element type and dimensions in one sample.
    pub ty: TensorType,
}

impl Field {
    /// Creates a field of this name and type.
    pub fn new(name: impl Into<String>, ty: TensorType) -> Self {
        Self {
            name: name.into(),
            ty,
        }
    }
}

/// Samples that can be read by index, in any order and from many threads at once.
///
/// The same index and [key](SampleMut::key) must give the same sample every time: the order and the
/// batches of a run are a pure function of its seed only if the samples are. Random choices come
/// from the key alone.
///
/// ```
/// use std::path::PathBuf;
/// use halite_core::{DType, Result, TensorType};
/// use halite_data::{Dataset, Field, SampleMut, images::{Framing, read_image}};
///
/// /// Photographs, each with the number of its class.
/// struct Photographs {
///     files: Vec<(PathBuf, i32)>,
///     fields: [Field; 2],
/// }
///
/// impl Photographs {
///     fn new(files: Vec<(PathBuf, i32)>) -> Self {
///         let image = Field::new("image", TensorType::new(DType::U8, [224, 224, 3]));
///         let label = Field::new("label", TensorType::new(DType::S32, []));
///         Photographs { files, fields: [image, label] }
///     }
/// }
///
/// impl Dataset for Photographs {
///     fn len(&self) -> usize {
///         self.files.len()
///     }
///
///     fn fields(&self) -> &[Field] {
///         &self.fields
///     }
///
///     fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
///         let (path, label) = &self.files[index];
///         let image = Framing::new(224).apply(&read_image(path)?)?;
///         into.write(0, image.as_slice::<u8>()?)?;
///         into.write(1, &[*label])
///     }
/// }
/// ```
pub trait Dataset: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// The fields of a sample, in the order of the leaves of a task's batch.
    fn fields(&self) -> &[Field];

    /// Writes sample `index` into `into`: every byte of every field.
    ///
    /// # Errors
    /// If the sample cannot be read. `index` is below [`len`](Self::len).
    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()>;

    /// Digest of the samples and their order, if it is cheap to compute: a resumed run compares it
    /// with the saved one. `None`, the default, means unknown: a resumed run warns then.
    ///
    /// A dataset that wraps another one includes what it does to the samples: a run that resumes
    /// with another crop of the same images is another run.
    fn digest(&self) -> Option<String> {
        None
    }

    /// Returns whether samples are read fast in order only, as those of a
    /// [stream](crate::StreamDataset). Loaders refuse to shuffle such a dataset, and pad its last
    /// batch without reading its first samples again. Adapters return what the dataset does that
    /// they wrap.
    fn is_sequential(&self) -> bool {
        false
    }

    /// Returns whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name in reports; by default that of the type.
    fn name(&self) -> String {
        short_type_name(std::any::type_name::<Self>())
    }
}

/// Shortens `a::b::Crops<c::Images>` to `Crops`.
fn short_type_name(full: &str) -> String {
    let without_parameters = full.split('<').next().unwrap_or(full);
    without_parameters
        .rsplit("::")
        .next()
        .unwrap_or(full)
        .to_string()
}

macro_rules! forward_dataset {
    ($($pointer:ty),*) => {
        $(impl<D: Dataset + ?Sized> Dataset for $pointer {
            fn len(&self) -> usize {
                (**self).len()
            }

            fn fields(&self) -> &[Field] {
                (**self).fields()
            }

            fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
                (**self).read(index, into)
            }

            fn digest(&self) -> Option<String> {
                (**self).digest()
            }

            fn is_sequential(&self) -> bool {
                (**self).is_sequential()
            }

            fn name(&self) -> String {
                (**self).name()
            }
        })*
    };
}

forward_dataset!(&D, Box<D>, Arc<D>);

/// Validation data of a run: a [`Dataset`], an `Option` of one, `()` for none, or several with
/// names, `[("clean", clean), ("noisy", noisy)]`. Sets of different types are an
/// `Arc<dyn Dataset>` each.
pub trait ValidationSet {
    /// The datasets, in order, each with its name if it has one.
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)>;
}

impl<D: Dataset + 'static> ValidationSet for D {
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)> {
        vec![(None, Arc::new(self))]
    }
}

impl<D: Dataset + 'static> ValidationSet for Option<D> {
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)> {
        self.map_or(Vec::new(), ValidationSet::into_sets)
    }
}

impl ValidationSet for () {
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)> {
        Vec::new()
    }
}

impl<N: Into<String>, D: Dataset + 'static, const SETS: usize> ValidationSet for [(N, D); SETS] {
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)> {
        Vec::from(self).into_sets()
    }
}

impl<N: Into<String>, D: Dataset + 'static> ValidationSet for Vec<(N, D)> {
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)> {
        let named = |(name, dataset): (N, D)| -> (_, Arc<dyn Dataset>) {
            (Some(name.into()), Arc::new(dataset))
        };
        self.into_iter().map(named).collect()
    }
}

/// Samples side by side: one array per field, whose first dimension counts the samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    arrays: Vec<HostArray>,
    count: usize,
}

impl Rows {
    /// Creates `count` samples of zeros, with each array aligned for zero-copy uploads.
    ///
    /// # Errors
    /// If a size exceeds the address space or the memory of the host.
    pub fn zeros(fields: &[Field], count: usize) -> Result<Self> {
        let batched = |field: &Field| {
            let dims: Vec<usize> = std::iter::once(count)
                .chain(field.ty.dims().iter().copied())
                .collect();
            let ty = field.ty.with_dims(dims);
            HostArray::try_zeros(ty)
        };
        Ok(Self {
            arrays: fields.iter().map(batched).collect::<Result<_>>()?,
            count,
        })
    }

    /// Number of samples.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns a sample for reading.
    ///
    /// # Panics
    /// If `row` is not less than the number of samples.
    pub fn sample(&self, row: usize) -> Sample<'_> {
        assert!(row < self.count, "row {row} of {}", self.count);
        Sample { rows: self, row }
    }

    /// Returns a sample for writing, with a [key](SampleMut::key) of seed 0, epoch 0 and index `row`.
    ///
    /// # Panics
    /// If `row` is not less than the number of samples.
    pub fn sample_mut(&mut self, row: usize) -> SampleMut<'_> {
        assert!(row < self.count, "row {row} of {}", self.count);
        let key = Key {
            index: row,
            ..Key::default()
        };
        SampleMut {
            rows: self,
            row,
            key,
            first: 0,
        }
    }

    /// The arrays, in the order of the fields: `[count, ..]` each.
    pub fn arrays(&self) -> &[HostArray] {
        &self.arrays
    }

    /// Returns the arrays, in the order of the fields.
    pub fn into_arrays(self) -> Vec<HostArray> {
        self.arrays
    }

    /// Copies a sample over another one.
    pub(crate) fn copy_row(&mut self, from: usize, to: usize) {
        for field in 0..self.arrays.len() {
            let (from, to) = (self.range(field, from), self.range(field, to));
            self.arrays[field].bytes_mut().copy_within(from, to.start);
        }
    }

    fn range(&self, field: usize, row: usize) -> std::ops::Range<usize> {
        let size = self.arrays[field].bytes().len() / self.count;
        row * size..(row + 1) * size
    }
}

/// One sample among [`Rows`].
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    rows: &'a Rows,
    row: usize,
}

impl<'a> Sample<'a> {
    /// The row-major bytes of a field.
    ///
    /// # Panics
    /// If `field` is not less than the number of fields.
    pub fn bytes(&self, field: usize) -> &'a [u8] {
        &self.rows.arrays[field].bytes()[self.rows.range(field, self.row)]
    }

    /// The row-major elements of a field.
    ///
    /// # Errors
    /// If `T` is not its element type.
    ///
    /// # Panics
    /// If `field` is not less than the number of fields.
    pub fn values<T: Element>(&self, field: usize) -> Result<&'a [T]> {
        expect_dtype::<T>(&self.rows.arrays[field])?;
        T::of_bytes(self.bytes(field)).map_err(|error| {
            Error::invalid(
                "sample",
                format!(
                    "field {field} has bits that are not a {}: {error}",
                    T::DTYPE
                ),
            )
        })
    }
}

/// One sample among [`Rows`], for writing.
#[derive(Debug)]
pub struct SampleMut<'a> {
    rows: &'a mut Rows,
    row: usize,
    key: Key,
    /// Index among the rows' fields of field 0 of this sample.
    first: usize,
}

impl SampleMut<'_> {
    /// Key of this read, for random choices.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Sets the key. A loader does, and an adapter that reads another dataset into rows of its own.
    pub fn with_key(self, key: Key) -> Self {
        Self { key, ..self }
    }

    /// The same sample without its first fields: field `first` becomes field 0.
    pub(crate) fn fields_from(&mut self, first: usize) -> SampleMut<'_> {
        SampleMut {
            rows: self.rows,
            row: self.row,
            key: self.key,
            first: self.first + first,
        }
    }

    /// The row-major bytes of a field, for writing.
    ///
    /// # Panics
    /// If `field` is not less than the number of fields.
    pub fn bytes_mut(&mut self, field: usize) -> &mut [u8] {
        let field = self.first + field;
        let range = self.rows.range(field, self.row);
        &mut self.rows.arrays[field].bytes_mut()[range]
    }

    /// The row-major elements of a field, for writing.
    ///
    /// # Errors
    /// If `T` is not its element type.
    ///
    /// # Panics
    /// If `field` is not less than the number of fields.
    pub fn values_mut<T: Element + AnyBitPattern>(&mut self, field: usize) -> Result<&mut [T]> {
        expect_dtype::<T>(&self.rows.arrays[self.first + field])?;
        Ok(bytemuck::try_cast_slice_mut(self.bytes_mut(field))
            .expect("rows of aligned arrays are aligned for their elements"))
    }

    /// Copies the row-major elements of a field.
    ///
    /// # Errors
    /// If `T` is not its element type, or if the number of values differs from its number of
    /// elements.
    ///
    /// # Panics
    /// If `field` is not less than the number of fields.
    pub fn write<T: Element>(&mut self, field: usize, values: &[T]) -> Result<()> {
        expect_dtype::<T>(&self.rows.arrays[self.first + field])?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let into = self.bytes_mut(field);
        if into.len() != bytes.len() {
            let message = format!(
                "{} values given for field {field}, which has {}",
                values.len(),
                into.len() / size_of::<T>()
            );
            return Err(Error::invalid("sample", message));
        }
        into.copy_from_slice(bytes);
        Ok(())
    }
}

fn expect_dtype<T: Element>(array: &HostArray) -> Result<()> {
    if array.ty().dtype() == T::DTYPE {
        return Ok(());
    }
    Err(Error::invalid(
        "sample",
        format!("elements of {} taken for {}", array.ty(), T::DTYPE),
    ))
}
