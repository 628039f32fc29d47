//! `halite convert`: StableHLO programs between text and bytecode.

use std::{ffi::OsStr, path::PathBuf, process::ExitCode};

use clap::Args;
use halite::{
    Error, Result,
    core::files,
    exchange::{Artifact, portable},
    stablehlo::Version,
};

use crate::cli::io_error;

/// Convert a StableHLO program between MLIR text and portable bytecode
///
/// Reads either form, and the program of a `jax.export` artifact. Programs for several devices, and
/// with arguments or results that halite has no arrays of, cannot be converted.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Convert {
    /// The program: `.mlir`, `.mlirbc`, or a `jax.export` artifact
    #[arg(value_name = "IN")]
    from: PathBuf,
    /// File to write: `.mlir` is text, `.mlirbc` is bytecode; `-` prints text
    #[arg(value_name = "OUT")]
    to: PathBuf,
    /// StableHLO version of the bytecode, 1.0.0 to 1.17.0: readers of this version or a newer one
    /// read it [default: the oldest of 1.0.0, 1.9.0, 1.13.0 and 1.17.0 that has what the program
    /// uses]
    #[arg(long, value_name = "VERSION")]
    target_version: Option<Version>,
}

const EXAMPLES: &str = "\
Examples:
  halite convert step.jax -                                     print the program that JAX exported
  halite convert step.mlir step.mlirbc                          text to bytecode
  halite convert step.mlir step.mlirbc --target-version 1.10.0  for readers of 1.10.0";

impl Convert {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let artifact = Artifact::open(&self.from)?;
        let module = artifact.module();
        let extension = self.to.extension().and_then(OsStr::to_str);
        let bytes = match (extension, self.target_version) {
            (Some("mlirbc" | "bc"), version) => portable(module, version)?,
            (Some("mlir"), None) => module.to_string().into_bytes(),
            (None, None) if self.to.as_os_str() == "-" => {
                say!("{}", module.to_string().trim_end());
                return Ok(ExitCode::SUCCESS);
            }
            (_, Some(version)) => {
                let message = format!(
                    "--target-version {version} is of bytecode; {} is text, name a file `.mlirbc`",
                    self.to.display()
                );
                return Err(Error::invalid("convert", message));
            }
            (_, None) => {
                let message = format!(
                    "{}: expected a file `.mlir` (text) or `.mlirbc` (bytecode), or `-`",
                    self.to.display()
                );
                return Err(Error::invalid("convert", message));
            }
        };
        files::write_output(&self.to, &bytes).map_err(io_error("convert", "write", &self.to))?;
        Ok(ExitCode::SUCCESS)
    }
}
