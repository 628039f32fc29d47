//! Linear algebra, Fourier transforms and batch normalization.

use halite_stablehlo::{ElementClass, ElementType, FftKind, RankedType, Transposition};

use crate::operations::{
    compare::Tolerance,
    draft::{Draft, Value},
    family::Family,
    moves::array,
    numbers::Range,
};

pub(crate) fn families() -> Vec<Family> {
    let mut families = Vec::new();
    for lower in [false, true] {
        let name = if lower { "lower" } else { "upper" };
        let cholesky = move |draft: &mut Draft<'_>, element| cholesky(draft, element, lower);
        families.push(Family::new("cholesky", cholesky).variant(name));
    }
    for &transposition in Transposition::ALL {
        let solve = move |draft: &mut Draft<'_>, element| solve(draft, element, transposition);
        families.push(Family::new("triangular_solve", solve).variant(transposition.name()));
    }
    for &kind in FftKind::ALL {
        let fft = move |draft: &mut Draft<'_>, element| fft(draft, element, kind);
        families.push(Family::new("fft", fft).variant(kind.name()));
    }
    families.push(Family::new("batch_norm_training", batch_norm_training));
    families.push(Family::new("batch_norm_inference", batch_norm_inference));
    families.push(Family::new("batch_norm_grad", batch_norm_grad));
    families
}

/// Bytes of a real number of a type of at least 32 bits.
fn encode(element: ElementType, value: f64) -> Option<Vec<u8>> {
    Some(match element {
        ElementType::F32 => (value as f32).to_le_bytes().to_vec(),
        ElementType::F64 => value.to_le_bytes().to_vec(),
        ElementType::C64 => [value as f32, 0.0].map(f32::to_le_bytes).concat(),
        ElementType::C128 => [value, 0.0].map(f64::to_le_bytes).concat(),
        _ => return None,
    })
}

/// Square matrices of random numbers between -1 and 1, with these numbers on the diagonal.
fn matrices(draft: &mut Draft<'_>, ty: &RankedType, diagonal: f64) -> Option<Vec<u8>> {
    let size = *ty.dims.last()?;
    let mut bytes = Vec::new();
    for at in 0..ty.elements() {
        let is_diagonal = at / size % size == at % size;
        let value = (draft.random.below(2001) as f64 - 1000.0) / 1000.0;
        bytes.extend(encode(
            ty.element,
            if is_diagonal { diagonal + value } else { value },
        )?);
    }
    Some(bytes)
}

/// The elements of one triangle; zeros in the other.
fn triangle(draft: &mut Draft<'_>, x: &Value, lower: bool) -> Value {
    let rank = x.ty.rank();
    let [row, column] = [rank - 2, rank - 1].map(|dim| {
        let ty = RankedType::new(ElementType::S32, &*x.ty.dims);
        draft.op(format!("iota {{iota_dimension = {dim} : i64}}"), &[], ty)
    });
    let direction = if lower { "GE" } else { "LE" };
    let text =
        format!("compare {{comparison_direction = #stablehlo<comparison_direction {direction}>}}");
    let mask = RankedType::new(ElementType::Bool, &*x.ty.dims);
    let mask = draft.op(text, &[&row, &column], mask);
    let zero = draft.input_of(x.ty.element, &[], vec![0; x.ty.element.size()]);
    let text = "broadcast_in_dim {broadcast_dimensions = array<i64>}";
    let zeros = draft.op(text, &[&zero], x.ty.clone());
    draft.op("select", &[&mask, x, &zeros], x.ty.clone())
}

/// The factor of a matrix whose other triangle is different.
fn cholesky(draft: &mut Draft<'_>, element: ElementType, lower: bool) -> Option<Tolerance> {
    encode(element, 0.0)?;
    let size = draft.choose(&[0, 1, 2, 3, 5, 8]);
    let dims = [&*draft.dims(2), &[size, size]].concat();
    let ty = RankedType::new(element, &*dims);
    let bytes = matrices(draft, &ty, 10.0)?;
    let x = draft.input_of(element, &dims, bytes);
    let y = draft.op(format!("cholesky {{lower = {lower}}}"), &[&x], ty);
    let y = triangle(draft, &y, lower);
    draft.output(y);
    Some(Tolerance::Absolute(64.0))
}

