//! VHLO, the versioned dialect of portable artifacts: operations by version, and enumerations.
//!
//! Source: the dialect's definition in <https://github.com/openxla/stablehlo> and its version log,
//! <https://openxla.org/stablehlo/vhlo>.

use std::sync::LazyLock;

use crate::{
    Version,
    build::BROADCAST_SIZES,
    ops::{Enumeration, PRECISION, Row, rows},
};

/// One version of an operation.
#[derive(Clone, Debug)]
pub(crate) struct VhloOp {
    /// Name in StableHLO: `dot_general`.
    pub(crate) name: &'static str,
    /// Number of the version: 2 in `dot_general_v2`.
    pub(crate) number: u32,
    /// First version of StableHLO that has it.
    pub(crate) since: Version,
    /// Last version of StableHLO that has it.
    pub(crate) until: Version,
    /// Names of its attributes, in alphabetical order, which is also the order of its properties.
    pub(crate) attributes: Vec<&'static str>,
}

/// All versions of the operations that [`OpKind`](crate::OpKind) has, and of those that it reads as
/// others.
static OPS: LazyLock<Vec<VhloOp>> = LazyLock::new(|| {
    let rows = rows().filter(|row| !row.name.starts_with("sdy."));
    let others = OTHERS.iter().map(|&(name, attributes)| VhloOp {
        name,
        number: 1,
        since: Version::OLDEST,
        until: last(Version::NEWEST.release()),
        attributes: attributes.to_vec(),
    });
    rows.flat_map(versions).chain(others).collect()
});

/// Operations without a row, which have not changed since the oldest version.
const OTHERS: [(&str, &[&str]); 5] = [
    ("broadcast", &[BROADCAST_SIZES]),
    ("create_token", &[]),
    ("dot", &[PRECISION]),
    (
        "func",
        &[
            "arg_attrs",
            "function_type",
            "res_attrs",
            "sym_name",
            "sym_visibility",
        ],
    ),
    ("return", &[]),
];

/// The versions of an operation, each with the attributes that it has.
fn versions(row: &'static Row) -> impl Iterator<Item = VhloOp> {
    (0..row.versions.len()).map(|index| {
        let (earlier, later) = row.versions.split_at(index + 1);
        let since = row.versions[index].since;
        // A version ends with the minor version before that of the next one.
        let until = match later.first() {
            Some(next) => (next.since.0, next.since.1 - 1),
            None => Version::NEWEST.release(),
        };
        let fields = row.attributes.iter().filter(|it| it.since <= since);
        let added = earlier.iter().filter_map(|version| version.adds);
        let mut attributes: Vec<_> = fields.map(|it| it.name).chain(added).collect();
        attributes.sort_unstable();
        VhloOp {
            name: row.name.strip_prefix("func.").unwrap_or(row.name),
            number: index as u32 + 1,
            since: Version::new(since.0, since.1, 0),
            until: last(until),
            attributes,
        }
    })
}

/// The last version of a release: patch releases have the operations of their minor version.
const fn last((major, minor): (u16, u16)) -> Version {
    Version::new(major, minor, u16::MAX)
}

impl VhloOp {
    /// The operation with this name in VHLO: `dot_general_v2`.
    pub(crate) fn find(name: &str) -> Option<&'static VhloOp> {
        let (name, number) = split_version(name)?;
        OPS.iter().find(|op| op.name == name && op.number == number)
    }

    /// The version of an operation that a version of StableHLO has.
    pub(crate) fn at(name: &str, version: Version) -> Option<&'static VhloOp> {
        OPS.iter()
            .find(|op| op.name == name && op.since <= version && version <= op.until)
    }

    /// All versions of an operation, oldest first.
    pub(crate) fn versions(name: &str) -> impl Iterator<Item = &'static VhloOp> {
        OPS.iter().filter(move |op| op.name == name)
    }
}

/// Splits `dot_general_v2` into `dot_general` and 2.
pub(crate) fn split_version(name: &str) -> Option<(&str, u32)> {
    let (name, number) = name.rsplit_once("_v")?;
    Some((name, number.parse().ok()?))
}

/// The enumerations, each with the name of an attribute that has it.
pub(crate) static ENUMERATIONS: LazyLock<Vec<(&str, Enumeration)>> = LazyLock::new(|| {
    let attributes = rows().flat_map(|row| &row.attributes);
    let of_rows = attributes.filter_map(|it| Some((it.name, it.enumeration?)));
    of_rows.chain([("mode", MODE)]).collect()
});

/// How a `result_accuracy` is meant.
pub(crate) const MODE: Enumeration = Enumeration::new(19, "", &["DEFAULT", "HIGHEST", "TOLERANCE"]);

/// The enumeration of the attributes with this name.
pub(crate) fn enumeration(attribute: &str) -> Option<Enumeration> {
    let mut enumerations = ENUMERATIONS.iter();
    let found = enumerations.find(|(name, _)| *name == attribute);
    found.map(|&(_, enumeration)| enumeration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_an_operation_follow_each_other() {
        for op in OPS.iter() {
            let next = OPS
                .iter()
                .find(|next| next.name == op.name && next.number == op.number + 1);
            match next {
                Some(next) => {
                    assert!(next.since > op.until, "{}", op.name);
                    assert_eq!(next.since.minor, op.until.minor + 1, "{}", op.name);
                }
                None => assert_eq!(op.until.minor, Version::NEWEST.minor, "{}", op.name),
            }
        }
    }

    #[test]
    fn attributes_are_in_alphabetical_order() {
        for op in OPS.iter() {
            assert!(op.attributes.is_sorted(), "{}", op.name);
        }
    }
}
