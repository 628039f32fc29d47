//! Two datasets as one.

use halite_core::{Error, Result};

#[cfg(doc)]
use super::DatasetExt;
use crate::{Dataset, Field, SampleMut};

/// See [`DatasetExt::zip`].
#[derive(Clone, Debug)]
pub struct Zip<A, B> {
    first: A,
    second: B,
    fields: Vec<Field>,
}

impl<A: Dataset, B: Dataset> Zip<A, B> {
    pub(super) fn new(first: A, second: B) -> Result<Self> {
        if first.len() != second.len() {
            let message = format!(
                "{} samples of {} and {} of {}; `take` shortens the longer one",
                first.len(),
                first.name(),
                second.len(),
                second.name()
            );
            return Err(Error::invalid("zip", message));
        }
        let fields = [first.fields(), second.fields()].concat();
        Ok(Zip {
            first,
            second,
            fields,
        })
    }
}

impl<A: Dataset, B: Dataset> Dataset for Zip<A, B> {
    fn len(&self) -> usize {
        self.first.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.first.read(index, into)?;
        let mut rest = into.fields_from(self.first.fields().len());
        self.second.read(index, &mut rest)
    }

    fn digest(&self) -> Option<String> {
        let (first, second) = (self.first.digest()?, self.second.digest()?);
        Some(format!("({first}) with ({second})"))
    }

    fn is_sequential(&self) -> bool {
        self.first.is_sequential() || self.second.is_sequential()
    }

    fn name(&self) -> String {
        format!("{} with {}", self.first.name(), self.second.name())
    }
}

/// See [`DatasetExt::concat`].
#[derive(Clone, Debug)]
pub struct Concat<A, B> {
    first: A,
    second: B,
}

impl<A: Dataset, B: Dataset> Concat<A, B> {
    pub(super) fn new(first: A, second: B) -> Result<Self> {
        expect_fields("concat", &first, &second)?;
        Ok(Concat { first, second })
    }
}

impl<A: Dataset, B: Dataset> Dataset for Concat<A, B> {
    fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    fn fields(&self) -> &[Field] {
        self.first.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        match index.checked_sub(self.first.len()) {
            None => self.first.read(index, into),
            Some(index) => self.second.read(index, into),
        }
    }

    fn digest(&self) -> Option<String> {
        let (first, second) = (self.first.digest()?, self.second.digest()?);
        Some(format!("({first}) then ({second})"))
    }

    fn is_sequential(&self) -> bool {
        self.first.is_sequential() || self.second.is_sequential()
    }

    fn name(&self) -> String {
        format!("{} and {}", self.first.name(), self.second.name())
    }
}

/// Fails if the datasets have different fields.
pub(super) fn expect_fields(
    what: &'static str,
    one: &dyn Dataset,
    other: &dyn Dataset,
) -> Result<()> {
    if one.fields() == other.fields() {
        return Ok(());
    }
    let described = |dataset: &dyn Dataset| {
        let fields = dataset.fields().iter();
        let fields: Vec<String> = fields
            .map(|field| format!("{}: {}", field.name, field.ty))
            .collect();
        format!("{} has ({})", dataset.name(), fields.join(", "))
    };
    let message = format!(
        "{}, {}; `map` changes fields",
        described(one),
        described(other)
    );
    Err(Error::invalid(what, message))
}
