//! Steps of functions of scalars.

use std::hint::select_unpredictable;

use halite_stablehlo::{BinaryOp, ComparisonDirection, UnaryOp};

use super::{Format, Lanes};

/// `$body` with closures that decode and encode, so that each format has loops of its own.
macro_rules! for_float {
    ($format:expr, |$decode:ident, $encode:ident| $body:expr) => {
        match $format {
            Format::F16 => {
                let $decode = |x: u64| half::f16::from_bits(x as u16).to_f64();
                let $encode = |x: f64| u64::from(half::f16::from_f64(x).to_bits());
                $body
            }
            Format::Bf16 => {
                let $decode = |x: u64| f64::from(f32::from_bits((x as u32) << 16));
                let $encode = |x: f64| u64::from(half::bf16::from_f64(x).to_bits());
                $body
            }
            Format::F32 => {
                let $decode = |x: u64| f64::from(f32::from_bits(x as u32));
                let $encode = |x: f64| u64::from((x as f32).to_bits());
                $body
            }
            _ => {
                let $decode = f64::from_bits;
                let $encode = f64::to_bits;
                $body
            }
        }
    };
}

/// What a step computes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Op {
    Unary(UnaryOp),
    Binary(BinaryOp),
    /// Compares floats by the order of their bits, if `total`.
    Compare {
        direction: ComparisonDirection,
        total: bool,
    },
    /// Operand 1 where operand 0 is true, else operand 2.
    Select,
    Convert,
}

/// A function of the bits of two elements.
pub(in super::super) type Combine = dyn Fn(u64, u64) -> u64;

impl Op {
    /// The number of operands.
    pub(super) fn operands(self) -> usize {
        match self {
            Op::Unary(_) | Op::Convert => 1,
            Op::Binary(_) | Op::Compare { .. } => 2,
            Op::Select => 3,
        }
    }
}

/// An operation on registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    op: Op,
    /// The formats of the operands and of the result.
    from: Format,
    to: Format,
    operands: [usize; 3],
}

impl Step {
    /// `None` if the operation is not defined for elements of `from`, or has no code here.
    pub(super) fn new(op: Op, from: Format, to: Format, operands: [usize; 3]) -> Option<Self> {
        let is_known = match op {
            Op::Unary(op) if from.is_float() => float_unary(op).is_some() || is_finite(op),
            Op::Unary(op) => integer_unary(op, from).is_some(),
            Op::Binary(op) if from.is_float() => float_binary(op).is_some(),
            Op::Binary(op) => integer_binary(op, from).is_some(),
            Op::Compare { .. } | Op::Select => true,
            Op::Convert => from.is_float() == to.is_float() && to != Format::Unsigned(1),
        };
        is_known.then_some(Step {
            op,
            from,
            to,
            operands,
        })
    }

    /// Whether this adds the first two registers.
    pub(super) fn is_sum(&self) -> bool {
        let [x, y, _] = self.operands;
        self.op == Op::Binary(BinaryOp::Add) && (x, y) == (0, 1)
    }

    /// The function of two elements that this is of the first two registers.
    pub(super) fn of_two(&self) -> Option<Box<Combine>> {
        let (op, format) = match self.op {
            Op::Binary(op) if self.operands[..2] == [0, 1] => (op, self.from),
            _ => return None,
        };
        if format.is_float() {
            let f = float_binary(op)?;
            return for_float!(format, |decode, encode| Some(Box::new(move |x, y| {
                encode(f(decode(x), decode(y)))
            })));
        }
        let f = integer_binary(op, format)?;
        Some(Box::new(move |x, y| {
            wrapped(f(extended(x, format), extended(y, format)), format)
        }))
    }

    pub(super) fn op(&self) -> Op {
        self.op
    }

    pub(super) fn from(&self) -> Format {
        self.from
    }

    pub(super) fn operands(&self) -> [usize; 3] {
        self.operands
    }

    /// Whether both compute the same of their operands.
    pub(super) fn does_the_same(&self, other: &Self) -> bool {
        (self.op, self.from, self.to) == (other.op, other.from, other.to)
    }

