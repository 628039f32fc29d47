//! Random bits.

use halite_stablehlo::{ElementClass, ElementType, RankedType, RngAlgorithm};

use crate::operations::{compare::Tolerance, draft::Draft, family::Family, numbers::Range};

pub(crate) fn families() -> Vec<Family> {
    let family = |&algorithm: &RngAlgorithm| {
        let bits = move |draft: &mut Draft<'_>, element| bits(draft, element, algorithm);
        Family::new("rng_bit_generator", bits).variant(algorithm.name())
    };
    RngAlgorithm::ALL.iter().map(family).collect()
}

fn bits(draft: &mut Draft<'_>, element: ElementType, algorithm: RngAlgorithm) -> Option<Tolerance> {
    let is_integer = matches!(
        element.class(),
        ElementClass::Signed | ElementClass::Unsigned
    );
    // XLA generates other types as unsigned integers, and needs a second to compile a case.
    if !is_integer || element.bits() < 8 || draft.random.percent(75) {
        return None;
    }
    let words = match algorithm {
        RngAlgorithm::ThreeFry => 2,
        RngAlgorithm::Default | RngAlgorithm::Philox => draft.choose(&[2, 3]),
    };
    let state = draft.input(ElementType::U64, &[words], Range::Any);
    let dims = draft.dims(3);
    let types = [state.ty.clone(), RankedType::new(element, dims)];
    let text = format!(
        "rng_bit_generator {{rng_algorithm = #stablehlo<rng_algorithm {}>}}",
        algorithm.name()
    );
    let results = draft.ops(text, &[&state], &types);
    results.into_iter().for_each(|result| draft.output(result));
    Some(Tolerance::Bits)
}
