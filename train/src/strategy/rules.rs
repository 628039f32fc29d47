//! Rules from parameter paths to partition specs, and the built-in ones.

use std::sync::LazyLock;

use halite_core::{Error, MeshShape, PartitionSpec, Result, TensorType};
use halite_nn::Pattern;

use super::OP;

/// The partition spec of parameters whose path matches a [`Pattern`].
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Rule {
    /// Paths of the parameters.
    pub pattern: Pattern,
    /// Axes that split each of the last dimensions.
    pub spec: PartitionSpec,
}

impl Rule {
    /// Parses a rule: `Rule::new("**.up.weight", "None, model")`.
    ///
    /// # Errors
    /// If `pattern` is not a valid pattern, or `spec` not a valid partition spec.
    pub fn new(pattern: &str, spec: &str) -> Result<Self> {
        Ok(Rule {
            pattern: pattern.parse()?,
            spec: spec.parse()?,
        })
    }

    /// The spec of a parameter of type `ty`: with an entry for all of its dimensions.
    ///
    /// # Errors
    /// If the spec has more dimensions than `ty`, names an axis that the mesh does not have, or
    /// does not divide it.
    pub fn apply(&self, mesh: &MeshShape, ty: &TensorType) -> Result<PartitionSpec> {
        let Some(first) = ty.rank().checked_sub(self.spec.rank()) else {
            let message = format!(
                "{} has {} dimensions, but {ty} has {}",
                self.spec,
                self.spec.rank(),
                ty.rank()
            );
            return Err(Error::invalid(OP, message));
        };
        let axes = |dim: usize| {
            dim.checked_sub(first)
                .map_or(Vec::new(), |dim| self.spec.axes(dim).to_vec())
        };
        let spec = if self.spec.is_replicated() {
            PartitionSpec::replicated()
        } else {
            PartitionSpec::new((0..ty.rank()).map(axes))
        };
        spec.shard_type(mesh, ty)?;
        Ok(spec)
    }
}

/// Names of layers whose outputs are split, so that the next layer's inputs are.
const COLUMN: &str = "up|gate|fc|fc1|c_fc|hidden|expand|w1|w3|conv1";
/// Names of layers whose inputs are split.
const ROW: &str = "down|fc2|contract|w2|out|conv2";
/// Names of lists of layers: every second is split by its outputs, the others by their inputs.
const LISTS: &str = "hidden|layers|linears|convs";
/// Names of attention.
const ATTENTION: &str = "attn|attention|self_attn|cross_attn";

/// A built-in rule.
pub(super) struct BuiltIn {
    /// Name of the dimension it splits, for messages such as "heads do not divide".
    pub(super) what: &'static str,
    pub(super) rule: Rule,
    /// Only for parameters with as many dimensions as the spec, besides those of a stack.
    exact: bool,
}

static BUILT_IN: LazyLock<Vec<BuiltIn>> = LazyLock::new(|| {
    let rule = |what, exact, pattern: &str, spec: &str| {
        let rule = Rule::new(pattern, spec).expect("the built-in rules are well formed");
        BuiltIn { what, rule, exact }
    };
    let to_heads = format!("**.{ATTENTION}.q|k|v|qkv|kv|query|key|value|c_attn");
    let from_heads = format!("**.{ATTENTION}.o|out|proj|output|c_proj");
    let (every_second, the_others) = (format!("**.{LISTS}.<even>"), format!("**.{LISTS}.<odd>"));
    let (columns, rows) = (format!("**.{COLUMN}"), format!("**.{ROW}"));
    let logits = "**.head|lm_head|logits";
    vec![
        // `[in, heads, width]` to `[heads, width, out]`; then as dense layers, `[in, out]`.
        rule(
            "heads",
            true,
            &format!("{to_heads}.weight"),
            "None, model, None",
        ),
        rule("heads", true, &format!("{to_heads}.bias"), "model, None"),
        rule(
            "heads",
            true,
            &format!("{from_heads}.weight"),
            "model, None, None",
        ),
        rule("heads", true, &format!("{to_heads}.weight"), "None, model"),
        rule("heads", true, &format!("{to_heads}.bias"), "model"),
        rule(
            "heads",
            true,
            &format!("{from_heads}.weight"),
            "model, None",
        ),
        rule("positions", false, "**.positions|pos|wpe.**", "()"),
        rule("words", false, "**.table", "model, None"),
        // Used where the vocabulary size does not divide.
        rule("columns", false, "**.table", "None, model"),
        rule("words", false, &format!("{logits}.weight"), "None, model"),
        rule("words", false, &format!("{logits}.bias"), "model"),
        rule(
            "columns",
            false,
            &format!("{every_second}.weight"),
            "None, model",
        ),
        rule("columns", false, &format!("{every_second}.bias"), "model"),
        rule(
            "rows",
            false,
            &format!("{the_others}.weight"),
            "model, None",
        ),
        rule(
            "columns",
            false,
            &format!("{columns}.weight"),
            "None, model",
        ),
        rule("columns", false, &format!("{columns}.bias"), "model"),
        rule("rows", false, &format!("{rows}.weight"), "model, None"),
    ]
});

pub(super) fn built_in() -> Vec<Rule> {
    BUILT_IN
        .iter()
        .map(|built_in| built_in.rule.clone())
        .collect()
}

/// Built-in rules for a parameter of `rank` dimensions, besides those of a stack.
pub(super) fn built_in_for(path: &str, rank: usize) -> impl Iterator<Item = &'static BuiltIn> {
    BUILT_IN.iter().filter(move |BuiltIn { rule, exact, .. }| {
        let dims = rule.spec.rank();
        (if *exact { dims == rank } else { dims <= rank }) && rule.pattern.matches(path)
    })
}
