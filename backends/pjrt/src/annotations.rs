//! What a program's text or bytecode mentions, as far as the options of its compilation depend on
//! it.
//!
//! Names that users choose, of files, functions and fields, stand in a program too: in strings
//! (locations above all), in symbols and in comments. These are not looked at: a file `sdy.rs` has
//! nothing to do with the dialect `sdy`.

/// Whether a program has Shardy's annotations.
pub(crate) fn uses_shardy(code: &[u8]) -> bool {
    // Also those that XLA keeps in an attribute when it leaves the dialect: `xla.sdy.meshes`.
    let shardy = |name: &[u8]| name.starts_with(b"sdy.") || name.starts_with(b"xla.sdy.");
    // In bytecode the dialect's name stands in a table of strings, each ended by NUL.
    if is_bytecode(code) {
        has_string(code, b"sdy")
    } else {
        mentions(code, shardy)
    }
}

/// How many devices each of Shardy's meshes in a text has:
/// `sdy.mesh @mesh = <["data"=4, "model"=2]>`. Nothing of bytecode.
pub(crate) fn mesh_sizes(code: &[u8]) -> Vec<usize> {
    let Ok(text) = std::str::from_utf8(code) else {
        return Vec::new();
    };
    let definitions = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("sdy.mesh @"));
    let size = |definition: &str| {
        let axes = definition.split_once("= <[")?.1.split_once(']')?.0;
        axes.split(',').try_fold(1usize, |size, axis| {
            size.checked_mul(axis.rsplit_once('=')?.1.trim().parse().ok()?)
        })
    };
    definitions.filter_map(size).collect()
}

/// Whether a program has annotations of the partitioner before Shardy.
pub(crate) fn uses_gspmd(code: &[u8]) -> bool {
    const NAME: &[u8] = b"mhlo.sharding";
    if is_bytecode(code) {
        has_string(code, NAME)
    } else {
        mentions(code, |name| name == NAME)
    }
}

/// Whether a program asks for the order in which results are kept on the device.
pub(crate) fn chooses_layouts(code: &[u8]) -> bool {
    const PART: &[u8] = b"layout_mode";
    if is_bytecode(code) {
        contains(code, PART)
    } else {
        mentions(code, |name| contains(name, PART))
    }
}

/// Whether a program has a convolution.
pub(crate) fn has_convolution(code: &[u8]) -> bool {
    const PART: &[u8] = b".convolution";
    // Bytecode has an operation's name without the dialect's, in artefacts with a version behind
    // it.
    if is_bytecode(code) {
        contains(code, &PART[1..])
    } else {
        mentions(code, |name| name.ends_with(PART))
    }
}

/// Whether a program mentions bf16 anywhere: too often rather than too rarely.
pub(crate) fn mentions_bf16(code: &[u8]) -> bool {
    contains(code, b"bf16")
}

/// Gives a program's text in pieces, without its locations: `loc(..)` behind an operation or an
/// argument, and the lines `#loc3 = loc(..)`. Bytecode is given as it is.
pub(crate) fn without_locations(code: &[u8], mut each: impl FnMut(&[u8])) {
    const WORD: &[u8] = b"loc";
    if is_bytecode(code) {
        return each(code);
    }
    // What is given begins here; all before `at` was looked at.
    let (mut given, mut at) = (0, 0);
    while let Some(&byte) = code.get(at) {
        match byte {
            b'"' => at = (end_of_string(code, at + 1) + 1).min(code.len()),
            b'/' if code[at..].starts_with(b"//") => {
                at += code[at..]
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(code.len() - at);
            }
            byte if is_of_name(byte) => {
                let name = &code[at..];
                let name = &name[..name
                    .iter()
                    .position(|byte| !is_of_name(*byte))
                    .unwrap_or(name.len())];
                let end = at + name.len();
                // `@loc(` is a function's name, `#loc(` an attribute's.
                let is_word = at == 0 || !matches!(code[at - 1], b'@' | b'%' | b'^' | b'#' | b'!');
                if name != WORD || !is_word || code.get(end) != Some(&b'(') {
                    at = end;
                    continue;
                }
                let mut start = given + without_blanks_at_end(&code[given..at]);
                if code[given..start].ends_with(b"=") {
                    // A line of its own.
                    let line = code[given..start]
                        .iter()
                        .rposition(|byte| *byte == b'\n')
                        .map_or(given, |at| given + at);
                    if code[line..start].trim_ascii_start().starts_with(b"#loc") {
                        start = line;
                    }
                }
                each(&code[given..start]);
                at = end_of_parentheses(code, end);
                given = at;
            }
            _ => at += 1,
        }
    }
    each(&code[given..]);
}

