//! Loops and branches. A `scan` is a `while` over a counter, the carried values and the stacked
//! results.

use halite_core::Result;
use halite_stablehlo::{BinaryOp, ComparisonDirection, OpKind, RankedType, ValueId, ValueIds};

use super::{Builder, Cx};
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
    index: ValueId,
    /// The index in all other dimensions.
    zero: ValueId,
}

impl Builder<'_> {
    /// The parameters of the loop are the carried values; invariant ones are captured.
    pub(super) fn while_loop(
        &mut self,
        cx: Cx<'_>,
        carried: usize,
        condition: &Graph,
        body: &Graph,
    ) -> Result<ValueIds> {
        let (initial, invariant) = cx.operands.split_at(carried);
        let types = self.types_of(initial);
        let mut regions = Vec::with_capacity(2);
        for graph in [condition, body] {
            let mut inputs = self.open(types.iter().cloned());
            inputs.extend(invariant);
            let outputs = self.nodes(graph, &inputs)?;
            regions.push(self.close(&outputs));
        }
        Ok(self.add(OpKind::While, initial, types, regions))
    }

    /// Branches capture their inputs.
    pub(super) fn case(&mut self, cx: Cx<'_>, branches: &[Graph]) -> Result<ValueIds> {
        let mut regions = Vec::with_capacity(branches.len());
        for branch in branches {
            self.open([]);
            let outputs = self.nodes(branch, &cx.operands[1..])?;
            regions.push(self.close(&outputs));
        }
        Ok(self.add(OpKind::Case, &cx.operands[..1], cx.results(), regions))
    }

    pub(super) fn scan(&mut self, cx: Cx<'_>, scan: Scan<'_>) -> Result<ValueIds> {
        let mut initial = cx.operands[..scan.carried].to_vec();
        for i in scan.carried..cx.node.results.len() {
            initial.push(self.zeros(cx.result(i)));
        }
        if scan.length == 0 {
            return Ok(initial.into());
        }
        initial.insert(0, self.count(0));
        let types = self.types_of(&initial);
        let state = self.open(types.iter().cloned());
        let end = self.count(scan.length);
        let more = self.compare(ComparisonDirection::Lt, state[0], end);
        let condition = self.close(&[more]);
        let state = self.open(types.iter().cloned());
        let next = self.iteration(cx, scan, &state)?;
        let body = self.close(&next);
        let mut results = self.add(OpKind::While, &initial, types, vec![condition, body]);
        results.remove(0);
        Ok(results)
    }

    /// One iteration on `state`: the counter, the carried values and the stacked results. Returns
    /// the next state.
    fn iteration(&mut self, cx: Cx<'_>, scan: Scan<'_>, state: &[ValueId]) -> Result<ValueIds> {
        let counter = state[0];
        let (carried, stacked) = state[1..].split_at(scan.carried);
        let zero = self.count(0);
        let index = match scan.reverse {
            false => counter,
            true => {
                let last = self.count(scan.length - 1);
                self.binary(BinaryOp::Subtract, last, counter)
            }
        };
        let row = Row { index, zero };
        let (unscanned, scanned) = cx.operands.split_at(cx.operands.len() - scan.scanned);
        let mut inputs = [carried, &unscanned[scan.carried..]].concat();
        for &x in scanned {
            inputs.push(self.read_row(x, row));
        }
        let outputs = self.nodes(scan.body, &inputs)?;
        let (carried, rows) = outputs.split_at(scan.carried);
        let one = self.count(1);
        let mut next = vec![self.binary(BinaryOp::Add, counter, one)];
        next.extend(carried);
        for (&y, &so_far) in rows.iter().zip(stacked) {
            next.push(self.write_row(so_far, y, row));
        }
        Ok(next.into())
    }

    /// The row of `x`, without its first dimension.
    fn read_row(&mut self, x: ValueId, row: Row) -> ValueId {
        let slice = self.slice_type(x);
        let operands = [vec![x], self.starts(x, row)].concat();
        let sizes = slice.dims.clone();
        let row = RankedType::new(slice.element, &slice.dims[1..]);
        let slice = self.one(OpKind::DynamicSlice { sizes }, &operands, slice);
        self.one(OpKind::Reshape, &[slice], row)
    }

    /// `x` with its row replaced by `y`.
    fn write_row(&mut self, x: ValueId, y: ValueId, row: Row) -> ValueId {
        let slice = self.slice_type(x);
        let y = self.one(OpKind::Reshape, &[y], slice);
        let operands = [vec![x, y], self.starts(x, row)].concat();
        let ty = self.ty(x).clone();
        self.one(OpKind::DynamicUpdateSlice, &operands, ty)
    }

    /// Type of a row of `x` as a slice: its first dimension is 1.
    fn slice_type(&self, x: ValueId) -> RankedType {
        let mut ty = self.ty(x).clone();
        ty.dims[0] = 1;
        ty
    }

    /// Start indices of the row in `x`.
    fn starts(&self, x: ValueId, row: Row) -> Vec<ValueId> {
        let mut starts = vec![row.zero; self.ty(x).rank()];
        starts[0] = row.index;
        starts
    }

    fn zeros(&mut self, ty: RankedType) -> ValueId {
        let zero = self.identity(Reduction::Sum, ty.element);
        let mapping = Vec::new();
        self.one(OpKind::BroadcastInDim { mapping }, &[zero], ty)
    }

    fn types_of(&self, values: &[ValueId]) -> Vec<RankedType> {
        values.iter().map(|&value| self.ty(value).clone()).collect()
    }
}
