//! Unary and binary operations, comparisons, select, clamp, conversions.

use halite_ir::UnaryOp;
use halite_tests::functions;

functions! {
    abs(g) g.x().abs();
    cbrt(g) g.x().cbrt();
    ceil(g) g.x().ceil();
    cos(g) g.x().cos();
    count_leading_zeros(g) g.x().unary(UnaryOp::CountLeadingZeros);
    erf(g) g.x().erf();
    erf_inv(g) g.x().erf_inv();
    exp(g) g.x().exp();
    exp_m1(g) g.x().exp_m1();
    floor(g) g.x().floor();
    is_finite(g) g.x().is_finite();
    log(g) g.x().log();
    log_1p(g) g.x().log_1p();
    neg(g) -g.x();
    not(g) !g.x();
    population_count(g) g.x().unary(UnaryOp::Popcnt);
    round(g) g.x().round();
    round_away(g) g.x().unary(UnaryOp::RoundNearestAfz);
    rsqrt(g) g.x().rsqrt();
    sigmoid(g) g.x().sigmoid();
    sign(g) g.x().sign();
    sin(g) g.x().sin();
    sqrt(g) g.x().sqrt();
    square(g) g.x().square();
    tan(g) g.x().tan();
    tanh(g) g.x().tanh();

    add(g) g.x() + g.y();
    and(g) g.x().and(g.y());
    atan2(g) g.x().atan2(g.y());
    div(g) g.x() / g.y();
    log_add_exp(g) g.x().log_add_exp(g.y());
    maximum(g) g.x().maximum(g.y());
    minimum(g) g.x().minimum(g.y());
    mul(g) g.x() * g.y();
    numbers(g) (2.0 * g.x() + 1) / 4 - (3 - g.x()) % 0.7;
    or(g) g.x().or(g.y());
    pow(g) g.x().pow(g.y());
    rem(g) g.x() % g.y();
    shift_left(g) g.x().shift_left(g.y());
    shift_right_arithmetic(g) g.x().shift_right_arithmetic(g.y());
    shift_right_logical(g) g.x().shift_right_logical(g.y());
    sub(g) g.x() - g.y();
    twice_used(g) g.x() * g.x() + g.x() / (g.x() + 1);
    xor(g) g.x().xor(g.y());

    eq(g) g.x().eq(g.y());
    ge(g) g.x().ge(g.y());
    gt(g) g.x().gt(g.y());
    le(g) g.x().le(g.y());
    lt(g) g.x().lt(g.y());
    ne(g) g.x().ne(g.y());

    clamp(g) g.input("x").clamp(g.input("low"), g.input("high"));
    select(g) g.input("p").select(g.input("x"), g.input("y"));

    bitcast(g) g.x().bitcast(g.dtype("to"));
    convert_to_all(g) g.dtypes("to").into_iter().map(|to| g.x().convert(to)).collect::<Vec<_>>();
    reduce_precision(g) g.x().reduce_precision(g.get("exponent"), g.get("mantissa"));
}
