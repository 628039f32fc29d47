//! Optimizers, traced as part of the step's program.
//!
//! An [`Optimizer`] defines the state (*slot*) and the update rule of one parameter; [`slots`] and
//! [`update`] apply it to a whole model. Nothing is read back: learning rates are computed from the
//! step count on the device.
//!
//! Learning rates, the numbers of schedules, decays, momenta, betas and limits are
//! [hyperparameters](Trace::hyperparameter): arguments of the program, which is not compiled again
//! for other values. A weight decay or momentum of 0 removes its term from the program. A custom
//! optimizer calls `cx.hyperparameter("name", value, dtype)`.
//!
//! ```
//! use halite_core::Tree;
//! use halite_nn::{Adam, Linear, Schedule, optim, summary};
//!
//! let adam = Adam::new(Schedule::warmup(1e-3, 100).then(Schedule::cosine(1e-3, 10_000)));
//! let slots = optim::slots(&adam, &Linear::new(784, 10));
//! assert_eq!(slots.paths(), ["weight.first", "weight.second", "bias.first", "bias.second"]);
//! println!("{}", summary(&slots));
//! ```

mod adam;
mod clip;
mod decay;
mod sgd;
mod slots;

use std::{fmt, panic::Location, sync::Arc};

use halite_core::{Family, Tree, tree::Of};

pub use self::{
    adam::{Adam, AdamW, Moments},
    clip::{clip_global_norm, clip_value, global_norm},
    decay::{Decay, DecayRule},
    sgd::{Sgd, Velocity},
    slots::{Slots, SlotsFamily},
};
use crate::{Init, Param, Tensor, Trace, special::wide};

/// Update rule of parameters.
///
/// The optimizer state of a parameter is its *slot*: a tree such as [`Moments`].
pub trait Optimizer: fmt::Debug + Send + Sync + 'static {
    /// Optimizer state of one parameter.
    type Slot: Family;

    /// Describes the slot of this parameter: types and initialization.
    fn slot(&self, param: &Param) -> <Self::Slot as Family>::Of<Param>;

    /// Computes the new value and the new slot of one parameter.
    ///
    /// `step` is the number of updates made before: a scalar of `f64` for a parameter in `f64`,
    /// otherwise of `f32`, so that rates and bias corrections have the precision of the parameter.
    /// `grad` has the type of `param`. `named` is for rules that depend on the parameter.
    fn update<'t>(
        &self,
        cx: &'t Trace,
        step: Tensor<'t>,
        param: Tensor<'t>,
        grad: Tensor<'t>,
        slot: <Self::Slot as Family>::Of<Tensor<'t>>,
        named: Named<'_>,
    ) -> (Tensor<'t>, <Self::Slot as Family>::Of<Tensor<'t>>);
}

impl<O: Optimizer + ?Sized> Optimizer for Arc<O> {
    type Slot = O::Slot;

    fn slot(&self, param: &Param) -> <O::Slot as Family>::Of<Param> {
        O::slot(self, param)
    }

    fn update<'t>(
        &self,
        cx: &'t Trace,
        step: Tensor<'t>,
        param: Tensor<'t>,
        grad: Tensor<'t>,
        slot: <O::Slot as Family>::Of<Tensor<'t>>,
        named: Named<'_>,
    ) -> (Tensor<'t>, <O::Slot as Family>::Of<Tensor<'t>>) {
        O::update(self, cx, step, param, grad, slot, named)
    }
}

/// A parameter's path and description.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Path, such as `blocks.attention.q.weight`.
    pub path: &'a str,
    /// Description.
    pub param: &'a Param,
}

/// The slots of a model for an optimizer, with leaves `L`: `Slots<Mlp<()>, Moments<()>, Array>`.
pub type SlotsOf<M, O, L> = Slots<<M as Tree>::Family, <O as Optimizer>::Slot, L>;

/// Describes the slots of all trained parameters of `model`; [`init`](crate::init()) initializes
/// them.
pub fn slots<M: Tree<Leaf = Param>, O: Optimizer>(
    optimizer: &O,
    model: &M,
) -> SlotsOf<M, O, Param> {
    Slots::new(
        Tree::leaf_refs(model)
            .map_leaves(|_, param| param.trainable.then(|| optimizer.slot(param))),
    )
}

