//! Samples in elementwise operations.

use super::{At, COMBINES, COUNTED, Place, SUMMED, Samples, Shared, is_linear};
use crate::{BinaryOp, Linearity, Op, UnaryOp};

/// Of an operation that computes each element from those at its place.
pub(super) fn combined(at: &At<'_>, operands: Vec<Samples>) -> Samples {
    let (mut along, mut shared) = (None, Shared::default());
    for operand in operands {
        match operand {
            Samples::Shared(one) => shared = shared.and(one),
            Samples::Along(place) => match along.replace(place) {
                Some(other) if other != place => return at.met(COMBINES),
                _ => {}
            },
            Samples::Sum(_) => return at.met(SUMMED),
            Samples::Met(meeting) => return Samples::Met(meeting),
        }
    }
    match (along, with_rank(at, shared)) {
        (None, shared) => shared,
        (Some(place), Samples::Along(other)) if place != other => at.met(COMBINES),
        (Some(place), Samples::Shared(Shared { counts, .. })) if counts.contains(&place) => {
            at.met(COUNTED)
        }
        (Some(place), Samples::Along(_) | Samples::Shared(_)) => Samples::Along(place),
        (Some(_), other) => other,
    }
}

/// Numbers of elements with that of the process are numbers in the whole batch, if they begin with
/// the samples.
fn with_rank(at: &At<'_>, shared: Shared) -> Samples {
    let first = |place: &&Place| place.dim == 0 && place.outer == 1;
    match shared.rank && !shared.counts.is_empty() {
        false => Samples::Shared(shared),
        true => match shared.counts.iter().find(first) {
            Some(place) => Samples::Along(*place),
            None => at.met("has random numbers or indices of samples, whose first dimension is not that of the batch"),
        },
    }
}

pub(super) fn unary(at: &At<'_>, unary: UnaryOp, operands: Vec<Samples>) -> Samples {
    match (Op::Unary(unary).rules().linearity, &operands[0]) {
        (Linearity::First, Samples::Sum(sum)) => Samples::Sum(*sum),
        _ => combined(at, operands),
    }
}

pub(super) fn converted(at: &At<'_>, is_float: bool, operands: Vec<Samples>) -> Samples {
    match &operands[0] {
        Samples::Sum(sum) if is_float => Samples::Sum(*sum),
        _ => combined(at, operands),
    }
}

pub(super) fn binary(at: &At<'_>, binary: BinaryOp, operands: Vec<Samples>) -> Samples {
    let mut sums = operands.iter().filter_map(|operand| match operand {
        Samples::Sum(sum) => Some(*sum),
        _ => None,
    });
    let sum = sums.next();
    let is_along = |operand: &Samples| matches!(operand, Samples::Along(_));
    match sum {
        None => combined(at, operands),
        Some(sum) => {
            let linear = is_linear(binary, [&operands[0], &operands[1]]);
            match linear && !operands.iter().any(is_along) {
                true => Samples::Sum(sum),
                false => at.met(SUMMED),
            }
        }
    }
}

pub(super) fn select(at: &At<'_>, operands: Vec<Samples>) -> Samples {
    match &operands[..] {
        [Samples::Shared(_), Samples::Sum(sum), Samples::Sum(_)] => Samples::Sum(*sum),
        _ => combined(at, operands),
    }
}
