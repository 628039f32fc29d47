//! The option of how checkpoints are written while a run trains.

/// How a checkpoint is written while the run trains.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum CheckpointMode {
    /// `copy` if the host has the memory, else `stream`; the choice is printed
    #[default]
    Auto,
    /// Copy the state to host memory and write it while training continues: takes memory for one more
    /// state, and the next step waits for the copy alone
    Copy,
    /// Write one array after another: takes memory for the largest array, and the next step waits
    /// until the last was copied
    Stream,
}

impl CheckpointMode {
    /// True to copy a state of `bytes`, with this many bytes of free memory, if that is known.
    pub(crate) fn copies(self, bytes: u64, available: Option<u64>) -> bool {
        match self {
            CheckpointMode::Copy => true,
            CheckpointMode::Stream => false,
            // A part is left for other uses.
            CheckpointMode::Auto => {
                available.is_none_or(|available| bytes <= available - available / 4)
            }
        }
    }
}
