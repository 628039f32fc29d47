//! How a logical tensor lies over devices: a mesh with named axes, and which axes split which
//! dimension.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    ops::Range,
    str::FromStr,
    sync::Arc,
};

use crate::{DeviceId, Error, Result, TensorType};

/// Devices arranged as a grid with named axes.
///
/// ```
/// use halite_core::{DeviceId, Mesh};
///
/// let mesh = Mesh::new([("data", 2), ("model", 4)], (0..8).map(DeviceId)).unwrap();
/// assert_eq!(mesh.size(), 8);
/// assert_eq!(mesh.axis("model"), Some(4));
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Mesh {
    axes: Vec<(Arc<str>, usize)>,
    devices: Vec<DeviceId>,
}

impl Mesh {
    /// `devices` in row-major order over `axes`.
    ///
    /// # Errors
    /// If the sizes do not multiply to the number of devices, or a name or a device is there twice.
    pub fn new<N: Into<Arc<str>>>(
        axes: impl IntoIterator<Item = (N, usize)>,
        devices: impl IntoIterator<Item = DeviceId>,
    ) -> Result<Self> {
        let axes: Vec<(Arc<str>, usize)> = axes
            .into_iter()
            .map(|(name, size)| (name.into(), size))
            .collect();
        let mesh = Mesh {
            axes,
            devices: devices.into_iter().collect(),
        };
        let size = mesh
            .axes
            .iter()
            .try_fold(1usize, |n, (_, size)| n.checked_mul(*size));
        if size != Some(mesh.devices.len()) || mesh.devices.is_empty() {
            let wanted = size.map_or("more devices than can be counted".to_string(), |size| {
                format!("{size} devices")
            });
            let message = format!(
                "{mesh} is a grid of {wanted}, and {} are given",
                mesh.devices.len()
            );
            return Err(Error::invalid("mesh", message));
        }
        let mut names = HashSet::new();
        if let Some((name, _)) = mesh.axes.iter().find(|(name, _)| !names.insert(name)) {
            return Err(Error::invalid(
                "mesh",
                format!("{mesh} has two axes named `{name}`"),
            ));
        }
        let mut seen = HashSet::new();
        if let Some(device) = mesh.devices.iter().find(|device| !seen.insert(**device)) {
            return Err(Error::invalid(
                "mesh",
                format!("device {} is in {mesh} twice", device.0),
            ));
        }
        Ok(mesh)
    }

