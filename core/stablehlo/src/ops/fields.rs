//! Fields of operations: the attributes that a field is written as, and how it is read from them.

use std::marker::PhantomData;

use halite_core::Result;

use super::{enumeration::Enumeration, row::Named, take::Take, value::Value};
use crate::Attribute;

/// The attributes of a field of type `T`.
pub(crate) trait Fields<T> {
    /// Removes the attributes and returns the field that they define.
    fn take(&self, take: &mut Take<'_>) -> Result<T>;

    /// Visits the attributes of a field in the order in which text has them.
    fn visit<'a>(&self, value: &'a T, visit: &mut dyn FnMut(&Named, Value<'a>));

    /// Adds the names of the attributes.
    fn describe(&self, attributes: &mut Vec<Named>);
}

/// A field that is one attribute. The functions of [`kinds`](super::kinds) make it.
pub(crate) struct Field<T> {
    named: Named,
    read: fn(&Take<'_>, &str, Attribute) -> Result<T>,
    missing: fn(&Take<'_>, &str) -> Result<T>,
    write: fn(&T) -> Option<Value<'_>>,
    written: bool,
}

impl<T> Field<T> {
    /// A field that must be there, read from its name and value. `write` returns `None` for a value
    /// that is left out.
    pub(super) fn new(
        name: &'static str,
        read: fn(&Take<'_>, &str, Attribute) -> Result<T>,
        write: fn(&T) -> Option<Value<'_>>,
    ) -> Self {
        Field {
            named: Named::new(name),
            read,
            missing: |take, name| Err(take.bad(name, "is missing")),
            write,
            written: true,
        }
    }

    /// Reads the attribute in another way.
    pub(super) fn read_by(self, read: fn(&Take<'_>, &str, Attribute) -> Result<T>) -> Self {
        Field { read, ..self }
    }

    /// Writes the attribute in another way.
    pub(super) fn write_by(self, write: fn(&T) -> Option<Value<'_>>) -> Self {
        Field { write, ..self }
    }

    /// The field has this value if the attribute is missing.
    pub(super) fn or(self, missing: fn(&Take<'_>, &str) -> Result<T>) -> Self {
        Field { missing, ..self }
    }

    /// The field has the default value if the attribute is missing.
    pub(super) fn or_default(self) -> Self
    where
        T: Default,
    {
        self.or(|_, _| Ok(T::default()))
    }

    /// The attribute is read but is none of the operation, whose rule refuses it.
    pub(super) fn unwritten(self) -> Self {
        Field {
            written: false,
            ..self
        }
    }

    /// The pretty form of text has the attribute as `key = value`.
    pub(super) fn key(mut self, key: &'static str) -> Self {
        self.named.key = key;
        self
    }

    /// The values of the attribute are cases of an enumeration.
    pub(super) fn enumeration(mut self, enumeration: Enumeration) -> Self {
        self.named.enumeration = Some(enumeration);
        self
    }

    /// VHLO has the attribute since this release.
    pub(super) fn since(mut self, major: u16, minor: u16) -> Self {
        self.named.since = (major, minor);
        self
    }

    /// Generic text nests the attribute in the dimension numbers of the operation.
    pub(super) fn nested(mut self) -> Self {
        self.named.nested = true;
        self
    }
}

impl<T> Fields<T> for Field<T> {
    fn take(&self, take: &mut Take<'_>) -> Result<T> {
        let name = self.named.name;
        match take.attributes.take(name) {
            Some(value) => (self.read)(take, name, value),
            None => (self.missing)(take, name),
        }
    }

    fn visit<'a>(&self, value: &'a T, visit: &mut dyn FnMut(&Named, Value<'a>)) {
        if let Some(value) = (self.write)(value).filter(|_| self.written) {
            visit(&self.named, value);
        }
    }

    fn describe(&self, attributes: &mut Vec<Named>) {
        attributes.extend(self.written.then_some(self.named));
    }
}

/// A field that is a structure, whose fields are attributes of the operation.
pub(super) struct Structure<T>(PhantomData<T>);

pub(super) fn structure<T>() -> Structure<T> {
    Structure(PhantomData)
}

/// A large field, in a box: most operations are small.
pub(super) struct Boxed<F>(pub(super) F);

impl<T, F: Fields<T>> Fields<Box<T>> for Boxed<F> {
    fn take(&self, take: &mut Take<'_>) -> Result<Box<T>> {
        self.0.take(take).map(Box::new)
    }

    fn visit<'a>(&self, value: &'a Box<T>, visit: &mut dyn FnMut(&Named, Value<'a>)) {
        self.0.visit(value, visit);
    }

    fn describe(&self, attributes: &mut Vec<Named>) {
        self.0.describe(attributes);
    }
}
