//! Cases that are not compared with XLA's plugin, with the reasons.

use crate::operations::draft::Case;

/// Cases in which XLA's results are not the measure.
struct Deviation {
    /// Operations, `*` for all; with a variant only where it matters.
    operations: &'static [&'static str],
    /// Element types, `*` for all.
    elements: &'static [&'static str],
    why: &'static str,
}

/// Types of less than a byte.
const NARROW: &[&str] = &["i2", "i4", "ui2", "ui4"];

const DEVIATIONS: &[Deviation] = &[
    Deviation {
        operations: &["rng_bit_generator"],
        elements: &["i8", "i16", "i32", "i64"],
        why: "the results that the plugin reports are unsigned",
    },
    Deviation {
        operations: &["*"],
        elements: &["f6E2M3FN", "f6E3M2FN"],
        why: "the plugin has no code for most operations on these, and aborts in some",
    },
    Deviation {
        operations: &["convert to f6E2M3FN", "convert to f6E3M2FN"],
        elements: &["*"],
        why: "as above",
    },
    Deviation {
        operations: &["bitcast_convert to f6E2M3FN", "bitcast_convert to f6E3M2FN"],
        elements: &["*"],
        why: "as above",
    },
    Deviation {
        operations: &[
            "abs",
            "add",
            "convolution",
            "count_leading_zeros",
            "divide",
            "dot_general",
            "iota",
            "multiply",
            "negate",
            "not",
            "popcnt",
            "power",
            "reduce",
            "reduce_window",
            "remainder",
            "scatter",
            "select_and_scatter",
            "shift_left",
            "shift_right_arithmetic",
            "shift_right_logical",
            "subtract",
        ],
        elements: NARROW,
        why: "the plugin computes in 8 bits and does not wrap results to the type",
    },
    Deviation {
        operations: &["sort of pairs"],
        elements: NARROW,
        why: "the plugin refuses to sort these with elements of another type",
    },
    Deviation {
        operations: &["sort"],
        elements: &["i2", "ui2"],
        why: "the plugin returns these unsorted",
    },
    Deviation {
        operations: &["maximum", "minimum"],
        elements: &["complex<f32>", "complex<f64>"],
        why: "the plugin does not compare imaginary parts where real parts are equal",
    },
    Deviation {
        operations: &["dot_general to a wider type"],
        elements: &["f4E2M1FN"],
        why: "the plugin refuses some of these",
    },
    Deviation {
        operations: &["cbrt"],
        elements: &["complex<f32>", "complex<f64>"],
        why: "XLA has no cube root of complex numbers",
    },
    Deviation {
        operations: &["bitcast_convert"],
        elements: &["complex<f32>", "complex<f64>"],
        why: "the plugin aborts",
    },
];

/// The reason why a case is not compared with XLA.
pub(crate) fn of(case: &Case) -> Option<&'static str> {
    if case.incomparable.is_some() {
        return case.incomparable;
    }
    let variant = format!("{} {}", case.operation, case.variant);
    let element = case.element.name();
    let names = [case.operation, &variant, "*"];
    let deviation = DEVIATIONS.iter().find(|it| {
        it.operations.iter().any(|name| names.contains(name))
            && it.elements.iter().any(|name| [element, "*"].contains(name))
    })?;
    Some(deviation.why)
}
