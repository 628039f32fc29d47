//! Strategies: sharding of parameters, optimizer slots and batches over a mesh.
//!
//! A [`Strategy`] is chosen outside of the model, which does not depend on it. It assigns each
//! parameter a [`PartitionSpec`] by its path and type; the compiler derives from these which device
//! computes what, and the communication between devices. A strategy therefore changes where results
//! are computed, and the results only by rounding.

mod assign;
mod rules;
mod state;
mod table;

use std::{fmt, str::FromStr, sync::Arc};

use halite_core::{
    DTypePolicy, Error, MeshShape, PartitionSpec, Result,
    tree::{Family, Of, Tree},
};
use halite_nn::{AxisRoles, Optimizer, Param, Pattern, ShardedType};

use crate::State;

use self::assign::of_rule;
pub use self::rules::Rule;
pub(crate) use self::state::{check_sizes, state_specs};

const OP: &str = "strategy";

/// Axes that a batch is split over: those of them that the mesh has.
const BATCH_AXES: [&str; 3] = ["replica", "data", "fsdp"];
/// Axes that fully sharded parameters are split over: the first of them that the mesh has.
const FSDP_AXES: [&str; 2] = ["fsdp", "data"];
/// Axis of tensor parallelism.
const MODEL_AXIS: &str = "model";

/// Sharding of parameters, optimizer slots and batches over the axes of a mesh.
///
/// | written | what is split | over the axes |
/// |---|---|---|
/// | `dp` | the batch; parameters are replicated | `replica`, `data`, `fsdp` |
/// | `zero1`, or `zero2` | the batch, and optimizer slots and averages of large parameters | as `fsdp` |
/// | `fsdp` | the batch, and each large parameter along its largest dimension that divides | the batch as `dp`; parameters over `fsdp`, or `data` where the mesh has no `fsdp` |
/// | `tp` | parameters of layers, by [rules](Strategy::tensor_rules) | `model` |
/// | `dp+tp`, `zero1+tp`, `fsdp+tp` | both | both |
///
/// Optimizer slots have the sharding of their parameter, but under `zero1`; the optimizer's scalars
/// are replicated. On one device all strategies are the same.
///
/// `zero2` is accepted as `zero1`: within one program the compiler decides whether gradients are
/// sharded; between processes they are not. Between processes, `zero1` shards every optimizer slot and
/// average; each process updates its shard of the parameters, and an all-gather restores them.
///
/// ```
/// use halite_core::MeshShape;
/// use halite_nn::Linear;
/// use halite_train::Strategy;
///
/// let mesh = MeshShape::new([("data", 2), ("model", 4)])?;
/// let strategy: Strategy = "fsdp+tp".parse()?;
/// let strategy = strategy.rule("**.weight", "None, model")?;
/// let specs = strategy.specs(&mesh, &Linear::new(512, 2048))?;
/// assert_eq!(specs.weight.to_string(), "(None, model)");
/// println!("{}", strategy.describe(&mesh, &Linear::new(512, 2048))?);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Strategy {
    data: bool,
    zero: bool,
    fsdp: bool,
    tensor: bool,
    min_elements: usize,
    not_split: Vec<Pattern>,
    rules: Vec<Rule>,
}

impl Default for Strategy {
    /// [`data_parallel`](Self::data_parallel)
    fn default() -> Self {
        Strategy::data_parallel()
    }
}

impl Strategy {
    const NONE: Strategy = Strategy {
        data: false,
        zero: false,
        fsdp: false,
        tensor: false,
        min_elements: Strategy::MIN_ELEMENTS,
        not_split: Vec::new(),
        rules: Vec::new(),
    };

    /// Default of [`min_elements`](Self::min_elements): gathering 64 KiB costs more time than
    /// splitting it is worth in memory.
    pub const MIN_ELEMENTS: usize = 1 << 14;

    /// Data parallelism, `dp`: each device has its part of the batch and all parameters.
    pub fn data_parallel() -> Self {
        Strategy {
            data: true,
            ..Strategy::NONE
        }
    }

    /// ZeRO's first stage, `zero1`: data parallelism where each device has its part of the optimizer's
    /// state and of averages. `zero2` is accepted as a name of it.
    ///
    /// It is the default between [processes](crate::TrainerBuilder::processes), where it needs an
    /// optimizer that is [elementwise](Optimizer::is_elementwise).
    pub fn zero1() -> Self {
        Strategy {
            data: true,
            zero: true,
            ..Strategy::NONE
        }
    }

    /// Fully sharded data parallelism, `fsdp`: each device has its part of the batch and of every
    /// large parameter, which is gathered where it is used.
    pub fn fsdp() -> Self {
        Strategy {
            fsdp: true,
            ..Strategy::NONE
        }
    }

    /// Tensor parallelism, `tp`: each device has its part of the layers' parameters, and computes
    /// that part of the layer.
    pub fn tensor_parallel() -> Self {
        Strategy {
            tensor: true,
            ..Strategy::NONE
        }
    }

