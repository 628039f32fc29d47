//! Operations of the user: custom calls with shape inference and a gradient rule.

use std::{fmt, panic::Location, sync::Arc};

use halite_core::{Result, TensorType};
use halite_ir::{Attachment, Attribute, CustomCall, Op};

use crate::{
    Tensor, Trace,
    grad::{CustomVjp, GradientRule},
    trace::names,
};

/// An operation that calls a function by the name of its target, as `jax.ffi.ffi_call` does.
///
/// The function is registered with [`custom_call::register`](halite_core::custom_call::register),
/// or is one of the backend's own. A gradient rule has the place of `jax.custom_vjp`; without one,
/// differentiation is a mistake at the line of the call.
///
/// In a [`shard_map`](Trace::shard_map) each device calls the function on its shard. Elsewhere in a
/// program of many devices, the compiler gathers the operands, and every device computes all.
///
/// ```
/// use halite_core::{DType, TensorType, tree::Leaf};
/// use halite_nn::{CustomOp, CustomVjp, Trace, grad};
///
/// let scale = CustomOp::new("scale", |operands| Ok(vec![operands[0].clone()]))
///     .attribute("factor", 3.0)
///     .gradient(|CustomVjp { cotangents: [dy], .. }: CustomVjp<1, 1>| [Some(dy * 3.0)]);
///
/// let cx = &Trace::new();
/// let x = cx.input(TensorType::new(DType::F32, [4]), "x");
/// let [y] = scale.call(cx, &[x]);
/// let Leaf(slope) = grad(y.sum_all(), &Leaf(x));
/// assert_eq!(slope.ty(), x.ty());
/// assert!(cx.mistakes().is_empty());
/// ```
#[derive(Clone)]
pub struct CustomOp {
    target: String,
    infer: Arc<Infer>,
    attributes: Vec<(String, Attribute)>,
    side_effect: bool,
    gradient: Option<Attachment>,
}

/// Computes the types of the results from those of the operands.
type Infer = dyn Fn(&[TensorType]) -> Result<Vec<TensorType>> + Send + Sync;

impl CustomOp {
    /// An operation without attributes or a gradient. `infer` returns the types of the results for
    /// operands of these types, or an error, which becomes a mistake at the line of the call.
    pub fn new(
        target: impl Into<String>,
        infer: impl Fn(&[TensorType]) -> Result<Vec<TensorType>> + Send + Sync + 'static,
    ) -> Self {
        CustomOp {
            target: target.into(),
            infer: Arc::new(infer),
            attributes: Vec::new(),
            side_effect: false,
            gradient: None,
        }
    }

    /// Sets an attribute that the function receives with every call.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Attribute>) -> Self {
        let name = name.into();
        self.attributes.retain(|(known, _)| *known != name);
        self.attributes.push((name, value.into()));
        self
    }

    /// Marks calls that must happen although nothing uses their results, once for each line that
    /// records one.
    pub fn side_effect(mut self) -> Self {
        self.side_effect = true;
        self
    }

    /// Sets the gradient rule. It returns the cotangent of each operand, of the operand's type;
    /// `None` is zero. Operations that it records belong to the line of the call, and have
    /// gradients in turn.
    pub fn gradient<const I: usize, const O: usize>(
        mut self,
        rule: impl for<'t> Fn(CustomVjp<'t, I, O>) -> [Option<Tensor<'t>>; I] + Send + Sync + 'static,
    ) -> Self {
        self.gradient = Some(Attachment::new(GradientRule::new(rule)));
        self
    }

    /// Records a call with `N` results.
    ///
    /// Operands that shape inference refuses, and another number of results, are mistakes.
    #[track_caller]
    pub fn call<'t, const N: usize>(
        &self,
        cx: &'t Trace,
        operands: &[Tensor<'t>],
    ) -> [Tensor<'t>; N] {
        if operands.iter().any(|operand| operand.is_error()) {
            return [(); N].map(|()| cx.error_like(None));
        }
        let _site = cx.called_from(Location::caller());
        let fail = |message: String| {
            let error = cx.fail(&self.target, message, None);
            [error; N]
        };
        let types: Vec<TensorType> = operands.iter().map(|operand| operand.ty()).collect();
        let results = match (self.infer)(&types) {
            Ok(results) if results.len() == N => results,
            Ok(results) => {
                let found = results.len();
                return fail(format!("has {found} results, {N} are used"));
            }
            Err(error) => return fail(format!("{}{}", error.message(), names(operands))),
        };
        let call = CustomCall {
            target: self.target.clone(),
            attributes: self.attributes.clone(),
            results,
            side_effect: self.side_effect,
            attachment: self.gradient.clone(),
            decomposition: None,
        };
        let results = cx.push_many(Op::CustomCall(call), operands, N);
        std::array::from_fn(|index| results[index])
    }
}

impl Trace {
    /// Records a call of what `body` computes from the operands. Programs have the operations of
    /// the body, or call a kernel of the target's name
    /// ([`choose_kernels`](halite_ir::choose_kernels)). Without a gradient rule in the attachment,
    /// the gradient is that of the body.
    #[track_caller]
    pub(crate) fn composite<'t, const I: usize, const O: usize>(
        &'t self,
        call: CustomCall,
        operands: [Tensor<'t>; I],
        body: impl FnOnce([Tensor<'t>; I]) -> [Tensor<'t>; O],
    ) -> [Tensor<'t>; O] {
        if operands.iter().any(|operand| operand.is_error()) {
            return [(); O].map(|()| self.error_like(None));
        }
        let types = operands.map(|operand| operand.ty());
        let (region, results) = self.region(&types, |inputs| {
            body(std::array::from_fn(|index| inputs[index]))
        });
        if results.iter().any(|result| result.is_error()) {
            return results.map(|result| self.error_like(Some(result.ty())));
        }
        let decomposition = region.giving(&results).graph(self);
        let call = CustomCall {
            results: decomposition.output_types(),
            decomposition: Some(Box::new(decomposition)),
            ..call
        };
        let results = self.push_many(Op::CustomCall(call), &operands, O);
        std::array::from_fn(|index| results[index])
    }
}

impl fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomOp")
            .field("target", &self.target)
            .field("attributes", &self.attributes)
            .field("side_effect", &self.side_effect)
            .field("gradient", &self.gradient.is_some())
            .finish()
    }
}
