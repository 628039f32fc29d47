//! Attributes of operations with several fields: dimensions, groups of devices.

use std::{any::Any, collections::HashSet, fmt, sync::Arc};

use halite_core::{PartitionSpec, TensorType, custom_call::Attribute};

use crate::Graph;

/// A tensor known while tracing: its type and its row-major bytes.
///
/// Equal bits are equal, so NaN equals itself and 0 is not -0.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Literal {
    pub(crate) ty: TensorType,
    /// One element if all are the same, else all.
    pub(crate) bytes: Arc<[u8]>,
}

/// Function that the backend knows by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CustomCall {
    /// Its name.
    pub target: String,
    /// Attributes by name, in order.
    pub attributes: Vec<(String, Attribute)>,
    /// Types of the results.
    pub results: Vec<TensorType>,
    /// Whether it must not be dropped or merged even if its results are not used.
    pub side_effect: bool,
    /// Data of the code that recorded it, such as a gradient rule. Programs do not depend on it.
    pub attachment: Option<Attachment>,
    /// What it computes, in operations. With it, the call is like StableHLO's `composite`: programs
    /// have these nodes in its place, unless [`choose_kernels`](crate::choose_kernels) drops them.
    pub decomposition: Option<Box<Graph>>,
}

/// Which system of equations with a triangular matrix is solved. The default is `A X = B` with a lower
/// triangular `A`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Triangular {
    /// Whether the matrix is on the left of the unknowns: `A X = B`, else `X A = B`.
    pub left_side: bool,
    /// Whether the lower triangle of the matrix is read, else the upper one.
    pub lower: bool,
    /// Whether the diagonal is 1 and not read.
    pub unit_diagonal: bool,
    /// Whether the matrix is transposed in the equation.
    pub transposed: bool,
}

impl Default for Triangular {
    fn default() -> Self {
        Triangular {
            left_side: true,
            lower: true,
            unit_diagonal: false,
            transposed: false,
        }
    }
}

/// Data of any type, which this crate never reads. Equal to its clones only.
#[derive(Clone)]
pub struct Attachment(Arc<dyn Any + Send + Sync>);

impl Attachment {
    /// Attaches `data`.
    pub fn new<T: Any + Send + Sync>(data: T) -> Self {
        Attachment(Arc::new(data))
    }

    /// The data, if it is of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl PartialEq for Attachment {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attachment")
    }
}

/// Axes of a mesh with their sizes, slowest first.
pub type Axes = Vec<(Arc<str>, usize)>;

/// Groups of devices that take part in a collective together.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Groups {
    /// All of them in one group. Where the type of a result depends on the size of a group, groups
    /// are named.
    All,
    /// Each inner list is one group. Devices are numbered as replicas, or in a [`ShardMap`] by
    /// their place in the mesh.
    Lists(Vec<Vec<usize>>),
    /// Devices that differ in their places along these axes alone, in a [`ShardMap`]. Members are
    /// in the order of their places; of several axes the last is the fastest.
    Axes(Axes),
}

impl Groups {
    /// The problem with lists in which each of `devices` devices must appear once, if there is one.
    pub fn problem(&self, devices: usize) -> Option<String> {
        let Groups::Lists(lists) = self else {
            return None;
        };
        if let Some(device) = lists.iter().flatten().find(|&&device| device >= devices) {
            return Some(format!(
                "device {device} takes part, there are {devices}, from 0"
            ));
        }
        let mut named = HashSet::new();
        if let Some(device) = lists
            .iter()
            .flatten()
            .find(|&&device| !named.insert(device))
        {
            return Some(format!("device {device} appears twice in groups {lists:?}"));
        }
        // The first of them: there may be very many.
        let missing: Vec<usize> = (0..devices)
            .filter(|device| !named.contains(device))
            .take(8)
            .collect();
        match missing[..] {
            [] => None,
            _ => Some(format!(
                "groups {lists:?} lack devices {missing:?}; each of {devices} devices must be in one group"
            )),
        }
    }
}

impl From<Vec<Vec<usize>>> for Groups {
    /// No lists are [`All`](Groups::All).
    fn from(lists: Vec<Vec<usize>>) -> Self {
        if lists.is_empty() {
            Groups::All
        } else {
            Groups::Lists(lists)
        }
    }
}

/// Function that each device of a mesh runs on its shards of the operands, for its shards of the
/// results.
///
/// Operands and results of the operation are global tensors. Inputs and outputs of `body` are the
/// shards of one device. `body` may use collectives over the manual axes.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardMap {
    /// All axes of the program's mesh.
    pub mesh: Axes,
    /// Names of the axes that `body` is written for, in the order of the mesh. The compiler
    /// partitions over the others.
    pub manual: Vec<Arc<str>>,
    /// Sharding of each operand over manual axes. Over those that its spec leaves out, every device
    /// gets the same.
    pub inputs: Vec<PartitionSpec>,
    /// Sharding of each result over manual axes. Over those that its spec leaves out, all devices
    /// must compute the same; otherwise the result is that of an unspecified one.
    pub outputs: Vec<PartitionSpec>,
    /// The function of one device.
    pub body: Box<Graph>,
}

impl ShardMap {
    /// Size of a manual axis.
    pub fn axis(&self, name: &str) -> Option<usize> {
        let manual = self.manual.iter().any(|axis| &**axis == name);
        self.mesh
            .iter()
            .find(|(axis, _)| manual && &**axis == name)
            .map(|&(_, size)| size)
    }

    /// The manual axes with their sizes.
    pub fn manual_axes(&self) -> Axes {
        self.mesh
            .iter()
            .filter(|(axis, _)| self.manual.contains(axis))
            .cloned()
            .collect()
    }

    /// The manual axes that `spec` leaves out.
    pub fn axes_not_in(&self, spec: &PartitionSpec) -> Axes {
        self.manual_axes()
            .into_iter()
            .filter(|(axis, _)| spec.all_axes().all(|used| used != axis))
            .collect()
    }

    /// Whether `body` is written for all axes of the mesh.
    pub fn is_fully_manual(&self) -> bool {
        self.mesh.iter().all(|(axis, _)| self.manual.contains(axis))
    }

    /// Number of devices of the mesh; `None` if it overflows.
    pub fn devices(&self) -> Option<usize> {
        self.mesh
            .iter()
            .try_fold(1usize, |devices, (_, size)| devices.checked_mul(*size))
    }
}
