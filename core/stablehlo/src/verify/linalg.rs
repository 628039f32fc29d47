//! Linear algebra, Fourier transforms, batch normalization and random numbers.

use crate::{
    ElementType, FftKind, RankedType, RngAlgorithm, RngDistribution, Type,
    ops::classes::{BITS, FLOAT, INTEGER},
    rules::{Check, check_class, check_dim, complex_of, ensure},
};

use super::typed::{Typed, check_same, check_scalar, tensor};

pub(super) fn fft(op: &Typed<'_>, kind: FftKind, lengths: &[usize]) -> Check<Vec<Type>> {
    let [x] = op.take()?;
    ensure!(
        (1..=3).contains(&lengths.len()) && lengths.len() <= x.rank(),
        "`fft_length` has {} items; it must have 1 to 3, and no more than {x} has dimensions",
        lengths.len()
    );
    let part = || {
        let part = x.element.part();
        part.ok_or_else(|| format!("the operand is {x}; its elements must be complex"))
    };
    let element = match kind {
        FftKind::Fft | FftKind::Ifft => part().map(|_| x.element)?,
        FftKind::Rfft => complex_of(x.element)?,
        FftKind::Irfft => part()?,
    };
    let outer = x.rank() - lengths.len();
    let real = [&x.dims[..outer], lengths].concat();
    let mut half = real.clone();
    if let Some(last) = half.last_mut().filter(|last| **last != 0) {
        *last = *last / 2 + 1;
    }
    let (from, to) = match kind {
        FftKind::Fft | FftKind::Ifft => (&real, &real),
        FftKind::Rfft => (&real, &half),
        FftKind::Irfft => (&half, &real),
    };
    ensure!(
        x.dims == *from,
        "the operand is {x}; with `fft_length` {lengths:?} its dimensions must be {from:?}"
    );
    Ok(vec![tensor(element, &**to)])
}

/// The operands: a tensor, `vectors` vectors of the size of its dimension `feature`, and more
/// tensors of the type of the first, so that there are `N` operands.
fn batch_norm<'a, const N: usize>(
    op: &Typed<'a>,
    feature: usize,
    vectors: usize,
) -> Check<&'a RankedType> {
    let operands: [_; N] = op.take()?;
    let x = operands[0];
    check_class(x, FLOAT)?;
    check_dim("feature dimension", feature, x)?;
    let vector = RankedType::new(x.element, [x.dims[feature]]);
    for (index, ty) in operands.iter().enumerate().skip(1) {
        let needed = if index <= vectors { &vector } else { x };
        ensure!(
            *ty == needed,
            "operand {index} is {ty}; it must be {needed}"
        );
    }
    Ok(x)
}

pub(super) fn batch_norm_training(op: &Typed<'_>, feature: usize) -> Check<Vec<Type>> {
    let x = batch_norm::<3>(op, feature, 2)?;
    Ok(with_two_vectors(x, feature))
}

pub(super) fn batch_norm_inference(op: &Typed<'_>, feature: usize) -> Check<Vec<Type>> {
    let x = batch_norm::<5>(op, feature, 4)?;
    Ok(vec![Type::Tensor(x.clone())])
}

pub(super) fn batch_norm_grad(op: &Typed<'_>, feature: usize) -> Check<Vec<Type>> {
    let x = batch_norm::<5>(op, feature, 3)?;
    Ok(with_two_vectors(x, feature))
}

fn with_two_vectors(x: &RankedType, feature: usize) -> Vec<Type> {
    let vector = tensor(x.element, [x.dims[feature]]);
    vec![Type::Tensor(x.clone()), vector.clone(), vector]
}

pub(super) fn rng(op: &Typed<'_>, distribution: RngDistribution) -> Check<Vec<Type>> {
    let [a, b, shape] = op.take()?;
    let [y] = op.declared()?;
    check_same(&[a, b])?;
    check_scalar("the first operand", a)?;
    let classes = match distribution {
        RngDistribution::Normal => FLOAT,
        RngDistribution::Uniform => &[BITS, FLOAT].concat(),
    };
    check_class(a, classes)?;
    check_class(shape, INTEGER)?;
    ensure!(
        shape.dims == [y.rank()],
        "the shape is {shape}; it must have an element for each dimension of the result, {y}"
    );
    Ok(vec![tensor(a.element, &*y.dims)])
}

pub(super) fn rng_bit_generator(op: &Typed<'_>, algorithm: RngAlgorithm) -> Check<Vec<Type>> {
    let [state] = op.take()?;
    let [_, bits] = op.declared()?;
    let sizes = match algorithm {
        RngAlgorithm::ThreeFry => &[2][..],
        RngAlgorithm::Philox | RngAlgorithm::Default => &[2, 3],
    };
    ensure!(
        state.element == ElementType::U64 && matches!(&*state.dims, [size] if sizes.contains(size)),
        "the state is {state}; it must be a vector of ui64 with {} elements",
        if sizes.len() == 1 { "2" } else { "2 or 3" }
    );
    check_class(bits, &[INTEGER, FLOAT].concat())?;
    Ok(vec![
        Type::Tensor(state.clone()),
        Type::Tensor(bits.clone()),
    ])
}
