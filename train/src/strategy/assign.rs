//! Assignment of a partition spec to each parameter.

use std::{cmp::Reverse, sync::Arc};

use halite_core::{Error, MeshShape, PartitionSpec, Result, TensorType};
use halite_nn::Param;
use indicatif::HumanCount;

use super::{FSDP_AXES, MODEL_AXIS, OP, Rule, Strategy, rules};

/// A parameter with its partition spec.
pub(super) struct Assigned {
    pub(super) path: String,
    pub(super) ty: TensorType,
    pub(super) spec: PartitionSpec,
    /// The parts of the strategy that led to the spec.
    pub(super) reason: String,
}

/// A partition spec, and the parts of the strategy that led to it.
struct Choice {
    spec: PartitionSpec,
    reason: String,
}

impl Strategy {
    /// The spec of each of `params`, or one error with all mistakes.
    pub(super) fn assign(
        &self,
        mesh: &MeshShape,
        params: &[(String, &Param)],
    ) -> Result<Vec<Assigned>> {
        self.check(mesh)?;
        let mut mistakes = self.unmatched_patterns(params);
        let mut assigned = Vec::with_capacity(params.len());
        for (path, param) in params {
            match self.choose(mesh, path, param) {
                Ok(Choice { spec, reason }) => assigned.push(Assigned {
                    path: path.clone(),
                    ty: param.ty.clone(),
                    spec,
                    reason,
                }),
                Err(error) => {
                    mistakes.push(format!("`{path}` ({}): {}", param.ty, error.message()))
                }
            }
        }
        let is_split = |one: &Assigned| one.spec.all_axes().any(|axis| **axis == *MODEL_AXIS);
        if mistakes.is_empty() && self.tensor && mesh.size() > 1 && !assigned.iter().any(is_split) {
            mistakes.push(format!(
                "no built-in rule of `tp` splits any parameter over the {} devices of the axis \
                 `{MODEL_AXIS}`; add rules for {}",
                mesh.axis(MODEL_AXIS).unwrap_or(1),
                some_of(params)
            ));
        }
        let message = match mistakes.as_slice() {
            [] => return Ok(assigned),
            [only] => format!("`{self}` on {mesh:#}: {only}"),
            many => {
                let lines: String = many.iter().map(|line| format!("\n  {line}")).collect();
                format!("`{self}` on {mesh:#}: {} mistakes:{lines}", many.len())
            }
        };
        Err(Error::invalid(OP, message))
    }

    /// A mistake for each pattern that matches no parameter.
    pub(super) fn unmatched_patterns(&self, params: &[(String, &Param)]) -> Vec<String> {
        let rules = self.rules.iter().map(|rule| &rule.pattern);
        rules
            .chain(&self.not_split)
            .filter(|pattern| !params.iter().any(|(path, _)| pattern.matches(path)))
            .map(|pattern| {
                let nearest = pattern.nearest(params.iter().map(|(path, _)| path.as_str()));
                let nearest = nearest.unwrap_or_default();
                format!(
                    "`{pattern}` matches no parameter; did you mean `{nearest}`? The parameters \
                     are {}",
                    some_of(params)
                )
            })
            .collect()
    }

    /// The spec of one parameter.
    fn choose(&self, mesh: &MeshShape, path: &str, param: &Param) -> Result<Choice> {
        let ty = &param.ty;
        if mesh.size() == 1 {
            return Ok(Choice {
                spec: PartitionSpec::replicated(),
                reason: String::new(),
            });
        }
        if let Some(rule) = self.rules.iter().find(|rule| rule.pattern.matches(path)) {
            return Ok(Choice {
                spec: rule
                    .apply(mesh, ty)
                    .map_err(|error| of_rule(rule, &error))?,
                reason: format!("rule {}", rule.pattern),
            });
        }
        // A scan takes the layers of a stack one by one, so that dimension is never split.
        let stacked = param.stacked.min(ty.rank());
        let (mut spec, mut reasons) = (PartitionSpec::replicated(), Vec::new());
        if self.tensor {
            let choice = split_layer(mesh, path, ty, stacked);
            spec = choice.spec;
            reasons.extend(Some(choice.reason).filter(|reason| !reason.is_empty()));
        }
        if self.fsdp {
            let choice = self.split_largest(mesh, spec, path, ty, stacked);
            spec = choice.spec;
            reasons.push(choice.reason);
        }
        Ok(Choice {
            spec,
            reason: reasons.join(", "),
        })
    }

    /// Splits one dimension of a parameter, none of the `stacked` first ones, further over the axis
    /// of `fsdp`, unless the parameter is small, exempt, or no dimension divides.
    fn split_largest(
        &self,
        mesh: &MeshShape,
        spec: PartitionSpec,
        path: &str,
        ty: &TensorType,
        stacked: usize,
    ) -> Choice {
        let axis = FSDP_AXES
            .into_iter()
            .find(|axis| mesh.axis(axis).is_some())
            .expect("checked in `check`");
        let parts = mesh.axis(axis).expect("found just above");
        let unchanged = |reason| Choice {
            spec: spec.clone(),
            reason,
        };
        if let Some(pattern) = self.not_split.iter().find(|pattern| pattern.matches(path)) {
            return unchanged(format!("not split: {pattern}"));
        }
        if ty.elements() < self.min_elements {
            return unchanged(format!(
                "under {} elements",
                HumanCount(self.min_elements as u64)
            ));
        }
        let dims = (stacked..ty.rank())
            .filter(|&dim| ty.dims()[dim].is_multiple_of(spec.parts(mesh, dim) * parts));
        // The first of equal dimensions; one that is already split only if no other divides.
        let best =
            dims.max_by_key(|&dim| (spec.axes(dim).is_empty(), ty.dims()[dim], Reverse(dim)));
        let Some(best) = best else {
            return unchanged(format!("no dimension divides by {parts} for fsdp"));
        };
        let spec = (0..ty.rank()).map(|dim| {
            let further = (dim == best).then(|| Arc::from(axis));
            spec.axes(dim).iter().cloned().chain(further).collect()
        });
        Choice {
            spec: PartitionSpec::new(spec),
            reason: "fsdp".to_string(),
        }
    }
}

/// Splits a parameter by the built-in rules of tensor parallelism.
fn split_layer(mesh: &MeshShape, path: &str, ty: &TensorType, stacked: usize) -> Choice {
    let mut matching = rules::built_in_for(path, ty.rank() - stacked).peekable();
    let first = matching.peek().map(|built_in| built_in.what);
    let fitting =
        matching.find_map(|built_in| Some((built_in.what, built_in.rule.apply(mesh, ty).ok()?)));
    let whole = |reason| Choice {
        spec: PartitionSpec::replicated(),
        reason,
    };
    match (fitting, first) {
        (Some((what, spec)), _) if spec.is_replicated() => whole(format!("tp: {what} are whole")),
        (Some((what, spec)), _) => Choice {
            spec,
            reason: format!("tp: {what}"),
        },
        (None, Some(what)) => whole(format!("tp: {what} do not divide")),
        (None, None) => whole(String::new()),
    }
}

pub(super) fn of_rule(rule: &Rule, error: &Error) -> Error {
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
