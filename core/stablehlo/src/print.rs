//! Programs as text, which [`Module::parse`] and other tools for StableHLO read.
//!
//! Operations are in the pretty form of MLIR where that is short, else in the generic one. One pass
//! writes into one string, directly from the fields of operations.

mod attribute;
mod dense;
mod forms;
mod function;
mod generic;
mod locations;
mod operation;
mod regions;
mod sharding;
mod text;

use std::fmt::{self, Display, Formatter};

use self::{function::Printer, text::Text};
use crate::Module;

impl Module {
    /// The program as MLIR text, with the source lines of operations.
    ///
    /// ```
    /// # fn main() -> halite_core::Result<()> {
    /// let text = "module {
    ///   func.func public @main(%arg0: tensor<2xf32>) -> (tensor<2xf32>) {
    ///     %0 = stablehlo.tanh %arg0 : tensor<2xf32>
    ///     return %0 : tensor<2xf32>
    ///   }
    /// }
    /// ";
    /// assert_eq!(halite_stablehlo::Module::parse(text)?.to_text(), text);
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_text(&self) -> String {
        let mut printer = Printer::new(Text::default(), true);
        printer.module(self);
        printer.finish().0
    }

    /// Writes [`to_text`](Self::to_text) without source lines, in blocks: the text that defines
    /// what the program computes, for keys of caches.
    ///
    /// # Errors
    /// If `sink` returns one.
    pub fn write_without_locations(&self, sink: &mut dyn fmt::Write) -> fmt::Result {
        let mut printer = Printer::new(Text::streamed(sink), false);
        printer.module(self);
        printer.finish().1
    }
}

/// [`Module::to_text`].
impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(Text::streamed(f), true);
        printer.module(self);
        printer.finish().1
    }
}
