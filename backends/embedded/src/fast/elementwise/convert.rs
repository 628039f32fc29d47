//! Conversions between the types that registers hold.

use halite_kernels::{Convert, Operation, Shorten, Unary, Widen};
use halite_stablehlo::ElementType;

use super::{Elementwise, Recipe, is_float, is_signed, is_wide, narrowing, pick};

/// The numbers as elements of another type: floats become integers towards zero and saturate.
pub(super) fn convert(from: ElementType, to: ElementType) -> Option<Recipe> {
    if from == to {
        return Some(Recipe::of(Elementwise::Copy));
    }
    Some(match (is_float(from), is_wide(from)) {
        (true, false) => convert_float(to),
        (true, true) => convert_double(to),
        (false, false) => convert_integer(from, to),
        (false, true) => convert_wide_integer(is_signed(from), to),
    })
}

/// From floats in registers of 32 bits.
fn convert_float(to: ElementType) -> Recipe {
    Recipe::one(match to {
        ElementType::F32 => return Recipe::of(Elementwise::Copy),
        ElementType::Bf16 => Operation::Convert(Convert::RoundBf16),
        ElementType::F16 => Operation::Convert(Convert::RoundF16),
        ElementType::S8 => Operation::Convert(Convert::S8FromFloat),
        ElementType::U8 => Operation::Convert(Convert::U8FromFloat),
        ElementType::S16 => Operation::Convert(Convert::S16FromFloat),
        ElementType::U16 => Operation::Convert(Convert::U16FromFloat),
        ElementType::Bool => Operation::Convert(Convert::BoolFromFloat),
        ElementType::S32 => Operation::Unary(Unary::SFromFloat),
        ElementType::U32 => Operation::Unary(Unary::UFromFloat),
        ElementType::S64 => Operation::Widen(Widen::SFromFloat),
        ElementType::U64 => Operation::Widen(Widen::UFromFloat),
        _ => Operation::Widen(Widen::DoubleFromFloat),
    })
}

fn convert_double(to: ElementType) -> Recipe {
    Recipe::one(match to {
        ElementType::F32 => Operation::Shorten(Shorten::FloatFromDouble),
        ElementType::Bf16 | ElementType::F16 => {
            return Recipe::narrowed(Operation::Shorten(Shorten::OddFromDouble), to);
        }
        ElementType::S8 => Operation::Shorten(Shorten::S8FromDouble),
        ElementType::U8 => Operation::Shorten(Shorten::U8FromDouble),
        ElementType::S16 => Operation::Shorten(Shorten::S16FromDouble),
        ElementType::U16 => Operation::Shorten(Shorten::U16FromDouble),
        ElementType::S32 => Operation::Shorten(Shorten::S32FromDouble),
        ElementType::U32 => Operation::Shorten(Shorten::U32FromDouble),
        ElementType::Bool => Operation::Shorten(Shorten::BoolFromDouble),
        ElementType::S64 => Operation::Unary(Unary::SFromFloat),
        _ => Operation::Unary(Unary::UFromFloat),
    })
}

/// From integers in registers of 32 bits, which have them extended by their own sign.
fn convert_integer(from: ElementType, to: ElementType) -> Recipe {
    let signed = is_signed(from);
    Recipe::one(match to {
        ElementType::F32 => Operation::Unary(pick(signed, Unary::FloatFromS, Unary::FloatFromU)),
        ElementType::Bf16 | ElementType::F16 => {
            let odd = pick(signed, Convert::OddFromS, Convert::OddFromU);
            return Recipe::narrowed(Operation::Convert(odd), to);
        }
        ElementType::F64 => Operation::Widen(pick(signed, Widen::DoubleFromS, Widen::DoubleFromU)),
        ElementType::S64 | ElementType::U64 => {
            Operation::Widen(pick(signed, Widen::SFromInt, Widen::UFromInt))
        }
        to => match narrowing(to) {
            Some(narrowing) => narrowing,
            None => return Recipe::of(Elementwise::Copy),
        },
    })
}

fn convert_wide_integer(signed: bool, to: ElementType) -> Recipe {
    Recipe::one(match to {
        ElementType::F32 => {
            Operation::Shorten(pick(signed, Shorten::FloatFromS, Shorten::FloatFromU))
        }
        ElementType::Bf16 | ElementType::F16 => {
            let odd = pick(signed, Shorten::OddFromS, Shorten::OddFromU);
            return Recipe::narrowed(Operation::Shorten(odd), to);
        }
        ElementType::F64 => Operation::Unary(pick(signed, Unary::FloatFromS, Unary::FloatFromU)),
        ElementType::S64 | ElementType::U64 => return Recipe::of(Elementwise::Copy),
        ElementType::Bool => Operation::Shorten(Shorten::BoolFromInt),
        to => return Recipe::narrowed(Operation::Shorten(Shorten::IntFromInt), to),
    })
}

/// The same bits. `None` if the types have other sizes.
pub(super) fn bitcast(from: ElementType, to: ElementType) -> Option<Recipe> {
    if from.bits() != to.bits() {
        return None;
    }
    let bits = match from {
        _ if from == to => None,
        ElementType::Bf16 => Some(Convert::BitsFromBf16),
        ElementType::F16 => Some(Convert::BitsFromF16),
        _ => None,
    };
    let of_bits = match to {
        _ if from == to => None,
        ElementType::Bf16 => Some(Operation::Convert(Convert::Bf16FromBits)),
        ElementType::F16 => Some(Operation::Convert(Convert::F16FromBits)),
        to => narrowing(to),
    };
    Some(match (bits.map(Operation::Convert), of_bits) {
        (Some(bits), after) => Recipe {
            after,
            ..Recipe::one(bits)
        },
        (None, Some(op)) => Recipe::one(op),
        (None, None) => Recipe::of(Elementwise::Copy),
    })
}