    /// Combines two strategies: `Strategy::fsdp().and(Strategy::tensor_parallel())`.
    pub fn and(mut self, other: Strategy) -> Self {
        self.data |= other.data;
        self.fsdp |= other.fsdp;
        // Fully sharded parameters have sharded slots.
        self.zero = (self.zero || other.zero) && !self.fsdp;
        self.tensor |= other.tensor;
        self.min_elements = self.min_elements.min(other.min_elements);
        self.not_split.extend(other.not_split);
        self.rules.extend(other.rules);
        self
    }

    /// Shards parameters whose path matches a [`Pattern`] by this spec, in place of the rest of the
    /// strategy. Of several rules the first that matches a parameter applies.
    ///
    /// A spec is for the *last* dimensions of a parameter, so that one rule serves a layer and a
    /// [`Stack`](halite_nn::Stack) of such layers. `()` replicates a parameter.
    ///
    /// # Errors
    /// If `pattern` is not a valid pattern, or `spec` not a valid partition spec.
    pub fn rule(mut self, pattern: &str, spec: &str) -> Result<Self> {
        self.rules.push(Rule::new(pattern, spec)?);
        Ok(self)
    }

    /// Sets the number of elements from which on `fsdp` splits a parameter. Default
    /// [`MIN_ELEMENTS`](Self::MIN_ELEMENTS).
    pub fn min_elements(mut self, elements: usize) -> Self {
        self.min_elements = elements;
        self
    }

    /// Exempts parameters whose path matches a [`Pattern`] from `fsdp`.
    ///
    /// # Errors
    /// If it is not a valid pattern.
    pub fn not_split(mut self, pattern: &str) -> Result<Self> {
        self.not_split.push(pattern.parse()?);
        Ok(self)
    }

    /// Checks that each rule, and each pattern of [`not_split`](Self::not_split), matches a
    /// parameter of `model`.
    ///
    /// # Errors
    /// The patterns that match none, with the nearest path.
    pub fn check_paths<M: Tree<Leaf = Param>>(&self, model: &M) -> Result<()> {
        match &self.unmatched_patterns(&model.named())[..] {
            [] => Ok(()),
            mistakes => Err(Error::invalid(OP, mistakes.join("\n"))),
        }
    }

    /// Whether it splits large parameters over the axis of the batch.
    pub fn has_fsdp(&self) -> bool {
        self.fsdp
    }

    /// Whether it splits the optimizer's state and averages, and not the parameters themselves.
    pub fn shards_state(&self) -> bool {
        self.zero
    }

    /// Whether it may split parameters over devices.
    pub(crate) fn shards_parameters(&self) -> bool {
        self.fsdp || self.tensor || !self.rules.is_empty()
    }

    /// The built-in rules of tensor parallelism for the layers of `halite-nn`; the first that
    /// matches a parameter and divides it applies.
    ///
    /// Dense layers come in pairs: the first is split by its outputs (*column parallel*), the
    /// second by its inputs (*row parallel*), so that activations between them stay split, and only
    /// the result is reduced over the devices. The heads of attention are such a pair; embeddings
    /// are split by tokens.
    pub fn tensor_rules() -> Vec<Rule> {
        rules::built_in()
    }

    /// The partition spec of batches: the first dimension is split over every batch axis that
    /// `mesh` has.
    pub fn batch_spec(&self, mesh: &MeshShape) -> PartitionSpec {
        let axes: Vec<&str> = mesh
            .axes()
            .map(|(name, _)| name)
            .filter(|name| BATCH_AXES.contains(name))
            .collect();
        if (self.data || self.fsdp) && !axes.is_empty() {
            PartitionSpec::new([axes])
        } else {
            PartitionSpec::replicated()
        }
    }

    /// Axes of `mesh` in each role that layers of a model name.
    pub fn axis_roles(&self, mesh: &MeshShape) -> AxisRoles {
        let model = self.tensor && mesh.axis(MODEL_AXIS).is_some();
        AxisRoles {
            batch: self.batch_spec(mesh).axes(0).to_vec(),
            model: model.then(|| MODEL_AXIS.into()).into_iter().collect(),
        }
    }

    /// The partition spec of each parameter of `model` on `mesh`.
    ///
    /// # Errors
    /// One error with all mistakes, each with the path of the parameter and the numbers: an axis
    /// that the mesh does not have, or that nothing uses; a rule that matches no parameter, or
    /// whose spec does not divide a parameter it matches.
    pub fn specs<M: Tree<Leaf = Param>>(
        &self,
        mesh: &MeshShape,
        model: &M,
    ) -> Result<Of<M, PartitionSpec>> {
        let assigned = self.assign(mesh, &model.named())?;
        Ok(model.rebuild(assigned.into_iter().map(|assigned| assigned.spec)))
    }