fn solve(
    draft: &mut Draft<'_>,
    element: ElementType,
    transposition: Transposition,
) -> Option<Tolerance> {
    encode(element, 0.0)?;
    let (size, columns) = (draft.choose(&[0, 1, 2, 3, 5]), draft.choose(&[0, 1, 2, 4]));
    let [left, lower, unit] = [(); 3].map(|()| draft.random.percent(50));
    let batch = draft.dims(1);
    let shape = if left {
        [size, columns]
    } else {
        [columns, size]
    };
    let (dims, other) = (
        [&*batch, &[size, size]].concat(),
        [&*batch, &shape].concat(),
    );
    let ty = RankedType::new(element, &*dims);
    let bytes = matrices(draft, &ty, 4.0)?;
    let a = draft.input_of(element, &dims, bytes);
    let b = draft.input(element, &other, Range::Small);
    let text = format!(
        "triangular_solve {{left_side = {left}, lower = {lower}, transpose_a = \
         #stablehlo<transpose {}>, unit_diagonal = {unit}}}",
        transposition.name()
    );
    let y = draft.op(text, &[&a, &b], b.ty.clone());
    draft.output(y);
    // Solutions with a unit diagonal grow with the powers of 2.
    Some(Tolerance::Absolute(2048.0))
}

fn fft(draft: &mut Draft<'_>, element: ElementType, kind: FftKind) -> Option<Tolerance> {
    let part = element.part().unwrap_or(element);
    encode(part, 0.0)?;
    let complex = match part {
        ElementType::F32 => ElementType::C64,
        _ => ElementType::C128,
    };
    let takes_real = kind == FftKind::Rfft;
    if takes_real != (element.class() == ElementClass::Float) {
        return None;
    }
    let rank = 1 + draft.random.below(3);
    let lengths: Vec<_> = (0..rank)
        .map(|_| draft.choose(&[1, 2, 3, 4, 5, 8, 9]))
        .collect();
    let batch = draft.dims(2);
    let mut halved = [&*batch, &lengths].concat();
    *halved.last_mut()? = lengths[rank - 1] / 2 + 1;
    let full = [&*batch, &lengths].concat();
    let (dims, result) = match kind {
        FftKind::Rfft => (&full, RankedType::new(complex, &*halved)),
        FftKind::Irfft => (&halved, RankedType::new(part, &*full)),
        FftKind::Fft | FftKind::Ifft => (&full, RankedType::new(complex, &*full)),
    };
    let x = draft.input(element, dims, Range::Small);
    let text = format!(
        "fft {{fft_length = {}, fft_type = #stablehlo<fft_type {}>}}",
        array(&lengths),
        kind.name()
    );
    let y = draft.op(text, &[&x], result);
    draft.output(y);
    Some(Tolerance::Absolute(
        16.0 * lengths.iter().product::<usize>() as f64,
    ))
}

/// Attributes of batch normalization, with the input and vectors of its features.
fn normalized<const N: usize>(
    draft: &mut Draft<'_>,
    element: ElementType,
    ranges: [Range; N],
) -> Option<(String, Value, [Value; N])> {
    if element.class() != ElementClass::Float || element.bits() < 16 {
        return None;
    }
    let rank = 1 + draft.random.below(4);
    let dims: Vec<_> = (0..rank).map(|_| draft.choose(&[1, 2, 3, 4])).collect();
    let feature = draft.random.below(rank);
    let x = draft.input(element, &dims, Range::Small);
    let vectors = ranges.map(|range| draft.input(element, &[dims[feature]], range));
    let attributes = format!("{{epsilon = 0.25 : f32, feature_index = {feature} : i64}}");
    Some((attributes, x, vectors))
}

const NORMALIZED: Tolerance = Tolerance::Absolute(256.0);

fn batch_norm_training(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let (attributes, x, [scale, offset]) =
        normalized(draft, element, [Range::Small, Range::Small])?;
    let types = [x.ty.clone(), scale.ty.clone(), scale.ty.clone()];
    let text = format!("batch_norm_training {attributes}");
    let results = draft.ops(text, &[&x, &scale, &offset], &types);
    results.into_iter().for_each(|result| draft.output(result));
    Some(NORMALIZED)
}

fn batch_norm_inference(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let ranges = [Range::Small, Range::Small, Range::Small, Range::Positive];
    let (attributes, x, [scale, offset, mean, variance]) = normalized(draft, element, ranges)?;
    let text = format!("batch_norm_inference {attributes}");
    let y = draft.op(text, &[&x, &scale, &offset, &mean, &variance], x.ty.clone());
    draft.output(y);
    Some(NORMALIZED)
}

fn batch_norm_grad(draft: &mut Draft<'_>, element: ElementType) -> Option<Tolerance> {
    let ranges = [Range::Small, Range::Small, Range::Positive];
    let (attributes, x, [scale, mean, variance]) = normalized(draft, element, ranges)?;
    let dy = draft.input(element, &x.ty.dims, Range::Small);
    let types = [x.ty.clone(), scale.ty.clone(), scale.ty.clone()];
    let text = format!("batch_norm_grad {attributes}");
    let results = draft.ops(text, &[&x, &scale, &mean, &variance, &dy], &types);
    results.into_iter().for_each(|result| draft.output(result));
    Some(NORMALIZED)
}
