//! Types and shardings of the state of a training step.

use std::sync::Arc;

use halite_core::{
    Error, MeshShape, PartitionSpec, Result, TensorType,
    tree::{Family, Tree},
};
use halite_nn::{Optimizer, Param, ShardedType, optim};

use crate::{
    Scaling, State, StateOptions, Strategy,
    state::{StateTypes, is_divided},
};

/// Types and shardings of the state: parameters by the strategy, optimizer slots and averages as their
/// parameter or further, scalars replicated.
///
/// # Errors
/// As [`Strategy::specs`]; a parameter whose size overflows.
pub(crate) fn state_specs<F: Family, S: Family>(
    mesh: &MeshShape,
    strategy: &Strategy,
    params: &F::Of<Param>,
    optimizer: Arc<dyn Optimizer<Slot = S>>,
    options: StateOptions,
) -> Result<State<F, S, ShardedType>> {
    options.check()?;
    let precision = &options.precision;
    let named = params.named().into_iter();
    check_sizes("model", named.map(|(path, param)| (path, &param.ty)))?;
    let specs = strategy.specs(mesh, params)?;
    let model = params.leaves().into_iter().zip(specs.leaves());
    let model = model.map(|(param, spec)| {
        let declared = param.ty.dtype();
        let stored = if param.trainable {
            precision.stored(declared)
        } else {
            declared
        };
        ShardedType::new(param.ty.clone(), spec.clone()).stored_as(stored)
    });
    let slot_specs = strategy.slot_specs(mesh, params)?;
    let beside = |(param, spec): (&Param, &PartitionSpec), leaf: &Param| {
        let ty = &leaf.ty;
        match (is_divided(leaf, param), options.shards) {
            (false, _) => ShardedType::replicated(ty.clone()),
            (true, None) => ShardedType::new(ty.clone(), spec.clone()),
            // Each process has a vector of its own, over all of its devices.
            (true, Some(shards)) => {
                let axes: Vec<&str> = mesh.axes().map(|(axis, _)| axis).collect();
                let ty = ty.with_dims([shards.shard_len(ty.elements())]);
                ShardedType::new(ty, PartitionSpec::new([axes]))
            }
        }
    };
    let params_and_specs = || params.leaves().into_iter().zip(slot_specs.leaves());
    let described = optim::slots(&optimizer, params);
    let per_param = params_and_specs().zip(described.list());
    let slots = per_param.flat_map(|(param, slots)| {
        let leaves = slots.iter().flat_map(Tree::leaves);
        leaves.map(move |leaf| beside(param, leaf))
    });
    let slots: Vec<_> = slots.collect();
    let scale = precision.loss_scale;
    let scale =
        scale.map(|rule| Scaling::types(rule).map_leaves(|_, ty| ShardedType::replicated(ty)));
    let average = options.average.map(|rule| {
        let described = rule.describe(params);
        let averaged = params_and_specs().filter(|(param, _)| optim::is_averaged(param));
        let types = described.leaves().into_iter().zip(averaged);
        let types = types.map(|(average, param)| beside(param, average));
        described.rebuild(types.collect::<Vec<_>>())
    });
    let types = StateTypes {
        average,
        options,
        model: params.rebuild(model.collect::<Vec<_>>()),
        slots: described.rebuild(slots),
        scale,
    };
    Ok(State::of_types(params, optimizer, types))
}

/// Checks that the size in bytes of each of these types fits in a `usize`.
///
/// # Errors
/// The first that does not fit, by its path below `what`.
pub(crate) fn check_sizes<'a>(
    what: &str,
    types: impl IntoIterator<Item = (String, &'a TensorType)>,
) -> Result<()> {
    for (path, ty) in types {
        ty.checked_bytes().map_err(|error| {
            Error::invalid("lower", format!("`{what}.{path}`: {}", error.message()))
        })?;
    }
    Ok(())
}