    /// As [`specs`](Self::specs), of what the state has of each parameter besides itself.
    fn slot_specs<M: Tree<Leaf = Param>>(
        &self,
        mesh: &MeshShape,
        model: &M,
    ) -> Result<Of<M, PartitionSpec>> {
        let mut of_slots = self.clone();
        of_slots.fsdp |= self.zero && mesh.size() > 1;
        of_slots.specs(mesh, model)
    }

    /// Types and shardings of the state of a training step: the parameters, the slots of
    /// `optimizer`, the step number and the random key, each stored as the type it is declared
    /// with.
    ///
    /// # Errors
    /// As [`specs`](Self::specs).
    pub fn state_specs<F: Family, O: Optimizer + Clone>(
        &self,
        mesh: &MeshShape,
        model: &F::Of<Param>,
        optimizer: &O,
    ) -> Result<State<F, O::Slot, ShardedType>> {
        let optimizer = Arc::new(optimizer.clone());
        state_specs::<F, O::Slot>(mesh, self, model, optimizer, DTypePolicy::F32.into())
    }

    /// Checks that the axes of `mesh` are those that this strategy needs.
    ///
    /// # Errors
    /// If an axis is missing, or nothing is split over it.
    pub fn check(&self, mesh: &MeshShape) -> Result<()> {
        if mesh.size() == 1 {
            return Ok(());
        }
        let has = |axes: &[&str]| axes.iter().any(|axis| mesh.axis(axis).is_some());
        let missing = |what: &str, axes: &[&str]| {
            let axes = axes.join("`, or `");
            Err(Error::invalid(
                OP,
                format!(
                    "`{self}` splits {what} over the axis `{axes}`, which {mesh:#} does not have"
                ),
            ))
        };
        if (self.data || self.fsdp) && !has(&BATCH_AXES) {
            return missing("the batch", &BATCH_AXES);
        }
        if (self.fsdp || self.zero) && !has(&FSDP_AXES) {
            let what = if self.fsdp { "parameters" } else { "slots" };
            return missing(what, &FSDP_AXES);
        }
        if self.tensor && !has(&[MODEL_AXIS]) {
            return missing("parameters", &[MODEL_AXIS]);
        }
        for rule in &self.rules {
            rule.spec
                .check(mesh)
                .map_err(|error| of_rule(rule, &error))?;
        }
        let is_used = |axis: &str| {
            ((self.data || self.fsdp) && BATCH_AXES.contains(&axis))
                || (self.tensor && axis == MODEL_AXIS)
                || self
                    .rules
                    .iter()
                    .any(|rule| rule.spec.all_axes().any(|used| **used == *axis))
        };
        if let Some((axis, size)) = mesh.axes().find(|(axis, size)| *size > 1 && !is_used(axis)) {
            let would = match axis {
                MODEL_AXIS => "; `tp` splits parameters over it",
                axis if BATCH_AXES.contains(&axis) => "; `dp` and `fsdp` split the batch over it",
                _ => "; a rule can name it",
            };
            let part = if self.data || self.fsdp {
                "part of the batch"
            } else {
                "part of the parameters"
            };
            let message = format!(
                "`{self}` splits nothing over the axis `{axis}` of {mesh:#}: each {part} would be on \
                 {size} of its {} devices, which compute the same{would}",
                mesh.size()
            );
            return Err(Error::invalid(OP, message));
        }
        Ok(())
    }

    /// The axis of a one-dimensional mesh that this strategy can use; `None` if it needs two axes.
    pub(crate) fn axis_of_all(&self) -> Option<&'static str> {
        match (self.data || self.fsdp, self.tensor) {
            (true, false) => Some("data"),
            (false, true) => Some(MODEL_AXIS),
            _ => None,
        }
    }
}

impl fmt::Display for Strategy {
    /// `fsdp+tp`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.data && !self.zero, "dp"),
            (self.zero, "zero1"),
            (self.fsdp, "fsdp"),
            (self.tensor, "tp"),
        ];
        let parts: Vec<&str> = parts
            .into_iter()
            .filter(|(is_part, _)| *is_part)
            .map(|(_, name)| name)
            .collect();
        f.write_str(&parts.join("+"))
    }
}

impl FromStr for Strategy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.split('+')
            .try_fold(Strategy::NONE, |strategy, part| match part {
                "dp" => Ok(strategy.and(Strategy::data_parallel())),
                "zero1" | "zero2" => Ok(strategy.and(Strategy::zero1())),
                "fsdp" => Ok(strategy.and(Strategy::fsdp())),
                "tp" => Ok(strategy.and(Strategy::tensor_parallel())),
                other => {
                    let message = format!(
                        "unknown strategy `{other}` in `{text}`; expected one of dp, zero1, fsdp, \
                         tp, dp+tp, zero1+tp, fsdp+tp"
                    );
                    Err(Error::invalid(OP, message))
                }
            })
    }
}
