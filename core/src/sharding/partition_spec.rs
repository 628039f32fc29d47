//! Partition specs: which mesh axes split which dimension of a tensor.

use std::{collections::HashSet, fmt, str::FromStr, sync::Arc};

use super::mesh::{MeshShape, is_axis_name};
use crate::{Error, Result, TensorType};

/// Mesh axes per tensor dimension. A dimension without axes is replicated: whole on every device.
/// So are dimensions past the end.
///
/// ```
/// use halite_core::PartitionSpec;
///
/// let spec = PartitionSpec::new([vec!["data"], vec![], vec!["model"]]);
/// assert_eq!(spec.to_string(), "(data, None, model)");
/// assert_eq!("(data, None, model)".parse::<PartitionSpec>()?, spec);
/// assert_eq!(PartitionSpec::from([Some("data"), None, Some("model")]), spec);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct PartitionSpec(Vec<Vec<Arc<str>>>);

impl PartitionSpec {
    /// The axes that split each dimension, outermost dimension and slowest axis first.
    pub fn new<N: Into<Arc<str>>>(dims: impl IntoIterator<Item = Vec<N>>) -> Self {
        PartitionSpec(
            dims.into_iter()
                .map(|axes| axes.into_iter().map(Into::into).collect())
                .collect(),
        )
    }

    /// No dimension split: whole on every device.
    pub fn replicated() -> Self {
        PartitionSpec(Vec::new())
    }

    /// The first dimension split over one axis: a batch.
    pub fn first(axis: impl Into<Arc<str>>) -> Self {
        PartitionSpec(vec![vec![axis.into()]])
    }

    /// Axes of dimension `dim`.
    pub fn axes(&self, dim: usize) -> &[Arc<str>] {
        self.0.get(dim).map_or(&[], Vec::as_slice)
    }

    /// Number of dimensions that have an entry.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// All axes that it names, outermost dimension first.
    pub fn all_axes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().flatten()
    }

    /// This spec without the axes that `mesh` does not have.
    pub fn within(&self, mesh: &MeshShape) -> Self {
        let known = |axes: &Vec<Arc<str>>| {
            axes.iter()
                .filter(|axis| mesh.axis(axis).is_some())
                .cloned()
                .collect()
        };
        PartitionSpec(self.0.iter().map(known).collect())
    }

    /// This spec without these axes.
    pub fn without(&self, axes: &[Arc<str>]) -> Self {
        PartitionSpec(
            self.0
                .iter()
                .map(|dim| {
                    dim.iter()
                        .filter(|axis| !axes.contains(axis))
                        .cloned()
                        .collect()
                })
                .collect(),
        )
    }

    /// This spec with dimension `dim` split further over `axes`, which vary faster than the axes it
    /// is already split over.
    pub fn split(mut self, dim: usize, axes: &[Arc<str>]) -> Self {
        self.0.resize(self.0.len().max(dim + 1), Vec::new());
        self.0[dim].extend_from_slice(axes);
        self
    }

    /// The spec of such tensors stacked along a new first dimension, which is not split.
    pub fn stacked(&self) -> Self {
        PartitionSpec([&[Vec::new()], &self.0[..]].concat())
    }

    /// The spec of a slice of such a tensor along its first dimension.
    pub fn slice(&self) -> Self {
        PartitionSpec(self.0.get(1..).unwrap_or_default().to_vec())
    }

    /// True if no dimension is split.
    pub fn is_replicated(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// Checks this spec against a mesh.
    ///
    /// # Errors
    /// If it names an axis that the mesh does not have, or the same axis twice.
    pub fn check(&self, mesh: &MeshShape) -> Result<()> {
        let mut seen = HashSet::new();
        for axis in self.all_axes() {
            if mesh.axis(axis).is_none() {
                return Err(Error::invalid(
                    OP,
                    format!("{self} names axis `{axis}`, which {mesh:#} does not have"),
                ));
            }
            if !seen.insert(axis) {
                return Err(Error::invalid(
                    OP,
                    format!("{self} uses axis `{axis}` twice; an axis can split one dimension"),
                ));
            }
        }
        Ok(())
    }

    /// Number of parts that dimension `dim` is split into on `mesh`. An axis that the mesh does not
    /// have splits nothing.
    pub fn parts(&self, mesh: &MeshShape, dim: usize) -> usize {
        let sizes = self.axes(dim).iter().filter_map(|axis| mesh.axis(axis));
        sizes.product()
    }

    /// Type of the shard that one device of `mesh` holds of a tensor of type `ty`.
    ///
    /// # Errors
    /// As [`check`](Self::check); if `ty` has fewer dimensions than the spec, or a dimension that
    /// is not a multiple of its number of parts.
    pub fn shard_type(&self, mesh: &MeshShape, ty: &TensorType) -> Result<TensorType> {
        self.check(mesh)?;
        self.checked_shard_type(mesh, ty)
    }

    /// As [`shard_type`](Self::shard_type), of a spec that was checked against `mesh`.
    pub(super) fn checked_shard_type(
        &self,
        mesh: &MeshShape,
        ty: &TensorType,
    ) -> Result<TensorType> {
        if self.rank() > ty.rank() {
            return Err(Error::invalid(
                OP,
                format!(
                    "{self} has {} dimensions, but {ty} has {}",
                    self.rank(),
                    ty.rank()
                ),
            ));
        }
        if self.is_replicated() {
            return Ok(ty.clone());
        }
        let mut dims = ty.dims().to_vec();
        for (dim, size) in dims.iter_mut().enumerate() {
            let parts = self.parts(mesh, dim);
            if *size % parts != 0 {
                let message = format!(
                    "dimension {dim} of {ty} is split {parts} ways by {self} on {mesh:#}, and \
                     {size} is not a multiple of {parts}"
                );
                return Err(Error::invalid(OP, message));
            }
            *size /= parts;
        }
        Ok(ty.with_dims(dims))
    }

    /// Index of the part of dimension `dim` that the `index`th device of `mesh` holds.
    pub(super) fn part(&self, mesh: &MeshShape, dim: usize, index: usize) -> usize {
        self.axes(dim).iter().fold(0, |part, axis| {
            part * mesh.axis(axis).unwrap_or(1) + mesh.coordinate(index, axis)
        })
    }
}

