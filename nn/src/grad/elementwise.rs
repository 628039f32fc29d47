//! Rules of elementwise operations.

use halite_ir::{Binary, Comparison, Op, Unary};

use super::{Back, Step};
use crate::Tensor;

impl<'t> Step<'_, 't> {
    #[track_caller]
    pub(super) fn unary(&self, op: Unary) -> Option<Tensor<'t>> {
        let (g, x, y) = (self.g(), self.x(0), self.y(0));
        Some(match op {
            Unary::Abs => g * x.sign(),
            Unary::Cbrt => g / (y * y * 3.0),
            Unary::Cosine => -(g * x.sin()),
            Unary::Erf => g * (-(x * x)).exp() * std::f64::consts::FRAC_2_SQRT_PI,
            Unary::Exponential => g * y,
            Unary::ExponentialMinusOne => g * (y + 1.0),
            Unary::Log => g / x,
            Unary::LogPlusOne => g / (x + 1.0),
            Unary::Logistic => g * (y * (1.0 - y)),
            Unary::Negate => -g,
            Unary::Rsqrt => g * (y * y * y) * -0.5,
            Unary::Sine => g * x.cos(),
            Unary::Sqrt => g * 0.5 / y,
            Unary::Tan => g * (y * y + 1.0),
            // Not 1 - y * y, which loses digits where y is near 1.
            Unary::Tanh => g * ((1.0 - y) * (1.0 + y)),
            Unary::Ceil | Unary::Floor | Unary::RoundNearestAfz | Unary::RoundNearestEven | Unary::Sign => return None,
            // Of integers or bool, on one side at least.
            Unary::CountLeadingZeros | Unary::IsFinite | Unary::Not | Unary::PopulationCount => return None,
        })
    }

    #[track_caller]
    pub(super) fn binary(&self, op: Binary) -> Back<'t> {
        let (g, a, b, y) = (self.g(), self.x(0), self.x(1), self.y(0));
        let (left, right) = match op {
            Binary::Add => (Some(g), Some(g)),
            Binary::Subtract => (Some(g), self.if_wanted(1, || -g)),
            Binary::Multiply => (self.if_wanted(0, || g * b), self.if_wanted(1, || g * a)),
            Binary::Divide => {
                let left = g / b;
                (Some(left), self.if_wanted(1, || -(left * y)))
            }
            Binary::Atan2 => {
                let scaled = g / (a * a + b * b);
                (self.if_wanted(0, || scaled * b), self.if_wanted(1, || -(scaled * a)))
            }
            Binary::Maximum => {
                (self.if_wanted(0, || self.extreme(Comparison::Gt, 0)), self.if_wanted(1, || self.extreme(Comparison::Gt, 1)))
            }
            Binary::Minimum => {
                (self.if_wanted(0, || self.extreme(Comparison::Lt, 0)), self.if_wanted(1, || self.extreme(Comparison::Lt, 1)))
            }
            Binary::Power => (self.if_wanted(0, || self.power_base()), self.if_wanted(1, || self.power_exponent())),
            Binary::Remainder => {
                let quotient = a / b;
                let whole = || quotient.sign() * quotient.abs().floor();
                (Some(g), self.if_wanted(1, || -(g * whole())))
            }
            // Of integers or bool.
            Binary::And
            | Binary::Or
            | Binary::Xor
            | Binary::ShiftLeft
            | Binary::ShiftRightArithmetic
            | Binary::ShiftRightLogical => (None, None),
        };
        vec![left, right]
    }

    /// Of the larger or smaller of two: the chosen one gets it, equal ones half each.
    #[track_caller]
    fn extreme(&self, wins: Comparison, operand: usize) -> Tensor<'t> {
        let (g, mine, other) = (self.g(), self.x(operand), self.x(1 - operand));
        let zero = g.zeros_like();
        let compare = |left, right| self.trace.push_one(Op::Compare(wins), &[left, right]);
        // This is relu, whose gradient at 0 is 0 by convention. Asking the result instead of the operand is the same, and
        // the operand need not be kept for it.
        if self.tape.is_zero(self.node.operands[1 - operand]) {
            return compare(self.y(0), other).select(g, zero);
        }
        compare(mine, other).select(g, mine.eq(other).select(g * 0.5, zero))
    }

    /// b a^(b - 1), and 0 where b is 0 also if a is 0.
    #[track_caller]
    fn power_base(&self) -> Tensor<'t> {
        let (g, a, b) = (self.g(), self.x(0), self.x(1));
        g * b.eq(0.0).select(b.zeros_like(), b * a.pow(b - 1.0))
    }

    /// log(a) a^b, and 0 where a is 0.
    #[track_caller]
    fn power_exponent(&self) -> Tensor<'t> {
        let (g, a, y) = (self.g(), self.x(0), self.y(0));
        g * (a.eq(0.0).select(a.ones_like(), a).log() * y)
    }

    #[track_caller]
    pub(super) fn select(&self) -> Back<'t> {
        let (g, predicate) = (self.g(), self.x(0));
        let zero = g.zeros_like();
        let choose = |on_true, on_false| self.trace.push_one(Op::Select, &[predicate, on_true, on_false]);
        vec![None, self.if_wanted(1, || choose(g, zero)), self.if_wanted(2, || choose(zero, g))]
    }

    /// What is in between gets it; at a bound, neither `x` nor the bound does.
    #[track_caller]
    pub(super) fn clamp(&self) -> Back<'t> {
        let (g, low, x, high) = (self.g(), self.x(0), self.x(1), self.x(2));
        let zero = g.zeros_like();
        let bound = |operand: usize, outside: Tensor<'t>| {
            let all = outside.select(g, zero);
            if self.ty(operand).rank() == 0 { all.sum_all() } else { all }
        };
        vec![
            self.if_wanted(0, || bound(0, low.gt(x))),
            self.if_wanted(1, || x.gt(low).and(x.lt(high)).select(g, zero)),
            self.if_wanted(2, || bound(2, high.lt(x))),
        ]
    }
}
