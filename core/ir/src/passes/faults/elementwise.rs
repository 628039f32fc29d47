//! Elementwise operations that XLA's CPU compiler computes wrong for some operands.

use halite_core::{DType, TensorType};

use crate::{
    BinaryOp, ComparisonDirection, Graph, Literal, Node, Op, Value, passes::faults::rewritten,
};

/// Hides the second operand of each arc tangent from the compiler, which replaces `atan2(x, 1)` by
/// a function that mixes elements.
pub(super) fn without_arc_tangent(graph: Graph) -> Graph {
    rewritten(graph, &|graph, node| {
        if node.op == Op::Binary(BinaryOp::Atan2) {
            let ty = graph.ty(node.operands[1]).clone();
            let operands = vec![node.operands[1]];
            let hidden = graph.push_typed(Op::OptimizationBarrier, operands, vec![ty], node.origin);
            node.operands[1] = hidden[0];
        }
        None
    })
}

/// Replaces each power of integers by powers with exponents of [`BITS`] bits, of which alone the
/// compiler takes account.
pub(super) fn without_integer_power(graph: Graph) -> Graph {
    rewritten(graph, &|graph, node| {
        let is_integer = graph.ty(*node.operands.first()?).dtype().is_integer();
        let is_power = node.op == Op::Binary(BinaryOp::Power) && is_integer;
        is_power.then(|| Integers::of(graph, node).power(node.operands[0], node.operands[1]))
    })
}

/// Bits of the exponent that the compiler takes account of.
const BITS: usize = 6;

/// Appends operations on integers of one type.
struct Integers<'g> {
    graph: &'g mut Graph,
    ty: TensorType,
    origin: Option<&'static std::panic::Location<'static>>,
}

impl<'g> Integers<'g> {
    fn of(graph: &'g mut Graph, node: &Node) -> Self {
        let ty = graph.ty(node.operands[0]).clone();
        let origin = node.origin;
        Integers { graph, ty, origin }
    }

    fn binary(&mut self, op: BinaryOp, left: Value, right: Value) -> Value {
        let types = vec![self.ty.clone()];
        let operands = vec![left, right];
        (self.graph).push_typed(Op::Binary(op), operands, types, self.origin)[0]
    }

    fn constant(&mut self, value: usize) -> Value {
        let bytes = (value as u64).to_le_bytes();
        let element = &bytes[..self.ty.dtype().size()];
        let literal = Literal::from_element(element, self.ty.clone()).expect("one element");
        let types = vec![self.ty.clone()];
        (self.graph).push_typed(Op::Constant(literal), vec![], types, self.origin)[0]
    }

    /// `base` to the power of `exponent`: the product of its powers of 64 to the power of each six
    /// bits. Negative exponents stay with the compiler.
    fn power(mut self, base: Value, exponent: Value) -> Value {
        let bits = 8 * self.ty.dtype().size();
        let mask = self.constant((1 << BITS) - 1);
        let (mut product, mut factor) = (None, base);
        for shift in (0..bits).step_by(BITS) {
            let by = self.constant(shift);
            let digits = self.binary(BinaryOp::ShiftRightLogical, exponent, by);
            let digit = self.binary(BinaryOp::And, digits, mask);
            let power = self.binary(BinaryOp::Power, factor, digit);
            product = Some(match product {
                None => power,
                Some(so_far) => self.binary(BinaryOp::Multiply, so_far, power),
            });
            for _ in 0..BITS {
                factor = self.binary(BinaryOp::Multiply, factor, factor);
            }
        }
        let product = product.expect("a type has bits");
        if self.ty.dtype().is_unsigned_integer() {
            return product;
        }
        let zero = self.constant(0);
        let whole = self.binary(BinaryOp::Power, base, exponent);
        let types = vec![self.ty.with_dtype(DType::Bool)];
        let below = Op::Compare(ComparisonDirection::Lt);
        let negative = (self.graph).push_typed(below, vec![exponent, zero], types, self.origin)[0];
        let operands = vec![negative, whole, product];
        (self.graph).push_typed(Op::Select, operands, vec![self.ty], self.origin)[0]
    }
}
