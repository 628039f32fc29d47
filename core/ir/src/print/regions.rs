//! Loops, branches, and the small regions of other operations.

use halite_core::{DType, Result, TensorType};

use super::{Printer, constant::identity, ops::Cx, writer::Name};
use crate::{Graph, Reduction};

impl Printer<'_> {
    /// Prints the loop. Its parameters are the carried values; invariant ones are captured.
    pub(super) fn while_loop(
        &mut self,
        cx: Cx<'_>,
        carried: usize,
        condition: &Graph,
        body: &Graph,
    ) -> Result<u32> {
        let (initial, invariant) = cx.operands.split_at(carried);
        let state: Vec<Name> = initial
            .iter()
            .map(|_| Name::Region(self.w.fresh()))
            .collect();
        let number = self.while_head(&state, initial, &cx.types[..carried]);
        let inputs = [&state, invariant].concat();
        self.w.line().text(" cond {");
        self.region(condition, inputs.clone())?;
        self.w.line().text(" } do {");
        self.region(body, inputs)?;
        self.w.line().text(" }");
        self.end(cx);
        Ok(number)
    }

    /// Writes `%3:2 = stablehlo.while(%i1 = %0, %i2 = %1) : t, t`. Returns the number.
    pub(super) fn while_head(
        &mut self,
        state: &[Name],
        initial: &[Name],
        types: &[&TensorType],
    ) -> u32 {
        let number = self.w.fresh();
        self.w.line().results(number, initial.len());
        self.w.text("stablehlo.while(");
        for (i, (&inside, &outside)) in state.iter().zip(initial).enumerate() {
            self.w.comma(i).name(inside).text(" = ").name(outside);
        }
        self.w.text(") : ").types(types);
        number
    }

    pub(super) fn case(&mut self, cx: Cx<'_>, branches: &[Graph]) -> Result<u32> {
        let number = self.begin(cx);
        self.w.text("\"stablehlo.case\"(").name(cx.operands[0]);
        self.w.text(") (");
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

    fn region(&mut self, graph: &Graph, inputs: Vec<Name>) -> Result<()> {
        self.w.indent();
        let outputs = self.nodes(graph, &inputs)?;
        self.terminator("stablehlo.return", graph, graph.outputs(), &outputs);
        self.w.outdent();
        Ok(())
    }

    /// Prints the region that combines two elements, up to its closing brace; `None` returns the
    /// second.
    pub(super) fn combine(&mut self, kind: Option<Reduction>, scalar: &TensorType) {
        let [a, b] = self.block([scalar, scalar]);
        let result = match kind {
            None => b,
            Some(kind) => self.elementwise(combiner(kind), a, b, scalar.dtype().mlir_name()),
        };
        self.returns(&[result], &[scalar]);
        self.w.outdent();
        self.w.line();
    }

    /// Writes `^bb0(%i1: t, %i2: t):` and indents.
    pub(super) fn block<const N: usize>(&mut self, types: [&TensorType; N]) -> [Name; N] {
        let names: [Name; N] = self.region_names();
        let parameters: [_; N] = std::array::from_fn(|i| (names[i], types[i]));
        self.w.indent();
        self.w.line().text("^bb0(");
        self.w.parameters(&parameters).text("):");
        names
    }

    pub(super) fn region_names<const N: usize>(&mut self) -> [Name; N] {
        std::array::from_fn(|_| Name::Region(self.w.fresh()))
    }

    pub(super) fn returns(&mut self, names: &[Name], types: &[&TensorType]) {
        self.w.line().text("stablehlo.return ").names(names);
        self.w.text(" : ").types(types);
    }

    /// Starts the line of an operation with one result: `%3 = `. Returns its name.
    pub(super) fn begin_single(&mut self) -> Name {
        let number = self.w.fresh();
        self.w.line().results(number, 1);
        Name::Single(number)
    }

    /// Prints a binary operation on scalars of an element type in MLIR's notation.
    pub(super) fn elementwise(&mut self, op: &str, a: Name, b: Name, element: &str) -> Name {
        let result = self.begin_single();
        self.w.text("stablehlo.").text(op).text(" ");
        self.w.names(&[a, b]);
        self.w.text(" : tensor<").text(element).text(">");
        result
    }

    /// Prints a comparison of scalars of type `ty`, in an order that [`comparison`] names.
    pub(super) fn compare(
        &mut self,
        direction: &str,
        a: Name,
        b: Name,
        ty: &TensorType,
        order: &str,
    ) -> Name {
        let result = self.begin_single();
        self.w.text("stablehlo.compare ").text(direction);
        self.w.text(", ").names(&[a, b]);
        self.w.text(", ").text(order);
        self.w.text(" : (").types(&[ty, ty]);
        self.w.text(") -> ").ty(&ty.with_dtype(DType::Bool));
        result
    }

    pub(super) fn select(&mut self, predicate: Name, a: Name, b: Name, ty: &TensorType) -> Name {
        let result = self.begin_single();
        self.w.text("stablehlo.select ").names(&[predicate, a, b]);
        self.w.text(" : tensor<i1>, ").ty(ty);
        result
    }

    /// Prints the identity element of a reduction.
    pub(super) fn identity(&mut self, cx: Cx<'_>, kind: Reduction, dtype: DType) -> Name {
        let bytes = &identity(kind, dtype)[..dtype.size()];
        self.scalar(dtype, bytes, cx.node.origin)
    }
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
        _ => "FLOAT",
    }
}
