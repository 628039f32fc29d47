//! Optimizers, traced as part of the step's program.
//!
//! An [`Optimizer`] defines the state (*slot*) and the update rule of one parameter; [`slots`] and
//! [`update`] apply it to a whole model. Nothing is read back: learning rates are computed from the
//! step count on the device.
//!
//! Learning rates, the numbers of schedules, decays, momenta, betas and limits are
//! [hyperparameters](Trace::hyperparameter): arguments of the program, which is not compiled again
//! for other values. A weight decay or momentum of 0 removes its term from the program. A custom
//! optimizer calls [`Gradient::number`].
//!
//! | optimizer | rule and defaults of | slots of a parameter |
//! |---|---|---|
//! | [`Sgd`] | `torch.optim.SGD` | none, or one with momentum |
//! | [`Adam`], [`AdamW`] | `torch.optim.Adam`, `AdamW` | two |
//! | [`RmsProp`] | `torch.optim.RMSprop` | one to three |
//! | [`Adagrad`] | `torch.optim.Adagrad` | one |
//! | [`Adafactor`] | `torch.optim.Adafactor` | a row and a column of each matrix |
//! | [`Muon`] | `torch.optim.Muon`, for matrices only | one |
//! | [`Lion`] | `optax.lion` | one |
//! | [`Lamb`] | `optax.lamb` | two |
//! | [`Lars`] | `optax.lars` | one |
//!
//! Parameters are selected by patterns of their paths: [`group`](Optimizer::group) gives some other
//! settings, [`partition`](Optimizer::partition) another optimizer, [`freeze`](crate::freeze) none,
//! and [`unfreeze`](Optimizer::unfreeze) begins with some later.
//! [`chain`](Optimizer::chain) transforms gradients first. [`WeightAveraging`] averages parameters.
//!
//! ```
//! use halite_nn::{AdamW, Linear, Muon, Optimizer, Schedule, freeze, optim};
//!
//! let model = freeze((Linear::new(784, 64), Linear::new(64, 10)), "0.bias")?;
//! let rate = Schedule::cosine(1e-3, 10_000).with_warmup(100);
//! let optimizer = AdamW::new(rate)
//!     .group("**.bias", |adamw| adamw.weight_decay(0.0))?
//!     .partition("0.weight", Muon::new(0.02))?;
//! let slots = optim::slots(&optimizer, &model);
//! assert_eq!(slots.leaf_count(), 1 + 2 + 2);
//! # use halite_core::Tree;
//! # Ok::<(), halite_core::Error>(())
//! ```
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

mod adafactor;
mod adagrad;
mod adam;
mod average;
mod chain;
mod clip;
mod decay;
mod gradient;
mod groups;
mod lars;
mod lion;
mod muon;
mod part;
mod partition;
mod rms_prop;
mod settings;
mod sgd;
mod slots;
mod unfreeze;

use std::{fmt, panic::Location, sync::Arc};

use halite_core::{Error, Family, Result, Tree, tree::Of};

use self::unfreeze::is_active;
pub use self::{
    adafactor::{Adafactor, Factored},
    adagrad::{Adagrad, SquareSum},
    adam::{Adam, AdamW, Lamb, Moments},
    average::{Averages, WeightAveraging, averaged},
    chain::Chain,
    clip::{GlobalNorm, clip_global_norm, clip_value, global_norm},
    decay::{Decay, DecayRule},
    gradient::{Gradient, StepOf},
    groups::Groups,
    lars::Lars,
    lion::{Lion, Momentum},
    muon::Muon,
    part::Part,
    partition::Partition,
    rms_prop::{MeanSquare, RmsProp},
    sgd::{Sgd, Velocity},
    slots::{Slots, SlotsFamily},
    unfreeze::{Unfreeze, without_frozen},
};
use crate::{Init, Param, Schedule, Tensor, Trace, special::wide};

