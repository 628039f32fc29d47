//! Functions of bits and orders, whose results are exact.

use halite_core::{ErrorKind, HostArray};
use halite_exchange::Artifact;

use crate::chlo::run;

/// Runs `%y = chlo.<operation>` of vectors.
fn results(operation: &str, inputs: &[HostArray], types: [&str; 2]) -> Vec<HostArray> {
    let [operand, result] = types;
    let arguments: Vec<_> = (0..inputs.len())
        .map(|at| format!("%x{at}: {operand}"))
        .collect();
    let code = format!(
        "func.func @main({}) -> ({result}) {{ {operation}\n return %y : {result} }}",
        arguments.join(", ")
    );
    run(&code, inputs).unwrap_or_else(|error| panic!("{code}: {error}"))
}

fn vector<T: halite_core::Element>(values: &[T]) -> HostArray {
    HostArray::from_slice(values, [values.len()]).unwrap()
}

#[test]
fn next_after_is_the_neighbour() {
    let numbers = [
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        f32::MIN_POSITIVE,
        1.0,
        -1.0,
        1.5,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let pairs = numbers.map(|x| numbers.map(|y| (x, y)));
    let (x, y): (Vec<f32>, Vec<f32>) = pairs.into_iter().flatten().unzip();
    let code =
        "%y = chlo.next_after %x0, %x1 : tensor<169xf32>, tensor<169xf32> -> tensor<169xf32>";
    let types = ["tensor<169xf32>"; 2];
    let got = results(code, &[vector(&x), vector(&y)], types);
    for ((x, y), &got) in x.iter().zip(&y).zip(got[0].as_slice::<f32>().unwrap()) {
        let want = match x.partial_cmp(y) {
            None => f32::NAN,
            Some(std::cmp::Ordering::Less) => x.next_up(),
            Some(std::cmp::Ordering::Greater) => x.next_down(),
            Some(std::cmp::Ordering::Equal) => *y,
        };
        let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
        assert!(same, "next_after({x:e}, {y:e}) is {got:e}, not {want:e}");
    }
}

#[test]
fn top_k_orders_values() {
    let nan = f32::from_bits(0xffc0_0000);
    let x = vector(&[3.0, nan, 1.0, -0.0, 0.0, f32::NAN, f32::INFINITY, 3.0]);
    let code = "func.func @main(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xi32>) {
        %y:2 = chlo.top_k(%x, k = 8) : tensor<8xf32> -> (tensor<8xf32>, tensor<8xi32>)
        return %y#0, %y#1 : tensor<8xf32>, tensor<8xi32> }";
    let got = run(code, &[x]).unwrap();
    assert_eq!(got[1].as_slice::<i32>().unwrap(), [1, 5, 6, 0, 7, 2, 3, 4]);
    let values = got[0].as_slice::<f32>().unwrap();
    assert!(values[0].is_nan() && values[1].is_nan());
    assert_eq!(values[2..], [f32::INFINITY, 3.0, 3.0, 1.0, 0.0, 0.0]);
    assert!(values[6].is_sign_negative(), "-0 is first");
    let x = HostArray::from_slice(&[5i32, -7, 9, 9, 2, 2], [2, 3]).unwrap();
    let code = "func.func @main(%x: tensor<2x3xi32>) -> (tensor<2x2xi32>, tensor<2x2xi32>) {
        %0, %1 = chlo.top_k(%x, k = 2) : tensor<2x3xi32> -> (tensor<2x2xi32>, tensor<2x2xi32>)
        return %0, %1 : tensor<2x2xi32>, tensor<2x2xi32> }";
    let got = run(code, &[x]).unwrap();
    assert_eq!(got[0].as_slice::<i32>().unwrap(), [9, 5, 9, 2]);
    assert_eq!(got[1].as_slice::<i32>().unwrap(), [2, 0, 0, 1]);
}

#[test]
fn mulhi_is_the_high_half() {
    let numbers = [0, 1, -1, 3, i64::MAX, i64::MIN, 0x1234_5678_9abc_def0, -77];
    let (x, y): (Vec<i64>, Vec<i64>) = numbers
        .map(|x| numbers.map(|y| (x, y)))
        .into_iter()
        .flatten()
        .unzip();
    let code = |ty: &str| format!("%y = chlo.mulhi %x0, %x1 : {ty}, {ty} -> {ty}");
    let ty = "tensor<64xi64>";
    let got = results(&code(ty), &[vector(&x), vector(&y)], [ty; 2]);
    let want = |(&x, &y): (&i64, &i64)| ((i128::from(x) * i128::from(y)) >> 64) as i64;
    let wanted: Vec<i64> = x.iter().zip(&y).map(want).collect();
    assert_eq!(got[0].as_slice::<i64>().unwrap(), wanted);
    let unsigned = |values: &[i64]| values.iter().map(|&it| it as u64).collect::<Vec<_>>();
    let (x, y) = (unsigned(&x), unsigned(&y));
    let ty = "tensor<64xui64>";
    let got = results(&code(ty), &[vector(&x), vector(&y)], [ty; 2]);
    let want = |(&x, &y): (&u64, &u64)| ((u128::from(x) * u128::from(y)) >> 64) as u64;
    let wanted: Vec<u64> = x.iter().zip(&y).map(want).collect();
    assert_eq!(got[0].as_slice::<u64>().unwrap(), wanted);
    let [x, y] = [
        [i32::MIN, 70_000, -70_000, i32::MAX],
        [i32::MIN, 70_000, 70_000, -1],
    ];
    let ty = "tensor<4xi32>";
    let got = results(&code(ty), &[vector(&x), vector(&y)], [ty; 2]);
    assert_eq!(got[0].as_slice::<i32>().unwrap(), [1 << 30, 1, -2, -1]);
}

#[test]
fn infinities_are_told_by_sign() {
    let x = vector(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e308, 0.0]);
    let types = ["tensor<5xf64>", "tensor<5xi1>"];
    for (name, want) in [
        ("is_inf", [1, 1, 0, 0, 0]),
        ("is_pos_inf", [1, 0, 0, 0, 0]),
        ("is_neg_inf", [0, 1, 0, 0, 0]),
    ] {
        let code = format!("%y = chlo.{name} %x0 : tensor<5xf64> -> tensor<5xi1>");
        let got = results(&code, std::slice::from_ref(&x), types);
        assert_eq!(got[0].bytes(), want, "{name}");
    }
}

#[test]
fn operands_are_checked() {
    let refused = |line: &str| {
        let code = format!("func.func @main(%x: tensor<2xi32>) {{ {line}\n return }}");
        let error = Artifact::read(code.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        error.message().to_owned()
    };
    assert_eq!(
        refused("%y = chlo.lgamma %x : tensor<2xi32> -> tensor<2xi32>"),
        "line 1, column 43: `chlo.lgamma` of (tensor<2xi32>); expected one tensor of floats"
    );
    assert_eq!(
        refused("%y:2 = chlo.top_k(%x, k = 3) : tensor<2xi32> -> (tensor<3xi32>, tensor<3xi32>)"),
        "line 1, column 45: `chlo.top_k` of (tensor<2xi32>); expected a last dimension of at \
         least `k` elements"
    );
}
