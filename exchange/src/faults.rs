//! Convolutions of programs from elsewhere that a compiler is known to get wrong. They are not
//! rewritten, as halite's own are when they are lowered (decision 0051), but refused.

use halite_core::{Error, ErrorKind, Faults, Result};
use halite_stablehlo::{ElementType, Function, Module, OpKind, Operation, Region, SourceLine};

/// Refuses a program with an operation that a compiler with these faults gets wrong.
pub(crate) fn check(module: &Module, faults: &Faults, platform: &str) -> Result<()> {
    if !faults.negative_padding {
        return Ok(());
    }
    for function in &module.functions {
        if let Some((operation, padding)) = cut_before(function, &function.body) {
            let place = match operation.location.as_deref() {
                Some(SourceLine { file, line, .. }) => format!("{file}:{line}"),
                None => format!("{}", operation.position),
            };
            let message = format!(
                "{place}: a convolution with padding {padding:?}; the compiler for {platform} reads \
                 outside of an input that is cut before and padded after; slice the input before \
                 the convolution instead, or use the accelerator `embedded`"
            );
            return Err(Error::new(ErrorKind::Unsupported, "compile", message));
        }
    }
    Ok(())
}

/// The first convolution of narrow floats that is cut before its input and padded after it, with
/// that padding.
fn cut_before<'m>(function: &Function, region: &'m Region) -> Option<(&'m Operation, (i64, i64))> {
    region.operations.iter().find_map(|operation| {
        let nested = || (operation.regions.iter()).find_map(|region| cut_before(function, region));
        let OpKind::Convolution(conv) = &operation.kind else {
            return nested();
        };
        let ty = function.ty(operation.operands[0]).as_tensor()?;
        let is_fast = [ElementType::F32, ElementType::F16, ElementType::Bf16].contains(&ty.element);
        let padding = (conv.padding.iter()).find(|&&(low, high)| low < 0 && high > 0);
        padding
            .filter(|_| is_fast)
            .map(|&padding| (operation, padding))
    })
}
