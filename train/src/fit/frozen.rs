//! Frozen parameters that checkpoints leave out, because each run gets them from elsewhere: those of published
//! weights.

use std::collections::{BTreeMap, BTreeSet};

use halite_core::{Array, Client, Error, Result, tree::Tree};
use halite_ir::Graph;
use halite_nn::{Optimizer, Param};
use twox_hash::XxHash3_128;

use super::begin::placed;
use crate::{
    Property, Task,
    programs::{ModelArrays, Programs},
};

/// Name of a parameter in the state.
fn in_state(path: &str) -> String {
    format!("model.{path}")
}

/// Paths in the state of the parameters that are not trained and that a step returns as they are.
/// Running statistics are not trained either, but steps change them.
pub(super) fn unchanged<M: Tree<Leaf = Param>>(model: &M, step: &Graph) -> BTreeSet<String> {
    // The model is the first part of the state, which comes first among inputs and outputs.
    let values = step.inputs().iter().zip(step.outputs());
    let leaves = model.named().into_iter().zip(values);
    leaves
        .filter(|((_, param), (before, after))| !param.trainable && before == after)
        .map(|((path, _), _)| in_state(&path))
        .collect()
}

/// The identity of the parameters that are left out: `base`, and a digest of their values.
///
/// # Errors
/// If there are no values, or they cannot be read.
pub(super) fn property<K: Task>(
    base: &str,
    left_out: &BTreeSet<String>,
    values: Option<&ModelArrays<K>>,
) -> Result<Property> {
    let Some(values) = values else {
        let message = format!(
            "checkpoints leave out the frozen parameters, which come from `{base}`; give them to \
             `fit_from`"
        );
        return Err(Error::invalid("fit", message));
    };
    let mut digests = String::new();
    for (path, array) in values.named() {
        if left_out.contains(&in_state(&path)) {
            let digest = XxHash3_128::oneshot(array.fetch()?.wait()?.bytes());
            digests.push_str(&format!("{path} {} {digest:032x}\n", array.ty()));
        }
    }
    Ok(Property {
        name: "frozen parameters".into(),
        value: format!(
            "{} arrays of {base}, xxh3 {:032x}",
            left_out.len(),
            XxHash3_128::oneshot(digests.as_bytes())
        ),
    })
}

/// All arrays of a state in their order: the `restored` ones, and what the checkpoint left out.
///
/// # Errors
/// If a value cannot be placed on its devices.
pub(super) fn with_values<K: Task, O: Optimizer>(
    programs: &Programs<K, O>,
    client: &Client,
    restored: Vec<Array>,
    values: ModelArrays<K>,
) -> Result<Vec<Array>> {
    let paths: Vec<String> = values
        .named()
        .iter()
        .map(|(path, _)| in_state(path))
        .collect();
    let mut given: BTreeMap<String, Array> = paths.into_iter().zip(values.into_leaves()).collect();
    let mut restored = restored.into_iter();
    let arrays = programs.state.named().into_iter().map(|(path, spec)| {
        let value = given
            .remove(&path)
            .filter(|_| programs.left_out.contains(&path));
        match value {
            Some(value) => placed(client, value, spec),
            None => Ok(restored
                .next()
                .expect("the arrays are those of the checkpoint")),
        }
    });
    arrays.collect()
}
