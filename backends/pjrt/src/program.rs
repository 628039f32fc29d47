//! Compiled programs: sizes, costs, serialized bytes, and signature. They may be loaded on devices
//! or be compiled for absent ones.

use std::{collections::HashSet, fmt, iter::repeat, sync::Arc};

use halite_core::{ProgramMemory, Result, TensorType};
use halite_pjrt_sys::{
    Call, base::PJRT_NamedValue, buffer::PJRT_Buffer_Type, error::PJRT_Error, executable::*,
    extension::*,
};

use crate::{
    OptionValue,
    buffer::dtype_of,
    client::Shared,
    collectives::Collectives,
    extension::ExtensionTable,
    frame,
    handle::Handle,
    hlo::{Computations, Instruction, Shape},
    plugin::Plugin,
    signature::CompiledSignature,
    table::Table,
    value::{bytes_of, code_of, from_named, slice_of, text_of, zeroed},
};

/// A compiled program.
pub struct CompiledProgram {
    plugin: &'static Plugin,
    executable: Handle<PJRT_Executable>,
    platform: Arc<str>,
    /// The client it is loaded on, which must outlive it.
    _client: Option<Arc<Shared>>,
}

/// An instruction of an optimized program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CompiledInstruction {
    /// Its name in HLO: `transpose`, `copy`, `fusion`.
    pub opcode: String,
    /// Bytes of its results, without padding; 0 of types that halite has no name for.
    pub bytes: u64,
    /// Whether it is part of a fusion, which may compute it without storing its result.
    pub is_fused: bool,
}

/// Sharding of one parameter or result: a serialized `OpSharding`; empty if it is replicated.
pub type ShardingBytes = Vec<u8>;

impl CompiledProgram {
    /// Takes ownership of `executable`.
    pub(crate) fn new(
        plugin: &'static Plugin,
        executable: Handle<PJRT_Executable>,
        platform: &Arc<str>,
        client: Option<Arc<Shared>>,
    ) -> Self {
        CompiledProgram {
            plugin,
            executable,
            platform: platform.clone(),
            _client: client,
        }
    }

