//! Samples in memory, for reading and writing.

use bytemuck::AnyBitPattern;
use halite_core::{Element, Error, HostArray, PinnedPool, Result, TensorType};

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

/// Samples side by side: one array per field, whose first dimension counts the samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    arrays: Vec<HostArray>,
    count: usize,
}

/// Creates an array of zeros in the memory of a pool, if there is one.
pub(crate) fn zeros_in(pool: Option<&PinnedPool>, ty: TensorType) -> Result<HostArray> {
    match pool {
        Some(pool) => pool.zeros(ty),
        None => HostArray::try_zeros(ty),
    }
}

impl Rows {
    /// Creates `count` samples of zeros, with each array aligned for zero-copy uploads.
    ///
    /// # Errors
    /// If a size exceeds the address space or the memory of the host.
    pub fn zeros(fields: &[Field], count: usize) -> Result<Self> {
        Self::zeros_in(None, fields, count)
    }

    /// Creates samples as [`zeros`](Self::zeros) does, in the memory of a pool if there is one.
    pub(crate) fn zeros_in(
        pool: Option<&PinnedPool>,
        fields: &[Field],
        count: usize,
    ) -> Result<Self> {
        let batched = |field: &Field| {
            let dims: Vec<usize> = std::iter::once(count)
                .chain(field.ty.dims().iter().copied())
                .collect();
            let ty = field.ty.with_dims(dims);
            zeros_in(pool, ty)
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

    /// Copies rows of elements into the first dimension of a field, and `padding` into the rows that
    /// are left: values `[rows, ..]` into a field `[length, ..]`. Returns `rows`, for a field of
    /// lengths or a mask.
    ///
    /// ```
    /// use halite_core::{DType, TensorType};
    /// use halite_data::{Field, Rows};
    ///
    /// let mut rows = Rows::zeros(&[Field::new("tokens", TensorType::new(DType::U32, [4]))], 1)?;
    /// assert_eq!(rows.sample_mut(0).write_padded(0, &[7u32, 8], 1)?, 2);
    /// assert_eq!(rows.sample(0).values::<u32>(0)?, [7, 8, 1, 1]);
    /// # Ok::<(), halite_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `T` is not the element type of the field, the field is a scalar, or the values are no
    /// whole rows, or more of them than the field has.
    ///
    /// # Panics
    /// If `field` is not less than the number of fields.
    pub fn write_padded<T: Element + AnyBitPattern>(
        &mut self,
        field: usize,
        values: &[T],
        padding: T,
    ) -> Result<usize> {
        let ty = self.rows.arrays[self.first + field].ty();
        // The first dimension is that of the samples.
        let (length, row) = match ty.dims() {
            [_, length, row @ ..] => (*length, row.iter().product::<usize>()),
            _ => (0, 0),
        };
        let whole = values.len().checked_div(row).unwrap_or(0);
        if whole * row != values.len() || whole > length {
            let message = format!(
                "{} values given for field {field}, {ty} of a batch: expected at most {length} rows \
                 of {row}; cut off the rest, or take a longer field",
                values.len()
            );
            return Err(Error::invalid("sample", message));
        }
        let into = self.values_mut::<T>(field)?;
        into[..values.len()].copy_from_slice(values);
        into[values.len()..].fill(padding);
        Ok(whole)
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
