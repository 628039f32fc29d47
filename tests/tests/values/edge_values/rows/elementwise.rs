//! Elementwise operations of one and two operands.

use halite_core::DType;
use halite_ir::{BinaryOp, UnaryOp};
use halite_nn::Tensor;

use crate::edge_values::table::rows;

rows! {
    "abs" Each FLOATS [0] ["abs"] |x| x[0].abs();
    "abs_integers" Each SIGNED [] ["abs"] |x| x[0].abs();
    "cbrt" Each FLOATS [0] ["cbrt"] |x| x[0].cbrt();
    "ceil" Each FLOATS [0] ["ceil"] |x| x[0].ceil();
    "cos" Each FLOATS [0] ["cos"] |x| x[0].cos();
    "erf" Each FLOATS [0] ["erf"] |x| x[0].erf();
    "exp" Each FLOATS [0] ["exp"] |x| x[0].exp();
    "exp_m1" Each FLOATS [0] ["exp_m1"] |x| x[0].exp_m1();
    "floor" Each FLOATS [0] ["floor"] |x| x[0].floor();
    "is_finite" Each FLOATS [] ["is_finite"] |x| x[0].is_finite();
    "log" Each FLOATS [0] ["log"] |x| x[0].log();
    "log_1p" Each FLOATS [0] ["log_1p"] |x| x[0].log_1p();
    "sigmoid" Each FLOATS [0] ["sigmoid"] |x| x[0].sigmoid();
    "round" Each FLOATS [0] ["round"] |x| x[0].round();
    "round_away" Each FLOATS [0] ["unary"] |x| x[0].unary(UnaryOp::RoundNearestAfz);
    "rsqrt" Each FLOATS [0] ["rsqrt"] |x| x[0].rsqrt();
    "sign" Each FLOATS [0] ["sign"] |x| x[0].sign();
    "sign_integers" Each SIGNED [] ["sign"] |x| x[0].sign();
    "sin" Each FLOATS [0] ["sin"] |x| x[0].sin();
    "sqrt" Each FLOATS [0] ["sqrt"] |x| x[0].sqrt();
    "tan" Each FLOATS [0] ["tan"] |x| x[0].tan();
    "tanh" Each FLOATS [0] ["tanh"] |x| x[0].tanh();
    "neg" Each FLOATS [0] ["neg"] |x| -x[0];
    "neg_integers" Each INTEGERS [] ["neg"] |x| -x[0];
    "not" Each BITS [] ["not"] |x| !x[0];
    "square" Each FLOATS [0] ["square"] |x| x[0].square();
    "square_integers" Each BITS [] ["square"] |x| x[0].square();
    "relu" Each ALL [0] ["relu"] |x| x[0].relu();
    "erf_inv" Each FLOATS [0] ["erf_inv"] |x| x[0].erf_inv();
    "count_leading_zeros" Each INTEGERS [] ["unary"] |x| x[0].unary(UnaryOp::CountLeadingZeros);
    "population_count" Each INTEGERS [] ["unary"] |x| x[0].unary(UnaryOp::Popcnt);
    "same" Each ALL [0] ["stop_gradient", "zeros_like", "ones_like", "optimization_barrier"]
        |x| vec![
            x[0].stop_gradient(),
            x[0].zeros_like(),
            x[0].ones_like(),
            x[0].optimization_barrier(),
        ];
    "reduce_precision" Each FLOATS [0] ["reduce_precision"]
        |x| [(5, 2), (8, 7), (5, 10), (4, 3)]
            .map(|(exponent, mantissa)| x[0].reduce_precision(exponent, mantissa)).to_vec();
    "convert" Each ALL [] ["convert"]
        |x| DType::computed().map(|dtype| x[0].convert(dtype)).collect::<Vec<_>>();
    "bits" Each FLOATS [] ["bitcast"] |x| {
        let bits = x[0].bitcast(same_size(x[0].dtype()));
        (bits, bits.bitcast(x[0].dtype()))
    };
    "bitcast" Each ALL [] ["bitcast"] |x| x[0].bitcast(same_size(x[0].dtype())).bitcast(x[0].dtype());

    "add" Pairs FLOATS [0, 1] ["add"] |x| x[0] + x[1];
    "sub" Pairs FLOATS [0, 1] ["sub"] |x| x[0] - x[1];
    "mul" Pairs FLOATS [0, 1] ["mul"] |x| x[0] * x[1];
    "div" Pairs FLOATS [0, 1] ["div"] |x| x[0] / x[1];
    "rem" Pairs FLOATS [0, 1] ["rem"] |x| x[0] % x[1];
    "pow" Pairs FLOATS [0, 1] ["pow"] |x| x[0].pow(x[1]);
    "atan2" Pairs FLOATS [0, 1] ["atan2", "binary"] |x| x[0].binary(BinaryOp::Atan2, x[1]);
    "maximum" Pairs FLOATS [0, 1] ["maximum"] |x| x[0].maximum(x[1]);
    "minimum" Pairs FLOATS [0, 1] ["minimum"] |x| x[0].minimum(x[1]);
    "log_add_exp" Pairs FLOATS [0, 1] ["log_add_exp"] |x| x[0].log_add_exp(x[1]);
    "add_integers" Pairs INTEGERS [] ["add"] |x| x[0] + x[1];
    "sub_integers" Pairs INTEGERS [] ["sub"] |x| x[0] - x[1];
    "mul_integers" Pairs INTEGERS [] ["mul"] |x| x[0] * x[1];
    "div_integers" Pairs INTEGERS [] ["div"] |x| x[0] / x[1];
    "rem_integers" Pairs INTEGERS [] ["rem"] |x| x[0] % x[1];
    "pow_integers" Pairs INTEGERS [] ["pow"] |x| x[0].pow(x[1]);
    "maximum_integers" Pairs INTEGERS [] ["maximum"] |x| x[0].maximum(x[1]);
    "minimum_integers" Pairs INTEGERS [] ["minimum"] |x| x[0].minimum(x[1]);
    "add_bool" Pairs BOOL [] ["add"] |x| x[0] + x[1];
    "mul_bool" Pairs BOOL [] ["mul"] |x| x[0] * x[1];
    "maximum_bool" Pairs BOOL [] ["maximum"] |x| x[0].maximum(x[1]);
    "minimum_bool" Pairs BOOL [] ["minimum"] |x| x[0].minimum(x[1]);
    "and" Pairs BITS [] ["and"] |x| x[0].and(x[1]);
    "or" Pairs BITS [] ["or"] |x| x[0].or(x[1]);
    "xor" Pairs BITS [] ["xor"] |x| x[0].xor(x[1]);
    "shift_left" Pairs INTEGERS [] ["shift_left"] |x| x[0].shift_left(x[1]);
    "shift_right_arithmetic" Pairs INTEGERS [] ["shift_right_arithmetic"]
        |x| x[0].shift_right_arithmetic(x[1]);
    "shift_right_logical" Pairs INTEGERS [] ["shift_right_logical"]
        |x| x[0].shift_right_logical(x[1]);
    "eq" Pairs ALL [] ["eq"] |x| x[0].eq(x[1]);
    "ne" Pairs ALL [] ["ne"] |x| x[0].ne(x[1]);
    "lt" Pairs ALL [] ["lt"] |x| x[0].lt(x[1]);
    "le" Pairs ALL [] ["le"] |x| x[0].le(x[1]);
    "gt" Pairs ALL [] ["gt"] |x| x[0].gt(x[1]);
    "ge" Pairs ALL [] ["ge"] |x| x[0].ge(x[1]);
    "select" Pairs ALL [0, 1] ["select"] |x| x[0].lt(x[1]).select(x[0], x[1]);
    "clamp" Pairs NUMBERS [0] ["clamp"] |x| clamped(x[0], x[1]);
}

/// Another element type of the same size.
fn same_size(dtype: DType) -> DType {
    let other =
        |other: &DType| other.size() == dtype.size() && *other != dtype && (*other != DType::Bool);
    if dtype == DType::Bool {
        dtype
    } else {
        DType::computed()
            .find(other)
            .expect("each size has two types")
    }
}

fn clamped<'t>(x: Tensor<'t>, by: Tensor<'t>) -> Vec<Tensor<'t>> {
    if x.dtype().is_float() {
        vec![x.clamp(-by.abs(), by.abs()), x.clamp(by, by + 1.0)]
    } else {
        vec![x.clamp(2, 100), x.clamp(by, 5)]
    }
}