    /// A mesh over slices: groups of devices with a fast network within each, and a slow one
    /// between them.
    ///
    /// Each axis is a name, a size across slices, and a size within a slice; its size is their
    /// product, and its part across slices is the slow one. So an axis that is used rarely, such as
    /// one of data parallelism, goes across: name it first. `devices` are given with the slice that
    /// each is in ([`Device::slice`](crate::Device::slice)).
    ///
    /// ```
    /// use halite_core::{DeviceId, Mesh};
    ///
    /// // Devices 0 to 3 are in slice 0, devices 4 to 7 in slice 1.
    /// let devices = (0..8).map(|id| (DeviceId(id), id as usize / 4));
    /// let mesh = Mesh::hybrid([("data", 2, 2), ("model", 1, 2)], devices).unwrap();
    /// assert_eq!(mesh.to_string(), "mesh(data=4, model=2)");
    /// ```
    ///
    /// # Errors
    /// If there are not as many slices, or devices in one, as the axes want; and as
    /// [`new`](Self::new).
    pub fn hybrid<N: Into<Arc<str>>>(
        axes: impl IntoIterator<Item = (N, usize, usize)>,
        devices: impl IntoIterator<Item = (DeviceId, usize)>,
    ) -> Result<Self> {
        let axes: Vec<(Arc<str>, usize, usize)> = axes
            .into_iter()
            .map(|(name, across, within)| (name.into(), across, within))
            .collect();
        let mut slices: BTreeMap<usize, Vec<DeviceId>> = BTreeMap::new();
        for (device, slice) in devices {
            slices.entry(slice).or_default().push(device);
        }
        let said = || {
            let axes: Vec<String> = axes
                .iter()
                .map(|(name, across, within)| format!("{name}={across}x{within}"))
                .collect();
            format!("mesh({})", axes.join(", "))
        };
        let across = axes
            .iter()
            .try_fold(1usize, |slices, (_, across, _)| slices.checked_mul(*across));
        let within = axes.iter().try_fold(1usize, |devices, (_, _, within)| {
            devices.checked_mul(*within)
        });
        if across != Some(slices.len()) {
            let message = format!(
                "{} wants as many slices as its axes have across slices, got {}",
                said(),
                slices.len()
            );
            return Err(Error::invalid("mesh", message));
        }
        if let Some((slice, devices)) = slices
            .iter()
            .find(|(_, devices)| within != Some(devices.len()))
        {
            let message = format!(
                "{} wants as many devices in each slice as its axes have within a slice, slice {slice} has {}",
                said(),
                devices.len()
            );
            return Err(Error::invalid("mesh", message));
        }
        let slices: Vec<Vec<DeviceId>> = slices.into_values().collect();
        let size = slices.len() * within.unwrap_or(0);
        let mut ordered = Vec::with_capacity(size);
        for index in 0..size {
            // From the fastest axis to the slowest: where in the slices, and where in a slice.
            let (mut rest, mut slice, mut place) = (index, 0, 0);
            let (mut slice_stride, mut place_stride) = (1, 1);
            for (_, across, within) in axes.iter().rev() {
                let coordinate = rest % (across * within);
                rest /= across * within;
                slice += coordinate / within * slice_stride;
                place += coordinate % within * place_stride;
                slice_stride *= across;
                place_stride *= within;
            }
            ordered.push(slices[slice][place]);
        }
        Mesh::new(
            axes.into_iter()
                .map(|(name, across, within)| (name, across * within)),
            ordered,
        )
    }

    /// One device, no axes.
    pub fn single(device: DeviceId) -> Self {
        Mesh {
            axes: Vec::new(),
            devices: vec![device],
        }
    }

    /// Names and sizes of the axes, outermost first.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = (&str, usize)> {
        self.axes.iter().map(|(name, size)| (&**name, *size))
    }

    /// Size of the axis of this name.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes
            .iter()
            .find(|(axis, _)| &**axis == name)
            .map(|(_, size)| *size)
    }

    /// The devices, row-major over the axes.
    pub fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    /// How many devices.
    pub fn size(&self) -> usize {
        self.devices.len()
    }

    /// Position of the `index`th device along the axis of this name; 0 along an axis that the mesh
    /// does not have.
    pub fn coordinate(&self, index: usize, name: &str) -> usize {
        let mut rest = index;
        for (axis, size) in self.axes.iter().rev() {
            if &**axis == name {
                return rest % size;
            }
            rest /= size;
        }
        0
    }
}

impl fmt::Display for Mesh {
    /// `mesh(data=2, model=4)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mesh({})", list_axes(&self.axes))
    }
}

/// Axes of a mesh in words: `data=2, model=4`.
pub fn list_axes(axes: &[(Arc<str>, usize)]) -> String {
    let axes: Vec<String> = axes
        .iter()
        .map(|(name, size)| format!("{name}={size}"))
        .collect();
    axes.join(", ")
}

/// Names and sizes of the axes of a mesh that is to be, outermost first. Read from text such as
/// `data=2,model=4`.
///
/// ```
/// use halite_core::MeshAxes;
///
/// let axes: MeshAxes = "data=2,model=4".parse()?;
/// assert_eq!(axes.size(), Some(8));
/// assert_eq!(axes.to_string(), "data=2,model=4");
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MeshAxes(Vec<(Arc<str>, usize)>);

impl MeshAxes {
    /// How many devices a mesh of these axes has, if that can be counted.
    pub fn size(&self) -> Option<usize> {
        self.0
            .iter()
            .try_fold(1usize, |product, (_, size)| product.checked_mul(*size))
    }
}

