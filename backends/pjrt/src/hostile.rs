//! Programs and flags that are known to end the process of XLA's compilers, found before the
//! compiler sees them.

use halite_core::{FlagValue, ProgramFacts, Signature};

/// Reason to refuse a program because of its signature or flags.
pub(crate) fn refusal(signature: &Signature, flags: &[(String, FlagValue)]) -> Option<String> {
    let types = signature.inputs.iter().chain(&signature.outputs);
    if let Some(error) = types.filter_map(|ty| ty.checked_bytes().err()).next() {
        return Some(format!(
            "has a type in its signature that no device can hold: {}",
            error.message()
        ));
    }
    let (name, value) = flags.iter().find(|(name, value)| crashes(name, value))?;
    Some(format!(
        "flag `{name}` is {value:?}, on which the compiler ends the process; it must be at least 1"
    ))
}

/// Reason to refuse a program because of its code.
pub(crate) fn refusal_of_code(facts: &ProgramFacts) -> Option<String> {
    if let Some(ty) = &facts.oversized {
        let shown: String = ty.chars().take(100).collect();
        return Some(format!(
            "has the type `{shown}`, whose size in bytes does not fit 64 bits"
        ));
    }
    if facts.cut_window_of_one {
        let message = "has a `reduce_window` of one element with negative padding, on which the \
                       compiler ends the process; cut by `slice`, and reduce no window";
        return Some(message.to_owned());
    }
    facts.untupled_top_k.then(|| {
        "calls `TopK` with one tensor as its result; it returns two, values and indices, and on \
         another signature the compiler ends the process"
            .to_owned()
    })
}

/// The facts that refuse a program, which a search of its text finds. Bytecode is not searched.
pub(crate) fn facts(code: &[u8]) -> ProgramFacts {
    let Ok(text) = std::str::from_utf8(code) else {
        return ProgramFacts::default();
    };
    let oversized = types_of(text).find(|ty| is_too_large(ty));
    let mut windows = text.split("reduce_window\"(").skip(1).map(attributes_of);
    ProgramFacts {
        oversized: oversized.map(|ty| format!("tensor<{ty}>")),
        cut_window_of_one: windows.any(is_cut_window_of_one),
        untupled_top_k: text.lines().any(is_untupled_topk),
        ..ProgramFacts::default()
    }
}

/// Returns whether a flag of XLA has a value that ends the process.
fn crashes(name: &str, value: &FlagValue) -> bool {
    let number = match value {
        FlagValue::Int(number) => Some(*number),
        FlagValue::Str(text) => text.trim().parse().ok(),
        FlagValue::Bool(_) | FlagValue::Float(_) => None,
    };
    name == "xla_cpu_parallel_codegen_split_count" && number.is_some_and(|number| number < 1)
}

/// The text between `tensor<` and `>` of each type.
fn types_of(text: &str) -> impl Iterator<Item = &str> {
    const START: &str = "tensor<";
    text.match_indices(START).filter_map(|(at, _)| {
        let rest = &text[at + START.len()..];
        let end = rest.find(['>', '<', ',', '\n']).unwrap_or(rest.len());
        Some(&rest[..end]).filter(|ty| ty.starts_with(|first: char| first.is_ascii_digit()))
    })
}

/// Returns whether the size of a type such as `4x4xf32` in bytes does not fit 64 bits.
fn is_too_large(ty: &str) -> bool {
    let mut dims = ty.split('x').peekable();
    let mut elements = Some(1i64);
    while let Some(dim) =
        dims.next_if(|dim| !dim.is_empty() && dim.bytes().all(|byte| byte.is_ascii_digit()))
    {
        // A dimension of 0 hides nothing: drivers multiply the others before they see it.
        let dim = dim.parse::<i64>().ok().map(|dim| dim.max(1));
        elements = elements
            .zip(dim)
            .and_then(|(elements, dim)| elements.checked_mul(dim));
    }
    let element = dims.next().unwrap_or_default();
    let bits: i64 = match element
        .trim_start_matches(|letter: char| letter.is_ascii_alphabetic())
        .parse()
    {
        Ok(bits @ 1..=64) => bits,
        // Types without a number of bits: 8-bit floats and the like, or complex.
        _ if element.starts_with("complex") => 128,
        _ => 8,
    };
    elements
        .and_then(|elements| elements.checked_mul((bits / 8).max(1)))
        .is_none()
}

