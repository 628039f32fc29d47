use std::fmt;

/// Why two trees, or a tree and a list of leaves, do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeError {
    /// A list of leaves has the wrong length for the tree.
    LeafCount {
        /// The number of leaves of the tree.
        expected: usize,
        /// The number of leaves that were given.
        given: usize,
        /// Whether there may be more than `given`: the iterator did not say how many it has.
        or_more: bool,
    },
    /// Two trees differ in structure.
    Structure {
        /// The path of the first leaf that differs, in the left tree; `None` if it has no leaf left
        /// there.
        left: Option<String>,
        /// The path of the first leaf that differs, in the right tree; `None` if it has no leaf
        /// left there.
        right: Option<String>,
        /// The number of leaves of the left tree.
        left_count: usize,
        /// The number of leaves of the right tree.
        right_count: usize,
    },
}

impl std::error::Error for TreeError {}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::LeafCount {
                expected,
                given,
                or_more,
            } => {
                let or_more = if *or_more { " or more" } else { "" };
                write!(
                    f,
                    "the number of leaves differs: {expected} in the tree, {given}{or_more} given"
                )
            }
            TreeError::Structure {
                left,
                right,
                left_count,
                right_count,
            } => {
                f.write_str("the trees differ in structure: ")?;
                match (left, right) {
                    (Some(left), Some(right)) => {
                        write!(f, "where the left has `{left}` the right has `{right}`")?
                    }
                    (Some(left), None) => write!(f, "only the left has `{left}`")?,
                    (None, Some(right)) => write!(f, "only the right has `{right}`")?,
                    (None, None) => f.write_str("their leaves are at different paths")?,
                }
                write!(
                    f,
                    " (number of leaves: {left_count} left, {right_count} right)"
                )
            }
        }
    }
}
