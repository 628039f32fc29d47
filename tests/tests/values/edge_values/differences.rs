//! What may differ from the reference, and why: the table in `docs/edge-values.md`.

use halite_core::DType;

use crate::edge_values::{
    job::Executor,
    table::{FLOATS, INTEGERS, SOLVED},
};

/// Results of a row: a function, or its gradient.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Of {
    Function,
    Gradient,
    Both,
}

/// How a result may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Allow {
    /// Relative error up to this number of units in the last place.
    Ulps(u64),
    /// Absolute error up to this multiple of the machine epsilon of the type.
    Epsilons(f64),
    /// Either sign of a zero.
    SignOfZero,
    /// 1 as the quotient of 0 by 0.
    DividedByItself,
    /// Either sign of an infinity.
    SignOfInfinity,
    /// Any result where an input is subnormal or among the smallest normal numbers, or the result is
    /// subnormal.
    Subnormal,
    /// Any result where an input has at least half the magnitude of the largest number.
    Largest,
    /// Any result where an input is infinite.
    Infinite,
}

/// A difference that stays.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Names of rows.
    pub(crate) rows: &'static [&'static str],
    pub(crate) of: Of,
    /// The element types of the inputs.
    pub(crate) dtypes: &'static [DType],
    pub(crate) on: &'static [Executor],
    pub(crate) allow: Allow,
    pub(crate) why: &'static str,
}

impl Difference {
    /// Whether it is about these results.
    pub(crate) fn concerns(&self, row: &str, part: &str, dtype: DType, on: Executor) -> bool {
        let gradient = part.starts_with("grad");
        self.rows.contains(&row)
            && match self.of {
                Of::Function => !gradient,
                Of::Gradient => gradient,
                Of::Both => true,
            }
            && self.dtypes.contains(&dtype)
            && self.on.contains(&on)
    }
}

/// Rows whose results the embedded executor rounds once, to the nearest number.
const ROUNDED_ONCE: &[&str] = &[
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "sqrt",
    "convert",
    "rounded",
    "narrow_reductions",
];

/// Units in the last place that a result of a row may differ by.
pub(crate) fn default_ulps(row: &str, part: &str, dtype: DType, on: Executor) -> u64 {
    let is_gradient = part.starts_with("grad");
    if ROUNDED_ONCE.contains(&row) && !is_gradient && on != Executor::Cpu {
        return 0;
    }
    match (dtype, is_gradient) {
        (DType::F16 | DType::Bf16, false) => 1,
        (DType::F16 | DType::Bf16, true) => 2,
        (DType::F32 | DType::F64, false) => 4,
        (DType::F32 | DType::F64, true) => 8,
        _ => 0,
    }
}

const CPU: &[Executor] = &[Executor::Cpu];
const OWN: &[Executor] = &[Executor::Embedded, Executor::Oracle];
pub(crate) const EVERYWHERE: &[Executor] = &[Executor::Cpu, Executor::Embedded, Executor::Oracle];
/// The types whose subnormal numbers are those of the processor.
const FLUSHED: &[DType] = &[DType::Bf16, DType::F32, DType::F64];

/// A difference in one line.
macro_rules! differs {
    ($($rows:expr, $of:ident, $dtypes:ident, $on:ident, $allow:expr, $why:expr;)*) => {
        &[$($crate::edge_values::differences::Difference {
            rows: &$rows,
            of: $crate::edge_values::differences::Of::$of,
            dtypes: $dtypes,
            on: $on,
            allow: $allow,
            why: $why,
        }),*]
    };
}

