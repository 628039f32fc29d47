//! The gradient of a custom call: the rule of its [`CustomOp`](crate::CustomOp).

use halite_ir::{Attachment, CustomCall, Remat};

use super::{Back, Step};
use crate::{Tensor, Trace};

/// Values of a gradient rule: `I` operands and `O` results of a call, and the cotangents of the
/// results, zero where the loss does not depend on one.
#[derive(Clone, Copy, Debug)]
pub struct CustomVjp<'t, const I: usize, const O: usize> {
    /// The trace, for constants.
    pub cx: &'t Trace,
    /// The operands of the call.
    pub operands: [Tensor<'t>; I],
    /// The results of the call. Values that only the gradient needs are further results.
    pub results: [Tensor<'t>; O],
    /// The cotangents of the results, of the same types.
    pub cotangents: [Tensor<'t>; O],
}

/// A gradient rule for calls with any numbers of operands and results.
pub(crate) struct GradientRule {
    operands: usize,
    results: usize,
    rule: Box<Rule>,
}

type Rule = dyn for<'t> Fn(Call<'_, 't>) -> Option<Back<'t>> + Send + Sync;

/// Values that a rule is given.
pub(super) struct Call<'a, 't> {
    trace: &'t Trace,
    operands: &'a [Tensor<'t>],
    results: &'a [Tensor<'t>],
    cotangents: &'a [Tensor<'t>],
}

impl GradientRule {
    /// A rule for calls with `I` operands and `O` results.
    pub(crate) fn new<const I: usize, const O: usize>(
        rule: impl for<'t> Fn(CustomVjp<'t, I, O>) -> [Option<Tensor<'t>>; I] + Send + Sync + 'static,
    ) -> Self {
        let erased = as_rule(move |call| {
            let vjp = CustomVjp {
                cx: call.trace,
                operands: call.operands.try_into().ok()?,
                results: call.results.try_into().ok()?,
                cotangents: call.cotangents.try_into().ok()?,
            };
            Some(rule(vjp).into())
        });
        GradientRule {
            operands: I,
            results: O,
            rule: Box::new(erased),
        }
    }
}

/// Makes the compiler infer the lifetimes of a closure as those of a [`Rule`].
fn as_rule<F: for<'t> Fn(Call<'_, 't>) -> Option<Back<'t>>>(rule: F) -> F {
    rule
}

impl<'t> Step<'_, 't> {
    /// The cotangents that the rule of a custom call computes.
    #[track_caller]
    pub(super) fn custom_call(&self, call: &CustomCall) -> Back<'t> {
        let rule = call.attachment.as_ref().and_then(Attachment::get);
        let Some(GradientRule {
            operands,
            results,
            rule,
        }) = rule
        else {
            if let Some(decomposition) = &call.decomposition {
                return self.checkpoint(decomposition, Remat::Full);
            }
            return self.none(&format!(
                "the derivative of `{}` is unknown; call it as a `CustomOp` with a rule \
                 (`CustomOp::gradient`)",
                call.target
            ));
        };
        let x: Vec<_> = (0..self.node.operands.len()).map(|at| self.x(at)).collect();
        let y: Vec<_> = (0..self.node.results.len()).map(|at| self.y(at)).collect();
        let cotangents: Vec<_> = (self.cotangents.iter().zip(&y))
            .map(|(cotangent, y)| cotangent.unwrap_or_else(|| y.zeros_like()))
            .collect();
        let back = rule(Call {
            trace: self.trace,
            operands: &x,
            results: &y,
            cotangents: &cotangents,
        });
        let Some(back) = back else {
            return self.rule_mistake(format!(
                "the rule of `{}` is for {operands} operands and {results} results; the call has \
                 {} and {}",
                call.target,
                x.len(),
                y.len()
            ));
        };
        for (at, cotangent) in back.iter().enumerate() {
            if let Some(cotangent) = cotangent
                && self.wants(at)
                && !cotangent.is_error()
                && cotangent.ty() != self.ty(at)
            {
                return self.rule_mistake(format!(
                    "the rule of `{}` returns {} for operand {at}, which is {}",
                    call.target,
                    cotangent.ty(),
                    self.ty(at)
                ));
            }
        }
        back
    }

    fn rule_mistake(&self, message: String) -> Back<'t> {
        self.trace.fail_at(self.node.origin, "grad", message, None);
        self.broken()
    }
}
