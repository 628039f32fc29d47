//! Scans of the code of programs from elsewhere for what the options of their compilation depend
//! on. Modules state these facts.
//!
//! Scans skip the names that users choose: a file `sdy.rs` has nothing to do with the dialect
//! `sdy`.

use std::borrow::Cow;

use halite_core::{
    Program, ProgramFacts,
    program_text::{Token, is_bytecode, is_name_byte, tokens},
};

/// The facts that a program states, or those that a scan of its code finds.
pub(crate) fn facts_of(program: &Program) -> Cow<'_, ProgramFacts> {
    match program.code.facts() {
        Some(facts) => Cow::Borrowed(facts),
        None => Cow::Owned(scan(program.code.bytes())),
    }
}

/// The facts that can be found in a program's text or bytecode.
pub(crate) fn scan(code: &[u8]) -> ProgramFacts {
    ProgramFacts {
        shardy: uses_shardy(code),
        gspmd: uses_gspmd(code),
        mesh_sizes: mesh_sizes(code),
        layout_modes: has_layout_mode(code),
        convolutions: has_convolution(code),
        bf16: has_bf16(code),
        one_function: has_attribute(code, b"xla_cpu_small_call"),
        ..crate::hostile::facts(code)
    }
}

/// Returns whether the code has annotations for Shardy.
fn uses_shardy(code: &[u8]) -> bool {
    // Also those that XLA keeps in an attribute when it leaves the dialect: `xla.sdy.meshes`.
    let shardy = |name: &[u8]| name.starts_with(b"sdy.") || name.starts_with(b"xla.sdy.");
    // Bytecode has the dialect's name in a table of strings, each terminated by NUL.
    if is_bytecode(code) {
        has_string(code, b"sdy")
    } else {
        has_name(code, shardy)
    }
}

/// The number of devices in each Shardy mesh of a text:
/// `sdy.mesh @mesh = <["data"=4, "model"=2]>`. Empty for bytecode.
fn mesh_sizes(code: &[u8]) -> Vec<usize> {
    let Ok(text) = std::str::from_utf8(code) else {
        return Vec::new();
    };
    let definitions =
        (text.lines()).filter_map(|line| line.trim_start().strip_prefix("sdy.mesh @"));
    let size = |definition: &str| {
        let axes = definition.split_once("= <[")?.1.split_once(']')?.0;
        axes.split(',').try_fold(1usize, |size, axis| {
            size.checked_mul(axis.rsplit_once('=')?.1.trim().parse().ok()?)
        })
    };
    definitions.filter_map(size).collect()
}

/// Returns whether the code has annotations for GSPMD, the partitioner before Shardy.
fn uses_gspmd(code: &[u8]) -> bool {
    has_attribute(code, b"mhlo.sharding")
}

/// Returns whether the code has an attribute of this name.
fn has_attribute(code: &[u8], attribute: &[u8]) -> bool {
    if is_bytecode(code) {
        has_string(code, attribute)
    } else {
        has_name(code, |name| name == attribute)
    }
}

/// Returns whether the code chooses memory layouts of arguments or results.
fn has_layout_mode(code: &[u8]) -> bool {
    const PART: &[u8] = b"layout_mode";
    if is_bytecode(code) {
        contains(code, PART)
    } else {
        has_name(code, |name| contains(name, PART))
    }
}

/// Returns whether the code has a convolution.
fn has_convolution(code: &[u8]) -> bool {
    const PART: &[u8] = b".convolution";
    // Bytecode has an operation's name without the dialect's, in portable artifacts followed by a
    // version.
    if is_bytecode(code) {
        contains(code, &PART[1..])
    } else {
        has_name(code, |name| name.ends_with(PART))
    }
}

/// Returns whether the code has a type of `bf16`: `tensor<2x3xbf16>`.
fn has_bf16(code: &[u8]) -> bool {
    const PART: &[u8] = b"bf16";
    if is_bytecode(code) {
        contains(code, PART)
    } else {
        has_name(code, |name| name.ends_with(PART))
    }
}

fn contains(code: &[u8], needle: &[u8]) -> bool {
    // Programs are megabytes at most, and the first byte is rare enough.
    code.iter()
        .enumerate()
        .any(|(at, byte)| *byte == needle[0] && code[at..].starts_with(needle))
}

/// Returns whether bytecode has exactly this string, which follows the NUL of another one or a
/// length.
fn has_string(code: &[u8], string: &[u8]) -> bool {
    let at = |at: usize| {
        let after = at + string.len();
        code[at..].starts_with(string)
            && code.get(after) == Some(&0)
            && (at == 0 || !is_name_byte(code[at - 1]))
    };
    (0..code.len()).any(at)
}