/// Update rule of parameters.
///
/// The optimizer state of a parameter is its *slot*: a tree such as [`Moments`].
///
/// ```
/// use halite_core::tree::Empty;
/// use halite_nn::{
///     Optimizer, Param, Schedule, Tensor,
///     optim::{Gradient, Named},
/// };
///
/// /// Every element moves by the learning rate.
/// #[derive(Clone, Debug)]
/// struct SignSgd {
///     learning_rate: Schedule,
/// }
///
/// impl Optimizer for SignSgd {
///     type Slot = Empty<()>;
///
///     fn slot(&self, _: Named<'_>) -> Empty<Param> {
///         Empty::new()
///     }
///
///     fn direction<'t>(
///         &self,
///         of: Gradient<'t, '_>,
///         slot: Empty<Tensor<'t>>,
///     ) -> (Tensor<'t>, Empty<Tensor<'t>>) {
///         (of.grad.sign() * of.rate(&self.learning_rate), slot)
///     }
/// }
/// ```
pub trait Optimizer: fmt::Debug + Send + Sync + 'static {
    /// Optimizer state of one parameter.
    type Slot: Family;

    /// Describes the slot of this parameter: types and initialization.
    fn slot(&self, named: Named<'_>) -> <Self::Slot as Family>::Of<Param>;

    /// Computes the step of one parameter, which is subtracted from it, and its new slot.
    ///
    /// The step includes the learning rate, and has the type of [`Gradient::grad`].
    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slot: <Self::Slot as Family>::Of<Tensor<'t>>,
    ) -> (Tensor<'t>, <Self::Slot as Family>::Of<Tensor<'t>>);

    /// Number of the first update of this parameter, from 0. Before it, neither the parameter nor its
    /// slot changes, and [`Gradient::count`] begins with it.
    fn first_update(&self, named: Named<'_>) -> u64 {
        let _ = named;
        0
    }

    /// Returns whether the update of an element of this parameter depends only on the same element
    /// of the gradient, parameter and slots, and on scalars. Processes can then shard the update, as
    /// ZeRO does. Default: `false`.
    fn is_elementwise(&self, named: Named<'_>) -> bool {
        let _ = named;
        false
    }

    /// The learning rates, by name: for logs and checks.
    fn schedules(&self) -> Vec<(String, &Schedule)> {
        Vec::new()
    }

    /// Checks the settings for these parameters, all that are trained. [`update`] calls it before
    /// anything is computed.
    ///
    /// # Errors
    /// By default those of the [schedules](Self::schedules).
    fn check(&self, params: &[Named<'_>]) -> Result<()> {
        let _ = params;
        check_schedules(self)
    }

    /// Gives the parameters whose path matches the [`Pattern`](crate::Pattern) settings of their
    /// own. Of several groups the first that matches a parameter applies.
    ///
    /// ```
    /// use halite_nn::{AdamW, Optimizer};
    ///
    /// let optimizer = AdamW::new(3e-4)
    ///     .group("**.bias", |adamw| adamw.weight_decay(0.0))?
    ///     .group("head.**", |adamw| adamw.learning_rate(1e-3))?;
    /// # let _ = optimizer;
    /// # Ok::<(), halite_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is not a valid pattern. A group that no parameter belongs to is a mistake of the step.
    fn group(self, pattern: &str, settings: impl FnOnce(Self) -> Self) -> Result<Groups<Self>>
    where
        Self: Clone,
    {
        Groups::new(self).group(pattern, settings)
    }

    /// Updates the parameters whose path matches the [`Pattern`](crate::Pattern) by `other`, and
    /// the rest by this optimizer, like `optax.partition`.
    ///
    /// # Errors
    /// If it is not a valid pattern. A pattern that no parameter matches is a mistake of the step.
    fn partition<O: Optimizer>(self, pattern: &str, other: O) -> Result<Partition<Self, O>>
    where
        Self: Sized,
    {
        Partition::new(self, pattern, other)
    }

    /// Begins with the parameters whose path matches the [`Pattern`](crate::Pattern) after `step`
    /// updates; until then they are frozen. It is the same program before and after, and the
    /// optimizer begins with them as with new ones: their first update has the number 1 for bias
    /// corrections, while schedules count all updates. In clipping and in the norm of all gradients,
    /// frozen parameters do not count.
    ///
    /// Lightning's `BaseFinetuning`, with the epoch as a number of steps:
    ///
    /// ```
    /// use halite_nn::{AdamW, Optimizer};
    ///
    /// let steps_per_epoch = 500;
    /// let optimizer = AdamW::new(1e-3)
    ///     .group("backbone.**", |adamw| adamw.learning_rate(1e-4))?
    ///     .unfreeze("backbone.**", 3 * steps_per_epoch)?;
    /// # let _ = optimizer;
    /// # Ok::<(), halite_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is not a valid pattern, or the step is above 2^32 - 1. A pattern that no trained
    /// parameter matches is a mistake of the step.
    fn unfreeze(self, pattern: &str, step: u64) -> Result<Unfreeze<Self>>
    where
        Self: Sized,
    {
        Unfreeze::new(self, pattern, step)
    }

    /// Takes the step of this optimizer as the gradient of `next`, like `optax.chain`. The first of
    /// a chain usually has no learning rate: it transforms gradients.
    fn chain<O: Optimizer>(self, next: O) -> Chain<Self, O>
    where
        Self: Sized,
    {
        Chain::new(self, next)
    }
}

