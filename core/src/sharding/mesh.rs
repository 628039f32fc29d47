//! Meshes: grids of devices with named axes.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    ops::Deref,
    str::FromStr,
    sync::Arc,
};

use crate::{DeviceId, Error, Result};

/// Shape of a mesh: ordered axis names and sizes, without devices. JAX calls it an abstract mesh.
///
/// Whatever depends on the number and arrangement of devices, but not on which they are, takes a
/// `MeshShape`: partition specs, strategies, lowering. A [`Mesh`] is a shape with devices.
///
/// It is read from and printed as text such as `data=2,model=4`; the alternate form `{:#}` is
/// `mesh(data=2, model=4)`, as that of a [`Mesh`].
///
/// ```
/// use halite_core::MeshShape;
///
/// let shape: MeshShape = "data=2,model=4".parse()?;
/// assert_eq!(shape, MeshShape::new([("data", 2), ("model", 4)])?);
/// assert_eq!((shape.size(), shape.axis("model")), (8, Some(4)));
/// assert_eq!(shape.to_string(), "data=2,model=4");
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct MeshShape(Vec<(Arc<str>, usize)>);

impl MeshShape {
    /// Axes in order, outermost (slowest) first.
    ///
    /// # Errors
    /// If two axes have the same name, a size is 0, or the product of the sizes overflows.
    pub fn new<N: Into<Arc<str>>>(axes: impl IntoIterator<Item = (N, usize)>) -> Result<Self> {
        let axes = axes
            .into_iter()
            .map(|(name, size)| (name.into(), size))
            .collect();
        let shape = MeshShape(axes);
        let invalid = |message: String| Err(Error::invalid("mesh", message));
        let mut names = HashSet::new();
        if let Some((name, _)) = shape.0.iter().find(|(name, _)| !names.insert(name)) {
            return invalid(format!("{shape:#} has two axes named `{name}`"));
        }
        match shape.checked_size() {
            None => invalid(format!("{shape:#} has more devices than fit in a usize")),
            Some(0) => invalid(format!(
                "{shape:#} has an axis of size 0; sizes are at least 1"
            )),
            Some(_) => Ok(shape),
        }
    }

    /// Shape of a single device: no axes.
    pub fn single() -> Self {
        MeshShape::default()
    }

    /// Names and sizes of the axes, outermost first.
    pub fn axes(&self) -> impl DoubleEndedIterator<Item = (&str, usize)> + ExactSizeIterator {
        self.0.iter().map(|(name, size)| (&**name, *size))
    }

    /// Size of the axis of this name.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes()
            .find_map(|(axis, size)| (axis == name).then_some(size))
    }

    /// Number of devices.
    pub fn size(&self) -> usize {
        self.checked_size().expect("checked in MeshShape::new")
    }

    /// Coordinate of the `index`th device (row-major over the axes) along the axis of this name; 0
    /// along an axis that the mesh does not have.
    pub fn coordinate(&self, index: usize, name: &str) -> usize {
        let mut rest = index;
        for (axis, size) in self.axes().rev() {
            if axis == name {
                return rest % size;
            }
            rest /= size;
        }
        0
    }

    fn checked_size(&self) -> Option<usize> {
        self.axes()
            .try_fold(1usize, |product, (_, size)| product.checked_mul(size))
    }
}

impl IntoIterator for MeshShape {
    type Item = (Arc<str>, usize);
    type IntoIter = std::vec::IntoIter<(Arc<str>, usize)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for MeshShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self
            .axes()
            .map(|(name, size)| format!("{name}={size}"))
            .collect();
        if f.alternate() {
            write!(f, "mesh({})", axes.join(", "))
        } else {
            f.pad(&axes.join(","))
        }
    }
}

impl FromStr for MeshShape {
    type Err = Error;

    /// Reads axes such as `data=2,model=4`: at least one.
    fn from_str(text: &str) -> Result<Self> {
        let axis = |axis: &str| {
            let (name, size) = axis.split_once('=')?;
            let (name, size) = (name.trim(), size.trim().parse::<usize>().ok()?);
            (is_axis_name(name) && size > 0).then(|| (Arc::from(name), size))
        };
        let axes = text.split(',').map(|part| {
            axis(part).ok_or_else(|| {
                Error::invalid(
                    "mesh",
                    format!(
                        "`{text}`: invalid axis `{part}`; expected names and sizes, such as \
                         data=2,model=4"
                    ),
                )
            })
        });
        MeshShape::new(axes.collect::<Result<Vec<(Arc<str>, usize)>>>()?)
    }
}

/// Whether `name` can stand in the text of a [`MeshShape`] or partition spec.
pub(super) fn is_axis_name(name: &str) -> bool {
    !name.is_empty()
        && name != "None"
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "_-".contains(c))
}

/// Devices arranged as a grid with named axes: a [`MeshShape`], which it dereferences to, and the
/// devices.
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
    shape: MeshShape,
    devices: Vec<DeviceId>,
}

