//! Which devices of a platform.

use std::fmt;

/// Upper bound of the number of virtual devices; each takes threads and memory.
pub(crate) const MOST_CPU_DEVICES: u32 = 1024;

/// Devices of a platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Devices {
    /// All that there are.
    #[default]
    All,
    /// The first ones, by number: 1 or more.
    Count(u32),
    /// Those with these indices, from 0.
    Indices(Vec<u32>),
}

impl Devices {
    /// Returns the indices of the devices among `found` of them; empty for all. `what` is the noun
    /// for messages, `named` the list of what was found.
    ///
    /// # Errors
    /// If there are too few.
    pub(crate) fn among(
        &self,
        found: usize,
        what: &str,
        named: impl FnOnce() -> String,
    ) -> Result<Vec<u32>, String> {
        match self {
            Self::All => Ok(Vec::new()),
            Self::Count(count) if *count as usize <= found => Ok((0..*count).collect()),
            Self::Count(count) => Err(format!(
                "{count} {what}s asked for, and this host has {found}: {}; an index is written in \
                 brackets: [{count}]",
                named()
            )),
            Self::Indices(indices) => match indices.iter().find(|&&one| one as usize >= found) {
                Some(missing) => Err(format!(
                    "unknown {what} {missing}; expected one of {}",
                    named()
                )),
                None => Ok(indices.clone()),
            },
        }
    }
}

/// What follows the name of the platform: nothing, `:2`, or `:[0,1]`.
impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Count(count) => write!(f, ":{count}"),
            Self::Indices(indices) => {
                let indices: Vec<String> = indices.iter().map(u32::to_string).collect();
                write!(f, ":[{}]", indices.join(","))
            }
        }
    }
}