impl IntoIterator for MeshAxes {
    type Item = (Arc<str>, usize);
    type IntoIter = std::vec::IntoIter<(Arc<str>, usize)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for MeshAxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self
            .0
            .iter()
            .map(|(name, size)| format!("{name}={size}"))
            .collect();
        f.write_str(&axes.join(","))
    }
}

impl FromStr for MeshAxes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let axis = |axis: &str| {
            let refused = || {
                Error::invalid(
                    "mesh",
                    format!(
                        "`{text}`: `{axis}` is no axis; want names and sizes, such as data=2,model=4"
                    ),
                )
            };
            let (name, size) = axis.split_once('=').ok_or_else(refused)?;
            let (name, size) = (name.trim(), size.trim().parse().map_err(|_| refused())?);
            if is_axis_name(name) && size > 0 {
                Ok((Arc::from(name), size))
            } else {
                Err(refused())
            }
        };
        let axes: Vec<(Arc<str>, usize)> = text.split(',').map(axis).collect::<Result<_>>()?;
        match (1..axes.len())
            .find(|&index| axes[..index].iter().any(|(name, _)| *name == axes[index].0))
        {
            Some(twice) => Err(Error::invalid(
                "mesh",
                format!("`{text}` has two axes named `{}`", axes[twice].0),
            )),
            None => Ok(MeshAxes(axes)),
        }
    }
}

fn is_axis_name(name: &str) -> bool {
    !name.is_empty()
        && name != "None"
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "_-".contains(c))
}

/// Mesh axes per tensor dimension. A dimension without axes is whole on every device; so are
/// dimensions past the end.
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

    /// Whole on every device.
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

    /// How many dimensions it speaks of.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Every axis it names, outermost dimension first.
    pub fn all_axes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().flatten()
    }

    /// The same, without the axes that `mesh` does not have.
    pub fn within(&self, mesh: &Mesh) -> Self {
        let known = |axes: &Vec<Arc<str>>| {
            axes.iter()
                .filter(|axis| mesh.axis(axis).is_some())
                .cloned()
                .collect()
        };
        PartitionSpec(self.0.iter().map(known).collect())
    }

    /// The same, without these axes.
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

    /// The same, with dimension `dim` split over `axes` too, which are faster than those it is
    /// split over already.
    pub fn split(mut self, dim: usize, axes: &[Arc<str>]) -> Self {
        self.0.resize(self.0.len().max(dim + 1), Vec::new());
        self.0[dim].extend_from_slice(axes);
        self
    }

    /// Whether no dimension is split.
    pub fn is_replicated(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }
}

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

    /// What [`Display`](fmt::Display) writes; the outermost parentheses may be missing.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            Error::invalid(
                "sharding",
                format!(
                    "`{text}` is no spec; want axes and `None`, such as (data, None, (model, fsdp))"
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

/// Whether every parenthesis of `text` closes one that was opened before it.
fn balanced(text: &str) -> bool {
    let depth = text.chars().try_fold(0usize, |depth, c| match c {
        '(' => Some(depth + 1),
        ')' => depth.checked_sub(1),
        _ => Some(depth),
    });
    depth == Some(0)
}

/// A [`PartitionSpec`] on a [`Mesh`], checked against it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Sharding {
    mesh: Arc<Mesh>,
    spec: PartitionSpec,
}

impl Sharding {
    /// # Errors
    /// If `spec` names an axis that the mesh has not, or one twice.
    pub fn new(mesh: &Arc<Mesh>, spec: PartitionSpec) -> Result<Arc<Self>> {
        let mut seen = HashSet::new();
        for axis in spec.0.iter().flatten() {
            if mesh.axis(axis).is_none() {
                return Err(Error::invalid(
                    "sharding",
                    format!("{spec} names axis `{axis}`, which {mesh} does not have"),
                ));
            }
            if !seen.insert(axis.clone()) {
                return Err(Error::invalid(
                    "sharding",
                    format!("{spec} uses axis `{axis}` twice; an axis can split one dimension"),
                ));
            }
        }
        Ok(Arc::new(Sharding {
            mesh: mesh.clone(),
            spec,
        }))
    }

