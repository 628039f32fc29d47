//! The arrangement of the slices of gathers and scatters, and the order in which they are visited.

use halite_stablehlo::{GatherAttributes, RankedType, ScatterAttributes};

use super::Indices;

/// The arrangement of slices, and of the elements in them.
#[derive(Debug)]
pub(in super::super::super) struct Slices {
    /// Elements that are neighbors in the operand and in the slices.
    pub(super) run: usize,
    /// Dimensions of the tensor of slices, without those of runs, outermost first.
    dims: Vec<Dim>,
    /// Along dimensions of the operand: how far each component of an index vector moves the slice.
    components: Vec<Component>,
    /// Distance of the components of an index vector.
    component_stride: usize,
    /// Whether a slice is nowhere inside.
    is_outside: bool,
}

/// A dimension of the tensor of slices.
#[derive(Clone, Copy, Debug)]
struct Dim {
    size: usize,
    step: Position,
}

/// Where an element is: in the indices, the slices and the operand.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    index: usize,
    slice: usize,
    operand: usize,
}

#[derive(Clone, Copy, Debug)]
struct Component {
    stride: usize,
    /// The last position at which the slice is inside.
    last: usize,
}

/// The parts of the attributes of gathers and scatters that have the same meaning.
struct Numbers<'a> {
    offset_dims: &'a [usize],
    collapsed: &'a [usize],
    batching: &'a [usize],
    indices_batching: &'a [usize],
    index_map: &'a [usize],
    vector: usize,
}

impl Slices {
    pub(in super::super::super) fn of_gather(
        attributes: &GatherAttributes,
        x: &RankedType,
        indices: &RankedType,
        slices: &RankedType,
    ) -> Self {
        let numbers = Numbers {
            offset_dims: &attributes.offset_dims,
            collapsed: &attributes.collapsed_slice_dims,
            batching: &attributes.operand_batching_dims,
            indices_batching: &attributes.start_indices_batching_dims,
            index_map: &attributes.start_index_map,
            vector: attributes.index_vector_dim,
        };
        Slices::new(&numbers, &x.dims, &indices.dims, &slices.dims)
    }

    pub(in super::super::super) fn of_scatter(
        attributes: &ScatterAttributes,
        x: &RankedType,
        indices: &RankedType,
        slices: &RankedType,
    ) -> Self {
        let numbers = Numbers {
            offset_dims: &attributes.update_window_dims,
            collapsed: &attributes.inserted_window_dims,
            batching: &attributes.input_batching_dims,
            indices_batching: &attributes.scatter_indices_batching_dims,
            index_map: &attributes.scatter_dims_to_operand_dims,
            vector: attributes.index_vector_dim,
        };
        Slices::new(&numbers, &x.dims, &indices.dims, &slices.dims)
    }

    fn new(numbers: &Numbers<'_>, x: &[usize], indices: &[usize], slices: &[usize]) -> Self {
        let (of_x, of_indices, of_slices) = (strides(x), strides(indices), strides(slices));
        let mut dims: Vec<Dim> = (slices.iter().zip(&of_slices))
            .map(|(&size, &slice)| Dim {
                size,
                step: Position {
                    slice,
                    ..Position::default()
                },
            })
            .collect();
        let mut sizes = vec![1; x.len()];
        let is_absent =
            |dim: &usize| numbers.collapsed.contains(dim) || numbers.batching.contains(dim);
        let within = (0..x.len()).filter(|dim| !is_absent(dim));
        for (dim, &at) in within.zip(numbers.offset_dims) {
            dims[at].step.operand = of_x[dim];
            sizes[dim] = slices[at];
        }
        let batch = (0..slices.len()).filter(|dim| !numbers.offset_dims.contains(dim));
        let of_batch = (0..indices.len()).filter(|&dim| dim != numbers.vector);
        for (at, from) in batch.zip(of_batch) {
            dims[at].step.index = of_indices[from];
            let paired = numbers.indices_batching.iter().position(|&it| it == from);
            if let Some(paired) = paired {
                dims[at].step.operand = of_x[numbers.batching[paired]];
            }
        }
        let component = |&dim: &usize| Component {
            stride: of_x[dim],
            last: x[dim].saturating_sub(sizes[dim]),
        };
        let mut result = Slices {
            run: 1,
            dims,
            components: numbers.index_map.iter().map(component).collect(),
            component_stride: of_indices.get(numbers.vector).copied().unwrap_or(0),
            is_outside: x.iter().zip(&sizes).any(|(all, part)| part > all),
        };
        result.find_runs();
        result
    }

