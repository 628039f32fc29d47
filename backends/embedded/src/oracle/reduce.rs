//! Reductions by a region: over dimensions, over windows, elementwise, and of slices that are
//! scattered. All of them are [`Reducer::accumulate`] with other pairs of positions.

use halite_core::Result;
use halite_stablehlo::{
    BinaryOp, Function, OpKind, RankedType, Region, ScatterAttributes, WindowAttributes,
};

use super::{
    binary::{binary_complex, binary_float, binary_int},
    gather::ScatterIndices,
    index::{for_each_index, offset, strides},
    tensor::{Tensor, Value, Wide, allocate, unexpected, wrap},
    unary::{convert, undefined},
};

/// Evaluates a region on scalars.
pub(super) type Evaluate<'a> = dyn FnMut(Vec<Value>) -> Result<Vec<Value>> + 'a;

/// Receives pairs `(accumulator, source)` of positions.
type Visit<'a> = dyn FnMut(usize, usize) -> Result<()> + 'a;

/// A region that combines accumulators with elements.
pub(super) struct Reducer<'a> {
    /// The operation, if the region is nothing else: it is applied without evaluating the region,
    /// and its results are rounded once, after the last.
    pub(super) operator: Option<BinaryOp>,
    pub(super) evaluate: &'a mut Evaluate<'a>,
}

/// The operation that a region `(accumulator, element) -> accumulator op element` consists of.
pub(super) fn operator(function: &Function, region: &Region) -> Option<BinaryOp> {
    let [operation] = &region.operations[..] else {
        return None;
    };
    let OpKind::Binary(op) = operation.kind else {
        return None;
    };
    let is_whole =
        operation.operands[..] == region.arguments && operation.results[..] == region.results;
    let [left, right] = region.arguments[..] else {
        return None;
    };
    (is_whole && function.ty(left) == function.ty(right)).then_some(op)
}

