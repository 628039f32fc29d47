//! Attributes of operations with several fields: dimensions, groups of devices.

use std::{any::Any, collections::HashSet, fmt, sync::Arc};

use halite_core::{DType, PartitionSpec, TensorType, custom_call::Attribute};

use crate::{Graph, Reduction};

/// A tensor known while tracing: its type and its row-major bytes.
///
/// Equal bits are equal, so NaN equals itself and 0 is not -0.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Literal {
    pub(crate) ty: TensorType,
    /// One element if all are the same, else all.
    pub(crate) bytes: Arc<[u8]>,
}

/// Attributes of StableHLO's `gather`; dimension lists are ascending.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Gather {
    /// Dimensions of the result that come from the slices.
    pub offset_dims: Vec<usize>,
    /// Dimensions of the operand that are dropped from the slices, which have size 1 there.
    pub collapsed_slice_dims: Vec<usize>,
    /// Dimensions of the operand that are batched with `indices_batching_dims`.
    pub operand_batching_dims: Vec<usize>,
    /// Dimensions of the indices that are batched with `operand_batching_dims`.
    pub indices_batching_dims: Vec<usize>,
    /// Dimension of the operand that each component of an index belongs to.
    pub start_index_map: Vec<usize>,
    /// The dimension of the indices that holds their components; the rank of the indices if they
    /// have one component.
    pub index_vector_dim: usize,
    /// Dimensions of each slice of the operand.
    pub slice_sizes: Vec<usize>,
}

/// Attributes of StableHLO's `scatter`; dimension lists are ascending.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Scatter {
    /// Function that combines an update with the old element; `None` replaces it.
    pub combine: Option<Reduction>,
    /// Dimensions of the updates that are windows.
    pub update_window_dims: Vec<usize>,
    /// Dimensions of the operand that windows have size 1 in, and lack.
    pub inserted_window_dims: Vec<usize>,
    /// Dimensions of the operand that are batched with `indices_batching_dims`.
    pub operand_batching_dims: Vec<usize>,
    /// Dimensions of the indices that are batched with `operand_batching_dims`.
    pub indices_batching_dims: Vec<usize>,
    /// Dimension of the operand that each component of an index belongs to.
    pub scatter_dims_to_operand_dims: Vec<usize>,
    /// The dimension of the indices that holds their components; the rank of the indices if they
    /// have one component.
    pub index_vector_dim: usize,
    /// No two indices are equal, so the compiler may write in parallel.
    pub unique_indices: bool,
}

/// Attributes of StableHLO's `dot_general`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Dot {
    /// Batch dimensions of the left operand.
    pub left_batch: Vec<usize>,
    /// Batch dimensions of the right operand, paired with the left's.
    pub right_batch: Vec<usize>,
    /// Dimensions of the left operand that are summed over.
    pub left_contract: Vec<usize>,
    /// Dimensions of the right operand that are summed over, paired with the left's.
    pub right_contract: Vec<usize>,
    /// Element type of the result; at least as wide as the operands'. With bf16 operands and
    /// an f32 result, sums accumulate in f32.
    pub result: DType,
}

/// Attributes of StableHLO's `convolution`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Convolution {
    /// Positions of the batch, feature and spatial dimensions of `x`.
    pub input: ConvDims,
    /// Positions of the output feature (`batch`), input feature (`feature`) and spatial dimensions
    /// of the kernel.
    pub kernel: ConvDims,
    /// Positions of the batch, feature and spatial dimensions of the result.
    pub output: ConvDims,
    /// Step of the window, per spatial dimension.
    pub strides: Vec<usize>,
    /// Elements before and after `x`, per spatial dimension; may be negative.
    pub padding: Vec<(i64, i64)>,
    /// 1 + zeros between elements of `x`, per spatial dimension: more than 1 is a transposed
    /// convolution.
    pub input_dilation: Vec<usize>,
    /// 1 + zeros between elements of the kernel, per spatial dimension.
    pub kernel_dilation: Vec<usize>,
    /// Whether the kernel is reversed, per spatial dimension.
    pub reversal: Vec<bool>,
    /// Number of separate groups of features.
    pub feature_groups: usize,
    /// Number of separate groups of the batch (for gradients of grouped convolutions).
    pub batch_groups: usize,
    /// Element type of the result.
    pub result: DType,
}

/// Positions of the dimensions of a convolution's tensor.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ConvDims {
    /// The batch; of a kernel, the output feature.
    pub batch: usize,
    /// The feature; of a kernel, the input feature.
    pub feature: usize,
    /// The spatial dimensions, in order.
    pub spatial: Vec<usize>,
}

/// Windows over every dimension of an operand.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Window {
    /// Size of the window in each dimension.
    pub sizes: Vec<usize>,
    /// Step of the window in each dimension.
    pub strides: Vec<usize>,
    /// 1 + gaps between elements of the operand, in each dimension.
    pub base_dilations: Vec<usize>,
    /// 1 + gaps between elements of the window, in each dimension.
    pub window_dilations: Vec<usize>,
    /// Padding before and after, in each dimension; not negative.
    pub padding: Vec<(usize, usize)>,
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
