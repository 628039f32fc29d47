//! Facts about an operation that its row states: its versions in VHLO and its attributes.

use super::enumeration::Enumeration;

/// A release of StableHLO: major and minor number.
pub(crate) type Release = (u16, u16);

/// The oldest release of which readers accept artifacts.
const OLDEST: Release = (0, 9);

/// One version of an operation in VHLO.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpVersion {
    /// The first release that has it.
    pub(crate) since: Release,
    /// The attribute that this version adds and that is no field of the operation.
    pub(crate) adds: Option<&'static str>,
}

/// The version that begins with a release.
pub(super) const fn since(major: u16, minor: u16) -> OpVersion {
    OpVersion {
        since: (major, minor),
        adds: None,
    }
}

impl OpVersion {
    pub(super) const fn adds(self, attribute: &'static str) -> Self {
        OpVersion {
            adds: Some(attribute),
            ..self
        }
    }
}

/// Versions of an operation, oldest first.
pub(crate) type Versions = &'static [OpVersion];

/// An operation that has not changed since the oldest release.
pub(super) const STABLE: Versions = &[since(OLDEST.0, OLDEST.1)];

/// An attribute of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) name: &'static str,
    /// Its name in the pretty form of text, `dim = 0`; empty if it has none.
    pub(crate) key: &'static str,
    /// The first release that has it.
    pub(crate) since: Release,
    /// Whether generic text nests it in the dimension numbers of its operation.
    pub(crate) nested: bool,
    /// The enumeration of its values.
    pub(crate) enumeration: Option<Enumeration>,
}

impl Named {
    pub(super) fn new(name: &'static str) -> Self {
        Named {
            name,
            key: "",
            since: OLDEST,
            nested: false,
            enumeration: None,
        }
    }
}

/// An operation with its versions and attributes.
#[derive(Debug)]
pub(crate) struct Row {
    /// As of [`OpKind::name`](super::OpKind::name).
    pub(crate) name: &'static str,
    pub(crate) versions: Versions,
    /// In alphabetical order, which is the order of properties in bytecode.
    pub(crate) attributes: Vec<Named>,
}

impl Row {
    pub(super) fn new(
        name: &'static str,
        versions: Versions,
        describe: fn(&mut Vec<Named>),
    ) -> Self {
        let mut attributes = Vec::new();
        describe(&mut attributes);
        attributes.sort_by_key(|attribute| attribute.name);
        Row {
            name,
            versions,
            attributes,
        }
    }
}