impl Mesh {
    /// Arranges `devices` in row-major order over `axes`, which may be a [`MeshShape`].
    ///
    /// # Errors
    /// As [`MeshShape::new`]; if the number of devices is not the product of the sizes, or a device
    /// is listed twice.
    pub fn new<N: Into<Arc<str>>>(
        axes: impl IntoIterator<Item = (N, usize)>,
        devices: impl IntoIterator<Item = DeviceId>,
    ) -> Result<Self> {
        let mesh = Mesh {
            shape: MeshShape::new(axes)?,
            devices: devices.into_iter().collect(),
        };
        let (needed, given) = (mesh.size(), mesh.devices.len());
        if needed != given {
            return Err(Error::invalid(
                "mesh",
                format!("{mesh} needs {needed} devices, but {given} were given"),
            ));
        }
        let mut seen = HashSet::new();
        if let Some(device) = mesh.devices.iter().find(|device| !seen.insert(**device)) {
            return Err(Error::invalid(
                "mesh",
                format!("{mesh} lists device {} twice", device.0),
            ));
        }
        Ok(mesh)
    }

    /// A mesh over slices: groups of devices with a fast network within each, and a slow one
    /// between them.
    ///
    /// Each axis is a name, a size across slices, and a size within a slice; its size is their
    /// product, and its part across slices is the slow one. An axis that communicates rarely, such
    /// as one of data parallelism, should go across slices: name it first. `devices` are given with
    /// the slice that each is in ([`Device::slice`](crate::Device::slice)).
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
    /// If the number of slices, or of devices in one, differs from what the axes need; and as
    /// [`new`](Self::new).
    pub fn hybrid<N: Into<Arc<str>>>(
        axes: impl IntoIterator<Item = (N, usize, usize)>,
        devices: impl IntoIterator<Item = (DeviceId, usize)>,
    ) -> Result<Self> {
        let axes: Vec<HybridAxis> = axes
            .into_iter()
            .map(|(name, across, within)| HybridAxis {
                name: name.into(),
                across,
                within,
            })
            .collect();
        let mut slices: BTreeMap<usize, Vec<DeviceId>> = BTreeMap::new();
        for (device, slice) in devices {
            slices.entry(slice).or_default().push(device);
        }
        check_slices(&axes, &slices)?;
        let slices: Vec<Vec<DeviceId>> = slices.into_values().collect();
        let size = slices.iter().map(Vec::len).sum();
        let ordered = (0..size).map(|index| {
            // From the fastest axis to the slowest: which slice, and where within it.
            let (mut rest, mut slice, mut place) = (index, 0, 0);
            let (mut slice_stride, mut place_stride) = (1, 1);
            for HybridAxis { across, within, .. } in axes.iter().rev() {
                let coordinate = rest % (across * within);
                rest /= across * within;
                slice += coordinate / within * slice_stride;
                place += coordinate % within * place_stride;
                slice_stride *= across;
                place_stride *= within;
            }
            slices[slice][place]
        });
        let ordered: Vec<DeviceId> = ordered.collect();
        Mesh::new(
            axes.into_iter()
                .map(|axis| (axis.name, axis.across * axis.within)),
            ordered,
        )
    }

    /// One device, no axes.
    pub fn single(device: DeviceId) -> Self {
        Mesh {
            shape: MeshShape::single(),
            devices: vec![device],
        }
    }

    /// Names and sizes of the axes.
    pub fn shape(&self) -> &MeshShape {
        &self.shape
    }

    /// The devices, row-major over the axes.
    pub fn devices(&self) -> &[DeviceId] {
        &self.devices
    }
}

impl Deref for Mesh {
    type Target = MeshShape;

    fn deref(&self) -> &MeshShape {
        &self.shape
    }
}

impl fmt::Display for Mesh {
    /// `mesh(data=2, model=4)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.shape)
    }
}

/// Text of axes of a mesh: `data=2, model=4`.
pub fn list_axes(axes: &[(Arc<str>, usize)]) -> String {
    let axes: Vec<String> = axes
        .iter()
        .map(|(name, size)| format!("{name}={size}"))
        .collect();
    axes.join(", ")
}

/// Axis of [`Mesh::hybrid`].
struct HybridAxis {
    name: Arc<str>,
    /// Size across slices.
    across: usize,
    /// Size within a slice.
    within: usize,
}

/// Checks that there are as many slices, and devices in each, as the axes need.
fn check_slices(axes: &[HybridAxis], slices: &BTreeMap<usize, Vec<DeviceId>>) -> Result<()> {
    let product = |size: fn(&HybridAxis) -> usize| {
        axes.iter()
            .try_fold(1usize, |product, axis| product.checked_mul(size(axis)))
    };
    let refuse = |expected: Option<usize>, what: &str, actual: String| {
        let axes: Vec<String> = axes
            .iter()
            .map(|axis| format!("{}={}x{}", axis.name, axis.across, axis.within))
            .collect();
        let expected = expected.map_or("more than usize::MAX".into(), |size| size.to_string());
        let message = format!(
            "mesh({}) needs {expected} {what}, got {actual}",
            axes.join(", ")
        );
        Err(Error::invalid("mesh", message))
    };
    let (across, within) = (product(|axis| axis.across), product(|axis| axis.within));
    if across != Some(slices.len()) {
        return refuse(across, "slices", slices.len().to_string());
    }
    match slices.iter().find(|(_, all)| within != Some(all.len())) {
        Some((slice, devices)) => refuse(
            within,
            "devices in each slice",
            format!("{} in slice {slice}", devices.len()),
        ),
        None => Ok(()),
    }
}
