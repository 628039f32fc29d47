//! Parameters and results of a compiled program: their number, types, shardings and memories.

use halite_core::{Result, TensorType};
use halite_pjrt_sys::{buffer::PJRT_Buffer_Type, executable::*, extension::*};

use super::{CompiledProgram, ShardingBytes, strings, texts};
use crate::{element_types::dtype_of, signature::CompiledSignature, value::slice_of};

impl CompiledProgram {
    /// Number of results per device.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn output_count(&self) -> Result<usize> {
        let mut args = args!(PJRT_Executable_NumOutputs_Args, executable: self.raw());
        // SAFETY: the executable is alive.
        unsafe { self.call("count outputs", &mut args)? };
        Ok(args.num_outputs)
    }

    /// Number of replicas.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn replicas(&self) -> Result<usize> {
        let mut args = args!(PJRT_Executable_NumReplicas_Args, executable: self.raw());
        // SAFETY: the executable is alive.
        unsafe { self.call("count replicas", &mut args)? };
        Ok(args.num_replicas)
    }

    /// Number of partitions of each replica.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn partitions(&self) -> Result<usize> {
        let mut args = args!(PJRT_Executable_NumPartitions_Args, executable: self.raw());
        // SAFETY: the executable is alive.
        unsafe { self.call("count partitions", &mut args)? };
        Ok(args.num_partitions)
    }

    /// The sharding of each parameter.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin has no `Shardings`
    /// extension.
    pub fn parameter_shardings(&self) -> Result<Vec<ShardingBytes>> {
        const OP: &str = "parameter shardings";
        let mut args = PJRT_Shardings_PJRT_Executable_ParameterShardings_Args {
            executable: self.raw(),
            ..PJRT_Shardings_PJRT_Executable_ParameterShardings_Args::new()
        };
        // SAFETY: the executable is alive; the texts live as long as it.
        unsafe {
            let offset = std::mem::offset_of!(PJRT_Shardings_Extension, parameter_shardings);
            self.call_extension::<PJRT_Shardings_Extension, _>(OP, offset, &mut args)?;
            texts(
                self.table().name(),
                args.shardings,
                args.sharding_sizes,
                args.num_parameters,
            )
        }
    }

    /// The sharding of each result.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin has no `Shardings`
    /// extension.
    pub fn output_shardings(&self) -> Result<Vec<ShardingBytes>> {
        const OP: &str = "output shardings";
        let mut args = PJRT_Shardings_PJRT_Executable_OutputShardings_Args {
            executable: self.raw(),
            ..PJRT_Shardings_PJRT_Executable_OutputShardings_Args::new()
        };
        // SAFETY: the executable is alive; the texts live as long as it.
        unsafe {
            let offset = std::mem::offset_of!(PJRT_Shardings_Extension, output_shardings);
            self.call_extension::<PJRT_Shardings_Extension, _>(OP, offset, &mut args)?;
            texts(
                self.table().name(),
                args.shardings,
                args.sharding_sizes,
                args.num_outputs,
            )
        }
    }

    /// The kind of memory of each result, in the plugin's spelling.
    pub(crate) fn output_memory_kinds(&self) -> Result<Vec<String>> {
        let mut args = args!(PJRT_Executable_OutputMemoryKinds_Args, executable: self.raw());
        // SAFETY: the executable is alive; the texts live as long as it.
        unsafe {
            self.call("output memory kinds", &mut args)?;
            strings(
                self.table().name(),
                args.memory_kinds,
                args.memory_kind_sizes,
                args.num_outputs,
            )
        }
    }

    /// The kind of memory of each parameter, in the plugin's spelling.
    pub(crate) fn parameter_memory_kinds(&self) -> Result<Vec<String>> {
        let mut args = args!(PJRT_Executable_ParameterMemoryKinds_Args, executable: self.raw());
        // SAFETY: the executable is alive; the texts live as long as it.
        unsafe {
            self.call("parameter memory kinds", &mut args)?;
            strings(
                self.table().name(),
                args.memory_kinds,
                args.memory_kind_sizes,
                args.num_parameters,
            )
        }
    }

    /// The types of its results on each device. None is a type that halite has no name for.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin does not report it.
    pub fn output_types(&self) -> Result<Vec<Option<TensorType>>> {
        const OP: &str = "output types";
        let mut types = args!(PJRT_Executable_OutputElementTypes_Args, executable: self.raw());
        let mut dims = args!(PJRT_Executable_OutputDimensions_Args, executable: self.raw());
        // SAFETY: the executable is alive, and so are its lists; there are as many dimensions as
        // the ranks sum to.
        let (types, ranks, dims) = unsafe {
            self.call(OP, &mut types)?;
            self.call(OP, &mut dims)?;
            let plugin = self.table().name();
            let ranks = slice_of(plugin, dims.dim_sizes, dims.num_outputs)?;
            let types = slice_of(
                plugin,
                types.output_types.cast_const(),
                types.num_output_types,
            )?;
            let count = ranks
                .iter()
                .fold(0usize, |sum, rank| sum.saturating_add(*rank));
            (types, ranks, slice_of(plugin, dims.dims, count)?)
        };
        let mut rest = dims.iter();
        let read = |(ty, rank): (&PJRT_Buffer_Type, &usize)| {
            let dims: Option<Vec<usize>> = rest
                .by_ref()
                .take(*rank)
                .map(|&dim| usize::try_from(dim).ok())
                .collect();
            Some(TensorType::new(dtype_of(*ty)?, dims?))
        };
        Ok(types.iter().zip(ranks).map(read).collect())
    }

    /// The signature on each device and the donated parameters, if the plugin returns its optimized
    /// program.
    pub(crate) fn compiled_signature(&self) -> Option<CompiledSignature> {
        let (format, bytes) = self.optimized().ok()?;
        CompiledSignature::decode(&format, &bytes)
    }
}