fn without_blanks_at_end(text: &[u8]) -> usize {
    text.iter()
        .rposition(|byte| *byte != b' ')
        .map_or(0, |last| last + 1)
}

/// Where the parentheses that open at `at` are closed: behind them, or with the text.
fn end_of_parentheses(code: &[u8], mut at: usize) -> usize {
    let mut open = 0;
    while let Some(&byte) = code.get(at) {
        match byte {
            b'"' => at = end_of_string(code, at + 1),
            b'(' => open += 1,
            b')' => open -= 1,
            _ => {}
        }
        at += 1;
        if open == 0 {
            break;
        }
    }
    at.min(code.len())
}

fn is_bytecode(code: &[u8]) -> bool {
    code.starts_with(b"ML\xefR")
}

fn contains(code: &[u8], needle: &[u8]) -> bool {
    // Programs are megabytes at most, and the first byte is rare enough.
    code.iter()
        .enumerate()
        .any(|(at, byte)| *byte == needle[0] && code[at..].starts_with(needle))
}

/// Whether bytecode has exactly this string. What stands before it is the NUL of another one or a
/// length.
fn has_string(code: &[u8], string: &[u8]) -> bool {
    let at = |at: usize| {
        let after = at + string.len();
        code[at..].starts_with(string)
            && code.get(after) == Some(&0)
            && (at == 0 || !is_of_name(code[at - 1]))
    };
    (0..code.len()).any(at)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$')
}

/// Whether one of the names in a text is wanted: of operations, attributes, types and keywords,
/// without what users choose.
fn mentions(code: &[u8], wanted: impl Fn(&[u8]) -> bool) -> bool {
    let mut at = 0;
    // The last byte that is no blank, of what was passed.
    let mut before = b'\n';
    while let Some(&byte) = code.get(at) {
        match byte {
            b'"' => {
                let (start, end) = (at + 1, end_of_string(code, at + 1));
                at = (end + 1).min(code.len());
                let next = code[at..].iter().find(|byte| !byte.is_ascii_whitespace());
                // An operation in its general form, or the key of an attribute. A location's name
                // can have a `(` behind it too, but then it has something open before it.
                let is_name = match next {
                    Some(b'(') => !matches!(before, b'(' | b'[' | b',' | b'@'),
                    Some(b'=') => before != b'@',
                    _ => false,
                };
                if is_name && wanted(&code[start..end]) {
                    return true;
                }
                before = b'"';
            }
            b'/' if code[at..].starts_with(b"//") => {
                at += code[at..]
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(code.len() - at);
            }
            byte if is_of_name(byte) => {
                let length = code[at..]
                    .iter()
                    .position(|byte| !is_of_name(*byte))
                    .unwrap_or(code.len() - at);
                // Symbols, values and blocks are named by users.
                if !matches!(before, b'@' | b'%' | b'^') && wanted(&code[at..at + length]) {
                    return true;
                }
                at += length;
                before = b'a';
            }
            byte => {
                // A line's end begins a statement, whatever was before.
                if byte == b'\n' || !byte.is_ascii_whitespace() {
                    before = byte;
                }
                at += 1;
            }
        }
    }
    false
}