/// Returns whether one of the names of operations, attributes, types and keywords in a text
/// fulfills `wanted`. Names that users choose are skipped.
fn has_name(code: &[u8], wanted: impl Fn(&[u8]) -> bool) -> bool {
    // The last byte before the token that is not blank; the end of a line starts a statement.
    let mut before = b'\n';
    for (token, place) in tokens(code) {
        let text = &code[place.clone()];
        match token {
            Token::String => {
                let mut rest = code[place.end..].iter();
                // An operation in generic form, or the key of an attribute. The name of a location
                // can precede a `(` too, but then it follows an opening delimiter.
                let is_name = match rest.find(|byte| !byte.is_ascii_whitespace()) {
                    Some(b'(') => !matches!(before, b'(' | b'[' | b',' | b'@'),
                    Some(b'=') => before != b'@',
                    _ => false,
                };
                if is_name && wanted(&text[1..text.len() - 1]) {
                    return true;
                }
                before = b'"';
            }
            Token::Comment => {}
            Token::Name => {
                // Users name symbols, values and blocks.
                if !matches!(before, b'@' | b'%' | b'^') && wanted(text) {
                    return true;
                }
                before = b'a';
            }
            Token::Byte => {
                if text == b"\n" || !text[0].is_ascii_whitespace() {
                    before = text[0];
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mesh_sizes_come_from_definitions() {
        let text = "module @m {\n  sdy.mesh @mesh = <[\"data\"=4, \"model\"=2]>\nsdy.mesh @b = \
         <[\"x=y\"=3], device_ids=[1, 0]>\n\
                    sdy.mesh @one = <[], device_ids=[5]>\n  // sdy.mesh @no = <[\"a\"=9]>\n";
        assert_eq!(mesh_sizes(text.as_bytes()), [8, 3]);
        assert_eq!(mesh_sizes(b"ML\xefR\xff"), [0usize; 0]);
    }

    #[track_caller]
    fn check(scan: impl Fn(&[u8]) -> bool, cases: &[(&[u8], bool)]) {
        for (code, expected) in cases {
            assert_eq!(scan(code), *expected, "{}", String::from_utf8_lossy(code));
        }
    }

    #[test]
    fn shardy_annotations_are_found() {
        check(
            uses_shardy,
            &[
                (b"module { sdy.mesh @m = <[\"d\"=8]> }", true),
                (
                    b"%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m, [{}]>}",
                    true,
                ),
                (
                    b"%1 = sdy.sharding_constraint %0 <@m, [{}]> : tensor<4xf32>",
                    true,
                ),
                (
                    b"module {\n  \"sdy.mesh\"() <{sym_name = \"m\"}> : () -> () }",
                    true,
                ),
                (b"%1 = \"sdy.constant\"() : () -> tensor<f32>", true),
                (
                    b"{mhlo.frontend_attributes = {xla.sdy.meshes = \"{}\"}}",
                    true,
                ),
                (b"{\"sdy.sharding\" = 1}", true),
                (b"module { func.func @main() }", false),
                (b"module { // asdy. and sdy.mesh\n }", false),
                (b"", false),
            ],
        );
    }

    #[test]
    fn names_that_users_choose_are_skipped() {
        check(
            uses_shardy,
            &[
                (
                    b"%0 = stablehlo.add %a, %b : tensor<f32> loc(\"src/sdy.rs\":1:2)",
                    false,
                ),
                (b"#loc3 = loc(\"sdy.weight\"(#loc1))", false),
                (
                    b"loc(fused[\"sdy.a\"(\"f\":1:1), \"sdy.b\"(\"f\":2:1)])",
                    false,
                ),
                (b"%a: tensor<f32> {halite.name = \"sdy.weight\"}", false),
                (
                    b"func.func @sdy.main(%sdy.x: tensor<f32>) { ^sdy.block: }",
                    false,
                ),
                (b"call @\"sdy.f\"(%a)", false),
                (b"model.sdy.weight", false),
                (b"\"a \\\" sdy.mesh \" ", false),
                (b"\"never ends sdy.mesh", false),
                (b"\"\\", false),
                // Annotations after all that are still found.
                (b"loc(\"sdy\\\\\") // \"\n sdy.mesh @m", true),
            ],
        );
    }

    #[test]
    fn bytecode_is_scanned_by_its_strings() {
        check(
            uses_shardy,
            &[
                (b"ML\xefR\x00builtin\0sdy\0mesh\0", true),
                (b"ML\xefR\x01\x09sdy\0mesh\0", true),
                (b"ML\xefR\x00builtin\0vhlo\0", false),
                (b"ML\xefR\x00builtin\0asdy\0sdy.rs\0a.sdy\0", false),
            ],
        );
        check(
            uses_gspmd,
            &[
                (b"ML\xefR\0mhlo.sharding\0", true),
                (b"ML\xefR\0my mhlo.shardings\0", false),
            ],
        );
        check(
            has_convolution,
            &[
                (b"ML\xefR\0convolution_v1\0", true),
                (b"ML\xefR\0dot_general_v2\0", false),
            ],
        );
    }

    #[test]
    fn annotations_in_strings_are_skipped() {
        check(
            uses_gspmd,
            &[
                (
                    b"%a: tensor<4xf32> {mhlo.sharding = \"{replicated}\"}",
                    true,
                ),
                (b"{\"mhlo.sharding\" = \"{replicated}\"}", true),
                (b"loc(\"mhlo.sharding\")", false),
                (b"@mhlo.sharding", false),
            ],
        );
        check(
            has_layout_mode,
            &[
                (b"-> (tensor<2x3xi32> {mhlo.layout_mode = \"{0,1}\"})", true),
                (b"loc(\"layout_mode\")", false),
            ],
        );
        check(
            has_convolution,
            &[
                (b"%1 = stablehlo.convolution(%a, %b)", true),
                (b"%1 = \"stablehlo.convolution\"(%a, %b)", true),
                (
                    b"%1 = stablehlo.add %a, %b loc(\"stablehlo.convolution\")",
                    false,
                ),
                (b"call @convolution(%a)", false),
            ],
        );
    }

    #[test]
    fn bf16_is_found_in_types_only() {
        check(
            has_bf16,
            &[
                (
                    b"%0 = stablehlo.convert %a : (tensor<2x3xf32>) -> tensor<2x3xbf16>",
                    true,
                ),
                (b"%a: tensor<bf16>", true),
                (b"module @\"step bf16\" { func.func @bf16() }", false),
                (
                    b"%0 = stablehlo.add %a, %b : tensor<f32> loc(\"bf16.rs\":1:2)",
                    false,
                ),
                (b"ML\xefR\0bf16\0", true),
            ],
        );
    }
}
