//! Descriptions of programs: the C API passes a program without the types of its arguments and
//! results, which a backend needs to compile it.

use halite_core::{
    DType, TensorType,
    program_text::{Token, is_bytecode, tokens},
};

use crate::status::{Outcome, Status};

/// The newest version of StableHLO that plugins accept; callers downgrade programs to it.
pub(crate) const NEWEST_STABLEHLO: [i64; 3] = [1, 10, 0];
/// The oldest version of StableHLO that plugins accept.
pub(crate) const OLDEST_STABLEHLO: [i64; 3] = [0, 9, 0];

/// What a program says of itself.
#[derive(Debug, PartialEq)]
pub(crate) struct Described {
    /// The name of the module.
    pub(crate) name: String,
    /// Argument types.
    pub(crate) inputs: Vec<TensorType>,
    /// Result types.
    pub(crate) outputs: Vec<TensorType>,
    /// Indices of arguments that the program may overwrite, ascending.
    pub(crate) donated: Vec<usize>,
}

/// Describes a program.
///
/// # Errors
/// UNIMPLEMENTED for bytecode, for partitioned tensors and for types that halite does not have;
/// INVALID_ARGUMENT if there is no function `@main`.
pub(crate) fn describe(code: &[u8]) -> Outcome<Described> {
    if is_bytecode(code) {
        return Err(Status::unimplemented(
            "the program is MLIR bytecode; this version reads StableHLO text",
        ));
    }
    let text = std::str::from_utf8(code)
        .map_err(|error| Status::invalid(format!("the program is not UTF-8: {error}")))?;
    let text = without_comments(text);
    let main = after_words(&text, &["func.func", "@main"])
        .ok_or_else(|| Status::invalid("the program has no function `func.func public @main`"))?;
    let (arguments, rest) = in_parentheses(main)?;
    let mut described = Described {
        name: module_name(&text),
        inputs: Vec::new(),
        outputs: Vec::new(),
        donated: Vec::new(),
    };
    for (index, argument) in split(arguments).into_iter().enumerate() {
        let (_, argument) = argument
            .split_once(':')
            .ok_or_else(|| Status::invalid(format!("argument {index} of @main has no type")))?;
        described.inputs.push(tensor_type(argument)?);
        if argument.contains("tf.aliasing_output") || argument.contains("jax.buffer_donor") {
            described.donated.push(index);
        }
    }
    if let Some(results) = rest.trim_start().strip_prefix("->") {
        let results = results.trim_start();
        let listed = match results.starts_with('(') {
            true => split(in_parentheses(results)?.0),
            false => vec![results],
        };
        for result in listed {
            described.outputs.push(tensor_type(result)?);
        }
    }
    Ok(described)
}

fn without_comments(text: &str) -> String {
    let pieces = tokens(text.as_bytes()).filter(|(token, _)| *token != Token::Comment);
    pieces.map(|(_, place)| &text[place]).collect()
}

/// The text after the first of `words` that has the others behind it, up to the next such word.
fn after_words<'a>(text: &'a str, words: &[&str; 2]) -> Option<&'a str> {
    text.split(words[0]).skip(1).find_map(|function| {
        let head = function.split('(').next()?;
        let at = head.find(words[1])?;
        let start = function.as_ptr().addr() - text.as_ptr().addr();
        let rest = &text[start + at + words[1].len()..];
        rest.trim_start().starts_with('(').then_some(rest)
    })
}

fn module_name(text: &str) -> String {
    let name = text.trim_start().strip_prefix("module @");
    let end = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '-'));
    let name = name.and_then(|name| match name.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => name.split(end).next(),
    });
    name.filter(|name| !name.is_empty())
        .unwrap_or("main")
        .to_owned()
}

/// The inside of the parenthesis that opens here, and the text after it.
fn in_parentheses(text: &str) -> Outcome<(&str, &str)> {
    let text = text.trim_start();
    let mut depth = 0;
    for (token, place) in tokens(text.as_bytes()) {
        match (token, text.as_bytes()[place.start]) {
            (Token::Byte, b'(') => depth += 1,
            (Token::Byte, b')') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok((&text[1.min(place.start)..place.start], &text[place.end..]));
        }
    }
    Err(Status::invalid("the signature of @main is not closed"))
}