    pub(super) fn run(&self, registers: &[Lanes], out: &mut [u64]) {
        let (from, to) = (self.from, self.to);
        let [x, y, z] = self.operands.map(|number| &registers[number][..out.len()]);
        match self.op {
            Op::Select => {
                let each = out.iter_mut().zip(x.iter().zip(y.iter().zip(z)));
                each.for_each(|(out, (&holds, (&y, &z)))| {
                    *out = select_unpredictable(holds != 0, y, z)
                });
            }
            Op::Convert if from.is_float() => {
                out.copy_from_slice(x);
                convert(out, from, to);
            }
            Op::Convert => map(out, x, |x| wrapped(extended(x, from), to)),
            Op::Unary(op) if is_finite(op) && from.is_float() => {
                map(out, x, |x| decode(x, from).is_finite().into());
            }
            Op::Unary(op) if from.is_float() => {
                if let Some(f) = float_unary(op) {
                    for_float!(from, |decode, encode| map(out, x, |x| encode(f(decode(x)))));
                }
            }
            Op::Unary(op) => {
                if let Some(f) = integer_unary(op, from) {
                    map(out, x, |x| wrapped(f(extended(x, from)), to));
                }
            }
            Op::Binary(op) if from.is_float() => float(op, from, out, x, y),
            Op::Binary(op) => integer(op, from, out, x, y),
            Op::Compare { direction, total } => compare(direction, total, from, out, x, y),
        }
    }
}

fn map(out: &mut [u64], x: &[u64], f: impl Fn(u64) -> u64) {
    out.iter_mut().zip(x).for_each(|(out, &x)| *out = f(x));
}

fn zip(out: &mut [u64], x: &[u64], y: &[u64], f: impl Fn(u64, u64) -> u64) {
    let each = out.iter_mut().zip(x.iter().zip(y));
    each.for_each(|(out, (&x, &y))| *out = f(x, y));
}

/// The number that the bits encode.
#[inline]
pub(in super::super) fn decode(bits: u64, format: Format) -> f64 {
    for_float!(format, |decode, _encode| decode(bits))
}

/// The bits of the nearest number.
#[inline]
pub(in super::super) fn encode(value: f64, format: Format) -> u64 {
    for_float!(format, |_decode, encode| encode(value))
}

/// Floats of `from` as floats of `to`.
pub(in super::super) fn convert(values: &mut [u64], from: Format, to: Format) {
    if from != to {
        for_float!(from, |decode, _encode| for_float!(to, |_decode, encode| {
            values
                .iter_mut()
                .for_each(|value| *value = encode(decode(*value)));
        }));
    }
}

/// The bits of an integer, extended by its sign.
pub(in super::super) fn extended(bits: u64, format: Format) -> u64 {
    match format {
        Format::Signed(size) => (bits as i64) << (64 - size) >> (64 - size),
        _ => bits as i64,
    }
    .cast_unsigned()
}

/// The low bits of an integer.
fn wrapped(value: u64, format: Format) -> u64 {
    match format {
        Format::Signed(size) | Format::Unsigned(size) => value << (64 - size) >> (64 - size),
        _ => value,
    }
}

/// Integers whose unsigned order is the order of the elements: that of values, or of floats the
/// total order.
pub(in super::super) fn sortable(values: &mut [u64], format: Format) {
    let (sign, all) = (1 << (format.bits() - 1), u64::MAX >> (64 - format.bits()));
    match format {
        Format::Unsigned(_) => {}
        Format::Signed(_) => values.iter_mut().for_each(|bits| *bits ^= sign),
        _ => values.iter_mut().for_each(|bits| {
            // Negative numbers are in the opposite order.
            *bits ^= if *bits & sign == 0 { sign } else { all };
        }),
    }
}

fn key(bits: u64, format: Format) -> u64 {
    let mut key = [bits];
    sortable(&mut key, format);
    key[0]
}