/// Where the string that begins at `at` ends: at its quote, or with the text.
fn end_of_string(code: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = code.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meshes_are_measured_where_they_are_defined() {
        let text = "module @m {\n  sdy.mesh @mesh = <[\"data\"=4, \"model\"=2]>\nsdy.mesh @b = <[\"x=y\"=3], device_ids=[1, 0]>\n\
                    sdy.mesh @one = <[], device_ids=[5]>\n  // sdy.mesh @no = <[\"a\"=9]>\n";
        assert_eq!(mesh_sizes(text.as_bytes()), [8, 3]);
        assert_eq!(mesh_sizes(b"ML\xefR\xff"), [0usize; 0]);
    }

    #[track_caller]
    fn check(says: impl Fn(&[u8]) -> bool, cases: &[(&[u8], bool)]) {
        for (code, expected) in cases {
            assert_eq!(says(code), *expected, "{}", String::from_utf8_lossy(code));
        }
    }

    #[test]
    fn shardy_is_on_exactly_when_the_program_has_its_annotations() {
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
    fn what_users_call_sdy_does_not_count() {
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
                // And behind all that it is still seen.
                (b"loc(\"sdy\\\\\") // \"\n sdy.mesh @m", true),
            ],
        );
    }

    #[test]
    fn bytecode_is_searched_by_its_strings() {
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
    fn the_old_partitioner_layouts_and_convolutions_are_seen_outside_of_strings() {
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
            chooses_layouts,
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

    fn stripped(code: &str) -> String {
        let mut text = Vec::new();
        without_locations(code.as_bytes(), |piece| text.extend_from_slice(piece));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_text_without_its_locations_is_the_text_that_was_written_without_any() {
        let plain = "module @\"train step\" {\n  func.func public @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> (tensor<f32>) {\n    \
                     %0 = stablehlo.add %arg0, %arg1 : tensor<f32>\n    return %0 : tensor<f32>\n  }\n}\n";
        let located = "module @\"train step\" {\n  func.func public @main(%arg0: tensor<f32> loc(\"w (\\\"a\\\")\"), %arg1: tensor<f32>) \
                       -> (tensor<f32>) {\n    %0 = stablehlo.add %arg0, %arg1 : tensor<f32> loc(#loc1)\n    return %0 : tensor<f32>\n  \
                       }\n}\n#loc1 = loc(\"a.rs\":3:4)\n";
        assert_eq!(stripped(plain), plain);
        assert_eq!(stripped(located), plain);
        let elsewhere = located.replace("a.rs\":3:4", "b (c).rs\":30:40");
        assert_eq!(stripped(&elsewhere), stripped(located));
        let nested = located.replace(
            "loc(#loc1)",
            "loc(callsite(fused[\"x\"(#loc1), \"y)\":1:2] at unknown))",
        );
        assert_eq!(stripped(&nested), stripped(located));
    }

    #[test]
    fn what_only_looks_like_a_location_stays() {
        for code in [
            "func.func @loc(%x: i32)",
            "call @loc(%0) : (i32) -> i32",
            "\"loc(#loc1)\"",
            "// loc(here)\n",
            "{loc = 1}",
            "a.loc(b)",
            "loc",
            "#loc(b)",
            "%loc(b)",
        ] {
            assert_eq!(stripped(code), code);
        }
    }

    #[test]
    fn a_text_that_breaks_off_is_no_trouble() {
        for code in [
            "loc(",
            "loc(\"",
            "loc((",
            "x loc(\"\\",
            "\"",
            "#loc = loc(",
            "#loc =",
        ] {
            stripped(code);
        }
    }

    #[test]
    fn bytecode_is_given_as_it_is() {
        let mut given = Vec::new();
        without_locations(b"ML\xefR loc(a)", |piece| given.extend_from_slice(piece));
        assert_eq!(given, b"ML\xefR loc(a)");
    }
}