/// The parts of a list between the commas that are in no bracket.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (token, place) in tokens(list.as_bytes()) {
        match (token, list.as_bytes()[place.start]) {
            (Token::Byte, b'(' | b'[' | b'{' | b'<') => depth += 1,
            (Token::Byte, b')' | b']' | b'}' | b'>') => depth -= 1,
            (Token::Byte, b',') if depth == 0 => {
                parts.push(&list[start..place.start]);
                start = place.end;
            }
            _ => {}
        }
    }
    if !list[start..].trim().is_empty() {
        parts.push(&list[start..]);
    }
    parts
}

/// The type at the start of a text such as `tensor<2x3xf32> {attributes}`.
fn tensor_type(text: &str) -> Outcome<TensorType> {
    let unknown = || {
        let shown: String = text.trim().chars().take(60).collect();
        Status::unimplemented(format!("the type `{shown}` of @main is not supported"))
    };
    for sharding in ["mhlo.sharding", "sdy.sharding"] {
        if text.contains(sharding) {
            return Err(Status::unimplemented(format!(
                "`{sharding}` of @main: this version does not partition programs"
            )));
        }
    }
    let inside = text
        .trim_start()
        .strip_prefix("tensor<")
        .ok_or_else(unknown)?;
    let (inside, _) = inside.split_once('>').ok_or_else(unknown)?;
    let mut dims: Vec<&str> = inside.split('x').collect();
    let element = dims.pop().and_then(element_type).ok_or_else(unknown)?;
    let dims: Result<Vec<usize>, _> = dims.into_iter().map(str::parse).collect();
    let ty = TensorType::new(element, dims.map_err(|_| unknown())?);
    ty.checked_bytes()?;
    Ok(ty)
}

fn element_type(name: &str) -> Option<DType> {
    Some(match name.trim() {
        "i1" => DType::Bool,
        "i8" => DType::S8,
        "i16" => DType::S16,
        "i32" => DType::S32,
        "i64" => DType::S64,
        "ui8" => DType::U8,
        "ui16" => DType::U16,
        "ui32" => DType::U32,
        "ui64" => DType::U64,
        float => DType::from_name(float).filter(|dtype| dtype.is_float())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(dtype: DType, dims: &[usize]) -> TensorType {
        TensorType::new(dtype, dims)
    }

    #[test]
    fn signature_of_text_is_read() {
        let code = "module @step attributes {a = 1} {
            func.func private @main_helper(%x: tensor<i1>) -> tensor<i1>
            // func.func public @main() -> tensor<f64>
            func.func public @main(%a: tensor<2x3xf32> {tf.aliasing_output = 0 : i32, x = \"a,b\"},
              %b: tensor<ui8>) -> (tensor<2x3xf32> {jax.result_info = \"(\"}, tensor<bf16>) {";
        let described = describe(code.as_bytes()).unwrap();
        assert_eq!(described.name, "step");
        assert_eq!(
            described.inputs,
            [ty(DType::F32, &[2, 3]), ty(DType::U8, &[])]
        );
        assert_eq!(
            described.outputs,
            [ty(DType::F32, &[2, 3]), ty(DType::Bf16, &[])]
        );
        assert_eq!(described.donated, [0]);
    }

    #[test]
    fn single_result_needs_no_parentheses() {
        let described = describe(b"func.func @main() -> tensor<4xi32> { return }").unwrap();
        assert_eq!(
            (described.name.as_str(), described.inputs.len()),
            ("main", 0)
        );
        assert_eq!(described.outputs, [ty(DType::S32, &[4])]);
        assert_eq!(
            describe(b"func.func @main() { return }").unwrap().outputs,
            []
        );
    }

    #[test]
    fn other_programs_are_errors() {
        for (code, word) in [
            (&b""[..], "no function"),
            (b"ML\xefR", "bytecode"),
            (b"\xff", "UTF-8"),
            (b"func.func @main(", "not closed"),
            (b"func.func @main(%a)", "has no type"),
            (b"func.func @main(%a: tensor<?xf32>)", "not supported"),
            (
                b"func.func @main(%a: tensor<4xf32> {mhlo.sharding = \"x\"})",
                "partition",
            ),
            (
                b"func.func @main(%a: tensor<99999999999x99999999999xf32>)",
                "address space",
            ),
        ] {
            let message = describe(code).unwrap_err().message;
            assert!(message.contains(word), "{message}");
        }
    }
}