fn compare(
    direction: ComparisonDirection,
    total: bool,
    format: Format,
    out: &mut [u64],
    x: &[u64],
    y: &[u64],
) {
    // Closures, not functions behind pointers, so that each loop is vectorized.
    fn by<T: PartialOrd>(
        direction: ComparisonDirection,
        out: &mut [u64],
        x: &[u64],
        y: &[u64],
        decode: impl Fn(u64) -> T,
    ) {
        match direction {
            ComparisonDirection::Eq => zip(out, x, y, |x, y| (decode(x) == decode(y)).into()),
            ComparisonDirection::Ne => zip(out, x, y, |x, y| (decode(x) != decode(y)).into()),
            ComparisonDirection::Ge => zip(out, x, y, |x, y| (decode(x) >= decode(y)).into()),
            ComparisonDirection::Gt => zip(out, x, y, |x, y| (decode(x) > decode(y)).into()),
            ComparisonDirection::Le => zip(out, x, y, |x, y| (decode(x) <= decode(y)).into()),
            ComparisonDirection::Lt => zip(out, x, y, |x, y| (decode(x) < decode(y)).into()),
        }
    }
    match format {
        Format::Unsigned(_) => by(direction, out, x, y, |x| x),
        Format::Signed(bits) => by(direction, out, x, y, |x| x ^ 1 << (bits - 1)),
        _ if total => by(direction, out, x, y, |x| key(x, format)),
        _ => for_float!(format, |decode, _encode| by(direction, out, x, y, decode)),
    }
}

fn is_finite(op: UnaryOp) -> bool {
    op == UnaryOp::IsFinite
}

fn float_unary(op: UnaryOp) -> Option<fn(f64) -> f64> {
    Some(match op {
        UnaryOp::Abs => f64::abs,
        UnaryOp::Cbrt => f64::cbrt,
        UnaryOp::Ceil => f64::ceil,
        UnaryOp::Cosine => f64::cos,
        UnaryOp::Exponential => f64::exp,
        UnaryOp::ExponentialMinusOne => f64::exp_m1,
        UnaryOp::Floor => f64::floor,
        UnaryOp::Log => f64::ln,
        UnaryOp::LogPlusOne => f64::ln_1p,
        UnaryOp::Logistic => |x| 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Negate => |x| -x,
        UnaryOp::RoundNearestAfz => f64::round,
        UnaryOp::RoundNearestEven => f64::round_ties_even,
        UnaryOp::Rsqrt => |x| 1.0 / x.sqrt(),
        UnaryOp::Sign => |x| {
            if x.is_nan() || x == 0.0 {
                x
            } else {
                1f64.copysign(x)
            }
        },
        UnaryOp::Sine => f64::sin,
        UnaryOp::Sqrt => f64::sqrt,
        UnaryOp::Tan => f64::tan,
        UnaryOp::Tanh => f64::tanh,
        _ => return None,
    })
}

fn integer_unary(op: UnaryOp, format: Format) -> Option<fn(u64) -> u64> {
    Some(match (op, format) {
        (UnaryOp::Not, Format::Unsigned(1)) => |x| x ^ 1,
        (_, Format::Unsigned(1)) => return None,
        (UnaryOp::Not, _) => |x| !x,
        (UnaryOp::Negate, _) => u64::wrapping_neg,
        (UnaryOp::Abs, Format::Signed(_)) => |x| x.cast_signed().wrapping_abs().cast_unsigned(),
        (UnaryOp::Sign, Format::Signed(_)) => |x| x.cast_signed().signum().cast_unsigned(),
        _ => return None,
    })
}

fn float_binary(op: BinaryOp) -> Option<fn(f64, f64) -> f64> {
    Some(match op {
        BinaryOp::Add => |x, y| x + y,
        BinaryOp::Subtract => |x, y| x - y,
        BinaryOp::Multiply => |x, y| x * y,
        BinaryOp::Divide => |x, y| x / y,
        BinaryOp::Maximum => maximum,
        BinaryOp::Minimum => minimum,
        _ => return None,
    })
}

fn maximum(x: f64, y: f64) -> f64 {
    let takes_x = x > y || (x == y && y.is_sign_negative());
    if x.is_nan() || (takes_x && !y.is_nan()) {
        x
    } else {
        y
    }
}

fn minimum(x: f64, y: f64) -> f64 {
    let takes_x = x < y || (x == y && x.is_sign_negative());
    if x.is_nan() || (takes_x && !y.is_nan()) {
        x
    } else {
        y
    }
}

