//! The map between the paths of a model's parameters and the names of tensors in a file.

use halite_core::{Error, Result};
use halite_nn::{Param, ParamKind, Pattern};

use crate::{
    layout::Layout,
    template::{Captures, Template},
};

/// Start of the names of all tensors in files of adapters of peft.
pub(crate) const ADAPTERS: &str = "base_model.model.";

/// The placeholder that counts the layers of a stack.
const LAYER: &str = "layer";

/// Declares which tensor of a file is which parameter of a model. The map is used in both
/// directions: for loading, and for saving under the original names.
///
/// A rule replaces leading segments of a parameter's path; the first matching rule applies.
/// `{name}` matches one or more characters within a segment; `{name+1}` in the result is the
/// matched number plus one. `{layer}` in the result, if the pattern does not bind it, is the layer
/// index of a [`Stack`](halite_nn::Stack): the file has one tensor per layer.
///
/// ```
/// use halite_nn::{Transformer, TransformerConfig};
/// use halite_weights::{Layout, NameMap};
///
/// // torchvision's ResNet:
/// let resnet = NameMap::torch()
///     .rename("stem.conv", "conv1")
///     .rename("stem.norm", "bn1")
///     .rename("stages.{s}", "layer{s+1}")
///     .rename("head", "fc");
///
/// // GPT-2 of Hugging Face, whose weights are [in, out], and whose projections are one tensor:
/// let gpt2 = NameMap::torch()
///     .fuse(["blocks.attention.q", "blocks.attention.k", "blocks.attention.v"], "h.{layer}.attn.c_attn", 1)
///     .layout("blocks.attention.q|k|v.weight", Layout::Merged(vec![vec![0], vec![1, 2]]))
///     .rename("blocks.attention.o", "h.{layer}.attn.c_proj")
///     .layout("blocks.attention.o.weight", Layout::Merged(vec![vec![0, 1], vec![2]]))
///     .rename("blocks.mlp.up", "h.{layer}.mlp.c_fc")
///     .rename("blocks.mlp.down", "h.{layer}.mlp.c_proj")
///     .layout("blocks.mlp.up|down.weight", Layout::Same)
///     .ignore("h.*.attn.bias");
/// ```
#[derive(Clone, Debug)]
pub struct NameMap {
    rules: Vec<Rule>,
    layouts: Vec<(Pattern, Layout)>,
    ignored: Vec<Pattern>,
    /// Endings of names, and those that older files have instead.
    older: Vec<(String, String)>,
    is_torch: bool,
    /// Whether it is of low-rank adapters, in files of peft.
    is_of_adapters: bool,
    /// The first mistake in a rule.
    mistake: Option<String>,
}

#[derive(Clone, Debug)]
struct Rule {
    from: Template,
    into: Template,
    part: Option<Part>,
}

/// Place of a parameter in a tensor of several.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Part {
    pub(crate) number: usize,
    pub(crate) count: usize,
    /// The dimension along which they follow each other, unless there is only one.
    pub(crate) axis: usize,
}

/// The name and the layout of a parameter in a file.
#[derive(Debug)]
pub(crate) struct Named<'m> {
    into: Option<&'m Template>,
    captures: Captures,
    /// What follows the start of the name that a rule gave.
    rest: String,
    /// What the name begins with.
    prefix: &'static str,
    pub(crate) part: Option<Part>,
    pub(crate) layout: Layout,
    /// Whether the file has a tensor for each layer.
    pub(crate) by_layer: bool,
}

impl Named<'_> {
    /// The name of the tensor of a layer.
    pub(crate) fn name(&self, layer: usize) -> Result<String> {
        let mut captures = self.captures.clone();
        if self.by_layer {
            captures.push((LAYER.to_owned(), layer.to_string()));
        }
        let start = self
            .into
            .map_or(Ok(String::new()), |into| into.fill(&captures))?;
        let dot = if start.is_empty() || self.rest.is_empty() {
            ""
        } else {
            "."
        };
        Ok(format!("{}{start}{dot}{}", self.prefix, self.rest))
    }
}

impl NameMap {
    /// The identity map, for files that halite wrote: names are parameter paths, shapes are
    /// unchanged.
    pub fn paths() -> Self {
        NameMap {
            rules: Vec::new(),
            layouts: Vec::new(),
            ignored: Vec::new(),
            older: Vec::new(),
            is_torch: false,
            is_of_adapters: false,
            mistake: None,
        }
    }

    /// Names and layouts of PyTorch's layers. Fields `scale` and `table`, and the `kernel` of a
    /// transposed convolution, are named `weight`; `mean` and `variance` are `running_mean` and
    /// `running_var`; LSTM and GRU have names such as `weight_ih_l0`. The layout is that of the
    /// parameter's [`ParamKind`], which its layer sets, whatever its name; a parameter of
    /// [`ParamKind::Other`], as `Param::new` makes it, has the same dimensions in the file.
    /// `num_batches_tracked` is ignored.
    pub fn torch() -> Self {
        NameMap {
            is_torch: true,
            ..Self::paths()
        }
        .ignore("**.num_batches_tracked")
    }

