//! Complex numbers with special values: infinities, NaN and zeros of both signs in either part. The
//! values are in `golden.txt`, with the script that computes them.

use std::{collections::BTreeMap, iter::zip};

use halite_embedded::Mode;

use crate::common::{open, program, run};

/// The numbers of each case, by operation.
fn golden() -> BTreeMap<&'static str, Vec<Vec<f64>>> {
    let operation = |line: &'static str| {
        let (name, numbers) = line.split_once(' ').unwrap();
        let numbers = numbers.split(' ').map(|it| it.parse().unwrap());
        let numbers: Vec<f64> = numbers.collect();
        let cases = numbers.chunks(operands(name) + 2).map(<[f64]>::to_vec);
        (name, cases.collect())
    };
    let lines = include_str!("complex/golden.txt").lines();
    lines.map(operation).collect()
}

/// Number of parts of the operands.
fn operands(name: &str) -> usize {
    match name {
        "multiply" | "divide" => 4,
        _ => 2,
    }
}

/// A part of complex numbers.
struct Part {
    name: &'static str,
    size: usize,
    epsilon: f64,
    round: fn(f64) -> f64,
}

const PARTS: [Part; 2] = [
    Part {
        name: "f64",
        size: 8,
        epsilon: f64::EPSILON,
        round: |x| x,
    },
    Part {
        name: "f32",
        size: 4,
        epsilon: f32::EPSILON as f64,
        round: |x| f64::from(x as f32),
    },
];

impl Part {
    fn encode(&self, values: &[f64]) -> Vec<u8> {
        let each = values.iter();
        match self.size {
            8 => each.flat_map(|it| it.to_le_bytes()).collect(),
            _ => each.flat_map(|&it| (it as f32).to_le_bytes()).collect(),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Vec<f64> {
        let each = bytes.chunks(self.size);
        match self.size {
            8 => each
                .map(|it| f64::from_le_bytes(it.try_into().unwrap()))
                .collect(),
            _ => each
                .map(|it| f32::from_le_bytes(it.try_into().unwrap()).into())
                .collect(),
        }
    }
}

/// Whether a result is the number of the golden file. Where the standard leaves the sign of a part
/// open, both are right: those of a zero or infinity beside NaN, and of the zeros of a quotient.
fn is_right(name: &str, part: &Part, got: &[f64], want: &[f64]) -> bool {
    let want: Vec<f64> = want.iter().map(|&it| (part.round)(it)).collect();
    let size = want
        .iter()
        .fold(0.0, |size: f64, part| size.max(part.abs()));
    let is_open = want.iter().any(|it| it.is_nan());
    zip(got, want).all(|(&got, want)| {
        let sign = got.is_sign_negative() == want.is_sign_negative();
        if want.is_nan() || got.is_nan() {
            return want.is_nan() && got.is_nan();
        }
        if want == 0.0 && got == 0.0 || want.is_infinite() || got.is_infinite() {
            let is_open = is_open || (name == "divide" && want == 0.0);
            return (want == got || want == -got) && (sign || is_open);
        }
        (got - want).abs() <= 8.0 * part.epsilon * size.min(f64::MAX / 16.0)
    })
}

#[test]
fn special_values_are_those_of_the_standard() {
    let clients = [Mode::Fast, Mode::Oracle].map(|mode| open(mode, 1));
    let mut failures = Vec::new();
    for part in &PARTS {
        for (name, rows) in golden() {
            let operands = operands(name);
            let fits = |row: &&Vec<f64>| {
                let same = |&x: &f64| x.is_nan() || (part.round)(x) == x || !x.is_normal();
                row[..operands].iter().all(same)
            };
            let rows: Vec<_> = rows.iter().filter(fits).collect();
            let of = |at: usize| -> Vec<u8> {
                let numbers = rows.iter().flat_map(|row| row[at..at + 2].to_vec());
                part.encode(&numbers.collect::<Vec<_>>())
            };
            let inputs: Vec<_> = (0..operands).step_by(2).map(of).collect();
            let ty = format!("tensor<{}xcomplex<{}>>", rows.len(), part.name);
            let result = match name {
                "abs" => format!("tensor<{}x{}>", rows.len(), part.name),
                _ => ty.clone(),
            };
            let (arguments, names, types): (Vec<_>, Vec<_>, Vec<_>) = (0..inputs.len())
                .map(|at| (format!("%x{at}: {ty}"), format!("%x{at}"), ty.clone()))
                .collect();
            let text = format!(
                "func.func @main({}) -> {result} {{
                   %y = \"stablehlo.{name}\"({}) : ({}) -> {result}
                   return %y : {result} }}",
                arguments.join(", "),
                names.join(", "),
                types.join(", ")
            );
            for client in &clients {
                let bytes = run(client, &program(&text), &inputs).unwrap();
                let results = part.decode(&bytes[0]);
                let width = if name == "abs" { 1 } else { 2 };
                for (row, got) in zip(&rows, results.chunks(width)) {
                    if !is_right(name, part, got, &row[operands..operands + width]) {
                        failures.push(format!("{} {name} {row:?}: got {got:?}", part.name));
                    }
                }
            }
        }
    }
    failures.dedup();
    let count = failures.len();
    assert!(failures.is_empty(), "{count} of\n{}", failures.join("\n"));
}
