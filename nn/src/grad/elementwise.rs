//! Rules of elementwise operations.

use halite_core::DType;
use halite_ir::{BinaryOp, ComparisonDirection, Op, UnaryOp};

use super::{Back, Step};
use crate::{Tensor, special::wide};

impl<'t> Step<'_, 't> {
    #[track_caller]
    pub(super) fn unary(&self, op: UnaryOp) -> Option<Tensor<'t>> {
        let dtype = self.ty(0).dtype();
        // Intermediate results of 16 bits would overflow, and the result has lost digits.
        let (g, x) = (
            self.g().convert(wide(dtype)),
            self.x(0).convert(wide(dtype)),
        );
        let y = if x.dtype() == dtype {
            self.y(0)
        } else {
            x.unary(op)
        };
        let back = match op {
            UnaryOp::Abs => g * x.sign(),
            UnaryOp::Cbrt => g / (y * y * 3.0),
            UnaryOp::Cosine => -(g * x.sin()),
            UnaryOp::Erf => g * (-(x * x)).exp() * std::f64::consts::FRAC_2_SQRT_PI,
            UnaryOp::Exponential => g * y,
            // Not y + 1, which loses digits where y is near -1.
            UnaryOp::ExponentialMinusOne => g * x.exp(),
            UnaryOp::Log => g / x,
            UnaryOp::LogPlusOne => g / (x + 1.0),
            UnaryOp::Logistic => g * (y * (1.0 - y)),
            UnaryOp::Negate => -g,
            UnaryOp::Rsqrt => g * (y * y * y) * -0.5,
            UnaryOp::Sine => g * x.cos(),
            UnaryOp::Sqrt => g * 0.5 / y,
            UnaryOp::Tan => g * (y * y + 1.0),
            // Not 1 - y * y, which loses digits where y is near 1.
            UnaryOp::Tanh => g * ((1.0 - y) * (1.0 + y)),
            UnaryOp::Ceil
            | UnaryOp::Floor
            | UnaryOp::RoundNearestAfz
            | UnaryOp::RoundNearestEven
            | UnaryOp::Sign => return None,
            // At least one side is of integers or bool, or complex, which `infer` refuses.
            UnaryOp::CountLeadingZeros
            | UnaryOp::Imag
            | UnaryOp::IsFinite
            | UnaryOp::Not
            | UnaryOp::Popcnt
            | UnaryOp::Real => return None,
        };
        Some(back.convert(dtype))
    }

    #[track_caller]
    pub(super) fn binary(&self, op: BinaryOp) -> Back<'t> {
        let (g, a, b) = (self.g(), self.x(0), self.x(1));
        let (left, right) = match op {
            BinaryOp::Add => (Some(g), Some(g)),
            BinaryOp::Subtract => (Some(g), self.if_wanted(1, || -g)),
            BinaryOp::Multiply => (self.if_wanted(0, || g * b), self.if_wanted(1, || g * a)),
            BinaryOp::Divide | BinaryOp::Atan2 | BinaryOp::Power | BinaryOp::Remainder => {
                return self.quotient(op);
            }
            BinaryOp::Maximum => return self.extreme(ComparisonDirection::Gt),
            BinaryOp::Minimum => return self.extreme(ComparisonDirection::Lt),
            // Integers and bool have no cotangents; `infer` refuses complex numbers.
            BinaryOp::And
            | BinaryOp::Complex
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::ShiftLeft
            | BinaryOp::ShiftRightArithmetic
            | BinaryOp::ShiftRightLogical => (None, None),
        };
        vec![left, right]
    }

    /// Rules with intermediate results that would overflow in 16 bits.
    #[track_caller]
    fn quotient(&self, op: BinaryOp) -> Back<'t> {
        let dtype = self.ty(0).dtype();
        let [g, a, b] = [self.g(), self.x(0), self.x(1)].map(|x| x.convert(wide(dtype)));
        let y = if a.dtype() == dtype {
            self.y(0)
        } else {
            a.binary(op, b)
        };
        let (left, right) = match op {
            BinaryOp::Atan2 => {
                // The result does not depend on the scale, which avoids squares that overflow. It is
                // a normal number, since the reciprocal of a smaller one may be infinite.
                let scale = a.abs().maximum(b.abs()).maximum(smallest(a.dtype()));
                let scale = scale.stop_gradient();
                // Where it is infinite the slope is 0 in any direction.
                let far = scale.eq(f64::INFINITY);
                let [a, b] = [a, b].map(|x| far.select(x.ones_like(), x / scale));
                let norm = a * a + b * b;
                (
                    self.if_wanted(0, || g * (b / norm) / scale),
                    self.if_wanted(1, || -(g * (a / norm) / scale)),
                )
            }
            BinaryOp::Power => (
                self.if_wanted(0, || power_base(g, a, b)),
                self.if_wanted(1, || power_exponent(g, a, b, y)),
            ),
            BinaryOp::Remainder => {
                // Not a / b, which rounds to the next integer where it is just below.
                let whole = || ((a - y) / b).round();
                (Some(g), self.if_wanted(1, || -(g * whole())))
            }
            // Divide.
            _ => {
                let left = g / b;
                (Some(left), self.if_wanted(1, || -(left * y)))
            }
        };
        [left, right]
            .map(|back| back.map(|back| back.convert(dtype)))
            .to_vec()
    }

    /// The chosen operand gets the cotangent; equal operands get half each.
    #[track_caller]
    fn extreme(&self, wins: ComparisonDirection) -> Back<'t> {
        let (g, a, b) = (self.g(), self.x(0), self.x(1));
        let zero = g.zeros_like();
        let compare = |left, right| self.trace.push_one(Op::Compare(wins), &[left, right]);
        // This is relu, whose gradient at 0 is 0 by convention. Asking the result instead of the
        // operand is the same, and the operand is not needed as a residual.
        for (operand, other) in [(0, 1), (1, 0)] {
            if self.tape.is_zero(self.node.operands[other]) && !self.wants(other) {
                let mut back = self.nothing();
                back[operand] = self.if_wanted(operand, || {
                    compare(self.y(0), self.x(other)).select(g, zero)
                });
                return back;
            }
        }
        let masks = self.made_once(&[compare(a, b), compare(b, a), a.eq(b)]);
        let part = |operand: usize| masks[operand].select(g, masks[2].select(g * 0.5, zero));
        vec![self.if_wanted(0, || part(0)), self.if_wanted(1, || part(1))]
    }

    /// Masks of the chosen operand. If gradients flow into several operands, the masks
    /// are behind a barrier: computed again for each operand, with other rounding, they could
    /// choose both or neither (decision 0029).
    #[track_caller]
    fn made_once(&self, masks: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let wanted = (0..self.node.operands.len())
            .filter(|&operand| self.wants(operand))
            .count();
        if wanted > 1 {
            self.trace.optimization_barrier(masks)
        } else {
            masks.to_vec()
        }
    }

    #[track_caller]
    pub(super) fn select(&self) -> Back<'t> {
        let (g, predicate) = (self.g(), self.x(0));
        let zero = g.zeros_like();
        let choose = |on_true, on_false| {
            self.trace
                .push_one(Op::Select, &[predicate, on_true, on_false])
        };
        vec![
            None,
            self.if_wanted(1, || choose(g, zero)),
            self.if_wanted(2, || choose(zero, g)),
        ]
    }

    /// Elements between the bounds get the cotangent; at a bound, neither `x` nor the bound does.
    /// If the lower bound is above the upper one, the result is the upper one.
    #[track_caller]
    pub(super) fn clamp(&self) -> Back<'t> {
        let (g, low, x, high) = (self.g(), self.x(0), self.x(1), self.x(2));
        let zero = g.zeros_like();
        let bound = |operand: usize, outside: Tensor<'t>| {
            let all = outside.select(g, zero);
            if self.ty(operand).rank() == 0 {
                all.sum_all()
            } else {
                all
            }
        };
        // Bounds that are scalars broadcast.
        let masks = self.made_once(&[
            low.gt(x).and(low.lt(high)),
            x.gt(low).and(x.lt(high)),
            x.gt(high).or(low.gt(high)),
        ]);
        vec![
            self.if_wanted(0, || bound(0, masks[0])),
            self.if_wanted(1, || masks[1].select(g, zero)),
            self.if_wanted(2, || bound(2, masks[2])),
        ]
    }
}

/// b a^(b - 1), and 0 where b is 0 also if a is 0 or NaN. Not 0 wherever b is: the derivative of
/// this by b would be lost.
#[track_caller]
fn power_base<'t>(g: Tensor<'t>, a: Tensor<'t>, b: Tensor<'t>) -> Tensor<'t> {
    // Below it the reciprocal of a may be infinite.
    let flat = b.eq(0.0).and(!a.abs().ge(smallest(a.dtype())));
    // The power may overflow where the product with a small cotangent does not.
    g * b * flat.select(a.ones_like(), a).pow(b - 1.0)
}

/// The smallest positive normal number of a type of intermediate results.
fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    }
}

/// log(a) a^b, and 0 where a is 0 and b is not negative.
#[track_caller]
fn power_exponent<'t>(g: Tensor<'t>, a: Tensor<'t>, b: Tensor<'t>, y: Tensor<'t>) -> Tensor<'t> {
    let flat = a.eq(0.0).and(b.ge(0.0));
    g * (flat.select(a.ones_like(), a).log() * y)
}
