//! Sequences of different lengths, padded.

use halite_core::{DType, Error, HostArray, Result, TensorType};

use crate::{Dataset, Field, SampleMut, digest::digest_of};

/// Arrays in memory whose first dimensions differ, padded to one length: programs are compiled for
/// one shape. Fields are `NAME: [length, ..]` and `length: u32[]`, the rows before padding, or with
/// [`with_mask`](Self::with_mask) `mask: bool[length]`.
///
/// Sequences of a file are padded by [`SampleMut::write_padded`] in the function that writes them.
///
/// ```
/// use halite_core::HostArray;
/// use halite_data::{Dataset, Padded, Rows};
///
/// let sentences = [HostArray::from_slice(&[5u32, 6], [2])?, HostArray::from_slice(&[7u32], [1])?];
/// let data = Padded::new("tokens", sentences, 3, 0u32)?;
/// let mut rows = Rows::zeros(data.fields(), 1)?;
/// data.read(0, &mut rows.sample_mut(0))?;
/// assert_eq!(rows.sample(0).values::<u32>(0)?, [5, 6, 0]);
/// assert_eq!(rows.sample(0).values::<u32>(1)?, [2]);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Padded {
    sequences: Vec<HostArray>,
    length: usize,
    /// Bytes of an element of padding.
    padding: Vec<u8>,
    has_mask: bool,
    fields: Vec<Field>,
}

impl Padded {
    /// Creates a dataset of `sequences: [rows, ..]`, each padded to `length` rows by elements of
    /// `padding`.
    ///
    /// # Errors
    /// If there are none; if a sequence is a scalar, has more rows than `length`, other dimensions
    /// than the first sequence, or other elements than `padding`. The message has its number.
    pub fn new<T: halite_core::Element>(
        name: impl Into<String>,
        sequences: impl IntoIterator<Item = HostArray>,
        length: usize,
        padding: T,
    ) -> Result<Self> {
        let (name, sequences) = (name.into(), Vec::from_iter(sequences));
        let invalid = |message| Err(Error::invalid("padded", message));
        let row = match sequences.first().map(|first| first.ty().dims()) {
            None => return invalid(format!("no sequences of `{name}`")),
            Some([]) => return invalid(format!("sequence 0 of `{name}` is a scalar")),
            Some([_, row @ ..]) => TensorType::new(T::DTYPE, row),
        };
        for (number, sequence) in sequences.iter().enumerate() {
            let ty = sequence.ty();
            let fits = match ty.dims() {
                [rows, rest @ ..] => rest == row.dims() && *rows <= length,
                [] => false,
            };
            if !fits || ty.dtype() != row.dtype() {
                let most = padded_type(&row, length);
                return invalid(format!(
                    "sequence {number} of `{name}` is {ty}; expected at most {most}"
                ));
            }
        }
        let lengths = Field::new("length", TensorType::scalar(DType::U32));
        Ok(Padded {
            fields: vec![Field::new(name, padded_type(&row, length)), lengths],
            sequences,
            length,
            padding: bytemuck::bytes_of(&padding).to_vec(),
            has_mask: false,
        })
    }

    /// Replaces the field `length` by `mask: bool[length]`, true for rows of the sequence.
    pub fn with_mask(mut self) -> Self {
        self.fields[1] = Field::new("mask", TensorType::new(DType::Bool, [self.length]));
        self.has_mask = true;
        self
    }
}

fn padded_type(row: &TensorType, length: usize) -> TensorType {
    let dims: Vec<usize> = [length].iter().chain(row.dims()).copied().collect();
    row.with_dims(dims)
}

impl Dataset for Padded {
    fn len(&self) -> usize {
        self.sequences.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let sequence = &self.sequences[index];
        let (values, padding) = into.bytes_mut(0).split_at_mut(sequence.bytes().len());
        values.copy_from_slice(sequence.bytes());
        for element in padding.chunks_exact_mut(self.padding.len()) {
            element.copy_from_slice(&self.padding);
        }
        let rows = sequence.ty().dims()[0];
        if self.has_mask {
            let (held, padded) = into.bytes_mut(1).split_at_mut(rows);
            held.fill(1);
            padded.fill(0);
            Ok(())
        } else {
            into.write(1, &[rows as u32])
        }
    }

    fn digest(&self) -> Option<String> {
        let fields = self
            .fields
            .iter()
            .map(|field| format!("{} {}", field.name, field.ty));
        let parts = fields.map(String::into_bytes).chain([self.padding.clone()]);
        let sequences = self
            .sequences
            .iter()
            .map(|sequence| sequence.bytes().to_vec());
        Some(digest_of(parts.chain(sequences)))
    }
}
