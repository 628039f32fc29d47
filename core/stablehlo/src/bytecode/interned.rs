//! Tables of the strings, attributes, types and names of an artifact that is being written.

use std::{collections::HashMap, fmt::Display, hash::Hash};

use halite_core::{Error, ErrorKind, Result};

use super::encoder::Encoder;
use crate::Version;

/// Indices of the dialects.
pub(super) const DIALECTS: [&str; 3] = ["builtin", "vhlo", "sdy"];
pub(super) const BUILTIN: usize = 0;
pub(super) const VHLO: usize = 1;
pub(super) const SHARDY: usize = 2;

/// A table without duplicates.
#[derive(Debug)]
pub(super) struct Interned<T> {
    indices: HashMap<T, usize>,
    values: Vec<T>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Interned {
            indices: HashMap::new(),
            values: Vec::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Interned<T> {
    /// Index of this value.
    pub(super) fn index(&mut self, value: T) -> usize {
        *self.indices.entry(value).or_insert_with_key(|value| {
            self.values.push(value.clone());
            self.values.len() - 1
        })
    }

    pub(super) fn values(&self) -> &[T] {
        &self.values
    }
}

/// The name of an operation.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Name {
    /// Index of the dialect.
    pub(super) dialect: usize,
    pub(super) name: String,
}

/// An attribute or a type.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Entry {
    /// Index of the dialect.
    pub(super) dialect: usize,
    /// Whether it has the dialect's encoding, rather than text.
    pub(super) encoded: bool,
    pub(super) contents: Encoder,
}

/// The tables of an artifact.
#[derive(Debug)]
pub(super) struct Tables {
    version: Version,
    pub(super) strings: Interned<Vec<u8>>,
    pub(super) names: Interned<Name>,
    pub(super) attributes: Interned<Entry>,
    pub(super) types: Interned<Entry>,
    pub(super) properties: Interned<Encoder>,
}

impl Tables {
    pub(super) fn new(version: Version) -> Self {
        Tables {
            version,
            strings: Interned::default(),
            names: Interned::default(),
            attributes: Interned::default(),
            types: Interned::default(),
            properties: Interned::default(),
        }
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Fails if the version is older than `since`.
    pub(super) fn require(&self, what: impl Display, since: Version) -> Result<()> {
        let version = self.version;
        if version >= since {
            return Ok(());
        }
        let message = format!("{what} needs StableHLO {since} or newer; asked for {version}");
        Err(Error::new(ErrorKind::Unsupported, "bytecode", message))
    }

    pub(super) fn string(&mut self, text: impl AsRef<[u8]>) -> usize {
        self.strings.index(text.as_ref().into())
    }

    pub(super) fn name(&mut self, dialect: usize, name: impl Into<String>) -> usize {
        let name = name.into();
        self.string(&name);
        self.names.index(Name { dialect, name })
    }

    /// Index of an attribute.
    pub(super) fn entry(&mut self, dialect: usize, contents: Encoder) -> usize {
        self.attributes.index(Entry {
            dialect,
            encoded: true,
            contents,
        })
    }
}