    /// The name of the module.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn name(&self) -> Result<String> {
        let mut args = PJRT_Executable_Name_Args {
            executable: self.raw(),
            ..PJRT_Executable_Name_Args::new()
        };
        // SAFETY: the executable is alive, and so is its name.
        unsafe {
            self.call("program name", &mut args)?;
            text_of(
                self.table().name(),
                args.executable_name,
                args.executable_name_size,
            )
        }
    }

    /// Serializes it for loading by the same build of the plugin; programs for the CPU also need a
    /// processor with the same features. The bytes include a digest and this identity.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin cannot.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let mut args = PJRT_Executable_Serialize_Args {
            executable: self.raw(),
            ..PJRT_Executable_Serialize_Args::new()
        };
        // SAFETY: the executable is alive; the bytes live until the deleter is called, once.
        unsafe {
            self.call("serialize", &mut args)?;
            let bytes = code_of(
                self.table().name(),
                args.serialized_bytes,
                args.serialized_bytes_size,
            )?;
            let bytes = frame::wrap(&self.plugin.identity(&self.platform), bytes);
            if let Some(delete) = args.serialized_executable_deleter {
                delete(args.serialized_executable);
            }
            Ok(bytes)
        }
    }

    /// A text that is equal for equal programs, options and compilers.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin has none.
    pub fn fingerprint(&self) -> Result<String> {
        let mut args = PJRT_Executable_Fingerprint_Args {
            executable: self.raw(),
            ..PJRT_Executable_Fingerprint_Args::new()
        };
        // SAFETY: the executable is alive, and so is its fingerprint.
        unsafe {
            self.call("fingerprint", &mut args)?;
            text_of(
                self.table().name(),
                args.executable_fingerprint,
                args.executable_fingerprint_size,
            )
        }
    }

    /// Memory it needs on each device.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin does not report it.
    pub fn memory(&self) -> Result<ProgramMemory> {
        let mut args = PJRT_Executable_GetCompiledMemoryStats_Args {
            executable: self.raw(),
            ..PJRT_Executable_GetCompiledMemoryStats_Args::new()
        };
        // SAFETY: the executable is alive.
        unsafe { self.call("program memory", &mut args)? };
        let bytes = |value: i64| value.max(0) as u64;
        Ok(ProgramMemory {
            arguments: bytes(args.argument_size_in_bytes),
            outputs: bytes(args.output_size_in_bytes),
            aliased: bytes(args.alias_size_in_bytes),
            temporary: bytes(args.temp_size_in_bytes),
            code: bytes(args.generated_code_size_in_bytes),
            // A plugin that does not know it leaves the zero of the request.
            peak: Some(bytes(args.peak_memory_in_bytes)).filter(|peak| *peak > 0),
        })
    }

    /// The compiler's own estimates. Loops are counted once, whatever their trip count.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin has none.
    pub fn cost(&self) -> Result<Vec<(String, f64)>> {
        let mut args = PJRT_Executable_GetCostAnalysis_Args {
            executable: self.raw(),
            ..PJRT_Executable_GetCostAnalysis_Args::new()
        };
        // SAFETY: the executable is alive, and so are its properties.
        let properties = unsafe {
            self.call("program cost", &mut args)?;
            from_named(
                self.table().name(),
                args.properties.cast::<PJRT_NamedValue>(),
                args.num_properties,
            )?
        };
        let number = |(name, value)| match value {
            OptionValue::Float(value) => Some((name, f64::from(value))),
            OptionValue::Int(value) => Some((name, value as f64)),
            _ => None,
        };
        Ok(properties.into_iter().filter_map(number).collect())
    }

    /// The optimized program, as the name of its format (`hlo_with_config`) and its bytes.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin does not return it.
    pub fn optimized(&self) -> Result<(String, Vec<u8>)> {
        const OP: &str = "optimized program";
        let mut program = PJRT_Program::new();
        let mut args = PJRT_Executable_OptimizedProgram_Args {
            executable: self.raw(),
            program: &mut program,
            ..PJRT_Executable_OptimizedProgram_Args::new()
        };
        // SAFETY: without a buffer for the code, the first call returns the size; the second fills
        // that many bytes. The format is a string of the plugin.
        unsafe {
            self.call(OP, &mut args)?;
            let mut code = zeroed(self.table().name(), program.code_size)
                .map_err(|error| error.on(&self.platform))?;
            program.code = code.as_mut_ptr().cast();
            args.program = &mut program;
            self.call(OP, &mut args)?;
            code.truncate(program.code_size);
            Ok((
                text_of(self.table().name(), program.format, program.format_size)?,
                code,
            ))
        }
    }

    /// The collectives of one run.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) where the plugin does not return its
    /// optimized program, or in an unknown format.
    pub fn collectives(&self) -> Result<Collectives> {
        let module = self.computations("collectives")?;
        Ok(Collectives::of(
            &module,
            self.replicas()?.saturating_mul(self.partitions()?),
        ))
    }

    /// The instructions of the optimized program, of all its computations. Those in a loop are there
    /// once.
    ///
    /// # Errors
    /// As [`collectives`](Self::collectives).
    pub fn instructions(&self) -> Result<Vec<CompiledInstruction>> {
        let module = self.computations("instructions")?;
        let all = || {
            (module.computations.iter()).flat_map(|it| it.instructions.iter().zip(repeat(it.id)))
        };
        let fused: HashSet<i64> = all()
            .filter(|(one, _)| one.opcode == "fusion")
            .flat_map(|(one, _)| one.called_computation_ids.iter().copied())
            .collect();
        let read = |(one, computation): (&Instruction, i64)| CompiledInstruction {
            opcode: one.opcode.clone(),
            bytes: one.shape.as_ref().map_or(0, Shape::bytes),
            is_fused: fused.contains(&computation),
        };
        Ok(all().map(read).collect())
    }

    /// The computations of the optimized program, for `op`.
    fn computations(&self, op: &'static str) -> Result<Computations> {
        let (format, bytes) = self.optimized()?;
        Computations::read(op, &format, &bytes).map_err(|error| error.on(&self.platform))
    }

    /// Number of results per device.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn output_count(&self) -> Result<usize> {
        let mut args = PJRT_Executable_NumOutputs_Args {
            executable: self.raw(),
            ..PJRT_Executable_NumOutputs_Args::new()
        };
        // SAFETY: the executable is alive.
        unsafe { self.call("count outputs", &mut args)? };
        Ok(args.num_outputs)
    }

    /// Number of replicas.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn replicas(&self) -> Result<usize> {
        let mut args = PJRT_Executable_NumReplicas_Args {
            executable: self.raw(),
            ..PJRT_Executable_NumReplicas_Args::new()
        };
        // SAFETY: the executable is alive.
        unsafe { self.call("count replicas", &mut args)? };
        Ok(args.num_replicas)
    }

    /// Number of partitions of each replica.
    ///
    /// # Errors
    /// If the plugin does not report it.
    pub fn partitions(&self) -> Result<usize> {
        let mut args = PJRT_Executable_NumPartitions_Args {
            executable: self.raw(),
            ..PJRT_Executable_NumPartitions_Args::new()
        };
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
        let mut args = PJRT_Executable_OutputMemoryKinds_Args {
            executable: self.raw(),
            ..PJRT_Executable_OutputMemoryKinds_Args::new()
        };
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
        let mut args = PJRT_Executable_ParameterMemoryKinds_Args {
            executable: self.raw(),
            ..PJRT_Executable_ParameterMemoryKinds_Args::new()
        };
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
        let mut types = PJRT_Executable_OutputElementTypes_Args {
            executable: self.raw(),
            ..PJRT_Executable_OutputElementTypes_Args::new()
        };
        let mut dims = PJRT_Executable_OutputDimensions_Args {
            executable: self.raw(),
            ..PJRT_Executable_OutputDimensions_Args::new()
        };
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

    fn raw(&self) -> *mut PJRT_Executable {
        self.executable.as_ptr()
    }

    fn table(&self) -> &'static Table {
        self.plugin.table()
    }

    /// # Safety
    ///
    /// * As for [`Table::call`].
    unsafe fn call<A: Call<Return = *mut PJRT_Error>>(
        &self,
        op: &'static str,
        args: &mut A,
    ) -> Result<()> {
        // SAFETY: the caller's condition.
        unsafe { self.table().call(op, args) }.map_err(|error| error.on(&self.platform))
    }

    /// # Safety
    ///
    /// * As for [`Table::call_extension`].
    unsafe fn call_extension<X: ExtensionTable, A>(
        &self,
        op: &'static str,
        offset: usize,
        args: &mut A,
    ) -> Result<()> {
        // SAFETY: the caller's condition.
        unsafe { self.table().call_extension::<X, A>(op, offset, args) }
            .map_err(|error| error.on(&self.platform))
    }
}

