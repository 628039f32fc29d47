//! Compiled programs: sizes, costs, serialized bytes, and signature. They may be loaded on devices
//! or be compiled for absent ones.

mod interface;

use std::{collections::HashSet, fmt, iter::repeat, sync::Arc};

use halite_core::{ProgramMemory, Result};
use halite_pjrt_sys::{Call, base::PJRT_NamedValue, error::PJRT_Error, executable::*};

use crate::{
    OptionValue,
    collectives::Collectives,
    extension::ExtensionTable,
    frame,
    handle::Handle,
    hlo::{Computations, Instruction, Shape},
    plugin::Plugin,
    shared_client::Shared,
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
        let mut args = args!(PJRT_Executable_Name_Args, executable: self.raw());
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
        let mut args = args!(PJRT_Executable_Serialize_Args, executable: self.raw());
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
        let mut args = args!(PJRT_Executable_Fingerprint_Args, executable: self.raw());
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
        let mut args = args!(PJRT_Executable_GetCompiledMemoryStats_Args, executable: self.raw());
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
        let mut args = args!(PJRT_Executable_GetCostAnalysis_Args, executable: self.raw());
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
        let mut args = args!(PJRT_Executable_Destroy_Args, executable: self.raw());
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