    /// Replaces `path` at the start of paths by `name`. An empty `path` is the start of all, an
    /// empty `name` removes it.
    ///
    /// If `path` is the whole path of a parameter, `name` is the whole name.
    pub fn rename(mut self, path: &str, name: &str) -> Self {
        self.add(path, name, None);
        self
    }

    /// Declares that the parameters at `paths` are slices of one fused tensor of the file, in this
    /// order along its dimension `axis` (for vectors, along their only one), such as a fused QKV
    /// projection.
    pub fn fuse<const N: usize>(mut self, paths: [&str; N], name: &str, axis: usize) -> Self {
        for (number, path) in paths.into_iter().enumerate() {
            self.add(
                path,
                name,
                Some(Part {
                    number,
                    count: N,
                    axis,
                }),
            );
        }
        self
    }

    /// Sets the layout of the parameters whose path matches the [`Pattern`]; the first that matches
    /// counts.
    pub fn layout(mut self, pattern: &str, layout: Layout) -> Self {
        match pattern.parse() {
            Ok(pattern) => self.layouts.push((pattern, layout)),
            Err(error) => self.fail(&error),
        }
        self
    }

    /// The map of the low-rank adapters ([`Lora`](halite_nn::Lora)) of a model with this map: names
    /// and layouts of the Python package peft.
    pub fn adapters(&self) -> Self {
        NameMap {
            is_of_adapters: true,
            ..self.clone()
        }
    }

    /// Ignores tensors of the file that match the [`Pattern`] and that no parameter uses.
    pub fn ignore(mut self, pattern: &str) -> Self {
        match pattern.parse() {
            Ok(pattern) => self.ignored.push(pattern),
            Err(error) => self.fail(&error),
        }
        self
    }

    /// Declares that a tensor whose name ends with `ending` may have a name that ends with `older`
    /// instead, as older versions of a library wrote it. Models are saved with `ending`.
    pub fn older_ending(mut self, ending: &str, older: &str) -> Self {
        self.older.push((ending.to_owned(), older.to_owned()));
        self
    }

    fn add(&mut self, path: &str, name: &str, part: Option<Part>) {
        match (Template::parse_pattern(path), Template::parse(name)) {
            (Ok(from), Ok(into)) => self.rules.push(Rule { from, into, part }),
            (Err(error), _) | (_, Err(error)) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &Error) {
        self.mistake
            .get_or_insert_with(|| error.message().to_owned());
    }

    /// # Errors
    /// The first mistake in a rule.
    pub(crate) fn check(&self) -> Result<()> {
        self.mistake
            .as_ref()
            .map_or(Ok(()), |mistake| Err(Error::invalid("name map", mistake)))
    }

    /// Rules and layouts that match none of these paths.
    pub(crate) fn unused_rules(&self, paths: &[&str]) -> Vec<String> {
        if self.is_of_adapters {
            // Not all layers are adapted.
            return Vec::new();
        }
        let mut used = vec![false; self.rules.len()];
        for path in paths {
            let matches = |rule: &Rule| rule.from.match_start(path).is_some();
            if let Some(first) = self.rules.iter().position(matches) {
                used[first] = true;
            }
        }
        let rules = self.rules.iter().zip(used).filter(|(_, used)| !used);
        let rules =
            rules.map(|(rule, _)| format!("`{}` -> `{}`", rule.from.text(), rule.into.text()));
        let layouts = (self.layouts.iter())
            .filter(|(pattern, _)| !paths.iter().any(|path| pattern.matches(path)))
            .map(|(pattern, layout)| format!("`{pattern}`: {layout:?}"));
        rules.chain(layouts).collect()
    }

    /// The names that older files may have for the tensor of this name.
    pub(crate) fn older_names<'m>(&'m self, name: &'m str) -> impl Iterator<Item = String> + 'm {
        self.older.iter().filter_map(move |(ending, older)| {
            let start = name.strip_suffix(ending.as_str())?;
            Some(format!("{start}{older}"))
        })
    }

    pub(crate) fn ignores(&self, name: &str) -> bool {
        self.ignored.iter().any(|pattern| pattern.matches(name))
    }

    /// The dimension of a weight in the file that counts the outputs of its layer, by the path of one
    /// of the layer's adapters: the first in PyTorch's layers.
    fn outputs_of(&self, path: &str) -> usize {
        let weight = path
            .replacen(".lora_A.", ".", 1)
            .replacen(".lora_B.", ".", 1);
        let mut layouts = self.layouts.iter();
        let set = layouts.find(|(pattern, _)| pattern.matches(&weight));
        match set {
            Some((_, Layout::Same | Layout::Merged(_))) => 1,
            _ => 0,
        }
    }

    /// The name and the layout of the parameter at `path`.
    pub(crate) fn named(&self, path: &str, param: &Param) -> Result<Named<'_>> {
        let stacked = param.stacked;
        let rule = self.rules.iter().find_map(|rule| {
            let (captures, rest) = rule.from.match_start(path)?;
            Some((rule, captures, rest))
        });
        let into = rule.as_ref().map(|(rule, ..)| &rule.into);
        let is_captured = |captures: &Captures| captures.iter().any(|(name, _)| name == LAYER);
        let by_layer = rule
            .as_ref()
            .is_some_and(|(rule, captures, _)| rule.into.has(LAYER) && !is_captured(captures));
        let bad = |what: &str| Err(Error::invalid("name map", format!("`{path}` {what}")));
        if by_layer && stacked != 1 {
            let text = into.map_or("", Template::text);
            return bad(&format!(
                "becomes `{text}`, and is not in one stack of layers"
            ));
        }
        let part = rule.as_ref().and_then(|(rule, ..)| rule.part);
        if self.is_of_adapters && part.is_some_and(|part| part.axis != self.outputs_of(path)) {
            return bad(
                "is of a part of a tensor that is fused along its inputs; adapters have no names for it",
            );
        }
        if !by_layer && stacked > 0 && self.is_torch {
            return bad("is stacked; the name of its tensors needs `{layer}`");
        }
        let set = self
            .layouts
            .iter()
            .find(|(pattern, _)| pattern.matches(path));
        let layout = match set {
            _ if self.is_of_adapters => torch_layout(param.kind),
            Some((_, layout)) => layout.clone(),
            None if self.is_torch => torch_layout(param.kind),
            None => Layout::Same,
        };
        let (captures, rest) = match rule {
            Some((_, captures, rest)) => (captures, rest),
            None => (Captures::new(), path),
        };
        let rest = if self.is_torch {
            torch_name(rest, param.kind)
        } else {
            rest.to_owned()
        };
        // Adapters of parts have tensors of their own, which are joined later.
        let (part, rest) = match part {
            Some(part) if self.is_of_adapters => (None, format!("{}.{rest}", segment_of(part))),
            part => (part, rest),
        };
        Ok(Named {
            into,
            captures,
            rest,
            prefix: if self.is_of_adapters { ADAPTERS } else { "" },
            part,
            layout,
            by_layer,
        })
    }
}

