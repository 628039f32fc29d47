//! Datasets in memory.

use halite_core::{Error, HostArray, Result};

use crate::{Dataset, Field, SampleMut, digest::digest_of};

/// Named arrays whose first dimension counts the samples.
#[derive(Clone, Debug)]
pub struct InMemory {
    fields: Vec<Field>,
    arrays: Vec<HostArray>,
    len: usize,
    name: Option<String>,
}

impl InMemory {
    /// Creates a dataset of `arrays: [samples, ..]`.
    ///
    /// # Errors
    /// If there is no array, an array is a scalar, or the numbers of samples differ.
    pub fn new<N: Into<String>>(arrays: impl IntoIterator<Item = (N, HostArray)>) -> Result<Self> {
        let (mut fields, mut kept, mut len) = (Vec::new(), Vec::new(), None);
        for (name, array) in arrays {
            let name = name.into();
            let Some((&samples, rest)) = array.ty().dims().split_first() else {
                return Err(Error::invalid(
                    "dataset",
                    format!("`{name}` is a scalar: its first dimension must count the samples"),
                ));
            };
            if *len.get_or_insert(samples) != samples {
                let message = format!(
                    "`{name}` is {}, but `{}` has {} samples",
                    array.ty(),
                    name_of(&fields),
                    len.unwrap_or(0)
                );
                return Err(Error::invalid("dataset", message));
            }
            fields.push(Field::new(name, array.ty().with_dims(rest)));
            kept.push(array);
        }
        let len = len.ok_or_else(|| Error::invalid("dataset", "no arrays given"))?;
        Ok(Self {
            fields,
            arrays: kept,
            len,
            name: None,
        })
    }

    /// Sets the name for reports.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ..self
        }
    }

    /// The arrays, in the order of the fields: `[samples, ..]` each.
    pub fn arrays(&self) -> &[HostArray] {
        &self.arrays
    }
}

fn name_of(fields: &[Field]) -> &str {
    fields.first().map_or("", |field| &field.name)
}

impl Dataset for InMemory {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        for (field, array) in self.arrays.iter().enumerate() {
            let size = array.bytes().len() / self.len;
            into.bytes_mut(field)
                .copy_from_slice(&array.bytes()[index * size..(index + 1) * size]);
        }
        Ok(())
    }

    fn digest(&self) -> Option<String> {
        let described: Vec<String> = self
            .fields
            .iter()
            .map(|field| format!("{} {}", field.name, field.ty))
            .collect();
        let described = described.iter().map(String::as_bytes);
        Some(digest_of(
            described.chain(self.arrays.iter().map(HostArray::bytes)),
        ))
    }

    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| "InMemory".to_string())
    }
}
