//! Samples in operations that move elements, or take some of them.

use super::{At, COMBINES, ORDER, Place, SUMMED, Samples, Shared, Walk, elementwise::combined};
use crate::WindowAttributes;

/// With other places, or without those for which `to` returns nothing. A value along samples keeps
/// them.
pub(super) fn moved(x: &Samples, to: impl Fn(usize) -> Option<usize>) -> Samples {
    let of = |place: &Place| to(place.dim).map(|dim| Place { dim, ..*place });
    match x {
        Samples::Along(place) => match of(place) {
            Some(place) => Samples::Along(place),
            None => Samples::SHARED,
        },
        Samples::Shared(shared) => Samples::Shared(Shared {
            counts: shared.counts.iter().filter_map(of).collect(),
            ..*shared
        }),
        _ => x.clone(),
    }
}

/// Unchanged, if the places of its samples are as `holds` says.
pub(super) fn whole(at: &At<'_>, x: &Samples, holds: impl Fn(&Place) -> bool) -> Samples {
    match x {
        Samples::Along(place) if !holds(place) => at.met(ORDER),
        Samples::Shared(shared) => Samples::Shared(Shared {
            counts: shared.counts.iter().copied().filter(holds).collect(),
            ..*shared
        }),
        _ => x.clone(),
    }
}

pub(super) fn broadcast(at: &At<'_>, x: &Samples, dims: &[usize], mapping: &[usize]) -> Samples {
    let repeated = |place: &Place| match at.dims(0)[place.dim] {
        // One sample of one element.
        1 => Place {
            inner: dims[mapping[place.dim]],
            ..*place
        },
        _ => *place,
    };
    let x = match x {
        Samples::Along(place) => &Samples::Along(repeated(place)),
        _ => x,
    };
    moved(x, |dim| Some(mapping[dim]))
}

pub(super) fn concatenate(at: &At<'_>, operands: Vec<Samples>, dim: usize) -> Samples {
    let sums = |operand: &Samples| matches!(operand, Samples::Sum(_));
    if operands.iter().all(sums) {
        return operands[0].clone();
    }
    let is_along_dim =
        |operand: &Samples| matches!(operand, Samples::Along(place) if place.dim == dim);
    if !operands.iter().any(is_along_dim) {
        let operands = operands.iter();
        let others = operands.map(|operand| whole(at, operand, |place| place.dim != dim));
        return combined(at, others.collect());
    }
    let mut all: Option<Place> = None;
    for operand in operands {
        let (Samples::Along(place), before) = (operand, all) else {
            return at.met(ORDER);
        };
        let fits =
            before.is_none_or(|before| (before.dim, before.inner) == (place.dim, place.inner));
        if !fits {
            return at.met(ORDER);
        }
        all = Some(Place {
            outer: place.outer + before.map_or(0, |before| before.outer),
            ..place
        });
    }
    all.map_or(Samples::SHARED, Samples::Along)
}

pub(super) fn dynamic_slice(at: &At<'_>, mut operands: Vec<Samples>, sizes: &[usize]) -> Samples {
    let x = operands.remove(0);
    if !operands
        .iter()
        .all(|start| matches!(start, Samples::Shared(_)))
    {
        return at.met(COMBINES);
    }
    whole(at, &x, |place| sizes[place.dim] == at.dims(0)[place.dim])
}

pub(super) fn dynamic_update_slice(at: &At<'_>, mut operands: Vec<Samples>) -> Samples {
    let starts = operands.split_off(2);
    if !starts
        .iter()
        .all(|start| matches!(start, Samples::Shared(_)))
    {
        return at.met(COMBINES);
    }
    let both = combined(at, operands);
    whole(at, &both, |place| {
        at.dims(0)[place.dim] == at.dims(1)[place.dim]
    })
}

pub(super) fn pad(
    at: &At<'_>,
    mut operands: Vec<Samples>,
    [low, high]: [&[i64]; 2],
    interior: &[usize],
) -> Samples {
    let value = operands.pop();
    if !matches!(value, Some(Samples::Shared(_))) {
        return at.met(SUMMED);
    }
    whole(at, &operands[0], |place| {
        let dim = place.dim;
        low[dim] == 0 && high[dim] == 0 && interior[dim] == 0
    })
}

pub(super) fn windows(at: &At<'_>, operands: Vec<Samples>, window: &WindowAttributes) -> Samples {
    let all = combined(at, operands);
    whole(at, &all, |place| {
        let dim = place.dim;
        window.sizes[dim] == 1
            && window.strides[dim] == 1
            && window.base_dilations[dim] == 1
            && window.padding[dim] == (0, 0)
    })
}

impl Walk<'_> {
    pub(super) fn reshape(&self, at: &At<'_>, x: &Samples, dims: &[usize]) -> Samples {
        let of = |place: &Place| self.reshaped(place, at.dims(0), dims);
        match x {
            Samples::Along(place) => match of(place) {
                Some(place) => Samples::Along(place),
                // One sample in a value without dimensions of size 1.
                None if self.samples == 1 => Samples::Sum(at.meeting(SUMMED)),
                None => at.met("splits the samples of the batch into groups"),
            },
            Samples::Shared(shared) => Samples::Shared(Shared {
                counts: shared.counts.iter().filter_map(of).collect(),
                ..*shared
            }),
            _ => x.clone(),
        }
    }

    /// The place of the samples of `from` in the dimensions `to` of as many elements.
    fn reshaped(&self, place: &Place, from: &[usize], to: &[usize]) -> Option<Place> {
        // Elements are counted from the slowest dimension.
        let before = from[..place.dim].iter().product::<usize>() * place.outer;
        let with = before * self.samples;
        let mut slower = 1;
        for (dim, &size) in to.iter().enumerate() {
            let all = slower * size;
            if size > 0 && before.is_multiple_of(slower) && all.is_multiple_of(with) {
                return Some(Place {
                    dim,
                    outer: before / slower,
                    inner: all / with,
                });
            }
            slower = all;
        }
        None
    }

    pub(super) fn slice(
        &self,
        at: &At<'_>,
        x: &Samples,
        [starts, limits, strides]: [&[usize]; 3],
    ) -> Samples {
        let of = |place: &Place| {
            let Place { dim, outer, inner } = *place;
            let (start, limit, stride) = (starts[dim], limits[dim], strides[dim]);
            let block = self.samples * inner;
            if stride == 1 && start.is_multiple_of(block) && limit.is_multiple_of(block) {
                let outer = (limit - start) / block;
                return (outer > 0).then_some(Place { outer, ..*place });
            }
            let one_of_each = stride == inner && start < inner && limit > (outer * block) - inner;
            one_of_each.then_some(Place { inner: 1, ..*place })
        };
        match x {
            Samples::Along(place) => of(place).map_or_else(|| at.met(ORDER), Samples::Along),
            Samples::Shared(shared) => Samples::Shared(Shared {
                counts: shared.counts.iter().filter_map(of).collect(),
                ..*shared
            }),
            _ => x.clone(),
        }
    }
}