/// The attributes of an operation, from its text after the name.
fn attributes_of(operation: &str) -> &str {
    let end = operation.find("({").unwrap_or(operation.len());
    &operation[..end]
}

/// Returns whether a window has one element and negative padding.
fn is_cut_window_of_one(attributes: &str) -> bool {
    let value = |name: &str| {
        let (_, rest) = attributes.split_once(name)?;
        rest.split_once('>').map(|(value, _)| value)
    };
    let sizes = value("window_dimensions = array<i64:");
    let is_one = sizes.is_some_and(|sizes| sizes.split(',').all(|size| size.trim() == "1"));
    is_one && value("padding = dense<").is_some_and(|padding| padding.contains('-'))
}

/// Returns whether a line calls `TopK`, which returns a tuple, with one tensor as its result.
fn is_untupled_topk(line: &str) -> bool {
    let calls = line.contains("custom_call @TopK(") || line.contains("call_target_name = \"TopK\"");
    calls
        && line
            .rsplit_once("->")
            .is_some_and(|(_, result)| result.trim_start().starts_with("tensor<"))
}

#[cfg(test)]
mod tests {
    use halite_core::{DType, TensorType};

    use super::*;

    fn signature(ty: &TensorType) -> Signature {
        Signature {
            inputs: vec![ty.clone()],
            outputs: vec![ty.clone()],
            donated: vec![],
        }
    }

    #[test]
    fn sizes_are_counted_as_drivers_do() {
        for ty in [
            "4611686018427387904x4xf32",
            "9223372036854775808xi1",
            "0x9223372036854775807x2xi8",
            "3037000500x3037000500xi64",
        ] {
            assert!(is_too_large(ty), "{ty}");
        }
        for ty in [
            "2x3xf32",
            "70368744177664xf32",
            "9223372036854775807xi8",
            "0x4xf32",
            "4xcomplex",
            "8x!quant.uniform",
            "4xf8E4M3FN",
        ] {
            assert!(!is_too_large(ty), "{ty}");
        }
    }

    #[test]
    fn types_are_found_in_a_text() {
        let text =
            "%0 = a.b %x : (tensor<f32>, tensor<2x3xf32>) -> tensor<4xcomplex<f32>> // tensor<1x";
        assert_eq!(
            types_of(text).collect::<Vec<_>>(),
            ["2x3xf32", "4xcomplex", "1x"]
        );
    }

    #[test]
    fn programs_that_end_the_process_are_refused() {
        let says = |code: &str| refusal_of_code(&facts(code.as_bytes())).unwrap_or_default();
        assert!(
            says("stablehlo.custom_call @TopK(%x) : (tensor<4xf32>) -> tensor<2xf32>")
                .contains("`TopK`")
        );
        assert_eq!(
            says(
                "stablehlo.custom_call @TopK(%x) : (tensor<4xf32>) -> (tensor<2xf32>, \
                 tensor<2xi32>)"
            ),
            ""
        );
        assert_eq!(
            says("stablehlo.custom_call @other(%x) : (tensor<4xf32>) -> tensor<2xf32>"),
            ""
        );
        let window = |padding: &str, size: &str| {
            says(&format!(
                "%0 = \"stablehlo.reduce_window\"(%x, %zero) <{{padding = dense<{padding}> : \
                 tensor<1x2xi64>,\n window_dimensions = array<i64: {size}>}}> ({{\n"
            ))
        };
        assert!(window("[[-1, 0]]", "1").contains("negative padding"));
        assert_eq!(
            [window("[[1, 0]]", "1"), window("[[-1, 0]]", "2")],
            ["", ""]
        );
        assert!(says("tensor<9223372036854775807x2xi8>").contains("9223372036854775807x2xi8"));
        let huge = TensorType::new(DType::F32, [1 << 62, 4]);
        assert!(
            refusal(&signature(&huge), &[])
                .unwrap()
                .contains("in its signature")
        );
    }

    #[test]
    fn flags_that_end_the_process_are_refused() {
        let four = TensorType::new(DType::F32, [4]);
        let says = |value: FlagValue| {
            refusal(
                &signature(&four),
                &[("xla_cpu_parallel_codegen_split_count".to_owned(), value)],
            )
        };
        assert!(
            says(FlagValue::Int(-1))
                .unwrap()
                .contains("must be at least 1")
        );
        assert!(says(FlagValue::Str("0".into())).is_some());
        assert_eq!(says(FlagValue::Int(8)), None);
    }
}
