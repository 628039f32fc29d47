//! MLIR bytecode of portable artifacts.
//!
//! A portable artifact is a program in VHLO, the versioned dialect of StableHLO, in MLIR's bytecode
//! (<https://mlir.llvm.org/docs/BytecodeFormat/>). JAX passes programs to plugins in this form.
//!
//! Artifacts come from outside: no input makes the reader panic, recurse without bound, or use
//! memory or time out of proportion to its length. Errors name the offset.

mod attributes;
mod cursor;
mod encode;
mod encoder;
mod file;
mod interned;
mod locations;
mod operation;
mod pack;
mod properties;
mod reader;
mod scopes;
mod sections;
mod shardy;
mod table;
mod types;
mod writer;

#[cfg(test)]
mod hostile;

use halite_core::{Error, Result};

use crate::{Module, Version};

impl Module {
    /// Reads a program in either form: a portable artifact if it starts as MLIR bytecode does, else
    /// text.
    ///
    /// # Errors
    /// As [`from_bytecode`](Self::from_bytecode) and [`parse`](Self::parse).
    pub fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.starts_with(&sections::MAGIC) {
            return Self::from_bytecode(bytes);
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let message = format!(
                "neither MLIR bytecode nor text: byte {} is not UTF-8",
                error.valid_up_to()
            );
            Error::invalid("program", message)
        })?;
        Self::parse(text)
    }

    /// Reads a portable artifact of StableHLO 0.9.0 to [1.20.0](Version::NEWEST).
    ///
    /// Programs partitioned by Shardy mix VHLO with its dialect, `sdy`, which is read too. Each
    /// operation has the innermost source line of its location. Other locations, the visibility
    /// and further attributes of functions, and sharding rules are dropped. Types and attributes
    /// are not checked against each other.
    ///
    /// # Errors
    /// If the bytes are malformed, or the program uses what [`OpKind`](crate::OpKind) does not
    /// have: dynamic shapes, quantized types, operations outside the specification. The message
    /// names the offset.
    pub fn from_bytecode(bytes: &[u8]) -> Result<Self> {
        reader::read(bytes)
    }

    /// Writes a portable artifact of StableHLO 1.0.0 to 1.17.0: any consumer of this version or a
    /// newer one reads it, for five years.
    ///
    /// The function `main` is public, others are private. [`Position`](crate::Position)s are not
    /// written.
    ///
    /// ```
    /// # fn main() -> halite_core::Result<()> {
    /// use halite_stablehlo::{Module, Version};
    ///
    /// let module = Module {
    ///     name: "empty".into(),
    ///     ..Module::default()
    /// };
    /// let artifact = module.to_bytecode(Version::new(1, 17, 0))?;
    /// assert_eq!(Module::from_bytecode(&artifact)?, module);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the version is not one of these, the program uses what it does not have (a type, an
    /// operation, an attribute of one), or a value is used before it is computed.
    pub fn to_bytecode(&self, version: Version) -> Result<Vec<u8>> {
        writer::write(self, version)
    }
}