    /// Whole on every device of the mesh.
    pub fn replicated(mesh: &Arc<Mesh>) -> Arc<Self> {
        Arc::new(Sharding {
            mesh: mesh.clone(),
            spec: PartitionSpec::replicated(),
        })
    }

    /// Whole on one device.
    pub fn single(device: DeviceId) -> Arc<Self> {
        Self::replicated(&Arc::new(Mesh::single(device)))
    }

    /// The devices.
    pub fn mesh(&self) -> &Arc<Mesh> {
        &self.mesh
    }

    /// Which axes split which dimension.
    pub fn spec(&self) -> &PartitionSpec {
        &self.spec
    }

    /// In how many parts dimension `dim` is split.
    pub fn parts(&self, dim: usize) -> usize {
        self.spec
            .axes(dim)
            .iter()
            .map(|axis| self.size_of(axis))
            .product()
    }

    /// The type of what one device holds of a tensor of type `ty`.
    ///
    /// # Errors
    /// If `ty` has fewer dimensions than the spec, or one that does not divide into its parts.
    pub fn shard_type(&self, ty: &TensorType) -> Result<TensorType> {
        if self.spec.rank() > ty.rank() {
            return Err(Error::invalid(
                "sharding",
                format!(
                    "{} speaks of {} dimensions, {ty} has {}",
                    self.spec,
                    self.spec.rank(),
                    ty.rank()
                ),
            ));
        }
        if self.spec.is_replicated() {
            return Ok(ty.clone());
        }
        let mut dims = ty.dims().to_vec();
        for (dim, size) in dims.iter_mut().enumerate() {
            let parts = self.parts(dim);
            if *size % parts != 0 {
                let message = format!(
                    "dimension {dim} of {ty} is split {parts} ways by {} on {}, and {size} is not a multiple of {parts}",
                    self.spec, self.mesh
                );
                return Err(Error::invalid("sharding", message));
            }
            *size /= parts;
        }
        Ok(ty.with_dims(dims))
    }

    /// The part of a tensor of type `ty` that the `index`th device of the mesh holds: a range per
    /// dimension.
    ///
    /// # Errors
    /// As [`shard_type`](Self::shard_type).
    pub fn shard_ranges(&self, ty: &TensorType, index: usize) -> Result<Vec<Range<usize>>> {
        let shard = self.shard_type(ty)?;
        let range = |(dim, &size): (usize, &usize)| {
            let part = self.spec.axes(dim).iter().fold(0, |part, axis| {
                part * self.size_of(axis) + self.mesh.coordinate(index, axis)
            });
            part * size..(part + 1) * size
        };
        Ok(shard.dims().iter().enumerate().map(range).collect())
    }
}

/// Which part of a tensor each device of a program has, without names of axes: how compilers say
/// it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tiling {
    /// In how many parts each dimension is split.
    pub parts: Vec<usize>,
    /// For each device, in the order of launches, the number of its part: row-major over
    /// [`parts`](Self::parts).
    pub of_device: Vec<usize>,
}

impl Sharding {
    /// The parts of a tensor of this rank that the devices of the mesh have.
    pub fn tiling(&self, rank: usize) -> Tiling {
        let part = |index: usize| {
            let axes = |dim| self.spec.axes(dim).iter();
            let place = |dim| {
                axes(dim).fold(0, |part, axis| {
                    part * self.size_of(axis) + self.mesh.coordinate(index, axis)
                })
            };
            (0..rank).fold(0, |part, dim| part * self.parts(dim) + place(dim))
        };
        Tiling {
            parts: (0..rank).map(|dim| self.parts(dim)).collect(),
            of_device: (0..self.mesh.size()).map(part).collect(),
        }
    }

