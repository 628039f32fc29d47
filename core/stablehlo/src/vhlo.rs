//! Tables of VHLO, the versioned dialect of portable artifacts: operations and enumerations by
//! version.
//!
//! Source: the dialect's definition in <https://github.com/openxla/stablehlo> and its version log,
//! <https://openxla.org/stablehlo/vhlo>.

mod ops;

use crate::Version;
use ops::OPS;

/// One version of an operation.
#[derive(Clone, Copy, Debug)]
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
    pub(crate) attributes: &'static [&'static str],
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
    /// Number of the first case.
    first: u64,
    /// Names of the cases.
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
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.cases.get(index).copied()
    }

    /// Number of the case with this name.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let index = self.cases.iter().position(|case| *case == name)?;
        Some(self.first + index as u64)
    }
}

/// The enumerations.
pub(crate) static ENUMERATIONS: [Enumeration; 9] = [
    Enumeration {
        code: 3,
        attribute: "comparison_direction",
        first: 0,
        cases: &["EQ", "NE", "GE", "GT", "LE", "LT"],
    },
    Enumeration {
        code: 4,
        attribute: "compare_type",
        first: 0,
        cases: &["NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"],
    },
    Enumeration {
        code: 5,
        attribute: "api_version",
        first: 0,
        cases: &[
            "API_VERSION_UNSPECIFIED",
            "API_VERSION_ORIGINAL",
            "API_VERSION_STATUS_RETURNING",
            "API_VERSION_STATUS_RETURNING_UNIFIED",
            "API_VERSION_TYPED_FFI",
        ],
    },
    Enumeration {
        code: 7,
        attribute: "fft_type",
        first: 0,
        cases: &["FFT", "IFFT", "RFFT", "IRFFT"],
    },
    Enumeration {
        code: 11,
        attribute: "precision_config",
        first: 0,
        cases: &["DEFAULT", "HIGH", "HIGHEST"],
    },
    Enumeration {
        code: 12,
        attribute: "rng_algorithm",
        first: 0,
        cases: &["DEFAULT", "THREE_FRY", "PHILOX"],
    },
    Enumeration {
        code: 13,
        attribute: "rng_distribution",
        first: 1,
        cases: &["UNIFORM", "NORMAL"],
    },
    Enumeration {
        code: 16,
        attribute: "transpose_a",
        first: 0,
        cases: &["TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"],
    },
    Enumeration {
        code: 19,
        attribute: "mode",
        first: 0,
        cases: &["DEFAULT", "HIGHEST", "TOLERANCE"],
    },
];
