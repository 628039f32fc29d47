//! The training state: parameters, optimizer slots, step, random key.

mod options;
mod shards;
mod stepping;
mod tree;
mod types;

use std::{collections::HashSet, fmt, panic::Location, sync::Arc};

use halite_core::{
    Array, Client, DType, DTypePolicy, Result,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_nn::{
    Jit, Model, Optimizer, Param, Pattern, ProcessShards, Tensor, Trace, grad, init,
    optim::{self, Averages, Slots, WeightAveraging, averaged, is_averaged, without_frozen},
    rng,
};

pub use self::options::StateOptions;
use self::shards::{divided, shards_of};
pub(crate) use self::{
    shards::{Divided, is_divided, undivided},
    stepping::Turn,
    types::StateTypes,
};
use crate::{
    Scaling,
    trained::{is_trained, trained_paths},
};

/// Everything that a training step changes: model, optimizer slots, step count and random key. It
/// has its optimizer and the description of its model, which are constants of the step's program.
///
/// ```
/// use halite_core::{Array, Client, Null};
/// use halite_nn::{Adam, Linear, grad, jit_step, mse};
/// use halite_train::State;
///
/// # fn main() -> halite_core::Result<()> {
/// # let client = Client::new(Null::new(1));
/// let (net, adam) = (Linear::new(3, 1), Adam::new(1e-3));
/// let mut state = State::new(&client, &net, &adam, 0)?;
/// let step = jit_step(&client, &state, |cx, state, [x, y]| {
///     state.set_training_mode(cx);
///     let loss = mse(state.model.forward(x), y).mean_all();
///     let gradients = grad(loss, &state.model);
///     (state.update(gradients), [loss])
/// });
/// let x = Array::from_slice(&client, &[0.0f32; 12], [4, 3])?;
/// let y = Array::from_slice(&client, &[0.0f32; 4], [4, 1])?;
/// let (next, [loss]) = step.call(state, [&x, &y])?;
/// state = next;
/// # assert_eq!(loss.ty().to_string(), "f32[]");
/// # let _ = state;
/// # Ok(())
/// # }
/// ```
pub struct State<F: Family, S: Family, L> {
    /// Parameters, and the model's other state (running statistics).
    pub model: F::Of<L>,
    /// Optimizer slots of each parameter.
    pub slots: Slots<S, L>,
    /// The number of updates so far: a `u32` scalar.
    pub step: L,
    /// Key of the random numbers of every step: `u32[2]`.
    pub key: L,
    /// Loss scale, if the precision policy has one ([`with_precision`](Self::with_precision)).
    pub scale: Option<Scaling<L>>,
    /// Averages of the trained parameters and the model's state, if the options have a rule of them.
    pub average: Option<Averages<L>>,
    /// Factor of all learning rates, an `f32` scalar, if the options have one. A callback may
    /// replace it between two steps.
    pub rate_factor: Option<L>,
    /// Steps that changed nothing, a `u32` scalar, if the options count them.
    pub skipped: Option<L>,
    rule: Arc<Rule<S>>,
}

/// Path of the number of skipped steps.
pub(crate) const SKIPPED: &str = "skipped";

/// How a state is updated.
struct Rule<S: Family> {
    /// Descriptions of the leaves of the model, in order.
    params: Vec<Param>,
    optimizer: Arc<dyn Optimizer<Slot = S>>,
    average: Option<WeightAveraging>,
    /// How processes divide slots and averages, if they do.
    shards: Option<ProcessShards>,
}

impl<S: Family> Rule<S> {
    fn of<M: Tree<Leaf = Param>>(
        net: &M,
        optimizer: Arc<dyn Optimizer<Slot = S>>,
        options: &StateOptions,
    ) -> Arc<Self> {
        Arc::new(Rule {
            params: net.leaves().into_iter().cloned().collect(),
            optimizer,
            average: options.average,
            shards: options.shards,
        })
    }

    /// Whether the leaf with this index has a gradient.
    fn is_trained(&self, leaf: usize) -> bool {
        is_trained(&self.params[leaf])
    }
}

impl<F: Family, S: Family> State<F, S, Array> {
    /// Initializes the training state of `net` on the client's first device. The same `seed` gives
    /// the same parameters as a run of the [`Trainer`](crate::Trainer).
    ///
    /// # Errors
    /// If a parameter cannot be initialized, or the device has too little memory.
    #[track_caller]
    pub fn new<M, O>(client: &Client, net: &M, optimizer: &O, seed: u64) -> Result<Self>
    where
        M: Model<Family = F>,
        O: Optimizer<Slot = S> + Clone,
    {
        State::with_precision(client, net, optimizer, seed, DTypePolicy::F32)
    }

    /// As [`new`](Self::new), for steps under a precision policy: devices store the parameters as
    /// it says, and the state has its loss scale, if it has one. The step has the same policy, and
    /// takes its gradients by [`gradients`](State::gradients):
    ///
    /// ```
    /// use halite_core::{Array, Client, DTypePolicy, Null};
    /// use halite_nn::{Adam, Linear, jit_step, mse};
    /// use halite_train::State;
    ///
    /// # fn main() -> halite_core::Result<()> {
    /// # let client = Client::new(Null::new(1));
    /// let policy = DTypePolicy::F16_MIXED;
    /// let (net, adam) = (Linear::new(3, 1), Adam::new(1e-3));
    /// let state = State::with_precision(&client, &net, &adam, 0, policy)?;
    /// let step = jit_step(&client, &state, |cx, state, [x, y]| {
    ///     state.set_training_mode(cx);
    ///     let loss = mse(state.model.forward(x), y).mean_all();
    ///     let gradients = state.gradients(loss);
    ///     (state.update(gradients), [loss])
    /// })
    /// .precision(policy);
    /// let x = Array::from_slice(&client, &[0.0f32; 12], [4, 3])?;
    /// let y = Array::from_slice(&client, &[0.0f32; 4], [4, 1])?;
    /// let (state, [_loss]) = step.call(state, [&x, &y])?;
    /// assert_eq!(state.scale.unwrap().factor.ty().to_string(), "f32[]");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new); if the policy is not consistent.
    #[track_caller]
    pub fn with_precision<M, O>(
        client: &Client,
        net: &M,
        optimizer: &O,
        seed: u64,
        policy: DTypePolicy,
    ) -> Result<Self>
    where
        M: Model<Family = F>,
        O: Optimizer<Slot = S> + Clone,
    {
        State::with_options(client, net, optimizer, seed, policy.into())
    }

    /// As [`with_precision`](Self::with_precision), with further parts:
    ///
    /// ```
    /// use halite_core::{Array, Client, Null};
    /// use halite_nn::{Adam, Linear, jit_step, mse, optim::WeightAveraging};
    /// use halite_train::{State, StateOptions};
    ///
    /// # fn main() -> halite_core::Result<()> {
    /// # let client = Client::new(Null::new(1));
    /// let (net, adam) = (Linear::new(3, 1), Adam::new(1e-3));
    /// let options = StateOptions {
    ///     average: Some(WeightAveraging::ema(0.999)),
    ///     ..StateOptions::default()
    /// };
    /// let state = State::with_options(&client, &net, &adam, 0, options)?;
    /// let step = jit_step(&client, &state, |cx, state, [x, y]| {
    ///     state.set_training_mode(cx);
    ///     let loss = mse(state.model.forward(x), y).mean_all();
    ///     let gradients = state.gradients(loss);
    ///     (state.update(gradients), [loss])
    /// });
    /// let x = Array::from_slice(&client, &[0.0f32; 12], [4, 3])?;
    /// let y = Array::from_slice(&client, &[0.0f32; 4], [4, 1])?;
    /// let (state, [_loss]) = step.call(state, [&x, &y])?;
    /// let net = state.averaged_model().expect("the options have a rule");
    /// assert_eq!(net.weight.ty().to_string(), "f32[3, 1]");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`with_precision`](Self::with_precision); if the rule of the averages has numbers that it
    /// cannot have.
    #[track_caller]
    pub fn with_options<M, O>(
        client: &Client,
        net: &M,
        optimizer: &O,
        seed: u64,
        options: StateOptions,
    ) -> Result<Self>
    where
        M: Model<Family = F>,
        O: Optimizer<Slot = S> + Clone,
    {
        options.check()?;
        let policy = options.precision;
        let trained = trained_paths(net).map(|path| format!("model.{path}"));
        let trained: HashSet<String> = trained.collect();
        let (net, optimizer) = (net.described(), Arc::new(optimizer.clone()));
        let key = Array::from_slice(client, &rng::key(seed), [2])?;
        Jit::<Empty<()>, Leaf<()>, State<F, S, ()>>::function(client, move |cx, Leaf(key)| {
            State::initialize(cx, &net, optimizer.clone(), options, key)
        })
        .named("init")
        .runs_once()
        .output_stored(move |path, ty| {
            if trained.contains(path) {
                policy.stored(ty.dtype())
            } else {
                ty.dtype()
            }
        })
        .of_line(Location::caller())
        .run(&key)
    }
}

impl<F: Family, S: Family, L> State<F, S, L> {
    /// For each leaf of the model, whether it has a gradient and matches `part`, if it is given.
    pub(crate) fn trained(&self, part: Option<&Pattern>) -> Vec<bool> {
        let named = self.model.named().into_iter().enumerate();
        let is_trained = |(leaf, (path, _)): (usize, (String, &L))| {
            self.rule.is_trained(leaf) && part.is_none_or(|part| part.matches(&path))
        };
        named.map(is_trained).collect()
    }

    /// How processes divide slots and averages, if they do.
    pub(crate) fn shards(&self) -> Option<ProcessShards> {
        self.rule.shards
    }

    /// The model with the averages of its trained parameters and state, if there are any, and its other
    /// leaves.
    pub fn averaged_model(&self) -> Option<F::Of<&L>> {
        let average = self.average.as_ref();
        average.map(|average| averaged::<F, L>(&self.model, average))
    }
}

impl<'t, F: Family, S: Family> State<F, S, Tensor<'t>> {
    /// Number of steps so far that changed nothing, if there may be some.
    pub(crate) fn skipped_steps(&self) -> Option<Tensor<'t>> {
        let scale = self.scale.as_ref();
        scale.map(|scale| scale.skipped).or(self.skipped)
    }

    /// Initializes the state in a traced function, as for a custom sharding of its arrays. `key` is
    /// `u32[2]`.
    pub fn initialize<M>(
        cx: &'t Trace,
        net: &M,
        optimizer: Arc<dyn Optimizer<Slot = S>>,
        options: StateOptions,
        key: Tensor<'t>,
    ) -> Self
    where
        M: Tree<Leaf = Param, Family = F>,
    {
        let rule = Rule::of(net, optimizer.clone(), &options);
        let StateOptions {
            precision,
            average,
            has_rate_factor,
            shards,
            ..
        } = options;
        let has_skipped = options.has_skipped();
        let model: F::Of<Tensor<'t>> = init(cx, net, rng::fold_in(key, 0));
        let average = average.map(|rule| {
            let averaged: Vec<bool> = net.leaves().into_iter().map(is_averaged).collect();
            let model = Tree::leaf_refs(&model).map_leaves(|_, leaf| *leaf);
            rule.first(net, &shards_of::<F>(cx, shards, &averaged, model))
        });
        let slots = divided(net, optim::slots(&optimizer, net), shards);
        State {
            average,
            rate_factor: has_rate_factor.then(|| cx.scalar(1.0, DType::F32)),
            skipped: has_skipped.then(|| cx.scalar(0.0, DType::U32)),
            model,
            slots: init(cx, &slots, rng::fold_in(key, 1)),
            step: cx.scalar(0.0, DType::U32),
            key: rng::fold_in(key, 2),
            scale: (precision.loss_scale).map(|rule| Scaling::first(cx, rule)),
            rule,
        }
    }

    /// Sets the trace to training mode, with random numbers that differ in each step. Call it before
    /// the model's forward pass; dropout and batch norm need it.
    pub fn set_training_mode(&self, cx: &'t Trace) {
        cx.set_mode(true, Some(rng::fold_in(self.key, self.step)));
    }

    /// The gradient of `loss`, a scalar, by each parameter that is trained, and zeros for the other
    /// leaves and for parameters that the optimizer has [frozen](Optimizer::unfreeze) still. With a
    /// [loss scale](Self::scale) it is that of the scaled loss, divided by the scale.
    #[track_caller]
    pub fn gradients(&self, loss: Tensor<'t>) -> F::Of<Tensor<'t>> {
        self.all_gradients(Turn::default(), self.trained_gradients(None, loss))
    }

    /// The gradient of `loss` by each parameter that is trained and matches `part`, if it is given.
    #[track_caller]
    pub(crate) fn trained_gradients(
        &self,
        part: Option<&Pattern>,
        loss: Tensor<'t>,
    ) -> Vec<Tensor<'t>> {
        let _site = loss.trace().called_from(Location::caller());
        let wrt: Vec<Leaf<Tensor<'t>>> = self.trained_leaves(part).into_iter().map(Leaf).collect();
        let scale = self.scale.as_ref();
        let loss = scale.map_or(loss, |scale| scale.scale(loss));
        let gradients = grad(loss, &wrt).into_iter();
        gradients
            .map(|Leaf(gradient)| scale.map_or(gradient, |scale| scale.unscale(gradient)))
            .collect()
    }

    /// The parameters that are trained and match `part`, if it is given.
    pub(crate) fn trained_leaves(&self, part: Option<&Pattern>) -> Vec<Tensor<'t>> {
        self.trained_of(part, &self.model)
    }

    /// The leaves of `model`, or of gradients, that are trained and match `part`, if it is given.
    pub(crate) fn trained_of(
        &self,
        part: Option<&Pattern>,
        model: &F::Of<Tensor<'t>>,
    ) -> Vec<Tensor<'t>> {
        let leaves = model.leaves().into_iter().zip(self.trained(part));
        let trained = leaves.filter(|(_, is_trained)| *is_trained);
        trained.map(|(leaf, _)| *leaf).collect()
    }

    /// The gradients of the trained parameters of `turn`, and zeros for the other leaves and for
    /// parameters that are frozen still.
    #[track_caller]
    pub(crate) fn all_gradients(
        &self,
        turn: Turn<'_>,
        trained: Vec<Tensor<'t>>,
    ) -> F::Of<Tensor<'t>> {
        let mut trained = trained.into_iter();
        let leaves = self.model.leaves().into_iter().zip(self.trained(turn.part));
        let all = leaves.map(|(leaf, is_trained)| {
            if is_trained {
                trained.next().expect("a gradient for every trained leaf")
            } else {
                leaf.zeros_like()
            }
        });
        let gradients = self.model.with_leaves(all.collect::<Vec<_>>());
        let Rule {
            params, optimizer, ..
        } = &*self.rule;
        let net = self.model.rebuild(params.iter().cloned());
        let count = turn.count(self.step);
        without_frozen(optimizer, count.trace(), count, &net, gradients)
    }

    /// Returns the next state: parameters and slots after an update along `gradients`, the running
    /// statistics that layers computed in this step, and the step count plus 1.
    ///
    /// With a [loss scale](Self::scale), gradients that are not finite change neither parameters
    /// nor slots nor statistics, and halve the scale.
    ///
    /// # Panics
    /// If `gradients` is a tree of another structure than the model.
    #[track_caller]
    #[must_use = "the state after the update is the result"]
    pub fn update(self, gradients: F::Of<Tensor<'t>>) -> Self {
        let step = self.begin_step().update(Turn::default(), gradients);
        step.end(None)
    }
}

impl<F: Family, S: Family, L> fmt::Debug for State<F, S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} leaves)", self.leaf_count())
    }
}