impl fmt::Debug for CompiledProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompiledProgram({})", self.name().unwrap_or_default())
    }
}

impl Drop for CompiledProgram {
    fn drop(&mut self) {
        let mut args = PJRT_Executable_Destroy_Args {
            executable: self.raw(),
            ..PJRT_Executable_Destroy_Args::new()
        };
        // SAFETY: the executable is ours and not used again.
        unsafe { self.table().free(&mut args) };
    }
}

/// # Safety
///
/// * `starts` and `sizes` have `count` entries, which are texts that are alive.
unsafe fn texts(
    plugin: &str,
    starts: *const *const std::ffi::c_char,
    sizes: *const usize,
    count: usize,
) -> Result<Vec<Vec<u8>>> {
    // SAFETY: this function's condition.
    unsafe {
        let pairs = slice_of(plugin, starts, count)?
            .iter()
            .zip(slice_of(plugin, sizes, count)?);
        pairs
            .map(|(start, size)| Ok(bytes_of(plugin, *start, *size)?.to_vec()))
            .collect()
    }
}

/// # Safety
///
/// * As for [`texts`].
unsafe fn strings(
    plugin: &str,
    starts: *const *const std::ffi::c_char,
    sizes: *const usize,
    count: usize,
) -> Result<Vec<String>> {
    // SAFETY: this function's condition.
    let texts = unsafe { texts(plugin, starts, sizes, count)? };
    Ok(texts
        .into_iter()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect())
}