const OP: &str = "sharding";

impl fmt::Display for PartitionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = (self.0.iter())
            .map(|axes| match axes.as_slice() {
                [] => "None".to_string(),
                [axis] => axis.to_string(),
                axes => format!("({})", axes.join(", ")),
            })
            .collect();
        write!(f, "({})", dims.join(", "))
    }
}

impl<const N: usize> From<[Option<&str>; N]> for PartitionSpec {
    /// One axis, or none, for each dimension.
    fn from(dims: [Option<&str>; N]) -> Self {
        PartitionSpec(
            dims.into_iter()
                .map(|axis| axis.into_iter().map(Arc::from).collect())
                .collect(),
        )
    }
}

impl<const N: usize> From<[&str; N]> for PartitionSpec {
    /// One axis for each dimension.
    fn from(axes: [&str; N]) -> Self {
        PartitionSpec::from(axes.map(Some))
    }
}

impl FromStr for PartitionSpec {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes; the outermost parentheses are optional.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            Error::invalid(
                OP,
                format!(
                    "invalid partition spec `{text}`; expected axes and `None`, such as \
                     (data, None, (model, fsdp))"
                ),
            )
        };
        let text_of_dims = text.trim();
        let inner = text_of_dims
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'))
            .filter(|inner| balanced(inner));
        let mut rest = inner.unwrap_or(text_of_dims).trim();
        let mut dims = Vec::new();
        while !rest.is_empty() {
            let (dim, after) = if let Some(group) = rest.strip_prefix('(') {
                let (group, after) = group.split_once(')').ok_or_else(refused)?;
                (
                    group.split(',').map(str::trim).collect::<Vec<_>>(),
                    after.trim(),
                )
            } else {
                let end = rest.find(',').unwrap_or(rest.len());
                (vec![rest[..end].trim()], &rest[end..])
            };
            let dim = if dim == ["None"] { Vec::new() } else { dim };
            if !dim.iter().all(|name| is_axis_name(name)) {
                return Err(refused());
            }
            dims.push(dim);
            rest = match after.strip_prefix(',') {
                Some(after) if !after.trim().is_empty() => after.trim(),
                None if after.is_empty() => after,
                _ => return Err(refused()),
            };
        }
        Ok(PartitionSpec::new(dims))
    }
}

/// True if every parenthesis of `text` closes one that was opened before it.
fn balanced(text: &str) -> bool {
    let depth = text.chars().try_fold(0usize, |depth, c| match c {
        '(' => Some(depth + 1),
        ')' => depth.checked_sub(1),
        _ => Some(depth),
    });
    depth == Some(0)
}