    fn size_of(&self, axis: &str) -> usize {
        self.mesh.axis(axis).expect("checked in Sharding::new")
    }
}

impl fmt::Display for Tiling {
    /// `in [2, 1] parts, by device [0, 0, 1, 1]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "in {:?} parts, by device {:?}",
            self.parts, self.of_device
        )
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.spec, self.mesh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn mesh() -> Arc<Mesh> {
        Arc::new(Mesh::new([("data", 2), ("model", 4)], (0..8).map(DeviceId)).unwrap())
    }

    #[test]
    fn a_tensor_is_split_by_each_axis_once_and_parts_are_row_major_over_axes() {
        let ty = TensorType::new(DType::F32, [4, 8]);
        let both =
            Sharding::new(&mesh(), PartitionSpec::new([vec!["data"], vec!["model"]])).unwrap();
        assert_eq!(both.shard_type(&ty).unwrap().dims(), [2, 2]);
        assert_eq!(both.shard_ranges(&ty, 6).unwrap(), [2..4, 4..6]);
        let one =
            Sharding::new(&mesh(), PartitionSpec::new([vec![], vec!["model", "data"]])).unwrap();
        assert_eq!(
            one.shard_ranges(&ty, 6).unwrap(),
            [0..4, 5..6],
            "model 2 of 4 is the slow axis, data 1 of 2 the fast one"
        );
    }

    #[test]
    fn a_tiling_says_the_same_as_the_ranges() {
        let ty = TensorType::new(DType::F32, [8, 16]);
        for text in [
            "()",
            "(data)",
            "(None, model)",
            "(model, data)",
            "((data, model))",
            "(None, (model, data))",
        ] {
            let sharding = Sharding::new(&mesh(), text.parse().unwrap()).unwrap();
            let (tiling, part) = (sharding.tiling(2), sharding.shard_type(&ty).unwrap());
            for (device, &number) in tiling.of_device.iter().enumerate() {
                let place = [number / tiling.parts[1], number % tiling.parts[1]];
                let ranges = [0, 1]
                    .map(|dim| place[dim] * part.dims()[dim]..(place[dim] + 1) * part.dims()[dim]);
                assert_eq!(
                    sharding.shard_ranges(&ty, device).unwrap(),
                    ranges,
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn a_spec_is_read_as_it_is_written() {
        for text in [
            "()",
            "(data)",
            "(None, model)",
            "((data, model))",
            "(data, (model, fsdp), None)",
            "((a, b), (c, d))",
        ] {
            assert_eq!(text.parse::<PartitionSpec>().unwrap().to_string(), text);
        }
        assert_eq!(
            " None,model ".parse::<PartitionSpec>().unwrap().to_string(),
            "(None, model)"
        );
        assert_eq!(
            "(a, b), c".parse::<PartitionSpec>().unwrap().to_string(),
            "((a, b), c)"
        );
        for text in [
            "(data",
            "data)",
            "data,",
            "(data,)",
            "a b",
            "((a, (b)))",
            "(a)b",
            "[a]",
            ",a",
        ] {
            let error = text.parse::<PartitionSpec>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}` is no spec")), "{error}");
        }
    }

    #[test]
    fn axes_of_a_mesh_are_read_as_they_are_written() {
        let axes = |text: &str| {
            text.parse::<MeshAxes>()
                .map(|axes| axes.to_string())
                .map_err(|error| error.to_string())
        };
        assert_eq!(axes("data=2, model=4").unwrap(), "data=2,model=4");
        for text in [
            "",
            "data",
            "data=",
            "data=0",
            "=2",
            "data=2,,model=4",
            "data=two",
            "a b=2",
            "data=-1",
            "None=2",
        ] {
            assert!(
                axes(text)
                    .unwrap_err()
                    .contains("is no axis; want names and sizes, such as data=2,model=4"),
                "{text}"
            );
        }
        assert_eq!(
            axes("a=1,b=2,a=3").unwrap_err(),
            "mesh: `a=1,b=2,a=3` has two axes named `a`"
        );
    }

    #[test]
    fn axes_can_be_taken_out_and_put_in() {
        let spec: PartitionSpec = "((data, expert), model)".parse().unwrap();
        assert_eq!(
            spec.without(&["data".into(), "model".into()]).to_string(),
            "(expert, None)"
        );
        assert_eq!(
            spec.split(1, &["pod".into()]).to_string(),
            "((data, expert), (model, pod))"
        );
        assert_eq!(
            PartitionSpec::replicated()
                .split(2, &["data".into()])
                .to_string(),
            "(None, None, data)"
        );
    }

    #[test]
    fn axes_that_a_mesh_does_not_have_can_be_left_out() {
        let spec: PartitionSpec = "((data, expert), sequence, model)".parse().unwrap();
        assert_eq!(spec.within(&mesh()).to_string(), "(data, None, model)");
    }

    #[test]
    fn slices_are_the_slow_part_of_each_axis() {
        let of = |axes: &[(&str, usize, usize)], slice: fn(u32) -> usize| {
            let mesh = Mesh::hybrid(
                axes.iter().copied(),
                (0..8).map(|id| (DeviceId(id), slice(id))),
            )?;
            Ok::<_, Error>(
                mesh.devices()
                    .iter()
                    .map(|device| device.0)
                    .collect::<Vec<_>>(),
            )
        };
        // Two slices of four; then devices that alternate between slices.
        assert_eq!(
            of(&[("data", 2, 1), ("model", 1, 4)], |id| id as usize / 4).unwrap(),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
        assert_eq!(
            of(&[("data", 2, 1), ("model", 1, 4)], |id| id as usize % 2).unwrap(),
            [0, 2, 4, 6, 1, 3, 5, 7]
        );
        // An inner axis across slices: each row goes through both.
        assert_eq!(
            of(&[("data", 1, 2), ("model", 2, 2)], |id| id as usize / 4).unwrap(),
            [0, 1, 4, 5, 2, 3, 6, 7]
        );
        // Four slices over two axes.
        assert_eq!(
            of(&[("data", 2, 1), ("model", 2, 2)], |id| id as usize / 2).unwrap(),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
        let error = |axes: &[(&str, usize, usize)], slice| of(axes, slice).unwrap_err().to_string();
        assert_eq!(
            error(&[("data", 4, 1), ("model", 1, 2)], |id| id as usize / 4),
            "mesh: mesh(data=4x1, model=1x2) wants as many slices as its axes have across slices, got 2"
        );
        assert_eq!(
            error(&[("data", 2, 1), ("model", 1, 4)], |id| usize::from(id > 2)),
            "mesh: mesh(data=2x1, model=1x4) wants as many devices in each slice as its axes have within a slice, slice 0 has 3"
        );
        assert!(error(&[("data", 2, 0)], |id| id as usize / 4).contains("slice 0 has 4"));
        assert!(error(&[("data", usize::MAX, 1), ("model", 2, 1)], |_| 0).contains("got 1"));
    }

    #[test]
    fn mistakes_name_the_axis_and_the_numbers() {
        let error = |spec| Sharding::new(&mesh(), spec).unwrap_err().to_string();
        assert_eq!(
            error(PartitionSpec::first("batch")),
            "sharding: (batch) names axis `batch`, which mesh(data=2, model=4) does not have"
        );
        assert!(error(PartitionSpec::new([vec!["data"], vec!["data"]])).contains("twice"));
        let odd = Sharding::new(&mesh(), PartitionSpec::first("model")).unwrap();
        let error = odd
            .shard_type(&TensorType::new(DType::F32, [6]))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("dimension 0 of f32[6] is split 4 ways"),
            "{error}"
        );
        let error = Mesh::new([("data", 3)], (0..8).map(DeviceId))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "mesh: mesh(data=3) is a grid of 3 devices, and 8 are given"
        );
    }
}