/// Computes the new parameters and slots of a whole model.
///
/// `step` is the number of updates made before, an integer scalar. `grads` has a leaf for every
/// leaf of the model; leaves that are not trained ignore theirs and do not change.
///
/// A parameter that the loss does not depend on has no gradient ([`grad`](crate::grad())). It and
/// its slots do not change, also under weight decay and momentum, as in PyTorch; a
/// [warning](Trace::warnings) names all of them. It is a mistake if no trained parameter has a
/// gradient.
///
/// # Panics
/// If `params`, `grads` or `slots` are not trees of the structure of `model`.
#[track_caller]
pub fn update<'t, M: Tree<Leaf = Param>, O: Optimizer>(
    optimizer: &O,
    cx: &'t Trace,
    step: Tensor<'t>,
    model: &M,
    params: Of<M, Tensor<'t>>,
    grads: Of<M, Tensor<'t>>,
    slots: SlotsOf<M, O, Tensor<'t>>,
) -> (Of<M, Tensor<'t>>, SlotsOf<M, O, Tensor<'t>>) {
    let _site = cx.called_from(Location::caller());
    let (mut params, mut grads) = (params.into_leaves(), grads.into_leaves());
    let trained = with_gradient(cx, model, &grads);
    wait_for_gradients(cx, &trained, &mut params, &mut grads);
    let mut leaves = params.into_iter().zip(grads).zip(trained);
    let mut slots = slots.into_inner().into_leaves().into_iter();
    let mut next_params = Vec::new();
    let next_slots = Tree::leaf_refs(model).map_leaves(|path, description| {
        let matching = "parameters, gradients and slots have the leaves of the model";
        let ((param, grad), is_trained) = leaves.next().expect(matching);
        let slot = slots.next().expect(matching);
        if description.trainable && !param.dtype().is_float() {
            let message = format!(
                "`{path}` is {}, which has no gradient and cannot be trained; make it \
                 `Param::state`, or `frozen`",
                param.ty()
            );
            cx.fail("optimizer", message, None);
        }
        let (param, slot) = match slot {
            Some(slot) if is_trained => {
                let named = Named {
                    path: &path.to_string(),
                    param: description,
                };
                let step = step.convert(wide(param.dtype()));
                let (param, slot) = optimizer.update(cx, step, param, grad, slot, named);
                (param, Some(slot))
            }
            slot => (param, slot),
        };
        next_params.push(param);
        slot
    });
    (model.rebuild(next_params), Slots::new(next_slots))
}

/// Makes trained parameters and their gradients depend on all gradients. Otherwise the compiler may
/// schedule an update before a gradient that still needs the old parameter, and copy the parameter
/// first: such copies took 8 % of the CPU time of an MLP's step.
#[track_caller]
fn wait_for_gradients<'t>(
    cx: &'t Trace,
    trained: &[bool],
    params: &mut [Tensor<'t>],
    grads: &mut [Tensor<'t>],
) {
    let indices: Vec<usize> = (0..trained.len()).filter(|&leaf| trained[leaf]).collect();
    let before = indices.iter().map(|&leaf| params[leaf]);
    let before: Vec<Tensor<'t>> = before
        .chain(indices.iter().map(|&leaf| grads[leaf]))
        .collect();
    let after = cx.optimization_barrier(&before);
    let (after_params, after_grads) = after.split_at(indices.len());
    for (&leaf, (&param, &grad)) in indices.iter().zip(after_params.iter().zip(after_grads)) {
        (params[leaf], grads[leaf]) = (param, grad);
    }
}

/// Determines for each leaf of `model` whether it is trained and has a gradient. A warning names
/// those without one; it is a mistake if none has one.
fn with_gradient<M: Tree<Leaf = Param>>(cx: &Trace, model: &M, grads: &[Tensor<'_>]) -> Vec<bool> {
    let none = cx.without_gradient(grads);
    let mut unused = Vec::new();
    let mut trained = 0;
    let leaves = model.named().into_iter().zip(grads);
    let with_gradient = leaves.map(|((path, description), grad)| {
        if !description.trainable {
            return false;
        }
        trained += 1;
        match none.get(&grad.id) {
            None => true,
            Some(line) => {
                unused.push((path, *line));
                false
            }
        }
    });
    let with_gradient: Vec<bool> = with_gradient.collect();
    if let Some((_, line)) = unused.first() {
        let paths: Vec<String> = unused.iter().map(|(path, _)| format!("`{path}`")).collect();
        if paths.len() == trained {
            let message = format!(
                "none of the {trained} parameters has a gradient: the loss depends on no parameter that is trained ({})",
                paths.join(", ")
            );
            cx.fail_at(line, "optimizer", message, None);
            return with_gradient;
        }
        let message = format!(
            "{} of {trained} parameters have no gradient, as the loss does not depend on them: {}. They stay as they \
             are. Use them in the loss, leave them out of the model, or describe them as `frozen`",
            paths.len(),
            paths.join(", ")
        );
        cx.warn_at(line, "optimizer", message);
    }
    with_gradient
}

/// Slot of zeros for `param`, in `f32`, or in `f64` for a parameter in `f64`.
fn zeros(param: &Param) -> Param {
    Param {
        ty: param.ty.with_dtype(wide(param.ty.dtype())),
        init: Init::Zeros,
        trainable: false,
        ..param.clone()
    }
}
