//! Operations with regions: reducers, comparators, loops and branches.

use halite_core::{DType, Result, TensorType};

use super::{Printer, constant::identity, ops::Cx, writer::Name};
use crate::{Extreme, Graph, Reduction, Window};

impl Printer<'_> {
    pub(super) fn reduce(&mut self, cx: Cx<'_>, kind: Reduction, dims: &[usize]) -> u32 {
        let dtype = cx.types[0].dtype();
        let init = self.identity(cx, kind, dtype);
        let number = self.begin(cx);
        self.w
            .text("stablehlo.reduce(")
            .name(cx.operands[0])
            .text(" init: ")
            .name(init)
            .text(") applies stablehlo.");
        self.w
            .text(combiner(kind))
            .text(" across dimensions = ")
            .list(dims)
            .text(" : (");
        self.w
            .ty(cx.types[0])
            .text(", ")
            .ty(&TensorType::scalar(dtype))
            .text(") -> ")
            .ty(cx.result(0));
        self.end(cx);
        number
    }

    /// Reduces pairs of element and index. A NaN wins over numbers; among equal elements, and among
    /// NaNs, the first wins.
    pub(super) fn arg_reduce(&mut self, cx: Cx<'_>, kind: Extreme, dim: usize) -> u32 {
        let x = cx.types[0];
        let dtype = x.dtype();
        let index = TensorType::scalar(DType::S32);
        let value = TensorType::scalar(dtype);
        let indices = self.w.fresh();
        self.w
            .line()
            .results(indices, 1)
            .text("stablehlo.iota dim = ")
            .number(dim)
            .text(" : ")
            .ty(&x.with_dtype(DType::S32));
        self.end(cx);
        let worst = match kind {
            Extreme::Min => Reduction::Min,
            Extreme::Max => Reduction::Max,
        };
        let worst = self.identity(cx, worst, dtype);
        let zero = self.scalar(DType::S32, &[0; 4], cx.node.origin);

        let number = self.begin(cx);
        self.w
            .text("stablehlo.reduce(")
            .name(cx.operands[0])
            .text(" init: ")
            .name(worst)
            .text("), (");
        self.w
            .name(Name::Single(indices))
            .text(" init: ")
            .name(zero)
            .text(") across dimensions = ")
            .list(&[dim]);
        self.w
            .text(" : (")
            .types(&[x, &x.with_dtype(DType::S32), &value, &index])
            .text(") -> (");
        self.w.types(&[cx.result(0), cx.result(1)]).text(")");
        let [a, b, i, j] = self.region_names();
        self.w
            .line()
            .text(" reducer(")
            .name(a)
            .text(": ")
            .ty(&value)
            .text(", ")
            .name(b)
            .text(": ")
            .ty(&value);
        self.w
            .text(") (")
            .name(i)
            .text(": ")
            .ty(&index)
            .text(", ")
            .name(j)
            .text(": ")
            .ty(&index)
            .text(") {");
        self.w.indent();
        let direction = match kind {
            Extreme::Min => "LT",
            Extreme::Max => "GT",
        };
        let mut better = self.compare(direction, a, b, &value, comparison(dtype));
        let mut equal = self.compare("EQ", a, b, &value, comparison(dtype));
        if dtype.is_float() {
            let a_is_nan = self.compare("NE", a, a, &value, "FLOAT");
            let b_is_nan = self.compare("NE", b, b, &value, "FLOAT");
            let b_is_not = self.compare("EQ", b, b, &value, "FLOAT");
            let only_a = self.elementwise("and", a_is_nan, b_is_not, "i1");
            better = self.elementwise("or", better, only_a, "i1");
            let both = self.elementwise("and", a_is_nan, b_is_nan, "i1");
            equal = self.elementwise("or", equal, both, "i1");
        }
        let earlier = self.compare("LT", i, j, &index, "SIGNED");
        let first = self.elementwise("and", equal, earlier, "i1");
        let a_wins = self.elementwise("or", better, first, "i1");
        let winner = self.select(a_wins, a, b, &value);
        let at = self.select(a_wins, i, j, &index);
        self.returns(&[winner, at], &[&value, &index]);
        self.w.outdent();
        self.w.line().text("}");
        self.end(cx);
        number
    }

    pub(super) fn reduce_window(&mut self, cx: Cx<'_>, kind: Reduction, window: &Window) -> u32 {
        let scalar = TensorType::scalar(cx.types[0].dtype());
        let init = self.identity(cx, kind, scalar.dtype());
        let number = self.begin(cx);
        self.w
            .text("\"stablehlo.reduce_window\"(")
            .name(cx.operands[0])
            .text(", ")
            .name(init)
            .text(") <{base_dilations = ");
        self.w.array(&window.base_dilations).text(", ");
        self.padding(window);
        self.w
            .text(", window_dilations = ")
            .array(&window.window_dilations)
            .text(", window_dimensions = ")
            .array(&window.sizes);
        self.w
            .text(", window_strides = ")
            .array(&window.strides)
            .text("}> ({");
        self.combine(Some(kind), &scalar);
        self.w
            .text("}) : (")
            .types(&[cx.types[0], &scalar])
            .text(") -> ")
            .ty(cx.result(0));
        self.end(cx);
        number
    }

    pub(super) fn select_and_scatter(&mut self, cx: Cx<'_>, kind: Extreme, window: &Window) -> u32 {
        let scalar = TensorType::scalar(cx.types[0].dtype());
        let init = self.identity(cx, Reduction::Sum, scalar.dtype());
        let number = self.begin(cx);
        self.w
            .text("\"stablehlo.select_and_scatter\"(")
            .names(cx.operands)
            .text(", ")
            .name(init)
            .text(") <{");
        self.padding(window);
        self.w
            .text(", window_dimensions = ")
            .array(&window.sizes)
            .text(", window_strides = ")
            .array(&window.strides);
        self.w.text("}> ({");
        let [a, b] = self.block([&scalar, &scalar]);
        let direction = match kind {
            Extreme::Min => "LE",
            Extreme::Max => "GE",
        };
        let selected = self.compare(direction, a, b, &scalar, comparison(scalar.dtype()));
        self.returns(&[selected], &[&TensorType::scalar(DType::Bool)]);
        self.w.outdent();
        self.w.line().text("}, {");
        self.combine(Some(Reduction::Sum), &scalar);
        self.w
            .text("}) : (")
            .types(&[cx.types[0], cx.types[1], &scalar])
            .text(") -> ")
            .ty(cx.result(0));
        self.end(cx);
        number
    }

    pub(super) fn sort(&mut self, cx: Cx<'_>, dim: usize, descending: bool) -> u32 {
        let number = self.begin(cx);
        self.w
            .text("\"stablehlo.sort\"(")
            .names(cx.operands)
            .text(") <{dimension = ")
            .number(dim);
        self.w.text(" : i64, is_stable = true}> ({");
        let scalars: Vec<TensorType> = cx
            .types
            .iter()
            .map(|ty| TensorType::scalar(ty.dtype()))
            .collect();
        let arguments: Vec<(Name, Name)> = scalars
            .iter()
            .map(|_| self.region_names())
            .map(|[a, b]| (a, b))
            .collect();
        self.w.indent();
        self.w.line().text("^bb0(");
        for (i, (&(a, b), ty)) in arguments.iter().zip(&scalars).enumerate() {
            self.w
                .comma(i)
                .name(a)
                .text(": ")
                .ty(ty)
                .text(", ")
                .name(b)
                .text(": ")
                .ty(ty);
        }
        self.w.text("):");
        let order = if scalars[0].dtype().is_float() {
            "TOTALORDER"
        } else {
            comparison(scalars[0].dtype())
        };
        let (a, b) = arguments[0];
        let before = self.compare(
            if descending { "GT" } else { "LT" },
            a,
            b,
            &scalars[0],
            order,
        );
        self.returns(&[before], &[&TensorType::scalar(DType::Bool)]);
        self.w.outdent();
        self.w.line().text("}) : ");
        self.function_type(cx);
        self.end(cx);
        number
    }

    /// Only carried values are arguments of the loop; the body captures invariant ones.
    pub(super) fn while_loop(
        &mut self,
        cx: Cx<'_>,
        carried: usize,
        condition: &Graph,
        body: &Graph,
    ) -> Result<u32> {
        let mut names: Vec<Name> = Vec::with_capacity(cx.operands.len());
        for _ in 0..carried {
            names.push(Name::Region(self.w.fresh()));
        }
        names.extend(&cx.operands[carried..]);
        let number = self.begin(cx);
        self.w.text("stablehlo.while(");
        for (i, (&inside, &outside)) in names.iter().zip(&cx.operands[..carried]).enumerate() {
            self.w.comma(i).name(inside).text(" = ").name(outside);
        }
        self.w.text(") : ").types(&cx.types[..carried]);
        self.w.line().text(" cond {");
        self.region(condition, names.clone())?;
        self.w.line().text(" } do {");
        self.region(body, names)?;
        self.w.line().text(" }");
        self.end(cx);
        Ok(number)
    }

    /// Prints a `while` over a counter, the carried values and the stacked results. Returns the
    /// names of the results.
    pub(super) fn scan(&mut self, cx: Cx<'_>, spec: ScanSpec, body: &Graph) -> Result<Vec<Name>> {
        let ScanSpec {
            carried,
            scanned,
            length,
            reverse,
        } = spec;
        let origin = cx.node.origin;
        let counter = TensorType::scalar(DType::S32);
        let count = |number: usize| i32::try_from(number).expect("as inferred").to_ne_bytes();
        let stacked: Vec<&TensorType> = (carried..cx.node.results.len())
            .map(|i| cx.result(i))
            .collect();
        let mut initial = cx.operands[..carried].to_vec();
        for ty in &stacked {
            let dtype = ty.dtype();
            let zero = self.scalar(
                dtype,
                &identity(Reduction::Sum, dtype)[..dtype.size()],
                origin,
            );
            let number = self.w.fresh();
            self.w
                .line()
                .results(number, 1)
                .text("stablehlo.broadcast_in_dim ")
                .name(zero)
                .text(", dims = [] : (");
            self.w.ty(&TensorType::scalar(dtype)).text(") -> ").ty(ty);
            self.end(cx);
            initial.push(Name::Single(number));
        }
        if length == 0 {
            return Ok(initial);
        }
        let first = self.scalar(DType::S32, &count(0), origin);
        initial.insert(0, first);
        let types: Vec<&TensorType> = [&counter]
            .into_iter()
            .chain(cx.types[..carried].iter().copied())
            .chain(stacked.iter().copied())
            .collect();
        let inside: Vec<Name> = initial
            .iter()
            .map(|_| Name::Region(self.w.fresh()))
            .collect();
        let number = self.w.fresh();
        self.w
            .line()
            .results(number, initial.len())
            .text("stablehlo.while(");
        for (i, (&inside, &outside)) in inside.iter().zip(&initial).enumerate() {
            self.w.comma(i).name(inside).text(" = ").name(outside);
        }
        self.w.text(") : ").types(&types);

        self.w.line().text(" cond {");
        self.w.indent();
        let end = self.scalar(DType::S32, &count(length), origin);
        let more = self.compare("LT", inside[0], end, &counter, comparison(DType::S32));
        self.returns(&[more], &[&TensorType::scalar(DType::Bool)]);
        self.w.outdent();

        self.w.line().text(" } do {");
        self.w.indent();
        let zero = self.scalar(DType::S32, &count(0), origin);
        let at = match reverse {
            false => inside[0],
            true => {
                let last = self.scalar(DType::S32, &count(length - 1), origin);
                self.elementwise("subtract", last, inside[0], "i32")
            }
        };
        let whole = cx.operands.len() - scanned;
        let mut inputs: Vec<Name> = inside[1..=carried]
            .iter()
            .chain(&cx.operands[carried..whole])
            .copied()
            .collect();
        for (&x, &ty) in cx.operands[whole..].iter().zip(&cx.types[whole..]) {
            inputs.push(self.slice_at(cx, x, ty, at, zero));
        }
        let outputs = self.nodes(body, inputs)?;
        let one = self.scalar(DType::S32, &count(1), origin);
        let mut next = vec![self.elementwise("add", inside[0], one, "i32")];
        next.extend(&outputs[..carried]);
        for ((&y, &so_far), ty) in outputs[carried..]
            .iter()
            .zip(&inside[1 + carried..])
            .zip(&stacked)
        {
            next.push(self.put_at(cx, so_far, y, ty, at, zero));
        }
        self.returns(&next, &types);
        self.w.outdent();
        self.w.line().text(" }");
        self.end(cx);
        Ok((1..initial.len())
            .map(|part| Name::Part(number, part as u32))
            .collect())
    }

    /// Prints the slice of `x: ty` at an index of its first dimension, without that dimension.
    fn slice_at(&mut self, cx: Cx<'_>, x: Name, ty: &TensorType, at: Name, zero: Name) -> Name {
        let row = TensorType::new(ty.dtype(), [&[1], &ty.dims()[1..]].concat());
        let slice = self.w.fresh();
        self.w
            .line()
            .results(slice, 1)
            .text("stablehlo.dynamic_slice ")
            .name(x)
            .text(", ")
            .names(&starts(ty, at, zero));
        self.w
            .text(", sizes = ")
            .list(row.dims())
            .text(" : (")
            .ty(ty);
        self.start_types(ty);
        self.w.text(") -> ").ty(&row);
        self.end(cx);
        self.reshaped(
            cx,
            Name::Single(slice),
            &row,
            &TensorType::new(ty.dtype(), &ty.dims()[1..]),
        )
    }

    /// Prints `x: ty` updated with `y` at an index of its first dimension.
    fn put_at(
        &mut self,
        cx: Cx<'_>,
        x: Name,
        y: Name,
        ty: &TensorType,
        at: Name,
        zero: Name,
    ) -> Name {
        let row = TensorType::new(ty.dtype(), [&[1], &ty.dims()[1..]].concat());
        let y = self.reshaped(cx, y, &TensorType::new(ty.dtype(), &ty.dims()[1..]), &row);
        let number = self.w.fresh();
        self.w
            .line()
            .results(number, 1)
            .text("stablehlo.dynamic_update_slice ")
            .names(&[x, y])
            .text(", ");
        self.w
            .names(&starts(ty, at, zero))
            .text(" : (")
            .types(&[ty, &row]);
        self.start_types(ty);
        self.w.text(") -> ").ty(ty);
        self.end(cx);
        Name::Single(number)
    }

    fn start_types(&mut self, ty: &TensorType) {
        for _ in ty.dims() {
            self.w.text(", ").ty(&TensorType::scalar(DType::S32));
        }
    }

    fn reshaped(&mut self, cx: Cx<'_>, x: Name, from: &TensorType, to: &TensorType) -> Name {
        let number = self.w.fresh();
        self.w
            .line()
            .results(number, 1)
            .text("stablehlo.reshape ")
            .name(x)
            .text(" : (")
            .ty(from)
            .text(") -> ")
            .ty(to);
        self.end(cx);
        Name::Single(number)
    }

    /// Prints a binary operation on scalars of this type.
    pub(super) fn elementwise(&mut self, op: &str, a: Name, b: Name, ty: &str) -> Name {
        let number = self.w.fresh();
        self.w
            .line()
            .results(number, 1)
            .text("stablehlo.")
            .text(op)
            .text(" ")
            .names(&[a, b]);
        self.w.text(" : tensor<").text(ty).text(">");
        Name::Single(number)
    }

    pub(super) fn case(&mut self, cx: Cx<'_>, branches: &[Graph]) -> Result<u32> {
        let number = self.begin(cx);
        self.w
            .text("\"stablehlo.case\"(")
            .name(cx.operands[0])
            .text(") (");
        for (i, branch) in branches.iter().enumerate() {
            self.w.comma(i).text("{");
            self.region(branch, cx.operands[1..].to_vec())?;
            self.w.line().text("}");
        }
        self.w.text(") : (").ty(cx.types[0]).text(") -> ");
        self.result_types(cx);
        self.end(cx);
        Ok(number)
    }

    /// Prints the region that combines two operands, between the braces; `None` returns the second.
    pub(super) fn combine(&mut self, kind: Option<Reduction>, scalar: &TensorType) {
        let [a, b] = self.block([scalar, scalar]);
        let result = match kind {
            None => b,
            Some(kind) => {
                let number = self.w.fresh();
                self.w
                    .line()
                    .results(number, 1)
                    .text("stablehlo.")
                    .text(combiner(kind))
                    .text(" ");
                self.w.names(&[a, b]).text(" : ").ty(scalar);
                Name::Single(number)
            }
        };
        self.returns(&[result], &[scalar]);
        self.w.outdent();
        self.w.line();
    }

    fn region(&mut self, graph: &Graph, inputs: Vec<Name>) -> Result<()> {
        self.w.indent();
        let outputs = self.nodes(graph, inputs)?;
        self.terminator("stablehlo.return", graph, &outputs);
        self.w.outdent();
        Ok(())
    }

    /// `^bb0(%i1: t, %i2: t):`, and one step in.
    fn block<const N: usize>(&mut self, types: [&TensorType; N]) -> [Name; N] {
        let names: [Name; N] = self.region_names();
        self.w.indent();
        self.w.line().text("^bb0(");
        for (i, (&name, ty)) in names.iter().zip(types).enumerate() {
            self.w.comma(i).name(name).text(": ").ty(ty);
        }
        self.w.text("):");
        names
    }

    fn region_names<const N: usize>(&mut self) -> [Name; N] {
        std::array::from_fn(|_| Name::Region(self.w.fresh()))
    }

    fn returns(&mut self, names: &[Name], types: &[&TensorType]) {
        self.w
            .line()
            .text("stablehlo.return ")
            .names(names)
            .text(" : ")
            .types(types);
    }

    fn compare(&mut self, direction: &str, a: Name, b: Name, ty: &TensorType, kind: &str) -> Name {
        let number = self.w.fresh();
        self.w
            .line()
            .results(number, 1)
            .text("stablehlo.compare ")
            .text(direction)
            .text(", ")
            .names(&[a, b])
            .text(", ");
        self.w
            .text(kind)
            .text(" : (")
            .types(&[ty, ty])
            .text(") -> ")
            .ty(&ty.with_dtype(DType::Bool));
        Name::Single(number)
    }

    fn select(&mut self, predicate: Name, a: Name, b: Name, ty: &TensorType) -> Name {
        let number = self.w.fresh();
        self.w
            .line()
            .results(number, 1)
            .text("stablehlo.select ")
            .names(&[predicate, a, b])
            .text(" : tensor<i1>, ")
            .ty(ty);
        Name::Single(number)
    }

    fn identity(&mut self, cx: Cx<'_>, kind: Reduction, dtype: DType) -> Name {
        self.scalar(
            dtype,
            &identity(kind, dtype)[..dtype.size()],
            cx.node.origin,
        )
    }

    fn padding(&mut self, window: &Window) {
        let rows: Vec<[usize; 2]> = window
            .padding
            .iter()
            .map(|&(low, high)| [low, high])
            .collect();
        self.w
            .text("padding = ")
            .matrix(rows.iter().map(|row| &row[..]), 2);
    }
}

/// Attributes of [`Op::Scan`](crate::Op::Scan) without the body.
#[derive(Clone, Copy)]
pub(super) struct ScanSpec {
    pub(super) carried: usize,
    pub(super) scanned: usize,
    pub(super) length: usize,
    pub(super) reverse: bool,
}

/// The starts of a slice along the first dimension of `ty`.
fn starts(ty: &TensorType, at: Name, zero: Name) -> Vec<Name> {
    (0..ty.rank())
        .map(|dim| if dim == 0 { at } else { zero })
        .collect()
}

/// The operation that combines two elements.
pub(super) const fn combiner(kind: Reduction) -> &'static str {
    match kind {
        Reduction::Sum => "add",
        Reduction::Product => "multiply",
        Reduction::Min => "minimum",
        Reduction::Max => "maximum",
        Reduction::And => "and",
        Reduction::Or => "or",
    }
}

/// Comparison type of an element type.
pub(super) const fn comparison(dtype: DType) -> &'static str {
    match dtype {
        DType::S8 | DType::S16 | DType::S32 | DType::S64 => "SIGNED",
        DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => "UNSIGNED",
        DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => "FLOAT",
    }
}
