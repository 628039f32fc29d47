//! Strategies: how parameters, optimizer slots and batches lie over the devices of a mesh.
//!
//! A [`Strategy`] is chosen from outside; the model does not know of it. It gives each parameter a
//! [`PartitionSpec`] by its path and type, and the compiler makes of these which device computes
//! what and what devices tell each other. So no strategy changes what is computed, but for
//! rounding; it changes where.

mod pattern;
mod rules;

use std::{fmt, str::FromStr, sync::Arc};

use halite_core::{
    DTypePolicy, Error, Mesh, PartitionSpec, Result, Sharding, TensorType,
    tree::{Family, Of, Tree},
};
use halite_nn::{ArraySpec, Optimizer, Param};
use indicatif::{BinaryBytes, HumanCount};

use crate::{State, programs::state_specs};

pub use self::{pattern::Pattern, rules::Rule};

const OP: &str = "strategy";

/// Axes that a batch is split over, those of them that the mesh has.
const BATCH_AXES: [&str; 3] = ["replica", "data", "fsdp"];
/// Axes that fully sharded parameters are split over: the first of them that the mesh has.
const FSDP_AXES: [&str; 2] = ["fsdp", "data"];
/// The axis of tensor parallelism.
const MODEL_AXIS: &str = "model";

/// How parameters, optimizer slots and batches lie over the devices of a mesh.
///
/// | written | what is split | over the axes |
/// |---|---|---|
/// | `dp` | the batch; parameters are whole on every device | `replica`, `data`, `fsdp` |
/// | `fsdp` | the batch, and each large parameter along its largest dimension that divides | the batch as `dp`; parameters over `fsdp`, or `data` where the mesh has no `fsdp` |
/// | `tp` | parameters of layers, by [rules](Strategy::tensor_rules) | `model` |
/// | `dp+tp`, `fsdp+tp` | both | both |
///
/// What the optimizer keeps of a parameter lies as the parameter; its numbers lie whole on every
/// device. On one device every strategy is the same.
///
/// ```
/// use std::sync::Arc;
/// use halite_core::{DeviceId, Mesh};
/// use halite_nn::Linear;
/// use halite_train::Strategy;
///
/// let mesh = Arc::new(Mesh::new([("data", 2), ("model", 4)], (0..8).map(DeviceId))?);
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
    fsdp: bool,
    tensor: bool,
    min_elements: usize,
    whole: Vec<Pattern>,
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
        fsdp: false,
        tensor: false,
        min_elements: Strategy::MIN_ELEMENTS,
        whole: Vec::new(),
        rules: Vec::new(),
    };

    /// Parameters with fewer elements are not split by `fsdp`: to gather 64 KiB costs more time
    /// than it saves memory.
    pub const MIN_ELEMENTS: usize = 1 << 14;

    /// Each device has its part of the batch and all parameters: `dp`.
    pub fn data_parallel() -> Self {
        Strategy {
            data: true,
            ..Strategy::NONE
        }
    }

    /// Each device has its part of the batch and of every large parameter, which is gathered where
    /// it is used: `fsdp`.
    pub fn fsdp() -> Self {
        Strategy {
            fsdp: true,
            ..Strategy::NONE
        }
    }

    /// Each device has its part of the layers' parameters, and computes that part of the layer:
    /// `tp`.
    pub fn tensor_parallel() -> Self {
        Strategy {
            tensor: true,
            ..Strategy::NONE
        }
    }

    /// This and `other`: `Strategy::fsdp().and(Strategy::tensor_parallel())`.
    pub fn and(mut self, other: Strategy) -> Self {
        self.data |= other.data;
        self.fsdp |= other.fsdp;
        self.tensor |= other.tensor;
        self.min_elements = self.min_elements.min(other.min_elements);
        self.whole.extend(other.whole);
        self.rules.extend(other.rules);
        self
    }

    /// Parameters of this [`Pattern`] lie by this spec, whatever the rest of the strategy would do
    /// with them. Rules are asked in the order they are given; the first that matches decides.
    ///
    /// A spec speaks of the *last* dimensions, so that one rule serves a layer and a
    /// [`Stack`](halite_nn::Stack) of such layers. `()` keeps a parameter whole.
    ///
    /// # Errors
    /// If `pattern` is no pattern, or `spec` no spec.
    pub fn rule(mut self, pattern: &str, spec: &str) -> Result<Self> {
        self.rules.push(Rule::new(pattern, spec)?);
        Ok(self)
    }

    /// `fsdp` splits parameters of at least so many elements. Default
    /// [`MIN_ELEMENTS`](Self::MIN_ELEMENTS).
    pub fn min_elements(mut self, elements: usize) -> Self {
        self.min_elements = elements;
        self
    }

    /// `fsdp` leaves parameters of this [`Pattern`] as they are.
    ///
    /// # Errors
    /// If it is no pattern.
    pub fn not_split(mut self, pattern: &str) -> Result<Self> {
        self.whole.push(pattern.parse()?);
        Ok(self)
    }

    /// The built-in rules of tensor parallelism for the layers of `halite-nn`, in the order they
    /// are asked in.
    ///
    /// Dense layers come in pairs: the first is split by its outputs (*column parallel*), the
    /// second by its inputs (*row parallel*), so that what is between them stays split, and only
    /// the result is added up over the devices. The heads of attention are such a pair; embeddings
    /// are split by words.
    pub fn tensor_rules() -> Vec<Rule> {
        rules::built_in()
    }

    /// How batches lie: the first dimension over every axis of the batch that `mesh` has.
    pub fn batch_spec(&self, mesh: &Mesh) -> PartitionSpec {
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

    /// How each parameter of `model` lies over `mesh`.
    ///
    /// # Errors
    /// One error with all that does not fit, each with the path of the parameter and the numbers:
    /// an axis that the mesh has not, or that nothing uses; a rule that matches nothing, or whose
    /// spec does not divide a parameter it matches.
    pub fn specs<M: Tree<Leaf = Param>>(
        &self,
        mesh: &Arc<Mesh>,
        model: &M,
    ) -> Result<Of<M, PartitionSpec>> {
        let laid = self.lay(mesh, &model.named())?;
        Ok(model.rebuild(laid.into_iter().map(|laid| laid.sharding.spec().clone())))
    }

    /// Types and layouts of all that a training step changes: the parameters, what `optimizer`
    /// keeps of them, the step's number and the key; in `f32`, so that devices hold each as it is
    /// declared.
    ///
    /// # Errors
    /// As [`specs`](Self::specs).
    pub fn state_specs<F: Family, O: Optimizer>(
        &self,
        mesh: &Arc<Mesh>,
        model: &F::Of<Param>,
        optimizer: &O,
    ) -> Result<State<F, O::Slot, ArraySpec>> {
        state_specs::<F, O>(mesh, self, model, optimizer, &DTypePolicy::F32)
    }

    /// A table of how each parameter of `model` lies over `mesh`, what each device has of it, and
    /// why.
    ///
    /// # Errors
    /// As [`specs`](Self::specs).
    pub fn describe<M: Tree<Leaf = Param>>(&self, mesh: &Arc<Mesh>, model: &M) -> Result<String> {
        let laid = self.lay(mesh, &model.named())?;
        let mut rows = vec![
            [
                "parameter",
                "type",
                "lies as",
                "on a device",
                "bytes",
                "why",
            ]
            .map(String::from),
        ];
        let (mut whole, mut on_one) = (0, 0);
        for Laid {
            path,
            ty,
            sharding,
            why,
        } in &laid
        {
            let shard = sharding.shard_type(ty)?;
            whole += ty.bytes() as u64;
            on_one += shard.bytes() as u64;
            let bytes = HumanCount(shard.bytes() as u64).to_string();
            rows.push([
                path.clone(),
                ty.to_string(),
                sharding.spec().to_string(),
                shard.to_string(),
                bytes,
                why.clone(),
            ]);
        }
        let widths: [usize; 5] = std::array::from_fn(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .expect("the header is a row")
        });
        let mut table = format!(
            "{self} on {mesh}: {} devices, a batch lies as {}\n",
            mesh.size(),
            self.batch_spec(mesh)
        );
        for [path, ty, spec, shard, bytes, why] in &rows {
            let [a, b, c, d, e] = widths;
            table +=
                format!("{path:a$}  {ty:b$}  {spec:c$}  {shard:d$}  {bytes:>e$}  {why}").trim_end();
            table.push('\n');
        }
        table += &format!(
            "{} of parameters, {} on each device\n",
            BinaryBytes(whole),
            BinaryBytes(on_one)
        );
        Ok(table)
    }

    /// That the axes of `mesh` are those that this strategy needs.
    ///
    /// # Errors
    /// If an axis is missing, or nothing uses it.
    pub fn check(&self, mesh: &Mesh) -> Result<()> {
        if mesh.size() == 1 {
            return Ok(());
        }
        let has = |axes: &[&str]| axes.iter().any(|axis| mesh.axis(axis).is_some());
        let missing = |what: &str, axes: &[&str]| {
            let axes = axes.join("`, or `");
            Err(Error::invalid(
                OP,
                format!(
                    "`{self}` splits {what} over the axis `{axes}`, which {mesh} does not have"
                ),
            ))
        };
        if (self.data || self.fsdp) && !has(&BATCH_AXES) {
            return missing("the batch", &BATCH_AXES);
        }
        if self.fsdp && !has(&FSDP_AXES) {
            return missing("parameters", &FSDP_AXES);
        }
        if self.tensor && !has(&[MODEL_AXIS]) {
            return missing("parameters", &[MODEL_AXIS]);
        }
        for rule in &self.rules {
            Sharding::new(&Arc::new(mesh.clone()), rule.spec.clone())
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
            let message = format!(
                "`{self}` splits nothing over the axis `{axis}` of {mesh}: {} of its {} devices would do the same{would}",
                mesh.size() / size,
                mesh.size()
            );
            return Err(Error::invalid(OP, message));
        }
        Ok(())
    }

    /// The mesh of one axis that this strategy needs; `None` if it needs two.
    pub(crate) fn axis_of_all(&self) -> Option<&'static str> {
        match (self.data || self.fsdp, self.tensor) {
            (true, false) => Some("data"),
            (false, true) => Some(MODEL_AXIS),
            _ => None,
        }
    }

    fn lay(&self, mesh: &Arc<Mesh>, params: &[(String, &Param)]) -> Result<Vec<Laid>> {
        self.check(mesh)?;
        let mut mistakes: Vec<String> = Vec::new();
        for pattern in self
            .rules
            .iter()
            .map(|rule| &rule.pattern)
            .chain(&self.whole)
        {
            if !params.iter().any(|(path, _)| pattern.matches(path)) {
                mistakes.push(format!(
                    "`{pattern}` is the path of no parameter; there are {}",
                    some_of(params)
                ));
            }
        }
        let mut laid = Vec::with_capacity(params.len());
        for (path, param) in params {
            match self.lay_one(mesh, path, param) {
                Ok((sharding, why)) => laid.push(Laid {
                    path: path.clone(),
                    ty: param.ty.clone(),
                    sharding,
                    why,
                }),
                Err(error) => {
                    mistakes.push(format!("`{path}` ({}): {}", param.ty, error.message()))
                }
            }
        }
        let is_split = |laid: &Laid| {
            laid.sharding
                .spec()
                .all_axes()
                .any(|axis| **axis == *MODEL_AXIS)
        };
        if mistakes.is_empty() && self.tensor && mesh.size() > 1 && !laid.iter().any(is_split) {
            mistakes.push(format!(
                "no built-in rule of `tp` splits any parameter over the {} devices of the axis `{MODEL_AXIS}`; give rules for {}",
                mesh.axis(MODEL_AXIS).unwrap_or(1),
                some_of(params)
            ));
        }
        match mistakes.as_slice() {
            [] => Ok(laid),
            [only] => Err(Error::invalid(OP, format!("`{self}` on {mesh}: {only}"))),
            many => {
                let lines: String = many.iter().map(|line| format!("\n  {line}")).collect();
                Err(Error::invalid(
                    OP,
                    format!("`{self}` on {mesh}: {} mistakes:{lines}", many.len()),
                ))
            }
        }
    }

    /// How one parameter lies, and why.
    fn lay_one(
        &self,
        mesh: &Arc<Mesh>,
        path: &str,
        param: &Param,
    ) -> Result<(Arc<Sharding>, String)> {
        let ty = &param.ty;
        if mesh.size() == 1 {
            return Ok((Sharding::replicated(mesh), String::new()));
        }
        if let Some(rule) = self.rules.iter().find(|rule| rule.pattern.matches(path)) {
            let sharding = rule
                .sharding(mesh, ty)
                .map_err(|error| of_rule(rule, &error))?;
            return Ok((sharding, format!("rule {}", rule.pattern)));
        }
        // The layers of a stack are taken from it one by one, so they are never split.
        let stacked = param.stacked.min(ty.rank());
        let (mut sharding, mut whys) = (Sharding::replicated(mesh), Vec::new());
        if self.tensor {
            let mut matching = rules::built_in_for(path, ty.rank() - stacked).peekable();
            let first = matching.peek().map(|built_in| built_in.what);
            let fitting = matching
                .find_map(|built_in| Some((built_in.what, built_in.rule.sharding(mesh, ty).ok()?)));
            match (fitting, first) {
                (Some((what, fitting)), _) if fitting.spec().is_replicated() => {
                    whys.push(format!("tp: {what} are whole"))
                }
                (Some((what, fitting)), _) => {
                    sharding = fitting;
                    whys.push(format!("tp: {what}"));
                }
                (None, Some(what)) => whys.push(format!("tp: {what} do not divide")),
                (None, None) => {}
            }
        }
        if self.fsdp {
            let (with_fsdp, why) = self.split_largest(&sharding, path, ty, stacked)?;
            sharding = with_fsdp;
            whys.push(why);
        }
        Ok((sharding, whys.join(", ")))
    }

    /// `sharding` of a parameter with one dimension, none of the `stacked` first, split further
    /// over the devices of `fsdp`; the same, if it is too small.
    fn split_largest(
        &self,
        sharding: &Arc<Sharding>,
        path: &str,
        ty: &TensorType,
        stacked: usize,
    ) -> Result<(Arc<Sharding>, String)> {
        let mesh = sharding.mesh();
        let axis = FSDP_AXES
            .into_iter()
            .find(|axis| mesh.axis(axis).is_some())
            .expect("checked in `check`");
        let parts = mesh.axis(axis).expect("found just above");
        if let Some(pattern) = self.whole.iter().find(|pattern| pattern.matches(path)) {
            return Ok((sharding.clone(), format!("not split: {pattern}")));
        }
        if ty.elements() < self.min_elements {
            return Ok((
                sharding.clone(),
                format!("under {} elements", HumanCount(self.min_elements as u64)),
            ));
        }
        let dims = (stacked..ty.rank())
            .filter(|&dim| ty.dims()[dim].is_multiple_of(sharding.parts(dim) * parts));
        // Of equal dimensions the first; one that is split already only if no other divides.
        let best = dims.max_by_key(|&dim| {
            (
                sharding.spec().axes(dim).is_empty(),
                ty.dims()[dim],
                std::cmp::Reverse(dim),
            )
        });
        let Some(best) = best else {
            return Ok((
                sharding.clone(),
                format!("no dimension divides by {parts} for fsdp"),
            ));
        };
        let spec = (0..ty.rank()).map(|dim| {
            let further = (dim == best).then(|| Arc::from(axis));
            sharding
                .spec()
                .axes(dim)
                .iter()
                .cloned()
                .chain(further)
                .collect()
        });
        Ok((
            Sharding::new(mesh, PartitionSpec::new(spec))?,
            "fsdp".to_string(),
        ))
    }
}

/// How one parameter lies.
struct Laid {
    path: String,
    ty: TensorType,
    sharding: Arc<Sharding>,
    why: String,
}

impl fmt::Display for Strategy {
    /// `fsdp+tp`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [(self.data, "dp"), (self.fsdp, "fsdp"), (self.tensor, "tp")];
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
                "fsdp" => Ok(strategy.and(Strategy::fsdp())),
                "tp" => Ok(strategy.and(Strategy::tensor_parallel())),
                other => {
                    let message = format!(
                        "`{text}`: there is no `{other}`; there are dp, fsdp, tp, dp+tp, fsdp+tp"
                    );
                    Err(Error::invalid(OP, message))
                }
            })
    }
}

fn of_rule(rule: &Rule, error: &Error) -> Error {
    Error::invalid(OP, format!("rule `{}`: {}", rule.pattern, error.message()))
}

/// Some of the paths, for a message.
fn some_of(params: &[(String, &Param)]) -> String {
    const SHOWN: usize = 6;
    let shown: Vec<String> = params
        .iter()
        .take(SHOWN)
        .map(|(path, _)| format!("`{path}`"))
        .collect();
    match params.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
