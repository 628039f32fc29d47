use std::{
    fmt,
    ops::{Deref, DerefMut},
};

/// Where a leaf is in its tree: field names and indices, printed as `blocks.3.attn.q.weight`.
///
/// One path is reused for a whole traversal. Entering a field allocates nothing once the path has
/// reached its depth, and text is made only when a path is printed.
#[derive(Default, PartialEq, Eq, Hash)]
pub struct Path {
    segments: Vec<Segment>,
}

/// One step of a [`Path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// A named field of a struct.
    Field(&'static str),
    /// An element of a `Vec`, an array, a tuple or a tuple struct, counted from 0.
    Index(usize),
}

impl Path {
    /// The path of the whole tree: no segments, printed as nothing.
    pub const fn new() -> Self {
        Path {
            segments: Vec::new(),
        }
    }

    /// Enters the field `name` until the returned scope is dropped.
    #[must_use = "the field is left again as soon as the scope is dropped"]
    pub fn field(&mut self, name: &'static str) -> PathScope<'_> {
        self.enter(Segment::Field(name))
    }

    /// Enters element `index` until the returned scope is dropped.
    #[must_use = "the element is left again as soon as the scope is dropped"]
    pub fn index(&mut self, index: usize) -> PathScope<'_> {
        self.enter(Segment::Index(index))
    }

    /// Enters the place at `segments` until the returned scope is dropped.
    #[must_use = "the place is left again as soon as the scope is dropped"]
    pub fn below(&mut self, segments: &[Segment]) -> PathScope<'_> {
        let depth = self.segments.len();
        self.segments.extend_from_slice(segments);
        PathScope { path: self, depth }
    }

    fn enter(&mut self, segment: Segment) -> PathScope<'_> {
        self.below(&[segment])
    }

    /// The segments, outermost first.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether this is the path of the whole tree.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

impl Clone for Path {
    fn clone(&self) -> Self {
        Path::from(&*self.segments)
    }

    /// Keeps the memory of `self`.
    fn clone_from(&mut self, source: &Self) {
        self.segments.clone_from(&source.segments);
    }
}

impl From<&[Segment]> for Path {
    fn from(segments: &[Segment]) -> Self {
        Path {
            segments: segments.to_vec(),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.segments.iter().enumerate() {
            if position > 0 {
                f.write_str(".")?;
            }
            segment.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Segment::Field(name) => f.write_str(name),
            Segment::Index(index) => write!(f, "{index}"),
        }
    }
}

/// A [`Path`] inside a field or element; dropping it leaves the field again, also when an error
/// returns early.
#[derive(Debug)]
pub struct PathScope<'a> {
    path: &'a mut Path,
    /// Number of segments outside.
    depth: usize,
}

impl Deref for PathScope<'_> {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.path
    }
}

impl DerefMut for PathScope<'_> {
    fn deref_mut(&mut self) -> &mut Path {
        self.path
    }
}

impl Drop for PathScope<'_> {
    fn drop(&mut self) {
        self.path.segments.truncate(self.depth);
    }
}

/// Many paths in two allocations.
#[derive(Default)]
pub(super) struct PathList {
    segments: Vec<Segment>,
    ends: Vec<usize>,
}

impl PathList {
    pub(super) fn push(&mut self, path: &Path) {
        self.segments.extend_from_slice(&path.segments);
        self.ends.push(self.segments.len());
    }

    pub(super) fn get(&self, position: usize) -> Option<&[Segment]> {
        let end = *self.ends.get(position)?;
        let start = if position == 0 {
            0
        } else {
            self.ends[position - 1]
        };
        Some(&self.segments[start..end])
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}
