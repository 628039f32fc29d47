//! Programs that the interpreter runs without a client.

use halite_core::{Error, Result};
use halite_embedded::interpret;
use halite_stablehlo::{Dense, Module};

/// Runs the body of a function without arguments that returns values of these types.
pub(crate) fn run(types: &str, body: &str) -> Result<Vec<Dense>> {
    let text = format!("func.func public @main() -> ({types}) {{\n{body}\n}}");
    interpret(&Module::parse(&text)?, &[])
}

pub(crate) fn failure(types: &str, body: &str) -> Error {
    run(types, body).expect_err("the program must fail")
}

/// Checks that `op` of two constants is the third, all of type `ty`.
pub(crate) fn check_binary(ty: &str, op: &str, [x, y, expected]: [&str; 3]) {
    let body = format!(
        "%x = stablehlo.constant dense<{x}> : {ty}
         %y = stablehlo.constant dense<{y}> : {ty}
         %z = stablehlo.constant dense<{expected}> : {ty}
         %0 = stablehlo.{op} %x, %y : {ty}
         stablehlo.custom_call @check.expect_eq(%0, %z) {{has_side_effect = true}}
           : ({ty}, {ty}) -> ()
         return"
    );
    run("", &body).unwrap_or_else(|error| panic!("{op} of {x} and {y}: {error}"));
}

pub(crate) fn check_convert(from: &str, to: &str, [x, expected]: [&str; 2]) {
    let body = format!(
        "%x = stablehlo.constant dense<{x}> : {from}
         %z = stablehlo.constant dense<{expected}> : {to}
         %0 = stablehlo.convert %x : ({from}) -> {to}
         stablehlo.custom_call @check.expect_eq(%0, %z) {{has_side_effect = true}}
           : ({to}, {to}) -> ()
         return"
    );
    run("", &body).unwrap_or_else(|error| panic!("{from} {x} to {to}: {error}"));
}