    /// Takes the innermost dimensions whose elements are neighbors.
    fn find_runs(&mut self) {
        while let Some(&Dim { size, step }) = self.dims.last() {
            let is_neighbor = step.operand == self.run && step.slice == self.run && step.index == 0;
            if size != 1 && !is_neighbor {
                break;
            }
            self.run *= size;
            self.dims.pop();
        }
        self.dims.retain(|dim| dim.size != 1);
    }

    /// Calls `each` with the position in the operand and in the slices of each run, in the order of
    /// the slices; those outside are moved inside or else skipped.
    pub(super) fn runs<const MOVED: bool>(
        &self,
        indices: &Indices<'_>,
        each: impl FnMut(usize, usize),
    ) {
        let is_empty = self.run == 0 || self.dims.iter().any(|dim| dim.size == 0);
        if is_empty || self.is_outside && !MOVED {
            return;
        }
        match indices {
            Indices::S32(indices) => {
                self.runs_at::<MOVED>(|at| i32::from_le_bytes(indices[at]).into(), each);
            }
            Indices::Decoded(indices) => self.runs_at::<MOVED>(|at| indices[at], each),
        }
    }

    fn runs_at<const MOVED: bool>(
        &self,
        index: impl Fn(usize) -> i64,
        each: impl FnMut(usize, usize),
    ) {
        // Loops of known length for the usual numbers of components.
        match self.components[..] {
            [one] => self.runs_by::<MOVED>([one], index, each),
            [one, two] => self.runs_by::<MOVED>([one, two], index, each),
            _ => self.runs_by::<MOVED>(self.components.clone(), index, each),
        }
    }

    fn runs_by<const MOVED: bool>(
        &self,
        components: impl AsRef<[Component]>,
        index: impl Fn(usize) -> i64,
        mut each: impl FnMut(usize, usize),
    ) {
        let visit = |at: Position| {
            let mut operand = at.operand;
            for (number, component) in components.as_ref().iter().enumerate() {
                let start = index(at.index + number * self.component_stride);
                // Without a branch: what is outside is at random positions.
                let inside = (start.max(0) as usize).min(component.last);
                if !MOVED && start != inside as i64 {
                    return;
                }
                operand += inside * component.stride;
            }
            each(operand, at.slice);
        };
        for_each(&self.dims, visit);
    }
}

/// Calls `visit` with all positions, in row-major order.
fn for_each(dims: &[Dim], mut visit: impl FnMut(Position)) {
    let Some((last, outer)) = dims.split_last() else {
        return visit(Position::default());
    };
    let mut index = vec![0; outer.len()];
    let mut first = Position::default();
    loop {
        let mut at = first;
        for _ in 0..last.size {
            visit(at);
            at.index += last.step.index;
            at.slice += last.step.slice;
            at.operand += last.step.operand;
        }
        let next = (0..outer.len()).rev().find(|&dim| {
            let Dim { size, step } = outer[dim];
            index[dim] += 1;
            let is_within = index[dim] < size;
            let back = if is_within { 0 } else { index[dim] };
            first.index = first.index + step.index - back * step.index;
            first.slice = first.slice + step.slice - back * step.slice;
            first.operand = first.operand + step.operand - back * step.operand;
            index[dim] -= back;
            is_within
        });
        if next.is_none() {
            return;
        }
    }
}

fn strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for dim in (1..dims.len()).rev() {
        strides[dim - 1] = strides[dim] * dims[dim];
    }
    strides
}