impl Reducer<'_> {
    /// Combines elements of `sources` with `accumulators`, for each pair of positions that `pairs`
    /// visits, in its order.
    pub(super) fn accumulate(
        &mut self,
        accumulators: Vec<Tensor>,
        sources: &[&Tensor],
        pairs: impl FnOnce(&mut Visit<'_>) -> Result<()>,
    ) -> Result<Vec<Tensor>> {
        let to_accumulator = |(source, accumulator): (&&Tensor, &Tensor)| {
            let element = accumulator.ty.element;
            convert(source, &RankedType::new(element, source.ty.dims.clone()))
        };
        let sources: Vec<_> = sources
            .iter()
            .zip(&accumulators)
            .map(to_accumulator)
            .collect::<Result<_>>()?;
        match (self.operator, &accumulators[..], &sources[..]) {
            (Some(op), [accumulator], [source]) => Ok(vec![accumulate_by_operator(
                op,
                accumulator,
                source,
                pairs,
            )?]),
            _ => self.accumulate_by_region(accumulators, &sources, pairs),
        }
    }

    fn accumulate_by_region(
        &mut self,
        accumulators: Vec<Tensor>,
        sources: &[Tensor],
        pairs: impl FnOnce(&mut Visit<'_>) -> Result<()>,
    ) -> Result<Vec<Tensor>> {
        let mut results = Vec::with_capacity(accumulators.len());
        for accumulator in &accumulators {
            let mut bytes = allocate(accumulator.bytes.len())?;
            bytes.extend_from_slice(&accumulator.bytes);
            results.push(bytes);
        }
        pairs(&mut |into, from| {
            let mut arguments = Vec::with_capacity(2 * sources.len());
            for (result, accumulator) in results.iter().zip(&accumulators) {
                let element = accumulator.ty.element;
                let bytes = &result[into * element.size()..(into + 1) * element.size()];
                let scalar = Tensor::new(RankedType::new(element, []), bytes.to_vec());
                arguments.push(Value::Tensor(scalar));
            }
            arguments.extend(
                sources
                    .iter()
                    .map(|source| Value::Tensor(source.scalar_at(from))),
            );
            for (result, value) in results.iter_mut().zip((self.evaluate)(arguments)?) {
                let value = value.tensor()?;
                let size = value.bytes.len();
                result[into * size..(into + 1) * size].copy_from_slice(&value.bytes);
            }
            Ok(())
        })?;
        let tensor = |(bytes, accumulator): (_, Tensor)| Tensor::new(accumulator.ty, bytes);
        Ok(results.into_iter().zip(accumulators).map(tensor).collect())
    }

    /// Evaluates a region of two scalars with a boolean result.
    fn decide(&mut self, left: Tensor, right: Tensor) -> Result<bool> {
        let results = (self.evaluate)(vec![Value::Tensor(left), Value::Tensor(right)])?;
        match results.first() {
            Some(value) => Ok(value.tensor()?.int()? != 0),
            None => Err(unexpected("a boolean", "no result")),
        }
    }
}

fn accumulate_by_operator(
    op: BinaryOp,
    accumulator: &Tensor,
    source: &Tensor,
    pairs: impl FnOnce(&mut Visit<'_>) -> Result<()>,
) -> Result<Tensor> {
    let element = accumulator.ty.element;
    let not_defined = || undefined(op.name(), element);
    if source.ty.element != element {
        return Err(unexpected(
            &accumulator.ty.to_string(),
            &source.ty.to_string(),
        ));
    }
    // Elements of the source are decoded one by one: decoded, they have up to 16 times its memory.
    let wide = match accumulator.wide()? {
        Wide::Int(mut sums) => {
            pairs(&mut |into, from| {
                let sum = binary_int(op, element, sums[into], source.int_at(from));
                sums[into] = wrap(element, sum.ok_or_else(not_defined)?);
                Ok(())
            })?;
            Wide::Int(sums)
        }
        Wide::Float(mut sums) => {
            pairs(&mut |into, from| {
                let sum = binary_float(op, sums[into], source.float_at(from));
                sums[into] = sum.ok_or_else(not_defined)?;
                Ok(())
            })?;
            Wide::Float(sums)
        }
        Wide::Complex(mut sums) => {
            pairs(&mut |into, from| {
                let sum = binary_complex(op, sums[into], source.complex_at(from));
                sums[into] = sum.ok_or_else(not_defined)?;
                Ok(())
            })?;
            Wide::Complex(sums)
        }
    };
    Tensor::encode(&accumulator.ty, wide)
}

/// A tensor of type `ty` whose elements are all `scalar`.
fn filled(scalar: &Tensor, ty: &RankedType) -> Result<Tensor> {
    let scalar = convert(scalar, &RankedType::new(ty.element, []))?;
    let mut bytes = allocate(ty.bytes())?;
    (0..ty.elements()).for_each(|_| bytes.extend_from_slice(&scalar.bytes));
    Ok(Tensor::new(ty.clone(), bytes))
}

fn all_filled(scalars: &[&Tensor], types: &[&RankedType]) -> Result<Vec<Tensor>> {
    scalars
        .iter()
        .zip(types)
        .map(|(scalar, ty)| filled(scalar, ty))
        .collect()
}

/// Combines the elements along `dims`, from the initial values on.
pub(super) fn reduce(
    reducer: &mut Reducer<'_>,
    inputs: &[&Tensor],
    initial: &[&Tensor],
    dims: &[usize],
    types: &[&RankedType],
) -> Result<Vec<Tensor>> {
    let from = &inputs[0].ty.dims;
    let mut steps = vec![0; from.len()];
    let rest = (0..from.len()).filter(|dim| !dims.contains(dim));
    rest.zip(strides(&types[0].dims))
        .for_each(|(dim, stride)| steps[dim] = stride);
    reducer.accumulate(all_filled(initial, types)?, inputs, |visit| {
        let mut at = 0;
        for_each_index(from, |index| {
            visit(offset(index, &steps), at)?;
            at += 1;
            Ok(())
        })
    })
}

/// Windows over a tensor of `dims`.
struct Windows<'a> {
    attributes: &'a WindowAttributes,
    dims: &'a [usize],
}

impl Windows<'_> {
    /// Calls `visit` with the positions of the elements in the window that is `window`-th along
    /// each dimension. Padding, and gaps of a dilated operand, are skipped.
    fn for_each(&self, window: &[usize], mut visit: impl FnMut(usize) -> Result<()>) -> Result<()> {
        let inside: Vec<_> = (window.iter().enumerate())
            .map(|(dim, &number)| self.inside(dim, number))
            .collect();
        let counts: Vec<_> = inside.iter().map(Vec::len).collect();
        let strides = strides(self.dims);
        for_each_index(&counts, |within| {
            let at = within
                .iter()
                .zip(&inside)
                .map(|(&number, inside)| inside[number]);
            visit(at.zip(&strides).map(|(at, stride)| at * stride).sum())
        })
    }

    /// The indices along a dimension that are in its window `number`. The loop is over elements of
    /// the operand, which are in memory: a window may be far larger.
    fn inside(&self, dim: usize, number: usize) -> Vec<usize> {
        let attributes = self.attributes;
        let gap = attributes.base_dilations[dim] as i64;
        let step = attributes.window_dilations[dim] as i64;
        let (low, _) = attributes.padding[dim];
        let first = (number * attributes.strides[dim]) as i64 - low;
        let last = first + (attributes.sizes[dim] as i64 - 1) * step;
        let from = (first.max(0) as u64).div_ceil(gap as u64) as i64;
        let to = (last.div_euclid(gap) + 1).min(self.dims[dim] as i64);
        let is_inside = |&index: &i64| (index * gap - first) % step == 0;
        (from..to)
            .filter(is_inside)
            .map(|index| index as usize)
            .collect()
    }
}