/// Checks the schedules of an optimizer.
fn check_schedules(optimizer: &(impl Optimizer + ?Sized)) -> Result<()> {
    let schedules = optimizer.schedules();
    schedules.into_iter().try_for_each(|(name, schedule)| {
        schedule
            .check()
            .map_err(|error| Error::invalid("optimizer", format!("`{name}`: {}", error.message())))
    })
}

impl<O: Optimizer + ?Sized> Optimizer for Arc<O> {
    type Slot = O::Slot;

    fn slot(&self, named: Named<'_>) -> <O::Slot as Family>::Of<Param> {
        O::slot(self, named)
    }

    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slot: <O::Slot as Family>::Of<Tensor<'t>>,
    ) -> (Tensor<'t>, <O::Slot as Family>::Of<Tensor<'t>>) {
        O::direction(self, gradient, slot)
    }

    fn first_update(&self, named: Named<'_>) -> u64 {
        O::first_update(self, named)
    }

    fn is_elementwise(&self, named: Named<'_>) -> bool {
        O::is_elementwise(self, named)
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        O::schedules(self)
    }

    fn check(&self, params: &[Named<'_>]) -> Result<()> {
        O::check(self, params)
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
    let slots = Tree::leaf_refs(model).map_leaves(|path, param| {
        let path = &path.to_string();
        param
            .trainable
            .then(|| optimizer.slot(Named { path, param }))
    });
    Slots::new(slots)
}

/// Computes the new parameters and slots of a model, or of a part of it.
///
/// `step` is the number of updates made before, an integer scalar, or a [`StepOf`]; `model` is the
/// description of the model, or a [`Part`] of it. `grads` has a leaf for every leaf of the model;
/// leaves that are not trained ignore theirs and do not change.
///
/// A parameter that the loss does not depend on has no gradient ([`grad`](crate::grad())). It and
/// its slots do not change, also under weight decay and momentum, as in PyTorch; a
/// [warning](Trace::warnings) names all of them. It is a mistake if no trained parameter has a
/// gradient.
///
/// # Panics
/// If `params`, `grads` or `slots` are not trees of the structure of `model`.
#[track_caller]
pub fn update<'t, 'm, M: Tree<Leaf = Param> + 'm, O: Optimizer>(
    optimizer: &O,
    cx: &'t Trace,
    step: impl Into<StepOf<'t>>,
    model: impl Into<Part<'m, M>>,
    params: Of<M, Tensor<'t>>,
    grads: Of<M, Tensor<'t>>,
    slots: SlotsOf<M, O, Tensor<'t>>,
) -> (Of<M, Tensor<'t>>, SlotsOf<M, O, Tensor<'t>>) {
    let _site = cx.called_from(Location::caller());
    let (step, part) = (step.into(), model.into());
    let model = part.model;
    check(optimizer, cx, model);
    let (mut params, mut grads) = (params.into_leaves(), grads.into_leaves());
    let trained = with_gradient(cx, &part, &grads);
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
                let (param, slot) = stepped(optimizer, step, named, [param, grad], slot);
                (param, Some(slot))
            }
            slot => (param, slot),
        };
        next_params.push(param);
        slot
    });
    (model.rebuild(next_params), Slots::new(next_slots))
}

