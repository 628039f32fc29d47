//! StableHLO programs from files.

use std::{path::Path, sync::Arc};

use halite_core::{DType, Error, ErrorKind, Platform, Result, TensorType, files};
use halite_stablehlo::{Dense, Module};

use crate::{Exported, constant::fix_input};

/// A StableHLO program that was read from a file: MLIR text, a portable artifact (`.mlirbc`), or a
/// [`jax.export`](Exported) artifact. It runs on one device.
///
/// [`compile`](Self::compile) makes a function of arrays of it, [`function`](Self::function) one of
/// tensors of a trace.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// Name of the program or of the exported function.
    name: Arc<str>,
    module: Module,
    inputs: Vec<ArtifactInput>,
    outputs: Vec<ArtifactOutput>,
    platforms: Vec<String>,
    /// Whether platforms that it was not exported for run it, too.
    any_platform: bool,
}

/// An input of an [`Artifact`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ArtifactInput {
    /// Path in the arguments of the exported function, as [`PyTree::paths`](crate::PyTree::paths)
    /// has it: `0.dense.kernel`. For other programs, the number of the argument.
    pub name: String,
    /// Its type.
    pub ty: TensorType,
    /// Whether the program uses it.
    pub used: bool,
}

/// An output of an [`Artifact`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ArtifactOutput {
    /// Path in the result of the exported function; for other programs, the number of the result.
    pub name: String,
    /// Its type.
    pub ty: TensorType,
}

