//! Scatters that set. XLA writes the updates in parallel, so that of those with equal indices any
//! may win, and another one in each run.

use halite_core::{DType, TensorType};

use super::Append;
use crate::{
    BinaryOp, ComparisonDirection, GatherAttributes, Graph, Op, Reduction, ScatterAttributes,
    Value, passes::faults::rewritten,
};

/// Lets the last update win: a maximum of the updates' numbers finds it.
pub(super) fn without(graph: Graph) -> Graph {
    rewritten(graph, &|graph, node| {
        let Op::Scatter(scatter, combine) = &mut node.op else {
            return None;
        };
        let operands = [0, 1, 2].map(|operand| node.operands[operand]);
        let append = &mut Append {
            graph,
            origin: node.origin,
        };
        if combine.is_some() || scatter.unique_indices {
            return None;
        }
        let updates = Updates::new(append, scatter, operands);
        if updates.batch.iter().product::<usize>() < 2 || append.ty(operands[0]).elements() == 0 {
            return None;
        }
        if !updates.overlap_whole {
            return Some(updates.last(append));
        }
        node.operands[1] = updates.last_indices(append);
        scatter.unique_indices = true;
        None
    })
}

/// The updates of a scatter.
struct Updates {
    scatter: ScatterAttributes,
    x: Value,
    indices: Value,
    updates: Value,
    /// Dimensions of the updates that are not windows.
    batch: Vec<usize>,
    /// Two windows are in the same places or in no common one, and an index can be out of range.
    overlap_whole: bool,
}

impl Updates {
    fn new(
        append: &Append<'_>,
        scatter: &ScatterAttributes,
        [x, indices, updates]: [Value; 3],
    ) -> Self {
        let dims = append.ty(updates).dims().to_vec();
        let is_window = |dim: &usize| scatter.update_window_dims.contains(dim);
        let moved = &scatter.scatter_dims_to_operand_dims;
        let mut windows = scatter.update_window_dims.iter().map(|&dim| dims[dim]);
        let overlap_whole = (0..append.ty(x).rank())
            .filter(|&dim| is_kept(scatter, dim))
            .all(|dim| windows.next() == Some(1) || !moved.contains(&dim));
        let batch = (0..dims.len()).filter(|dim| !is_window(dim));
        Updates {
            scatter: scatter.clone(),
            x,
            indices,
            updates,
            batch: batch.map(|dim| dims[dim]).collect(),
            overlap_whole: overlap_whole && !moved.is_empty(),
        }
    }

    /// For each place, 1 + the number of its last update; 0 if it has none. `places` and `numbers`
    /// are the dimensions of the result and of the updates.
    fn numbered(&self, append: &mut Append<'_>, places: &[usize], numbers: &[usize]) -> [Value; 2] {
        let count = numbers.iter().product::<usize>();
        let dtype = match u32::try_from(count) {
            Ok(_) => DType::U32,
            Err(_) => DType::U64,
        };
        let flat = TensorType::new(dtype, [count]);
        let iota = Op::Iota {
            ty: flat.clone(),
            dim: 0,
        };
        let counted = append.push(iota, &[]);
        let one = append.integer(1, &flat);
        let counted = append.push(Op::Binary(BinaryOp::Add), &[counted, one]);
        let counted = append.reshape(counted, numbers.to_vec());
        let none = append.integer(0, &flat.with_dims(places));
        let last = append.push(
            Op::Scatter(self.scatter.clone(), Some(Reduction::Max)),
            &[none, self.indices, counted],
        );
        [last, counted]
    }

    /// The indices, of which those of all but the last update of a place are out of range.
    fn last_indices(&self, append: &mut Append<'_>) -> Value {
        let scatter = &self.scatter;
        // Along dimensions that no index moves, all windows are in the same places.
        let is_same = |dim: usize| {
            is_kept(scatter, dim) && !scatter.scatter_dims_to_operand_dims.contains(&dim)
        };
        let mut places = append.ty(self.x).dims().to_vec();
        for (dim, size) in places.iter_mut().enumerate() {
            *size = if is_same(dim) { 1 } else { *size };
        }
        let mut numbers = append.ty(self.updates).dims().to_vec();
        for &dim in &scatter.update_window_dims {
            numbers[dim] = 1;
        }
        let [last, counted] = self.numbered(append, &places, &numbers);
        let gather = GatherAttributes {
            offset_dims: scatter.update_window_dims.clone(),
            collapsed_slice_dims: scatter.inserted_window_dims.clone(),
            operand_batching_dims: scatter.input_batching_dims.clone(),
            start_indices_batching_dims: scatter.scatter_indices_batching_dims.clone(),
            start_index_map: scatter.scatter_dims_to_operand_dims.clone(),
            index_vector_dim: scatter.index_vector_dim,
            slice_sizes: vec![1; places.len()],
            indices_are_sorted: false,
        };
        let last = append.push(Op::Gather(gather), &[last, self.indices]);
        let is_last = append.push(Op::Compare(ComparisonDirection::Eq), &[last, counted]);
        let is_last = append.reshape(is_last, self.batch.clone());

        let ty = append.ty(self.indices);
        let wide = ty.with_dtype(match ty.dtype() {
            DType::U32 | DType::U64 | DType::S64 => DType::S64,
            _ => DType::S32,
        });
        let mapping = (0..ty.rank()).filter(|&dim| dim != scatter.index_vector_dim);
        let broadcast = Op::Broadcast {
            dims: ty.dims().to_vec(),
            mapping: mapping.collect(),
        };
        let is_last = append.push(broadcast, &[is_last]);
        let indices = append.push(Op::Convert(wide.dtype()), &[self.indices]);
        let nowhere = append.integer(-1, &wide);
        append.push(Op::Select, &[is_last, indices, nowhere])
    }

    /// The result of the scatter, where windows overlap in parts: each element reads its last
    /// update.
    fn last(&self, append: &mut Append<'_>) -> Value {
        let (x, updates) = (append.ty(self.x), append.ty(self.updates));
        let [last, _] = self.numbered(append, x.dims(), updates.dims());
        let ty = append.ty(last);
        let [zero, one] = [0, 1].map(|value| append.integer(value, &ty));
        let is_written = append.push(Op::Compare(ComparisonDirection::Ne), &[last, zero]);
        let number = append.push(Op::Binary(BinaryOp::Subtract), &[last, one]);
        let flat = append.reshape(self.updates, vec![updates.elements()]);
        let gather = GatherAttributes {
            offset_dims: vec![],
            collapsed_slice_dims: vec![0],
            operand_batching_dims: vec![],
            start_indices_batching_dims: vec![],
            start_index_map: vec![0],
            index_vector_dim: x.rank(),
            slice_sizes: vec![1],
            indices_are_sorted: false,
        };
        let update = append.push(Op::Gather(gather), &[flat, number]);
        append.push(Op::Select, &[is_written, update, self.x])
    }
}

/// Whether windows have this dimension of the operand.
fn is_kept(scatter: &ScatterAttributes, dim: usize) -> bool {
    !scatter.inserted_window_dims.contains(&dim) && !scatter.input_batching_dims.contains(&dim)
}
