//! Optimizers, traced as part of the step's program.
//!
//! An [`Optimizer`] defines the state (*slot*) and the update rule of one parameter; [`slots`] and
//! [`update`] apply it to a whole model. Nothing is read back: learning rates are computed from the
//! step count on the device.
//!
//! Learning rates, the numbers of schedules, decays, momenta, betas and limits are
//! [hyperparameters](crate::Trace::hyperparameter): arguments of the program, which is not compiled
//! again for other values. A weight decay or momentum of 0 removes its term from the program. A custom
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
mod update;

use std::{fmt, sync::Arc};

use halite_core::{Error, Family, Result, Tree};

pub use self::{
    adafactor::{Adafactor, Factored},
    adagrad::{Adagrad, SquareSum},
    adam::{Adam, AdamW, Lamb, Moments},
    average::{Averages, WeightAveraging, averaged, is_averaged},
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
    settings::Range,
    sgd::{Sgd, Velocity},
    slots::Slots,
    unfreeze::{Unfreeze, without_frozen},
    update::update,
};
use crate::{Init, Param, Schedule, Tensor, special::wide};

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

    /// Its numbers, by name, and what each may be; those of parts have their own
    /// [`check`](Self::check).
    fn numbers(&self) -> Vec<(&'static str, f64, Range)> {
        Vec::new()
    }

    /// Checks the settings for these parameters, all that are trained. [`update`] calls it before
    /// anything is computed.
    ///
    /// # Errors
    /// By default those of the [schedules](Self::schedules).
    fn check(&self, params: &[Named<'_>]) -> Result<()> {
        let _ = params;
        check_numbers(self)
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

/// Checks the schedules and the numbers of an optimizer.
fn check_numbers(optimizer: &(impl Optimizer + ?Sized)) -> Result<()> {
    let refused = |message: String| Err(Error::invalid("optimizer", message));
    for (name, schedule) in optimizer.schedules() {
        if let Err(error) = schedule.check() {
            return refused(format!("`{name}`: {}", error.message()));
        }
        // At its start, within and at its end: a rate below 0 climbs the loss.
        let last = schedule.steps().unwrap_or(1000);
        for step in [0, 1, last / 2, last] {
            let rate = schedule.value(step);
            if !(rate.is_finite() && rate >= 0.0) {
                return refused(format!(
                    "`{name}` is {rate} at step {step} of {schedule:?}; expected 0 or a positive number"
                ));
            }
        }
    }
    for (name, value, range) in optimizer.numbers() {
        if !range.contains(value) {
            return refused(format!("`{name}` is {value}; expected {range}"));
        }
    }
    Ok(())
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

    fn numbers(&self) -> Vec<(&'static str, f64, Range)> {
        O::numbers(self)
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

/// The slots of an optimizer, with leaves `L`: `Slots<Moments<()>, Array>`.
pub type SlotsOf<O, L> = Slots<<O as Optimizer>::Slot, L>;

/// Describes the slots of all trained parameters of `model`; [`init`](crate::init()) initializes
/// them.
pub fn slots<M: Tree<Leaf = Param>, O: Optimizer>(optimizer: &O, model: &M) -> SlotsOf<O, Param> {
    Slots::of(model, |path, param| {
        let path = &path.to_string();
        param
            .trainable
            .then(|| optimizer.slot(Named { path, param }))
    })
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