/// The segment of a name that tells the adapters of a part of a fused layer from those of others.
fn segment_of(Part { number, count, .. }: Part) -> String {
    format!("part{number}of{count}")
}

/// The part that a segment of a name is of.
pub(crate) fn part_segment(segment: &str) -> Option<Part> {
    let (number, count) = segment.strip_prefix("part")?.split_once("of")?;
    let part = Part {
        number: number.parse().ok()?,
        count: count.parse().ok()?,
        axis: 0,
    };
    (segment_of(part) == segment).then_some(part)
}

/// The name of a parameter in PyTorch's layers, by that of its field here.
fn torch_name(path: &str, kind: ParamKind) -> String {
    if let Some(name) = recurrent_name(path) {
        return name;
    }
    let (before, field) = split_last(path);
    let field = match field {
        "scale" | "table" => "weight",
        "kernel" if kind == ParamKind::ConvTranspose => "weight",
        "mean" => "running_mean",
        "variance" => "running_var",
        other => other,
    };
    joined(before, field)
}

/// `layers.1.backward.weight_ih` of a [`Recurrent`](halite_nn::Recurrent) is `weight_ih_l1_reverse`
/// in PyTorch.
fn recurrent_name(path: &str) -> Option<String> {
    let (before, field) = split_last(path);
    if !RECURRENT.contains(&field) {
        return None;
    }
    let (before, direction) = split_last(before);
    let suffix = match direction {
        "forward" => "",
        "backward" => "_reverse",
        _ => return None,
    };
    let (before, layer) = split_last(before);
    let (before, layers) = split_last(before);
    let layer: usize = layer.parse().ok()?;
    (layers == "layers").then(|| joined(before, &format!("{field}_l{layer}{suffix}")))
}

/// Fields of [`Gates`](halite_nn::Gates).
const RECURRENT: [&str; 4] = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"];

/// The segments before the last one, and the last one.
fn split_last(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

fn joined(before: &str, field: &str) -> String {
    let dot = if before.is_empty() { "" } else { "." };
    format!("{before}{dot}{field}")
}

/// The layout of a parameter in PyTorch's layers, and of a low-rank adapter's in files of peft.
fn torch_layout(kind: ParamKind) -> Layout {
    match kind {
        ParamKind::Linear => Layout::Linear,
        ParamKind::Conv => Layout::Conv,
        ParamKind::ConvTranspose => Layout::ConvTranspose,
        ParamKind::ToHeads => Layout::ToHeads,
        ParamKind::FromHeads => Layout::FromHeads,
        _ => Layout::Same,
    }
}
