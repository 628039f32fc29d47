//! `scan` as a StableHLO `while` over a counter, the carried values and the stacked results.

use std::iter;

use halite_core::{DType, Result, TensorType};

use super::{Printer, ops::Cx, regions::comparison, writer::Name};
use crate::{Graph, Reduction};

/// Attributes of [`Op::Scan`](crate::Op::Scan).
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    pub(super) carried: usize,
    pub(super) scanned: usize,
    pub(super) length: usize,
    pub(super) reverse: bool,
    pub(super) body: &'a Graph,
}

/// Index of an iteration's row in the first dimension of scanned and stacked values.
#[derive(Clone, Copy)]
struct Row {
    index: Name,
    /// The index in all other dimensions.
    zero: Name,
}

impl Row {
    /// Start indices of the row in a value of type `ty`.
    fn starts(self, ty: &TensorType) -> Vec<Name> {
        (0..ty.rank())
            .map(|dim| if dim == 0 { self.index } else { self.zero })
            .collect()
    }
}

/// Type of a row of `ty` as a slice: its first dimension is 1.
fn slice_type(ty: &TensorType) -> TensorType {
    ty.with_dims([&[1], &ty.dims()[1..]].concat())
}

/// Type of a row of `ty` in the body: without the first dimension.
fn row_type(ty: &TensorType) -> TensorType {
    ty.with_dims(&ty.dims()[1..])
}

impl Printer<'_> {
    /// Prints the loop. Returns the names of the results.
    pub(super) fn scan(&mut self, cx: Cx<'_>, scan: Scan<'_>) -> Result<Vec<Name>> {
        let stacked: Vec<&TensorType> = (scan.carried..cx.node.results.len())
            .map(|i| cx.result(i))
            .collect();
        let mut initial = cx.operands[..scan.carried].to_vec();
        for ty in &stacked {
            initial.push(self.zeros(cx, ty));
        }
        if scan.length == 0 {
            return Ok(initial);
        }
        initial.insert(0, self.count(cx, 0));
        let counter = TensorType::scalar(DType::S32);
        let types: Vec<&TensorType> = iter::once(&counter)
            .chain(cx.types[..scan.carried].iter().copied())
            .chain(stacked)
            .collect();
        let state: Vec<Name> = initial
            .iter()
            .map(|_| Name::Region(self.w.fresh()))
            .collect();
        let number = self.while_head(&state, &initial, &types);
        self.w.line().text(" cond {");
        self.w.indent();
        let end = self.count(cx, scan.length);
        let more = self.compare("LT", state[0], end, &counter, comparison(DType::S32));
        self.returns(&[more], &[&TensorType::scalar(DType::Bool)]);
        self.w.outdent();
        self.w.line().text(" } do {");
        self.w.indent();
        let next = self.iteration(cx, scan, &state, &types)?;
        self.returns(&next, &types);
        self.w.outdent();
        self.w.line().text(" }");
        self.end(cx);
        Ok((1..initial.len())
            .map(|part| Name::Part(number, part as u32))
            .collect())
    }

    /// Prints one iteration on `state`: the counter, the carried values and the stacked results.
    /// Returns the next state.
    fn iteration(
        &mut self,
        cx: Cx<'_>,
        scan: Scan<'_>,
        state: &[Name],
        types: &[&TensorType],
    ) -> Result<Vec<Name>> {
        let counter = state[0];
        let (carried, stacked) = state[1..].split_at(scan.carried);
        let zero = self.count(cx, 0);
        let index = match scan.reverse {
            false => counter,
            true => {
                let last = self.count(cx, scan.length - 1);
                self.elementwise("subtract", last, counter, "i32")
            }
        };
        let row = Row { index, zero };
        let (unscanned, scanned) = cx.operands.split_at(cx.operands.len() - scan.scanned);
        let mut inputs = [carried, &unscanned[scan.carried..]].concat();
        for (&x, &ty) in scanned.iter().zip(&cx.types[unscanned.len()..]) {
            inputs.push(self.read_row(cx, x, ty, row));
        }
        let outputs = self.nodes(scan.body, &inputs)?;
        let (carried, rows) = outputs.split_at(scan.carried);
        let one = self.count(cx, 1);
        let mut next = vec![self.elementwise("add", counter, one, "i32")];
        next.extend(carried);
        let types = &types[1 + scan.carried..];
        for ((&y, &so_far), ty) in rows.iter().zip(stacked).zip(types) {
            next.push(self.write_row(cx, so_far, y, ty, row));
        }
        Ok(next)
    }

    /// Prints the row of `x: ty`, without its first dimension.
    fn read_row(&mut self, cx: Cx<'_>, x: Name, ty: &TensorType, row: Row) -> Name {
        let slice_type = slice_type(ty);
        let slice = self.begin_single();
        self.w.text("stablehlo.dynamic_slice ").name(x);
        self.w.text(", ").names(&row.starts(ty));
        self.w.text(", sizes = ").list(slice_type.dims());
        self.w.text(" : (").ty(ty);
        self.start_types(ty);
        self.w.text(") -> ").ty(&slice_type);
        self.end(cx);
        self.reshaped(cx, slice, &slice_type, &row_type(ty))
    }

    /// Prints `x: ty` with its row replaced by `y`.
    fn write_row(&mut self, cx: Cx<'_>, x: Name, y: Name, ty: &TensorType, row: Row) -> Name {
        let slice_type = slice_type(ty);
        let y = self.reshaped(cx, y, &row_type(ty), &slice_type);
        let updated = self.begin_single();
        self.w
            .text("stablehlo.dynamic_update_slice ")
            .names(&[x, y]);
        self.w.text(", ").names(&row.starts(ty));
        self.w.text(" : (").types(&[ty, &slice_type]);
        self.start_types(ty);
        self.w.text(") -> ").ty(ty);
        self.end(cx);
        updated
    }

    fn start_types(&mut self, ty: &TensorType) {
        for _ in ty.dims() {
            self.w.text(", ").ty(&TensorType::scalar(DType::S32));
        }
    }

    fn reshaped(&mut self, cx: Cx<'_>, x: Name, from: &TensorType, to: &TensorType) -> Name {
        let reshaped = self.begin_single();
        self.w.text("stablehlo.reshape ").name(x);
        self.w.text(" : (").ty(from).text(") -> ").ty(to);
        self.end(cx);
        reshaped
    }

    fn zeros(&mut self, cx: Cx<'_>, ty: &TensorType) -> Name {
        let zero = self.identity(cx, Reduction::Sum, ty.dtype());
        let zeros = self.begin_single();
        self.w.text("stablehlo.broadcast_in_dim ").name(zero);
        self.w
            .text(", dims = [] : (")
            .ty(&TensorType::scalar(ty.dtype()));
        self.w.text(") -> ").ty(ty);
        self.end(cx);
        zeros
    }

    fn count(&mut self, cx: Cx<'_>, number: usize) -> Name {
        let number = i32::try_from(number).expect("infer limits trip counts to s32");
        self.scalar(DType::S32, &number.to_ne_bytes(), cx.node.origin)
    }
}