/// Combines floats; the common operations have a loop of their own for each format.
fn float(op: BinaryOp, format: Format, out: &mut [u64], x: &[u64], y: &[u64]) {
    for_float!(format, |decode, encode| {
        let mut each = |f: fn(f64, f64) -> f64| {
            zip(out, x, y, |x, y| encode(f(decode(x), decode(y))));
        };
        match (op, float_binary(op)) {
            (BinaryOp::Add, _) => zip(out, x, y, |x, y| encode(decode(x) + decode(y))),
            (BinaryOp::Subtract, _) => zip(out, x, y, |x, y| encode(decode(x) - decode(y))),
            (BinaryOp::Multiply, _) => zip(out, x, y, |x, y| encode(decode(x) * decode(y))),
            (BinaryOp::Maximum, _) => {
                zip(out, x, y, |x, y| encode(maximum(decode(x), decode(y))));
            }
            (BinaryOp::Minimum, _) => {
                zip(out, x, y, |x, y| encode(minimum(decode(x), decode(y))));
            }
            (_, Some(f)) => each(f),
            (_, None) => {}
        }
    });
}

/// Operations on bits that are extended by their sign; results are wrapped after them.
fn integer_binary(op: BinaryOp, format: Format) -> Option<fn(u64, u64) -> u64> {
    let is_signed = matches!(format, Format::Signed(_));
    Some(match op {
        BinaryOp::And => |x, y| x & y,
        BinaryOp::Or => |x, y| x | y,
        BinaryOp::Xor => |x, y| x ^ y,
        BinaryOp::Maximum if is_signed => |x, y| x.cast_signed().max(y.cast_signed()) as u64,
        BinaryOp::Minimum if is_signed => |x, y| x.cast_signed().min(y.cast_signed()) as u64,
        BinaryOp::Maximum => u64::max,
        BinaryOp::Minimum => u64::min,
        // Booleans are not wrapped: 1 + 1 is true.
        _ if format == Format::Unsigned(1) => return None,
        BinaryOp::Add => u64::wrapping_add,
        BinaryOp::Subtract => u64::wrapping_sub,
        BinaryOp::Multiply => u64::wrapping_mul,
        // Same as XLA: all bits of a quotient by zero are 1.
        BinaryOp::Divide if is_signed => |x, y| {
            let quotient = |y: i64| x.cast_signed().wrapping_div(y).cast_unsigned();
            if y == 0 {
                u64::MAX
            } else {
                quotient(y.cast_signed())
            }
        },
        BinaryOp::Divide => |x, y| x.checked_div(y).unwrap_or(u64::MAX),
        BinaryOp::Remainder if is_signed => |x, y| {
            let rest = |y: i64| x.cast_signed().wrapping_rem(y).cast_unsigned();
            if y == 0 { x } else { rest(y.cast_signed()) }
        },
        BinaryOp::Remainder => |x, y| x.checked_rem(y).unwrap_or(x),
        _ => return None,
    })
}

fn integer(op: BinaryOp, format: Format, out: &mut [u64], x: &[u64], y: &[u64]) {
    let unused = 64 - format.bits();
    let low = |value: u64| value << unused >> unused;
    // In the order of the signed numbers.
    let high = |value: u64| (value << unused).cast_signed();
    let is_signed = matches!(format, Format::Signed(_));
    match (op, integer_binary(op, format)) {
        (BinaryOp::And, _) => zip(out, x, y, |x, y| x & y),
        (BinaryOp::Or, _) => zip(out, x, y, |x, y| x | y),
        (BinaryOp::Xor, _) => zip(out, x, y, |x, y| x ^ y),
        (BinaryOp::Add, _) => zip(out, x, y, |x, y| low(x.wrapping_add(y))),
        (BinaryOp::Subtract, _) => zip(out, x, y, |x, y| low(x.wrapping_sub(y))),
        (BinaryOp::Multiply, _) => zip(out, x, y, |x, y| low(x.wrapping_mul(y))),
        (BinaryOp::Maximum, _) if is_signed => {
            zip(out, x, y, |x, y| if high(x) > high(y) { x } else { y });
        }
        (BinaryOp::Minimum, _) if is_signed => {
            zip(out, x, y, |x, y| if high(x) < high(y) { x } else { y });
        }
        (BinaryOp::Maximum, _) => zip(out, x, y, u64::max),
        (BinaryOp::Minimum, _) => zip(out, x, y, u64::min),
        (_, Some(f)) => zip(out, x, y, |x, y| {
            low(f(extended(x, format), extended(y, format)))
        }),
        (_, None) => {}
    }
}
