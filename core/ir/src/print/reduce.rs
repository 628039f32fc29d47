//! Reductions, windows and sort: operations whose regions combine or compare elements.

use halite_core::{DType, TensorType};

use super::{
    Printer,
    ops::Cx,
    regions::{combiner, comparison},
    writer::Name,
};
use crate::{Extreme, Reduction, WindowAttributes};

impl Printer<'_> {
    pub(super) fn reduce(&mut self, cx: Cx<'_>, kind: Reduction, dims: &[usize]) -> u32 {
        let (x, ty) = self.widened(cx, Some(kind), 0);
        let scalar = TensorType::scalar(ty.dtype());
        let init = self.identity(cx, kind, scalar.dtype());
        let number = self.begin(cx);
        self.w.text("stablehlo.reduce(").name(x);
        self.w.text(" init: ").name(init);
        self.w.text(") applies stablehlo.").text(combiner(kind));
        self.w.text(" across dimensions = ").list(dims);
        let result = cx.result(0).with_dtype(ty.dtype());
        self.w.text(" : (").types(&[&ty, &scalar]);
        self.w.text(") -> ").ty(&result);
        self.end(cx);
        self.narrowed(cx, number, &result)
    }

    /// Operand `place` of a reduction with its type: of sums and products of 16-bit floats, in
    /// `f32`. Accumulators of 16 bits lose what is small beside them: 256 + 1 is 256 in `bf16`.
    pub(super) fn widened(
        &mut self,
        cx: Cx<'_>,
        kind: Option<Reduction>,
        place: usize,
    ) -> (Name, TensorType) {
        match kind {
            Some(Reduction::Sum | Reduction::Product) => self.in_full_precision(cx, place),
            _ => (cx.operands[place], cx.types[place].clone()),
        }
    }

    /// Operand `place` with its type, in `f32` if it has floats of 16 bits.
    pub(super) fn in_full_precision(&mut self, cx: Cx<'_>, place: usize) -> (Name, TensorType) {
        let (name, ty) = (cx.operands[place], cx.types[place]);
        if !matches!(ty.dtype(), DType::F16 | DType::Bf16) {
            return (name, ty.clone());
        }
        let wide = ty.with_dtype(DType::F32);
        (Name::Single(self.convert(cx, name, ty, &wide)), wide)
    }

    /// A result of type `ty` in the type that the node has.
    pub(super) fn narrowed(&mut self, cx: Cx<'_>, number: u32, ty: &TensorType) -> u32 {
        match ty == cx.result(0) {
            true => number,
            false => self.convert(cx, Name::Single(number), ty, cx.result(0)),
        }
    }

    fn convert(&mut self, cx: Cx<'_>, x: Name, from: &TensorType, to: &TensorType) -> u32 {
        let number = self.begin(cx);
        self.w.text("stablehlo.convert ").name(x);
        self.w.text(" : (").ty(from).text(") -> ").ty(to);
        self.end(cx);
        number
    }

    /// Reduces pairs of element and index. A NaN wins over numbers; among equal elements, and among
    /// NaNs, the first wins.
    pub(super) fn arg_reduce(&mut self, cx: Cx<'_>, kind: Extreme, dim: usize) -> u32 {
        let x = cx.types[0];
        let indices_type = x.with_dtype(DType::S32);
        let value = TensorType::scalar(x.dtype());
        let index = TensorType::scalar(DType::S32);
        let indices = self.begin_single();
        self.w.text("stablehlo.iota dim = ").number(dim);
        self.w.text(" : ").ty(&indices_type);
        self.end(cx);
        let worst = match kind {
            Extreme::Min => Reduction::Min,
            Extreme::Max => Reduction::Max,
        };
        let worst = self.identity(cx, worst, x.dtype());
        let zero = self.scalar(DType::S32, &[0; 4], cx.node.origin);

        let number = self.begin(cx);
        self.w.text("stablehlo.reduce(").name(cx.operands[0]);
        self.w.text(" init: ").name(worst);
        self.w.text("), (").name(indices);
        self.w.text(" init: ").name(zero);
        self.w.text(") across dimensions = ").list(&[dim]);
        self.w
            .text(" : (")
            .types(&[x, &indices_type, &value, &index]);
        self.w
            .text(") -> (")
            .types(&[cx.result(0), cx.result(1)])
            .text(")");
        let [a, b, i, j] = self.region_names();
        self.w.line().text(" reducer(");
        self.w.parameters(&[(a, &value), (b, &value)]).text(") (");
        self.w.parameters(&[(i, &index), (j, &index)]).text(") {");
        self.w.indent();
        let a_wins = self.first_wins(kind, &value, [a, b], [i, j]);
        let winner = self.select(a_wins, a, b, &value);
        let at = self.select(a_wins, i, j, &index);
        self.returns(&[winner, at], &[&value, &index]);
        self.w.outdent();
        self.w.line().text("}");
        self.end(cx);
        number
    }

    /// Prints whether element `a` at index `i` wins over `b` at `j`.
    fn first_wins(
        &mut self,
        kind: Extreme,
        ty: &TensorType,
        [a, b]: [Name; 2],
        [i, j]: [Name; 2],
    ) -> Name {
        let order = comparison(ty.dtype());
        let direction = match kind {
            Extreme::Min => "LT",
            Extreme::Max => "GT",
        };
        let mut better = self.compare(direction, a, b, ty, order);
        let mut equal = self.compare("EQ", a, b, ty, order);
        if ty.dtype().is_float() {
            let a_is_nan = self.compare("NE", a, a, ty, order);
            let b_is_nan = self.compare("NE", b, b, ty, order);
            let b_is_not = self.compare("EQ", b, b, ty, order);
            let only_a = self.elementwise("and", a_is_nan, b_is_not, "i1");
            better = self.elementwise("or", better, only_a, "i1");
            let both = self.elementwise("and", a_is_nan, b_is_nan, "i1");
            equal = self.elementwise("or", equal, both, "i1");
        }
        let index = TensorType::scalar(DType::S32);
        let earlier = self.compare("LT", i, j, &index, comparison(DType::S32));
        let first = self.elementwise("and", equal, earlier, "i1");
        self.elementwise("or", better, first, "i1")
    }

    pub(super) fn reduce_window(
        &mut self,
        cx: Cx<'_>,
        kind: Reduction,
        window: &WindowAttributes,
    ) -> u32 {
        let (x, ty) = self.widened(cx, Some(kind), 0);
        let scalar = TensorType::scalar(ty.dtype());
        let init = self.identity(cx, kind, scalar.dtype());
        let number = self.begin(cx);
        self.w.text("\"stablehlo.reduce_window\"(");
        self.w.names(&[x, init]);
        self.w
            .text(") <{base_dilations = ")
            .array(&window.base_dilations)
            .text(", ");
        self.padding(window);
        self.w
            .text(", window_dilations = ")
            .array(&window.window_dilations);
        self.w.text(", window_dimensions = ").array(&window.sizes);
        self.w.text(", window_strides = ").array(&window.strides);
        self.w.text("}> ({");
        self.combine(Some(kind), &scalar);
        let result = cx.result(0).with_dtype(ty.dtype());
        self.w.text("}) : (").types(&[&ty, &scalar]);
        self.w.text(") -> ").ty(&result);
        self.end(cx);
        self.narrowed(cx, number, &result)
    }

    pub(super) fn select_and_scatter(
        &mut self,
        cx: Cx<'_>,
        kind: Extreme,
        window: &WindowAttributes,
    ) -> u32 {
        let (x, ty) = self.widened(cx, Some(Reduction::Sum), 0);
        let (source, windows) = self.widened(cx, Some(Reduction::Sum), 1);
        let scalar = TensorType::scalar(ty.dtype());
        let init = self.identity(cx, Reduction::Sum, scalar.dtype());
        let number = self.begin(cx);
        self.w.text("\"stablehlo.select_and_scatter\"(");
        self.w.names(&[x, source, init]);
        self.w.text(") <{");
        self.padding(window);
        self.w.text(", window_dimensions = ").array(&window.sizes);
        self.w.text(", window_strides = ").array(&window.strides);
        self.w.text("}> ({");
        let [a, b] = self.block([&scalar, &scalar]);
        let direction = match kind {
            Extreme::Min => "LE",
            Extreme::Max => "GE",
        };
        let order = comparison(scalar.dtype());
        let mut selected = self.compare(direction, a, b, &scalar, order);
        if scalar.dtype().is_float() {
            // NaN is more extreme than any number.
            let is_nan = self.compare("NE", a, a, &scalar, order);
            selected = self.elementwise("or", selected, is_nan, "i1");
        }
        self.returns(&[selected], &[&TensorType::scalar(DType::Bool)]);
        self.w.outdent();
        self.w.line().text("}, {");
        self.combine(Some(Reduction::Sum), &scalar);
        self.w.text("}) : (").types(&[&ty, &windows, &scalar]);
        self.w.text(") -> ").ty(&ty);
        self.end(cx);
        self.narrowed(cx, number, &ty)
    }

    fn padding(&mut self, window: &WindowAttributes) {
        // Checked by inference: it is not negative.
        let rows: Vec<[usize; 2]> = (window.padding.iter())
            .map(|&(low, high)| [low as usize, high as usize])
            .collect();
        self.w
            .text("padding = ")
            .matrix(rows.iter().map(|row| &row[..]), 2);
    }

    pub(super) fn sort(&mut self, cx: Cx<'_>, dim: usize, descending: bool, by_bits: bool) -> u32 {
        let number = self.begin(cx);
        self.w.text("\"stablehlo.sort\"(").names(cx.operands);
        self.w.text(") <{dimension = ").number(dim);
        self.w.text(" : i64, is_stable = true}> ({");
        let scalars: Vec<TensorType> = cx
            .types
            .iter()
            .map(|ty| TensorType::scalar(ty.dtype()))
            .collect();
        let mut parameters = Vec::with_capacity(2 * scalars.len());
        for ty in &scalars {
            let [a, b] = self.region_names();
            parameters.extend([(a, ty), (b, ty)]);
        }
        self.w.indent();
        self.w.line().text("^bb0(");
        self.w.parameters(&parameters).text("):");
        let [(a, key), (b, _)] = parameters[..2] else {
            unreachable!("a sort has an operand");
        };
        let before = if by_bits && key.dtype().is_float() {
            let direction = if descending { "GT" } else { "LT" };
            self.compare(direction, a, b, key, "TOTALORDER")
        } else {
            self.comes_before(key, [a, b], descending)
        };
        self.returns(&[before], &[&TensorType::scalar(DType::Bool)]);
        self.w.outdent();
        self.w.line().text("}) : ");
        self.function_type(cx);
        self.end(cx);
        number
    }

    /// Prints whether element `a` comes before `b`. By value, not by bits: a NaN is larger than any
    /// number, whatever its sign, and -0 equals 0.
    fn comes_before(&mut self, ty: &TensorType, [a, b]: [Name; 2], descending: bool) -> Name {
        let order = comparison(ty.dtype());
        let direction = if descending { "GT" } else { "LT" };
        let before = self.compare(direction, a, b, ty, order);
        if !ty.dtype().is_float() {
            return before;
        }
        let (larger, smaller) = if descending { (a, b) } else { (b, a) };
        let is_number = self.compare("EQ", smaller, smaller, ty, order);
        let is_nan = self.compare("NE", larger, larger, ty, order);
        let only_larger = self.elementwise("and", is_number, is_nan, "i1");
        self.elementwise("or", before, only_larger, "i1")
    }
}
