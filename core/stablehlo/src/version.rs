//! Versions of StableHLO.

use std::{fmt, str::FromStr};

use halite_core::{Error, Result};

/// A version of StableHLO, which every portable artifact has: `1.17.0`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// Changes with the compatibility guarantees.
    pub major: u16,
    /// Changes with the set of operations.
    pub minor: u16,
    /// Changes with neither.
    pub patch: u16,
}

impl Version {
    /// The oldest version of which readers accept artifacts.
    pub const OLDEST: Version = Version::new(0, 9, 0);
    /// The newest version of which readers accept artifacts.
    pub const NEWEST: Version = Version::new(1, 20, 0);

    /// A version.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Version {
            major,
            minor,
            patch,
        }
    }

    /// The part of the version that determines the set of operations.
    pub(crate) const fn release(self) -> (u16, u16) {
        (self.major, self.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let mut next = || parts.next().flatten();
        match (next(), next(), next(), parts.next()) {
            (Some(major), Some(minor), Some(patch), None) => Ok(Version::new(major, minor, patch)),
            _ => Err(Error::invalid(
                "StableHLO version",
                format!("`{text}` is not a version; expected three numbers, as in 1.17.0"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_prints_as_it_parses() {
        assert_eq!("1.17.0".parse::<Version>().unwrap().to_string(), "1.17.0");
    }

    #[test]
    fn versions_order_by_number() {
        assert!(Version::new(1, 9, 0) < Version::new(1, 10, 0));
    }

    #[test]
    fn malformed_version_is_refused() {
        for text in ["", "1", "1.2", "1.2.3.4", "1.2.x", "1.2.70000"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }
}
