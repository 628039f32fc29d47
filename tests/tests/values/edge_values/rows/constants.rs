//! Operations with numbers and with an operand twice, which compilers and our own passes replace by
//! others.

#![allow(
    clippy::eq_op,
    clippy::erasing_op,
    clippy::identity_op,
    clippy::modulo_one,
    clippy::neg_multiply,
    clippy::nonminimal_bool,
    reason = "these operations are recorded in a trace, for which they are not what they are on numbers"
)]

use halite_core::DType;
use halite_nn::Tensor;

use crate::edge_values::table::rows;

rows! {
    "numbers" Each FLOATS [0] ["atan2", "pow", "div", "rem"] |x| numbers(x[0]);
    "numbers_integers" Each INTEGERS [] ["pow", "div", "rem"] |x| vec![
        x[0].pow(0), x[0].pow(1), x[0].pow(2), x[0].pow(3), x[0] / 3, x[0] % 3, x[0] / 1,
        x[0] % 1, x[0] / 4, x[0] % 4, 5 / x[0], 5 % x[0], x[0] * 8, x[0] / 0, x[0] % 0,
    ];
    "nothing" Each FLOATS [0] ["add", "sub", "mul", "div"] |x| nothing(x[0]);
    "nothing_integers" Each INTEGERS [] ["add", "sub", "mul", "div"] |x| {
        let x = x[0];
        vec![
            x + 0, x - 0, x * 1, x * 0, x - x, x / x, x % x, -(-x), !!x, x.xor(x), x.and(x),
            x.or(0), x.and(0), x.shift_left(0), x.shift_right_logical(0), x.maximum(x),
            0 - x, x.eq(x).convert(x.dtype()), x.lt(x).convert(x.dtype()),
        ]
    };
    "through" Each ALL [] ["convert"]
        |x| DType::computed().map(|dtype| x[0].convert(dtype).convert(x[0].dtype()))
            .collect::<Vec<_>>();
}

fn numbers(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let powers = [0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0];
    let mut all = vec![x.atan2(1.0), x.atan2(0.0), x.atan2(-1.0)];
    all.extend(powers.map(|power| x.pow(power)));
    all.extend([
        x / 3.0,
        3.0 / x,
        x / 0.0,
        0.0 / x,
        x % 2.0,
        2.0 % x,
        x / 4.0,
    ]);
    all
}

/// What is `x`, or a number, for most `x`.
fn nothing(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let dtype = x.dtype();
    vec![
        x + 0.0,
        0.0 + x,
        x - 0.0,
        x * 1.0,
        x / 1.0,
        -(-x),
        x.maximum(x),
        x.minimum(x),
        x * 0.0,
        x - x,
        x / x,
        0.0 - x,
        x * -1.0,
        x.abs().abs(),
        x + -0.0,
        x.eq(x).convert(dtype),
        x.ne(x).convert(dtype),
        x.ge(x).convert(dtype),
        (x * 2.0) * 0.5,
        (x + x) - x,
    ]
}
