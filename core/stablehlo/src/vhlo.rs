//! Tables of VHLO, the versioned dialect of portable artifacts: operations, enumerations and
//! element types by version.
//!
//! Source: the dialect's definition in <https://github.com/openxla/stablehlo> and its version log,
//! <https://openxla.org/stablehlo/vhlo>.

use std::sync::LazyLock;

use crate::{
    ComparisonDirection, ComparisonOrder, ElementType, FftKind, RngAlgorithm, RngDistribution,
    Transposition, Version,
    build::{BROADCAST_SIZES, PRECISION},
    ops::{API_VERSIONS, Case, PRECISIONS, Row, rows},
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

/// An enumeration of VHLO.
#[derive(Debug)]
pub(crate) struct Enumeration {
    /// Code of its attributes in bytecode.
    pub(crate) code: u64,
    /// Name of the attributes that have it.
    pub(crate) attribute: &'static str,
    /// Name of a case before the others, which is no value.
    none: Option<&'static str>,
    /// Number of the first of the other cases.
    first: u64,
    /// Names of the other cases.
    cases: &'static [&'static str],
}

impl Enumeration {
    /// The enumeration of the attributes with this name.
    pub(crate) fn of(attribute: &str) -> Option<&'static Enumeration> {
        ENUMERATIONS
            .iter()
            .find(|enumeration| enumeration.attribute == attribute)
    }

    /// The case with this number.
    pub(crate) fn case(&self, number: u64) -> Option<&'static str> {
        match number.checked_sub(self.first) {
            Some(index) => self.cases.get(usize::try_from(index).ok()?).copied(),
            None => self.none,
        }
    }

    /// Number of the case with this name.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        if self.none == Some(name) {
            return Some(0);
        }
        let index = self.cases.iter().position(|case| *case == name)?;
        Some(self.first + index as u64)
    }
}

const fn enumeration(
    code: u64,
    attribute: &'static str,
    cases: &'static [&'static str],
) -> Enumeration {
    Enumeration {
        code,
        attribute,
        none: None,
        first: 0,
        cases,
    }
}

impl Enumeration {
    const fn one_based(self, none: Option<&'static str>) -> Self {
        Enumeration {
            none,
            first: 1,
            ..self
        }
    }
}

/// The enumerations.
pub(crate) static ENUMERATIONS: [Enumeration; 9] = [
    enumeration(3, "comparison_direction", ComparisonDirection::NAMES),
    enumeration(4, "compare_type", ComparisonOrder::NAMES).one_based(Some("NOTYPE")),
    enumeration(5, "api_version", &API_VERSIONS),
    enumeration(7, "fft_type", FftKind::NAMES),
    enumeration(11, PRECISION, &PRECISIONS),
    enumeration(12, "rng_algorithm", RngAlgorithm::NAMES),
    enumeration(13, "rng_distribution", RngDistribution::NAMES).one_based(None),
    enumeration(16, "transpose_a", Transposition::NAMES).one_based(Some("TRANSPOSE_INVALID")),
    enumeration(19, "mode", &["DEFAULT", "HIGHEST", "TOLERANCE"]),
];

/// An element type of VHLO.
#[derive(Debug)]
pub(crate) struct VhloElement {
    /// Code of the type in bytecode.
    pub(crate) code: u64,
    /// The element type.
    pub(crate) ty: ElementType,
    /// First version of StableHLO that has it.
    pub(crate) since: Version,
}

const fn element(code: u64, ty: ElementType, (major, minor): (u16, u16)) -> VhloElement {
    let since = Version::new(major, minor, 0);
    VhloElement { code, ty, since }
}

/// The element types but the complex ones, which have an element type of their own.
pub(crate) const ELEMENTS: [VhloElement; 28] = [
    element(0, ElementType::Bool, (0, 9)),
    element(2, ElementType::Bf16, (0, 9)),
    element(3, ElementType::F16, (0, 9)),
    element(4, ElementType::F32, (0, 9)),
    element(5, ElementType::F64, (0, 9)),
    element(6, ElementType::F8E4M3Fn, (0, 9)),
    element(7, ElementType::F8E5M2, (0, 9)),
    element(10, ElementType::S4, (0, 9)),
    element(11, ElementType::S8, (0, 9)),
    element(12, ElementType::S16, (0, 9)),
    element(13, ElementType::S32, (0, 9)),
    element(14, ElementType::S64, (0, 9)),
    element(15, ElementType::U4, (0, 9)),
    element(16, ElementType::U8, (0, 9)),
    element(17, ElementType::U16, (0, 9)),
    element(18, ElementType::U32, (0, 9)),
    element(19, ElementType::U64, (0, 9)),
    element(27, ElementType::F8E4M3Fnuz, (0, 10)),
    element(28, ElementType::F8E5M2Fnuz, (0, 10)),
    element(29, ElementType::F8E4M3B11Fnuz, (0, 11)),
    element(31, ElementType::S2, (1, 2)),
    element(32, ElementType::U2, (1, 2)),
    element(35, ElementType::F8E4M3, (1, 7)),
    element(36, ElementType::F8E3M4, (1, 7)),
    element(37, ElementType::F4E2M1Fn, (1, 8)),
    element(38, ElementType::F6E2M3Fn, (1, 8)),
    element(39, ElementType::F6E3M2Fn, (1, 8)),
    element(40, ElementType::F8E8M0Fnu, (1, 8)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_but_complex_has_a_code() {
        for ty in ElementType::ALL {
            let known = ELEMENTS.iter().any(|element| element.ty == ty);
            assert_eq!(known, ty.part().is_none(), "{ty}");
        }
    }

    #[test]
    fn versions_of_an_operation_follow_each_other() {
        for row in rows() {
            let releases = row.versions.iter().map(|version| version.since);
            assert!(releases.is_sorted_by(|a, b| a < b), "{}", row.name);
        }
    }
}
