//! Slices of a tensor at positions that a program computes: `gather` and `scatter`.

use halite_core::Result;
use halite_stablehlo::{GatherAttributes, RankedType, ScatterAttributes};

use super::{Call, Direct, accumulator::Accumulator};
use crate::{
    fast::scalar::{Format, Function, LANES, extended, load},
    oracle::allocate,
};

/// Slices of operand 0 at the positions of operand 1, moved to be inside.
#[derive(Debug)]
pub(in super::super) struct Gather(pub(in super::super) Slices);

/// The first operands, combined with slices, the last operands, at the positions of the operand
/// between them. A slice that is not inside is skipped.
#[derive(Debug)]
pub(in super::super) struct Scatter {
    pub(in super::super) slices: Slices,
    pub(in super::super) combine: Combine,
    /// The number of tensors that are updated.
    pub(in super::super) count: usize,
}

/// What a scatter does with an element and its update.
#[derive(Debug)]
pub(in super::super) enum Combine {
    Replace,
    /// Adds elements of `f32` in place.
    Add,
    /// A function of the elements and then the updates, with the formats of these in memory.
    By(Function, Vec<Format>),
}

/// The arrangement of slices, and of the elements in them.
#[derive(Debug)]
pub(in super::super) struct Slices {
    /// Elements that are neighbors in the operand and in the slices.
    run: usize,
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
    pub(in super::super) fn of_gather(
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

    pub(in super::super) fn of_scatter(
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
    fn runs<const MOVED: bool>(&self, indices: &Indices<'_>, each: impl FnMut(usize, usize)) {
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

/// The integers of an operand.
enum Indices<'a> {
    S32(&'a [[u8; 4]]),
    Decoded(Vec<i64>),
}

impl<'a> Indices<'a> {
    fn new(ty: &RankedType, bytes: &'a [u8]) -> Result<Self> {
        let (size, count) = (ty.element.size(), ty.elements());
        let format = Format::of(ty.element).unwrap_or(Format::Signed(64));
        if format == Format::Signed(32) {
            return Ok(Indices::S32(bytes.as_chunks().0));
        }
        let mut integers = allocate(count)?;
        let mut lanes = [0; LANES];
        for start in (0..count).step_by(LANES) {
            let lanes = &mut lanes[..LANES.min(count - start)];
            load(bytes, size, start, 1, lanes);
            let integer = |&bits: &u64| match format {
                Format::Signed(_) => extended(bits, format).cast_signed(),
                _ => i64::try_from(bits).unwrap_or(i64::MAX),
            };
            integers.extend(lanes.iter().map(integer));
        }
        Ok(Indices::Decoded(integers))
    }
}

impl Direct for Gather {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut result = call.take(0)?;
        let indices = Indices::new(call.ty(1), call.operand(1)?)?;
        let size = call.ty(0).element.size();
        let runs = Runs {
            slices: &self.0,
            indices: &indices,
            is_gather: true,
        };
        runs.copy(call.operand(0)?, result.bytes_mut(), size);
        call.set(0, result);
        Ok(())
    }
}

impl Direct for Scatter {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let count = self.count;
        let mut results = Vec::with_capacity(count);
        for number in 0..count {
            results.push(call.owned(number)?);
        }
        let indices = Indices::new(call.ty(count), call.operand(count)?)?;
        let runs = Runs {
            slices: &self.slices,
            indices: &indices,
            is_gather: false,
        };
        let updates = (0..count).map(|number| call.operand(count + 1 + number));
        let updates: Vec<_> = updates.collect::<Result<_>>()?;
        match &self.combine {
            Combine::Replace => {
                let size = call.ty(0).element.size();
                runs.copy(updates[0], results[0].bytes_mut(), size);
            }
            Combine::Add => runs.add(updates[0], results[0].bytes_mut()),
            Combine::By(function, formats) => {
                let updates: Vec<&[u8]> = updates.iter().map(|it| &it[..]).collect();
                let operands = results.iter_mut().zip(formats).enumerate();
                let mut accumulators = operands
                    .map(|(number, (result, &format))| {
                        let size = call.ty(number).element.size();
                        Accumulator::new(result, size, format, function.arguments[number])
                    })
                    .collect::<Result<Vec<_>>>()?;
                runs.combine(function, &mut accumulators, &updates);
                accumulators.into_iter().for_each(Accumulator::finish);
            }
        }
        for (number, result) in results.into_iter().enumerate() {
            call.set(number, result);
        }
        Ok(())
    }

    fn overwrites(&self) -> usize {
        self.count
    }
}

/// The runs of slices at positions.
struct Runs<'s> {
    slices: &'s Slices,
    indices: &'s Indices<'s>,
    is_gather: bool,
}

impl Runs<'_> {
    /// Copies all slices from or to the operand, whose elements have `size` bytes.
    fn copy(&self, x: &[u8], out: &mut [u8], size: usize) {
        fn elements<const N: usize>(runs: &Runs<'_>, x: &[u8], out: &mut [u8]) {
            let (x, out) = (x.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
            runs.each(|to, from| out[to] = x[from]);
        }
        match (self.slices.run, size) {
            (1, 1) => elements::<1>(self, x, out),
            (1, 2) => elements::<2>(self, x, out),
            (1, 4) => elements::<4>(self, x, out),
            (1, 8) => elements::<8>(self, x, out),
            (run, _) => {
                let run = run * size;
                self.each(|to, from| {
                    out[to * size..][..run].copy_from_slice(&x[from * size..][..run]);
                });
            }
        }
    }

    /// Calls `each` with the positions of runs in the target and in the source.
    fn each(&self, mut each: impl FnMut(usize, usize)) {
        if self.is_gather {
            (self.slices).runs::<true>(self.indices, |operand, slice| each(slice, operand));
        } else {
            self.slices.runs::<false>(self.indices, each);
        }
    }

    fn add(&self, updates: &[u8], out: &mut [u8]) {
        let (updates, out) = (updates.as_chunks::<4>().0, out.as_chunks_mut::<4>().0);
        let run = self.slices.run;
        self.each(|to, from| {
            let pairs = out[to..][..run].iter_mut().zip(&updates[from..][..run]);
            for (out, &update) in pairs {
                *out = (f32::from_le_bytes(*out) + f32::from_le_bytes(update)).to_le_bytes();
            }
        });
    }

    fn combine(
        &self,
        function: &Function,
        accumulators: &mut [Accumulator<'_>],
        updates: &[&[u8]],
    ) {
        let (run, count) = (self.slices.run, accumulators.len());
        if let (1, Some(combine), [accumulator]) = (run, function.of_two(), &mut accumulators[..]) {
            return self.each(|to, from| {
                let mut pair = [[0; 1]; 2];
                accumulator.load(to, &mut pair[0]);
                accumulator.load_updates(updates[0], from, &mut pair[1]);
                accumulator.store(to, &[combine(pair[0][0], pair[1][0])]);
            });
        }
        let mut registers = function.registers();
        self.each(|to, from| {
            for start in (0..run).step_by(LANES) {
                let lanes = LANES.min(run - start);
                for (number, accumulator) in accumulators.iter().enumerate() {
                    accumulator.load(to + start, &mut registers[number][..lanes]);
                    let register = &mut registers[count + number][..lanes];
                    accumulator.load_updates(updates[number], from + start, register);
                }
                function.run(&mut registers, lanes);
                for (accumulator, &result) in accumulators.iter_mut().zip(&function.results) {
                    accumulator.store(to + start, &registers[result][..lanes]);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_runs() {
        let attributes = GatherAttributes {
            offset_dims: vec![1],
            collapsed_slice_dims: vec![0],
            start_index_map: vec![0],
            index_vector_dim: 1,
            slice_sizes: vec![1, 3],
            ..GatherAttributes::default()
        };
        let of = |dims: &[usize]| RankedType::new(halite_stablehlo::ElementType::F32, dims);
        let slices = Slices::of_gather(&attributes, &of(&[4, 3]), &of(&[2]), &of(&[2, 3]));
        assert_eq!(slices.run, 3);
        let mut found = Vec::new();
        slices.runs::<true>(&Indices::Decoded(vec![9, -1]), |operand, slice| {
            found.push((operand, slice))
        });
        assert_eq!(found, [(9, 0), (0, 3)]);
        found.clear();
        slices.runs::<false>(&Indices::Decoded(vec![9, 2]), |operand, slice| {
            found.push((operand, slice))
        });
        assert_eq!(found, [(6, 3)]);
    }
}
