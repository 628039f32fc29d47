//! Elementwise operations that the plugin computes wrong for some operands.

use halite_core::{Client, Faults, HostArray};
use halite_tests::eval::{host, try_eval_on};

use crate::plugin_faults::support::{embedded, plugin, run_text_on, with_faults};

const MENDED: &str = "this version is right: turn the fault off in backends/pjrt/src/quirks.rs";

/// The plugin as if it had no fault.
fn trusted() -> Client {
    with_faults(plugin(), Faults::NONE)
}

/// Whether `atan2(x, 1)` of 199 numbers is that of the standard library.
fn arc_tangent_is_right(client: &Client) -> bool {
    let x: Vec<f64> = (0..199).map(|i| f64::from(i - 99) / 16.0).collect();
    let results = try_eval_on(
        client,
        |cx, x| {
            let one = cx.full(1.0, &x[0].ty());
            vec![x[0].binary(halite_ir::BinaryOp::Atan2, one)]
        },
        &[host(&x, &[199])],
    );
    let results = results.unwrap();
    let got = results[0].as_slice::<f64>().unwrap();
    (got.iter().zip(&x)).all(|(got, x)| (got - x.atan()).abs() < 1e-12)
}

#[test]
fn plugin_still_mixes_arc_tangents() {
    assert!(!arc_tangent_is_right(&trusted()), "{MENDED}");
}

#[test]
fn arc_tangents_are_right() {
    assert!(arc_tangent_is_right(plugin()));
    assert!(arc_tangent_is_right(embedded()));
}

/// Powers of integers by exponents around 64 and at the limits.
fn powers_are_right(client: &Client) -> bool {
    let bases = [3i32, 3, -3, 5, 1, -1, 2, 7, 0, -1, 2];
    let exponents = [100i32, 63, 65, i32::MAX, 1 << 20, 129, 31, 64, 64, -3, -3];
    let wrapped: Vec<i32> = (bases.iter().zip(exponents))
        .map(|(&base, exponent)| match exponent {
            ..0 => [0, base][usize::from(base.abs() == 1)],
            _ => base.wrapping_pow(exponent as u32),
        })
        .collect();
    let inputs = [host(&bases, &[11]), host(&exponents, &[11])];
    let short = [host(&[3i16, 3], &[2]), host(&[100i16, 3], &[2])];
    let results = try_eval_on(client, |_, x| vec![x[0].pow(x[1])], &inputs).unwrap();
    let of_short = try_eval_on(client, |_, x| vec![x[0].pow(x[1])], &short).unwrap();
    results[0].as_slice::<i32>().unwrap() == wrapped
        && of_short[0].as_slice::<i16>().unwrap() == [5073, 27]
}

#[test]
fn plugin_still_cuts_exponents() {
    assert!(!powers_are_right(&trusted()), "{MENDED}");
}

#[test]
fn powers_of_integers_are_right() {
    assert!(powers_are_right(plugin()));
    assert!(powers_are_right(embedded()));
}

/// Powers in a program that halite did not lower, one of them in a branch.
#[test]
fn powers_of_foreign_programs_are_right() {
    let program = |element: &str| {
        let ty = format!("tensor<3x{element}>");
        format!(
            "func.func @main(%x: {ty}, %n: {ty}) -> {ty} {{
               %first = stablehlo.power %x, %n : {ty}
               %true = stablehlo.constant dense<true> : tensor<i1>
               %y = \"stablehlo.if\"(%true) ({{
                 %second = stablehlo.power %first, %n : {ty}
                 stablehlo.return %second : {ty}
               }}, {{
                 stablehlo.return %first : {ty}
               }}) : (tensor<i1>) -> {ty}
               return %y : {ty}
             }}"
        )
    };
    let check = |element: &str, inputs: [HostArray; 2], expected: HostArray| {
        for client in [with_faults(plugin(), Faults::ALL), embedded().clone()] {
            let found = run_text_on(&client, &program(element), &inputs);
            assert!(found == [expected.clone()], "{element}: {found:?}");
        }
    };
    let twice = |x: i32, n: u32| x.wrapping_pow(n).wrapping_pow(n);
    check(
        "i32",
        [host(&[3, -3, 5], &[3]), host(&[100, 65, 1 << 20], &[3])],
        host(&[twice(3, 100), twice(-3, 65), twice(5, 1 << 20)], &[3]),
    );
    check(
        "i16",
        [host(&[3i16, -1, 7], &[3]), host(&[100i16, -3, 2], &[3])],
        host(&[5073i16.wrapping_pow(100), -1, 2401], &[3]),
    );
    let twice = |x: u8, n: u32| x.wrapping_pow(n).wrapping_pow(n);
    check(
        "ui8",
        [host(&[3u8, 7, 0], &[3]), host(&[255u8, 64, 65], &[3])],
        host(&[twice(3, 255), twice(7, 64), 0], &[3]),
    );
}