/// The parameter less its step, and the new slot.
#[track_caller]
fn stepped<'t, O: Optimizer>(
    optimizer: &O,
    step: StepOf<'t>,
    named: Named<'_>,
    [param, grad]: [Tensor<'t>; 2],
    slot: <O::Slot as Family>::Of<Tensor<'t>>,
) -> (Tensor<'t>, <O::Slot as Family>::Of<Tensor<'t>>) {
    let dtype = wide(param.dtype());
    let cx = param.trace();
    let (first, frozen) = (optimizer.first_update(named), slot_leaves::<O>(&slot));
    let gradient = Gradient {
        grad: grad.convert(dtype),
        param: param.convert(dtype),
        at: step.convert(dtype),
        named,
        first: (first > 0).then(|| cx.scalar(first as f64, dtype)),
    };
    let (direction, slot) = optimizer.direction(gradient, slot);
    if direction.ty() != gradient.param.ty() && !direction.is_error() {
        let message = format!(
            "the step of `{}` is {}, and the parameter {}; the step of an optimizer has the type \
             of `Gradient::grad`",
            named.path,
            direction.ty(),
            gradient.param.ty()
        );
        param.trace().fail("optimizer", message, None);
        return (param, slot);
    }
    let next = (gradient.param - direction).convert(param.dtype());
    if first == 0 {
        return (next, slot);
    }
    let active = is_active(step.count, first);
    let mut frozen = frozen.into_iter();
    let slot = slot.map_leaves(|_, leaf| {
        let before = frozen
            .next()
            .expect("the next slot has the leaves of the slot");
        active.select(leaf, before)
    });
    (active.select(next, param), slot)
}

/// The leaves of a slot.
fn slot_leaves<'t, O: Optimizer>(slot: &<O::Slot as Family>::Of<Tensor<'t>>) -> Vec<Tensor<'t>> {
    slot.leaves().into_iter().copied().collect()
}

/// Records what the optimizer finds wrong with its settings.
#[track_caller]
fn check<M: Tree<Leaf = Param>, O: Optimizer>(optimizer: &O, cx: &Trace, model: &M) {
    let named = model.named();
    let trained = named.iter().filter(|(_, param)| param.trainable);
    let trained: Vec<Named<'_>> = trained.map(|(path, param)| Named { path, param }).collect();
    if let Err(error) = optimizer.check(&trained) {
        cx.fail("optimizer", error.message(), None);
    }
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

/// Determines for each leaf of a model whether it is trained here and has a gradient. A warning names
/// those without one; it is a mistake if none has one.
fn with_gradient<M: Tree<Leaf = Param>>(
    cx: &Trace,
    part: &Part<'_, M>,
    grads: &[Tensor<'_>],
) -> Vec<bool> {
    let none = cx.without_gradient(grads);
    let mut unused = Vec::new();
    let mut trained = 0;
    let leaves = part.model.named().into_iter().zip(grads);
    let with_gradient = leaves.map(|((path, description), grad)| {
        if !part.trains(&path, description) {
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