impl Artifact {
    /// Reads a file: text, a portable artifact or a `jax.export` artifact, by its contents.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be read; otherwise as [`read`](Self::read). The message
    /// names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = files::read_input(path).map_err(|error| {
            let message = format!("cannot read {}", path.display());
            Error::new(ErrorKind::Io, "program", message).caused_by(error)
        })?;
        Artifact::read(&bytes).map_err(|error| error.with_note(&format!("in {}", path.display())))
    }

    /// Reads text, a portable artifact or a `jax.export` artifact.
    ///
    /// # Errors
    /// If the bytes are neither, or the program is not [valid](Module::verify), runs on several
    /// devices, or has arguments or results that are not arrays of halite.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.trim_ascii().is_empty() {
            let message = format!("the program is empty ({} bytes)", bytes.len());
            return Err(Error::new(ErrorKind::Corrupt, OP, message));
        }
        if is_stablehlo(bytes) {
            return Artifact::from_module(Module::read(bytes)?);
        }
        let exported = Exported::read(bytes).map_err(|error| {
            let note = "the file is not StableHLO text or bytecode, and was read as an artifact of \
                        `jax.export`";
            error.with_note(note)
        })?;
        Artifact::from_exported(&exported)
    }

    /// An artifact of a program in memory. Its inputs and outputs are named by their numbers.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_module(module: Module) -> Result<Self> {
        let numbered = |count: usize| (0..count).map(|index| index.to_string()).collect();
        let main = module.main()?;
        let inputs: Vec<String> = numbered(main.body.arguments.len());
        let outputs = numbered(main.body.results.len());
        let inputs = inputs.into_iter().map(|name| (name, None)).collect();
        Artifact::new(None, module, inputs, outputs, Vec::new())
    }

    /// An artifact of a function that JAX exported.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_exported(exported: &Exported) -> Result<Self> {
        exported.check()?;
        let module = Module::read(&exported.program)?;
        if exported.devices != 1 {
            return Err(several_devices(exported.devices));
        }
        let mut inputs = Vec::new();
        let types = exported
            .inputs
            .paths()
            .into_iter()
            .zip(&exported.input_types);
        for (index, (path, ty)) in types.enumerate() {
            let name = argument_name(&path);
            // The types of used inputs are the program's.
            if exported.used_inputs.binary_search(&index).is_ok() {
                inputs.push((name, None));
            } else if let Some(ty) = ty {
                inputs.push((name, Some(ty.clone())));
            } else {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    OP,
                    format!("argument `{name}` is of an element type without arrays in halite"),
                ));
            }
        }
        let outputs = exported.outputs.paths();
        let name = Some(exported.name.as_str());
        Artifact::new(name, module, inputs, outputs, exported.platforms.clone())
    }

    /// `inputs` are names, with a type if the program does not have the input.
    fn new(
        name: Option<&str>,
        module: Module,
        inputs: Vec<(String, Option<TensorType>)>,
        outputs: Vec<String>,
        platforms: Vec<String>,
    ) -> Result<Self> {
        module.verify()?;
        // Before its shardings are expanded.
        let devices = module.partitions().saturating_mul(module.replicas());
        if devices != 1 {
            return Err(several_devices(devices));
        }
        let interface = module.interface()?;
        let mut types = interface.inputs.into_iter().map(|input| input.ty);
        let is_index =
            |ty: TensorType| ty.rank() == 0 && matches!(ty.dtype(), DType::S32 | DType::S64);
        if platforms.len() > 1 && !types.next().is_some_and(is_index) {
            let message =
                "the program is for several platforms and has no argument for their index";
            return Err(Error::new(ErrorKind::Corrupt, OP, message));
        }
        let used = inputs.iter().filter(|(_, ty)| ty.is_none()).count();
        let counts = [
            ("argument", types.len(), used),
            ("result", interface.outputs.len(), outputs.len()),
        ];
        for (what, found, expected) in counts {
            if found != expected {
                let message =
                    format!("`main` has {found} {what}s, the artifact describes {expected}");
                return Err(Error::new(ErrorKind::Corrupt, OP, message));
            }
        }
        let input = |(name, dropped): (String, Option<TensorType>)| ArtifactInput {
            name,
            used: dropped.is_none(),
            ty: dropped
                .or_else(|| types.next())
                .expect("as many types as used inputs, by the check above"),
        };
        let inputs = inputs.into_iter().map(input).collect();
        let outputs = (outputs.into_iter().zip(interface.outputs))
            .map(|(name, output)| ArtifactOutput {
                name,
                ty: output.ty,
            })
            .collect();
        Ok(Artifact {
            name: name.map_or(interface.name, Arc::from),
            module,
            inputs,
            outputs,
            platforms,
            any_platform: false,
        })
    }

    /// Name of the program or of the exported function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program, with an argument for the index of the platform if there are
    /// [several](Self::platforms).
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> &[ArtifactInput] {
        &self.inputs
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> &[ArtifactOutput] {
        &self.outputs
    }

    /// Platforms that it was exported for, in JAX's names; empty if it does not name any.
    pub fn platforms(&self) -> &[String] {
        &self.platforms
    }

    /// The same program for every platform: one that it was not exported for runs the branch of
    /// `cpu`, or else the first. Results may differ there, or operations be missing.
    pub fn on_any_platform(mut self) -> Self {
        self.any_platform = true;
        self
    }

    /// Index of the platform among those that it was exported for. Platforms without a name in JAX,
    /// as that of the embedded executor, run what was exported for `cpu`.
    fn platform_index(&self, platform: &str) -> Result<usize> {
        let platform = Platform::current_name(&platform.to_lowercase()).to_owned();
        let position = |name: &str| {
            let mut known = self.platforms.iter();
            known.position(|known| Platform::current_name(known) == name)
        };
        let is_jax = ["cuda", "rocm", "tpu"].contains(&&*platform);
        let found = position(&platform);
        let cpu = || position("cpu").filter(|_| !is_jax || self.any_platform);
        if let Some(index) = found.or_else(cpu) {
            return Ok(index);
        }
        if self.any_platform || self.platforms.is_empty() {
            return Ok(0);
        }
        let message = format!(
            "`{}` was exported for {}, this client is {platform}; export it for {platform} too \
             (`jax.export.export(.., platforms=[..])`), or run it all the same \
             (`Artifact::on_any_platform`, `halite run --any-platform`)",
            self.name,
            self.platforms.join(", ")
        );
        Err(Error::new(ErrorKind::Unsupported, OP, message))
    }

    /// The program for a platform, without the argument for its index. Programs for several
    /// platforms have a branch for each.
    pub(crate) fn module_for(&self, platform: &str) -> Result<Module> {
        let mut module = self.module.clone();
        let index = self.platform_index(platform)?;
        if self.platforms.len() > 1 {
            let argument = module.main()?.body.arguments[0];
            let ty = module.main()?.ty(argument).as_tensor().cloned();
            let ty = ty.expect("the type was checked when the artifact was read");
            let index = (index as u64).to_le_bytes();
            let bytes = index[..ty.element.size()].into();
            fix_input(&mut module, 0, Dense { ty, bytes })?;
        }
        Ok(module)
    }
}

/// Whether the bytes are StableHLO's bytecode or text. A `jax.export` artifact starts with an
/// offset of 32 bits, which has bytes that are zero.
fn is_stablehlo(bytes: &[u8]) -> bool {
    bytes.starts_with(b"ML\xefR") || !bytes[..bytes.len().min(4)].contains(&0)
}

/// The path of an argument without the level that separates positional and named ones.
fn argument_name(path: &str) -> String {
    path.split_once('.')
        .map_or(path, |(_, rest)| rest)
        .to_owned()
}

fn several_devices(devices: usize) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        OP,
        format!(
            "the program runs on {devices} devices; programs from files run on one: export the \
             function on one device, without a mesh (in Rust, `Client::compile` takes \
             `Module::interface().program(..)` for {devices} devices)"
        ),
    )
}

const OP: &str = "artifact";
