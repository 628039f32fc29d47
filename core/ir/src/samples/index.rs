//! Samples in operations that read or write at computed places.

use super::{At, COMBINES, ORDER, Place, SUMMED, Samples};
use crate::{GatherAttributes, Reduction, ScatterAttributes};

/// Dimensions below `rank` that are not among these, in order.
fn others(rank: usize, dims: &[&[usize]]) -> Vec<usize> {
    let is_other = |dim: &usize| !dims.iter().any(|dims| dims.contains(dim));
    (0..rank).filter(is_other).collect()
}

fn position(dims: &[usize], dim: usize) -> Option<usize> {
    dims.iter().position(|of| *of == dim)
}

/// Whether samples are at the same places within dimensions that belong together.
fn fits(one: &Samples, dim: usize, place: &Place) -> bool {
    match one {
        Samples::Shared(_) => true,
        Samples::Along(other) => *other == Place { dim, ..*place },
        _ => false,
    }
}

pub(super) fn gather(at: &At<'_>, operands: Vec<Samples>, gather: &GatherAttributes) -> Samples {
    let (x, indices) = (&operands[0], &operands[1]);
    let scattered = others(at.result().len(), &[&gather.offset_dims]);
    let of_indices = others(at.dims(1).len(), &[&[gather.index_vector_dim]]);
    // The dimension of the result that one of the indices becomes.
    let along = |dim: usize, place: &Place| {
        let result = position(&of_indices, dim).map(|at| scattered[at]);
        result.map(|dim| Samples::Along(Place { dim, ..*place }))
    };
    let found = match (x, indices) {
        (Samples::Shared(x), Samples::Shared(indices)) => {
            Some(x.clone().and(indices.clone()).uncounted())
        }
        (Samples::Shared(_), Samples::Along(place)) => along(place.dim, place),
        (Samples::Sum(sum), Samples::Shared(_)) => Some(Samples::Sum(*sum)),
        (Samples::Along(place), _) => {
            let kept = others(
                at.dims(0).len(),
                &[&gather.collapsed_slice_dims, &gather.operand_batching_dims],
            );
            let is_whole = gather.slice_sizes[place.dim] == at.dims(0)[place.dim];
            match position(&gather.operand_batching_dims, place.dim) {
                Some(batch) => {
                    let dim = gather.start_indices_batching_dims[batch];
                    along(dim, place).filter(|_| fits(indices, dim, place))
                }
                None if is_whole && matches!(indices, Samples::Shared(_)) => {
                    let offset = position(&kept, place.dim).map(|at| gather.offset_dims[at]);
                    offset.map(|dim| Samples::Along(Place { dim, ..*place }))
                }
                None => None,
            }
        }
        _ => return at.met(SUMMED),
    };
    found.unwrap_or_else(|| at.met(COMBINES))
}

pub(super) fn scatter(
    at: &At<'_>,
    operands: Vec<Samples>,
    scatter: &ScatterAttributes,
    combine: Option<Reduction>,
) -> Samples {
    let [x, indices, updates] = &operands[..] else {
        return at.met(COMBINES);
    };
    if let [
        Samples::Shared(x),
        Samples::Shared(indices),
        Samples::Shared(updates),
    ] = &operands[..]
    {
        return x
            .clone()
            .and(indices.clone())
            .and(updates.clone())
            .uncounted();
    }
    let scattered = others(at.dims(2).len(), &[&scatter.update_window_dims]);
    let of_indices = others(at.dims(1).len(), &[&[scatter.index_vector_dim]]);
    let windows = others(
        at.dims(0).len(),
        &[&scatter.inserted_window_dims, &scatter.input_batching_dims],
    );
    let is_sum = combine == Some(Reduction::Sum);
    // The dimension of `x` that this one of the indices belongs to, if it is one of batches.
    let batch = |dim: usize| {
        let at = position(&scatter.scatter_indices_batching_dims, dim)?;
        Some(scatter.input_batching_dims[at])
    };
    // What is written at places that this dimension of the indices has.
    let written = |dim: usize, place: &Place| match batch(dim) {
        Some(dim) if fits(x, dim, place) => Some(Samples::Along(Place { dim, ..*place })),
        None if is_sum && matches!(x, Samples::Shared(_) | Samples::Sum(_)) => {
            Some(Samples::Sum(at.meeting(SUMMED)))
        }
        _ => None,
    };
    let found = match (updates, indices) {
        (Samples::Along(place), _) => match position(&scatter.update_window_dims, place.dim) {
            Some(window) => {
                let dim = windows[window];
                let is_whole = at.dims(0)[dim] == at.dims(2)[place.dim];
                let is_shared = matches!(indices, Samples::Shared(_));
                let along = Samples::Along(Place { dim, ..*place });
                (is_whole && is_shared && fits(x, dim, place)).then_some(along)
            }
            None => {
                let dim = position(&scattered, place.dim).map(|at| of_indices[at]);
                dim.filter(|dim| fits(indices, *dim, place))
                    .and_then(|dim| written(dim, place))
            }
        },
        (Samples::Shared(_), Samples::Along(place)) => written(place.dim, place),
        (Samples::Shared(_), Samples::Shared(_)) => match x {
            Samples::Along(place) => {
                let window = position(&windows, place.dim);
                let is_whole = window.is_some_and(|window| {
                    at.dims(2)[scatter.update_window_dims[window]] == at.dims(0)[place.dim]
                });
                is_whole.then_some(Samples::Along(*place))
            }
            _ => return at.met(SUMMED),
        },
        _ => return at.met(SUMMED),
    };
    found.unwrap_or_else(|| at.met(ORDER))
}
