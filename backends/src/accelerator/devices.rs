//! Which devices of a platform.

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
