//! The messages of XLA's `hlo.proto` and `xla_data.proto` that are read, with the fields that are
//! read.

use halite_core::{DType, Error, ErrorKind, Result, TensorType};
use prost::Message;

/// `HloModuleProtoWithConfig`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HloModuleWithConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) hlo_module: Option<HloModule>,
}

/// The fields of `HloModuleProto` with the types of parameters and results. The computations are
/// skipped.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HloModule {
    #[prost(message, optional, tag = "4")]
    pub(crate) host_program_shape: Option<ProgramShape>,
    #[prost(message, optional, tag = "8")]
    pub(crate) input_output_alias: Option<Aliases>,
    #[prost(message, optional, tag = "18")]
    pub(crate) buffer_donor: Option<Donors>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProgramShape {
    #[prost(message, repeated, tag = "1")]
    pub(crate) parameters: Vec<Shape>,
    #[prost(message, optional, tag = "2")]
    pub(crate) result: Option<Shape>,
}

/// `ShapeProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Shape {
    #[prost(int32, tag = "2")]
    pub(crate) element_type: i32,
    #[prost(int64, repeated, tag = "3")]
    pub(crate) dimensions: Vec<i64>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) tuple_shapes: Vec<Shape>,
    #[prost(bool, repeated, tag = "6")]
    pub(crate) is_dynamic_dimension: Vec<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Aliases {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Alias>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Alias {
    #[prost(int64, tag = "2")]
    pub(crate) parameter_number: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Donors {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Donor>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Donor {
    #[prost(int64, tag = "1")]
    pub(crate) parameter_number: i64,
}

impl Shape {
    /// `PrimitiveType::TUPLE`.
    pub(crate) const TUPLE: i32 = 13;

    /// Bytes of its elements, of all if it is a tuple; 0 of types that halite has no name for.
    pub(crate) fn bytes(&self) -> u64 {
        let one = self
            .tensor_type()
            .map_or(0, |ty| ty.checked_bytes().unwrap_or(usize::MAX) as u64);
        self.tuple_shapes
            .iter()
            .map(Shape::bytes)
            .fold(one, u64::saturating_add)
    }

    pub(crate) fn is_bool_scalar(&self) -> bool {
        self.element_type == 1 && self.dimensions.is_empty()
    }

    pub(crate) fn tensor_type(&self) -> Option<TensorType> {
        let dtype = DType::from_hlo_number(u32::try_from(self.element_type).ok()?)?;
        if self.is_dynamic_dimension.contains(&true) {
            return None;
        }
        let dims: Option<Vec<usize>> = self
            .dimensions
            .iter()
            .map(|&dim| usize::try_from(dim).ok())
            .collect();
        Some(TensorType::new(dtype, dims?))
    }
}

/// The fields of `HloModuleProtoWithConfig` that describe the computation.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModuleWithConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) module: Option<Computations>,
}

/// The computations of `HloModuleProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Computations {
    #[prost(message, repeated, tag = "3")]
    pub(crate) computations: Vec<Computation>,
    #[prost(int64, tag = "6")]
    pub(crate) entry_computation_id: i64,
}

impl Computations {
    /// Reads an optimized program in the format with this name, for `op`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if it has another format; [`ErrorKind::Corrupt`] if it cannot be
    /// read.
    pub(crate) fn read(op: &'static str, format: &str, bytes: &[u8]) -> Result<Self> {
        let module = match format {
            "hlo_with_config" => ModuleWithConfig::decode(bytes).map(|module| module.module),
            "hlo" => Computations::decode(bytes).map(Some),
            _ => {
                let message = format!(
                    "the optimized program comes as `{format}`; halite reads hlo and \
                     hlo_with_config"
                );
                return Err(Error::new(ErrorKind::Unsupported, op, message));
            }
        };
        let corrupt = |why: String| {
            Error::new(
                ErrorKind::Corrupt,
                op,
                format!("the optimized program cannot be read: {why}"),
            )
        };
        module
            .map_err(|error| corrupt(error.to_string()))?
            .ok_or_else(|| corrupt("it is empty".into()))
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Computation {
    #[prost(message, repeated, tag = "2")]
    pub(crate) instructions: Vec<Instruction>,
    #[prost(int64, tag = "5")]
    pub(crate) id: i64,
    #[prost(int64, tag = "6")]
    pub(crate) root_id: i64,
}

impl Computation {
    pub(crate) fn gives_bool(&self) -> bool {
        let root = self
            .instructions
            .iter()
            .find(|instruction| instruction.id == self.root_id);
        root.and_then(|root| root.shape.as_ref())
            .is_some_and(Shape::is_bool_scalar)
    }

    /// The trip count of a loop with this condition: its only integer constant, if that is
    /// positive.
    pub(crate) fn trip_limit(&self) -> Option<u64> {
        let mut limits = self.instructions.iter().filter_map(Instruction::integer);
        let limit = limits.next()?;
        (limits.next().is_none() && limit > 0).then_some(limit as u64)
    }
}

/// The fields of `HloInstructionProto` that collectives and loops need.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Instruction {
    #[prost(string, tag = "2")]
    pub(crate) opcode: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) shape: Option<Shape>,
    #[prost(message, optional, tag = "8")]
    pub(crate) literal: Option<Literal>,
    #[prost(int64, tag = "35")]
    pub(crate) id: i64,
    #[prost(int64, repeated, tag = "38")]
    pub(crate) called_computation_ids: Vec<i64>,
    #[prost(bytes = "vec", tag = "43")]
    pub(crate) backend_config: Vec<u8>,
    #[prost(message, repeated, tag = "49")]
    pub(crate) replica_groups: Vec<Group>,
    #[prost(message, optional, tag = "87")]
    pub(crate) devices: Option<DeviceList>,
}

impl Instruction {
    /// Number of devices in a group, where the instruction has it.
    pub(crate) fn group_size(&self) -> Option<usize> {
        let listed = |groups: &[Group]| {
            groups
                .iter()
                .map(|group| group.ids.len())
                .max()
                .filter(|&size| size > 0)
        };
        let from_list = self.devices.as_ref().and_then(|list| {
            let counted = list
                .counted
                .as_ref()
                .and_then(|counted| usize::try_from(counted.devices_per_group).ok());
            counted
                .filter(|&size| size > 0)
                .or_else(|| listed(&list.groups))
                .or_else(|| list.by_axes.as_ref()?.group_size())
        });
        from_list.or_else(|| listed(&self.replica_groups))
    }

    /// The value of a constant that is one integer.
    pub(crate) fn integer(&self) -> Option<i64> {
        let literal = self
            .literal
            .as_ref()
            .filter(|_| self.opcode == "constant")?;
        match (
            literal.s32s.as_slice(),
            literal.s64s.as_slice(),
            literal.u32s.as_slice(),
        ) {
            ([value], [], []) => Some((*value).into()),
            ([], [value], []) => Some(*value),
            ([], [], [value]) => Some((*value).into()),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Literal {
    #[prost(int32, repeated, tag = "4")]
    pub(crate) s32s: Vec<i32>,
    #[prost(int64, repeated, tag = "5")]
    pub(crate) s64s: Vec<i64>,
    #[prost(uint32, repeated, tag = "6")]
    pub(crate) u32s: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Group {
    #[prost(int64, repeated, tag = "1")]
    pub(crate) ids: Vec<i64>,
}

/// `CollectiveDeviceListProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeviceList {
    #[prost(message, repeated, tag = "1")]
    pub(crate) groups: Vec<Group>,
    #[prost(message, optional, tag = "2")]
    pub(crate) counted: Option<Counted>,
    #[prost(message, optional, tag = "3")]
    pub(crate) by_axes: Option<ByAxes>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Counted {
    #[prost(int64, tag = "2")]
    pub(crate) devices_per_group: i64,
}

/// Groups as the axes of a mesh over which they go.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ByAxes {
    #[prost(message, optional, tag = "1")]
    pub(crate) mesh: Option<MeshAxes>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) axes: Vec<AxisRef>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MeshAxes {
    #[prost(message, repeated, tag = "1")]
    pub(crate) axes: Vec<MeshAxis>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MeshAxis {
    #[prost(int64, tag = "2")]
    pub(crate) size: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AxisRef {
    #[prost(int64, tag = "1")]
    pub(crate) index: i64,
    #[prost(message, optional, tag = "2")]
    pub(crate) part: Option<MeshAxis>,
}

impl ByAxes {
    pub(crate) fn group_size(&self) -> Option<usize> {
        let mesh = self.mesh.as_ref()?;
        let size = |axis: &AxisRef| {
            let whole = mesh.axes.get(usize::try_from(axis.index).ok()?)?;
            usize::try_from(axis.part.as_ref().unwrap_or(whole).size).ok()
        };
        self.axes
            .iter()
            .map(size)
            .try_fold(1usize, |product, size| product.checked_mul(size?))
            .filter(|&size| size > 0)
    }
}