/// Differences that stay.
pub(crate) const STAY: &[Difference] = differs! {
    ["maximum", "minimum", "clamp", "relu6"], Function, FLOATS, OWN, Allow::SignOfZero,
        "zeros of both signs are equal; which one is the larger is left open";
    ["sign"], Function, FLOATS, OWN, Allow::SignOfZero,
        "the sign of -0 is -0, as in StableHLO; NumPy has 0";
    ["sgd", "adam", "adam_w"], Function, FLOATS, EVERYWHERE, Allow::SignOfZero,
        "-0 less a step of 0 or one that is rounded to 0";
    ["exp_m1", "elu", "selu", "sigmoid", "tanh", "glu", "mish"], Gradient, FLOATS, EVERYWHERE,
        Allow::Epsilons(4.0),
        "computed from the result, as in PyTorch and JAX: y + 1, y (1 - y), 1 - y^2";
    ["gelu"], Both, FLOATS, EVERYWHERE, Allow::Epsilons(8.0),
        "1 + erf(x) cancels for negative x, as in PyTorch";
    ["gelu_tanh"], Both, FLOATS, EVERYWHERE, Allow::Epsilons(32.0),
        "1 + tanh(z) cancels for negative x, and 1 - tanh(z)^2, which is multiplied by x and the \
         slope of z, for both signs, as in PyTorch";
    ["log_add_exp", "bce_with_logits", "cross_entropy", "cross_entropy_smoothed", "log_softmax",
        "soft_cross_entropy", "kl_divergence", "columns_floats"], Both, FLOATS, EVERYWHERE,
        Allow::Epsilons(8.0),
        "results near 0 are differences of numbers near 1, as in PyTorch and JAX";
    ["softmax", "cumlogsumexp", "logsumexp", "bce_with_logits_mean"], Gradient, FLOATS, EVERYWHERE,
        Allow::Epsilons(8.0), "small gradients are differences of numbers near 1";
    ["cumlogsumexp"], Gradient, FLOATS, EVERYWHERE, Allow::Largest,
        "the logarithm of a count is lost beside numbers beyond 1 / epsilon";
    ["cumprod"], Gradient, FLOATS, EVERYWHERE, Allow::Ulps(64),
        "a sum of products that cancel";
    ["cholesky", "triangular_solve"], Both, SOLVED, EVERYWHERE, Allow::Epsilons(32.0),
        "sums of products that cancel";
    ["erf_inv"], Gradient, FLOATS, EVERYWHERE, Allow::Ulps(4096),
        "near 1 and -1, the derivative of a polynomial of log(1 - x^2)";
    ["pow"], Gradient, FLOATS, EVERYWHERE, Allow::Ulps(128),
        "exponents are rounded before they are taken: b - 1";
    ["pow", "rem"], Gradient, FLOATS, EVERYWHERE, Allow::Largest,
        "an intermediate result is beyond the largest number: b a^(b - 1), the quotient";
    ["rsqrt"], Gradient, FLOATS, EVERYWHERE, Allow::SignOfInfinity,
        "at -0, where the function jumps between infinities";
    ["sgd"], Function, FLOATS, EVERYWHERE, Allow::Epsilons(1.0), "sums that cancel";
    ["var"], Gradient, FLOATS, EVERYWHERE, Allow::Largest, "the sum is infinite, as in PyTorch";
    ["mean_weighted"], Function, FLOATS, EVERYWHERE, Allow::Largest,
        "a mean over batches is two sums, and the sum of values is infinite";
    ["adam_w"], Function, FLOATS, EVERYWHERE, Allow::Infinite,
        "the decay is part of the step, as in Optax, and an infinite parameter less it NaN";
    ["div"], Gradient, FLUSHED, OWN, Allow::Subnormal,
        "the cotangent divided by a subnormal number is infinite, and times a quotient of 0 NaN";
    ["div"], Gradient, FLUSHED, CPU, Allow::Largest,
        "the cotangent divided by the largest number is subnormal, a zero for XLA's code, and times \
         an infinite quotient NaN";
    ["adam", "adam_w", "glu", "silu", "mish", "bce_with_logits", "pow"], Both, FLOATS, EVERYWHERE,
        Allow::Subnormal, "intermediate results are subnormal and have few digits";
    ["nothing"], Function, FLOATS, CPU, Allow::Largest,
        "XLA makes one product of (x * 2) * 0.5, which is then not infinite";
    ["nothing_integers"], Function, INTEGERS, CPU, Allow::DividedByItself,
        "XLA takes x / x for 1 also where x is 0; elsewhere x / 0 is -1";
    ["numbers", "cbrt", "atan2", "pow", "rsqrt", "square", "mse", "huber", "sgd", "cummax", "cummin",
        "max_pool", "adaptive_max_pool", "interpolate", "global_norm"], Both, FLUSHED, CPU, Allow::Subnormal,
        "subnormal numbers are zeros for XLA's code, or for steps of it";
};
