//! Reductions, windows, scatter and sort: operations whose regions combine or compare elements.

use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ComparisonOrder, ElementClass, ElementType, OpKind, RankedType,
    Region, ScatterAttributes, ValueId, ValueIds, WindowAttributes,
};

use super::{Builder, Cx, scalar};
use crate::{Extreme, Reduction};

impl Builder<'_> {
    pub(super) fn reduce(&mut self, cx: Cx<'_>, kind: Reduction, dims: &[usize]) -> ValueId {
        let reduce = OpKind::Reduce {
            dims: dims.to_vec(),
        };
        self.reduction(cx, kind, reduce)
    }

    pub(super) fn reduce_window(
        &mut self,
        cx: Cx<'_>,
        kind: Reduction,
        window: &WindowAttributes,
    ) -> ValueId {
        self.reduction(cx, kind, OpKind::ReduceWindow(Box::new(window.clone())))
    }

    fn reduction(&mut self, cx: Cx<'_>, kind: Reduction, op: OpKind) -> ValueId {
        let x = self.widened(Some(kind), cx.operands[0]);
        let element = self.element(x);
        let init = self.identity(kind, element);
        let region = self.combine(Some(combiner(kind)), element);
        let result = cx.result(0);
        let wide = RankedType::new(element, result.dims);
        let y = self.add(op, &[x, init], [wide], vec![region])[0];
        self.convert(y, result.element)
    }

    pub(super) fn scatter(
        &mut self,
        cx: Cx<'_>,
        scatter: &ScatterAttributes,
        combine: Option<Reduction>,
    ) -> ValueId {
        let x = self.widened(combine, cx.operands[0]);
        let updates = self.widened(combine, cx.operands[2]);
        let ty = self.ty(x).clone();
        let region = self.combine(combine.map(combiner), ty.element);
        let op = OpKind::Scatter(Box::new(scatter.clone()));
        let operands = vec![x, cx.operands[1], updates];
        let y = self.add(op, &operands, [ty], vec![region])[0];
        self.convert(y, cx.result(0).element)
    }

    pub(super) fn select_and_scatter(
        &mut self,
        cx: Cx<'_>,
        kind: Extreme,
        window: &WindowAttributes,
    ) -> ValueId {
        let x = self.widened(Some(Reduction::Sum), cx.operands[0]);
        let source = self.widened(Some(Reduction::Sum), cx.operands[1]);
        let ty = self.ty(x).clone();
        let init = self.identity(Reduction::Sum, ty.element);
        let [a, b] = self.open_on_scalars([ty.element; 2]);
        let mut selected = self.compare(
            match kind {
                Extreme::Min => ComparisonDirection::Le,
                Extreme::Max => ComparisonDirection::Ge,
            },
            a,
            b,
        );
        if is_float(ty.element) {
            // NaN is more extreme than any number.
            let is_nan = self.compare(ComparisonDirection::Ne, a, a);
            selected = self.binary(BinaryOp::Or, selected, is_nan);
        }
        let select = self.close(&[selected]);
        let scatter = self.combine(Some(BinaryOp::Add), ty.element);
        let op = OpKind::SelectAndScatter(Box::new(window.clone()));
        let y = self.add(op, &[x, source, init], [ty], vec![select, scatter])[0];
        self.convert(y, cx.result(0).element)
    }

    /// An operand of a reduction: of sums and products of 16-bit floats, in `f32`. Accumulators of
    /// 16 bits lose what is small beside them: 256 + 1 is 256 in `bf16`.
    fn widened(&mut self, kind: Option<Reduction>, x: ValueId) -> ValueId {
        match kind {
            Some(Reduction::Sum | Reduction::Product) => self.in_full_precision(x),
            _ => x,
        }
    }

    /// `x`, in `f32` if it has floats of 16 bits.
    pub(super) fn in_full_precision(&mut self, x: ValueId) -> ValueId {
        match self.element(x) {
            ElementType::F16 | ElementType::Bf16 => self.convert(x, ElementType::F32),
            _ => x,
        }
    }

    /// The region that combines two elements; `None` returns the second.
    pub(super) fn combine(&mut self, op: Option<BinaryOp>, element: ElementType) -> Region {
        let [a, b] = self.open_on_scalars([element; 2]);
        let result = match op {
            None => b,
            Some(op) => self.binary(op, a, b),
        };
        self.close(&[result])
    }

    /// Reduces pairs of element and index. A NaN wins over numbers; among equal elements, and among
    /// NaNs, the first wins.
    pub(super) fn arg_reduce(&mut self, cx: Cx<'_>, kind: Extreme, dim: usize) -> ValueIds {
        let x = cx.operands[0];
        let element = self.element(x);
        let index = RankedType::new(ElementType::S32, &*self.ty(x).dims);
        let indices = self.one(OpKind::Iota { dim }, &[], index);
        let worst = match kind {
            Extreme::Min => Reduction::Min,
            Extreme::Max => Reduction::Max,
        };
        let worst = self.identity(worst, element);
        let zero = self.count(0);
        let elements = [element, ElementType::S32, element, ElementType::S32];
        let [a, i, b, j] = self.open_on_scalars(elements);
        let a_wins = self.first_wins(kind, [a, b], [i, j]);
        let winner = self.helper(OpKind::Select, &[a_wins, a, b], scalar(element));
        let at = self.helper(OpKind::Select, &[a_wins, i, j], scalar(ElementType::S32));
        let region = self.close(&[winner, at]);
        let reduce = OpKind::Reduce { dims: vec![dim] };
        let operands = vec![x, indices, worst, zero];
        self.add(reduce, &operands, cx.results(), vec![region])
    }

    /// Whether element `a` at index `i` wins over `b` at `j`.
    fn first_wins(&mut self, kind: Extreme, [a, b]: [ValueId; 2], [i, j]: [ValueId; 2]) -> ValueId {
        let direction = match kind {
            Extreme::Min => ComparisonDirection::Lt,
            Extreme::Max => ComparisonDirection::Gt,
        };
        let mut better = self.compare(direction, a, b);
        let mut equal = self.compare(ComparisonDirection::Eq, a, b);
        if is_float(self.element(a)) {
            let a_is_nan = self.compare(ComparisonDirection::Ne, a, a);
            let b_is_nan = self.compare(ComparisonDirection::Ne, b, b);
            let b_is_not = self.compare(ComparisonDirection::Eq, b, b);
            let only_a = self.binary(BinaryOp::And, a_is_nan, b_is_not);
            better = self.binary(BinaryOp::Or, better, only_a);
            let both = self.binary(BinaryOp::And, a_is_nan, b_is_nan);
            equal = self.binary(BinaryOp::Or, equal, both);
        }
        let earlier = self.compare(ComparisonDirection::Lt, i, j);
        let first = self.binary(BinaryOp::And, equal, earlier);
        self.binary(BinaryOp::Or, better, first)
    }

    pub(super) fn sort(
        &mut self,
        cx: Cx<'_>,
        dim: usize,
        descending: bool,
        by_bits: bool,
    ) -> ValueIds {
        let operands = cx.operands.iter();
        let elements: Vec<ElementType> = operands.map(|&value| self.element(value)).collect();
        let arguments = elements.iter().flat_map(|&element| [element; 2]);
        let arguments = self.open(arguments.map(scalar));
        let [a, b, ..] = arguments[..] else {
            unreachable!("a sort has an operand");
        };
        let direction = match descending {
            true => ComparisonDirection::Gt,
            false => ComparisonDirection::Lt,
        };
        let before = match by_bits && is_float(elements[0]) {
            true => self.compare_in(ComparisonOrder::TotalOrder, direction, a, b),
            false => self.comes_before(direction, a, b),
        };
        let region = self.close(&[before]);
        let sort = OpKind::Sort { dim, stable: true };
        self.add(sort, cx.operands, cx.results(), vec![region])
    }

    /// Whether element `a` comes before `b`. By value, not by bits: a NaN is larger than any number,
    /// whatever its sign, and -0 equals 0.
    fn comes_before(&mut self, direction: ComparisonDirection, a: ValueId, b: ValueId) -> ValueId {
        let before = self.compare(direction, a, b);
        if !is_float(self.element(a)) {
            return before;
        }
        let (larger, smaller) = match direction {
            ComparisonDirection::Gt => (a, b),
            _ => (b, a),
        };
        let is_number = self.compare(ComparisonDirection::Eq, smaller, smaller);
        let is_nan = self.compare(ComparisonDirection::Ne, larger, larger);
        let only_larger = self.binary(BinaryOp::And, is_number, is_nan);
        self.binary(BinaryOp::Or, before, only_larger)
    }
}

/// The operation that combines two elements.
pub(super) fn combiner(kind: Reduction) -> BinaryOp {
    match kind {
        Reduction::Sum => BinaryOp::Add,
        Reduction::Product => BinaryOp::Multiply,
        Reduction::Min => BinaryOp::Minimum,
        Reduction::Max => BinaryOp::Maximum,
        Reduction::And => BinaryOp::And,
        Reduction::Or => BinaryOp::Or,
    }
}

fn is_float(element: ElementType) -> bool {
    element.class() == ElementClass::Float
}