/// Combines the elements of each window, from the initial values on.
pub(super) fn reduce_window(
    reducer: &mut Reducer<'_>,
    inputs: &[&Tensor],
    initial: &[&Tensor],
    attributes: &WindowAttributes,
    types: &[&RankedType],
) -> Result<Vec<Tensor>> {
    let windows = Windows {
        attributes,
        dims: &inputs[0].ty.dims,
    };
    reducer.accumulate(all_filled(initial, types)?, inputs, |visit| {
        let mut into = 0;
        for_each_index(&types[0].dims, |window| {
            windows.for_each(window, |from| visit(into, from))?;
            into += 1;
            Ok(())
        })
    })
}

/// For each element of `source` the position of `x` that is selected in its window, as
/// `(into, from)`.
pub(super) fn select(
    select: &mut Reducer<'_>,
    x: &Tensor,
    source: &Tensor,
    attributes: &WindowAttributes,
) -> Result<Vec<(usize, usize)>> {
    let windows = Windows {
        attributes,
        dims: &x.ty.dims,
    };
    let mut pairs = allocate(source.ty.elements())?;
    let mut from = 0;
    for_each_index(&source.ty.dims, |window| {
        let mut selected: Option<usize> = None;
        windows.for_each(window, |at| {
            let keeps = match selected {
                Some(old) => select.decide(x.scalar_at(old), x.scalar_at(at))?,
                None => false,
            };
            if !keeps {
                selected = Some(at);
            }
            Ok(())
        })?;
        pairs.extend(selected.map(|into| (into, from)));
        from += 1;
        Ok(())
    })?;
    Ok(pairs)
}

/// Combines the elements of `source` into a tensor of `initial`, at these `(into, from)`.
pub(super) fn scatter_selected(
    reducer: &mut Reducer<'_>,
    source: &Tensor,
    initial: &Tensor,
    pairs: &[(usize, usize)],
    ty: &RankedType,
) -> Result<Vec<Tensor>> {
    reducer.accumulate(vec![filled(initial, ty)?], &[source], |visit| {
        pairs.iter().try_for_each(|&(into, from)| visit(into, from))
    })
}

/// Combines the elements of `updates` into `inputs`, at the positions that `indices` name; those
/// outside are skipped.
pub(super) fn scatter(
    reducer: &mut Reducer<'_>,
    inputs: &[&Tensor],
    indices: &Tensor,
    updates: &[&Tensor],
    attributes: &ScatterAttributes,
) -> Result<Vec<Tensor>> {
    let positions =
        ScatterIndices::new(attributes, &inputs[0].ty.dims, indices, &updates[0].ty.dims)?;
    let accumulators = inputs.iter().map(|&input| input.clone()).collect();
    reducer.accumulate(accumulators, updates, |visit| {
        let mut from = 0;
        for_each_index(&updates[0].ty.dims, |index| {
            if let Some(into) = positions.position(index) {
                visit(into, from)?;
            }
            from += 1;
            Ok(())
        })
    })
}

/// Evaluates the region on the elements at each position.
pub(super) fn map(
    evaluate: &mut Evaluate<'_>,
    inputs: &[&Tensor],
    types: &[&RankedType],
) -> Result<Vec<Tensor>> {
    let mut results: Vec<Vec<u8>> = types
        .iter()
        .map(|ty| allocate(ty.bytes()))
        .collect::<Result<_>>()?;
    for at in 0..inputs[0].ty.elements() {
        let arguments = inputs
            .iter()
            .map(|input| Value::Tensor(input.scalar_at(at)))
            .collect();
        for (result, value) in results.iter_mut().zip(evaluate(arguments)?) {
            result.extend_from_slice(&value.tensor()?.bytes);
        }
    }
    let tensor = |(bytes, ty): (_, &&RankedType)| Tensor::new((*ty).clone(), bytes);
    Ok(results.into_iter().zip(types).map(tensor).collect())
}
