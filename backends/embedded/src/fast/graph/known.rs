//! Operations that have a kernel, or are views.

use halite_core::Result;
use halite_kernels::{Accumulate, Reduction};
use halite_stablehlo::{
    BinaryOp, ElementClass, ElementType, Function, OpKind, Operation, RankedType, Region,
    WindowAttributes,
};

use super::{
    super::{
        contract::dot_general,
        direct::Lines,
        elementwise::{computed, format},
        place::{Place, padded, stepped},
        scalar::Format,
    },
    Kind,
    build::Builder,
};
use crate::oracle::{Tensor, allocate, push_count};

/// Number of elements of a window up to which it is expanded into slices.
const LARGEST_WINDOW: usize = 64;

impl Builder<'_> {
    /// The result of an operation that has a kernel or is a view. `None` if neither.
    pub(super) fn known(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
        ty: &RankedType,
    ) -> Result<Option<Place>> {
        let kind = &operation.kind;
        let elements = || {
            operands
                .iter()
                .map(|place| place.element)
                .chain([ty.element])
        };
        if !elements().all(|element| format(element).is_some()) {
            return Ok(None);
        }
        // Positions, such as those of masks, which cost twice as much as narrow numbers.
        if elements().any(|element| element.size() == size_of::<u64>())
            && let Some(tensors) = self.folded(function, operation, operands)?
        {
            let constant = tensors.into_iter().next();
            return Ok(constant.map(|tensor| Place::whole(self.base(ty, Some(tensor)), ty)));
        }
        Ok(match (kind, operands) {
            (OpKind::Iota { dim }, []) => self.iota(*dim, ty)?,
            (OpKind::Pad { .. }, [x, value]) => {
                let fill = self.scalar(value);
                Place::moved(x, kind, ty, fill).or_else(|| {
                    let x = self.whole(x);
                    Place::moved(&x, kind, ty, fill)
                })
            }
            (
                OpKind::BroadcastInDim { .. }
                | OpKind::Reshape
                | OpKind::Transpose { .. }
                | OpKind::Reverse { .. }
                | OpKind::Slice { .. },
                [x],
            ) => Place::moved(x, kind, ty, None).or_else(|| {
                let x = self.whole(x);
                Place::moved(&x, kind, ty, None)
            }),
            (OpKind::DotGeneral(attributes), [x, y]) => {
                let Some([x, y]) = self.multiplied([x, y], ty) else {
                    return Ok(None);
                };
                if let Some(sums) = self.vector_product([&x, &y], attributes, ty) {
                    return Ok(Some(sums));
                }
                let product = dot_general(&x, &y, attributes);
                product.map(|product| {
                    let wide = RankedType::new(x.element, &ty.dims[..]);
                    let product = Kind::Product(Box::new(product));
                    let result = self.node(product, vec![x, y], &wide);
                    self.converted(&result, ty.element)
                })
            }
            // Products may read the narrow elements.
            (OpKind::Convert, [x])
                if (x.element, ty.element) == (ElementType::Bf16, ElementType::F32) =>
            {
                Some(self.converted(x, ElementType::F32))
            }
            (OpKind::Convolution(attributes), [x, kernel]) => {
                self.convolution(attributes, [x, kernel], ty)
            }
            (OpKind::Reduce { dims }, [x, initial]) => {
                let op = operator(function, &operation.regions);
                self.reduce(op, x, initial, dims, ty)
            }
            (OpKind::ReduceWindow(attributes), [x, initial]) => {
                let op = operator(function, &operation.regions);
                self.reduce_window(op, x, initial, attributes, ty)
            }
            (OpKind::ReducePrecision { exponent, mantissa }, [x]) => {
                self.reduce_precision(x, [*exponent, *mantissa], ty)
            }
            (_, [first, ..]) => {
                let from = if *kind == OpKind::Select {
                    ty.element
                } else {
                    first.element
                };
                self.arithmetic(kind, from, operands, ty)
            }
            _ => None,
        })
    }

    /// The value of a constant scalar.
    fn scalar(&self, place: &Place) -> Option<u64> {
        self.graph.bases[place.base]
            .scalar()
            .filter(|_| !place.view.has_gaps())
    }

    pub(super) fn without_gaps(&mut self, place: &Place) -> Place {
        if place.view.has_gaps() {
            self.whole(place)
        } else {
            place.clone()
        }
    }

    /// Counts along one dimension, as a view of a line. `None` if the plan has no room for it.
    pub(super) fn iota(&mut self, dim: usize, ty: &RankedType) -> Result<Option<Place>> {
        let size = ty.dims.get(dim).copied().unwrap_or(0);
        let line = RankedType::new(ty.element, [size]);
        if !self.has_room(&line) {
            return Ok(None);
        }
        let mut bytes = allocate(line.bytes())?;
        (0..size).for_each(|at| push_count(ty.element, at, &mut bytes));
        let base = self.base(&line, Some(Tensor::new(line.clone(), bytes)));
        let mut place = Place::whole(base, ty);
        for (at, of) in place.view.dims.iter_mut().enumerate() {
            of.stride = isize::from(at == dim);
        }
        Ok(Some(place))
    }

    /// A value whose lines are reduced, and these: with the reduced dimensions last, if they are not
    /// neighbors. `None` if that needs a view and there is none.
    pub(super) fn lines(
        &self,
        x: &Place,
        dims: &[usize],
        can_move: bool,
    ) -> Option<(Place, Lines)> {
        let rank = x.view.dims.len();
        let is_reduced = |dim: usize| dims.contains(&dim);
        let size = |range: std::ops::Range<usize>| -> usize {
            range.map(|dim| x.view.dims[dim].size).product()
        };
        let first = (0..rank).find(|&dim| is_reduced(dim)).unwrap_or(rank);
        let last = (0..rank)
            .rfind(|&dim| is_reduced(dim))
            .map_or(rank, |dim| dim + 1);
        if (first..last).all(is_reduced) {
            let lines = Lines {
                outer: size(0..first),
                length: size(first..last),
                inner: size(last..rank),
            };
            return Some((x.clone(), lines));
        }
        let mut permutation: Vec<_> = (0..rank).filter(|&dim| !is_reduced(dim)).collect();
        permutation.extend((0..rank).filter(|&dim| is_reduced(dim)));
        let sizes: Vec<_> = permutation
            .iter()
            .map(|&dim| x.view.dims[dim].size)
            .collect();
        let kept = rank - dims.len();
        let lines = Lines {
            outer: sizes[..kept].iter().product(),
            length: sizes[kept..].iter().product(),
            inner: 1,
        };
        let moved = RankedType::new(x.element, sizes);
        let kind = OpKind::Transpose { permutation };
        let x = Place::moved(x, &kind, &moved, None).filter(|_| can_move)?;
        Some((x, lines))
    }

    /// A reduction by one operation. `None` if it has no kernel.
    pub(super) fn reduce(
        &mut self,
        op: Option<BinaryOp>,
        x: &Place,
        initial: &Place,
        dims: &[usize],
        ty: &RankedType,
    ) -> Option<Place> {
        let (op, start) = (op?, initial);
        let (combine, initial) = (accumulate(op, x.element)?, self.scalar(start)?);
        let x = &self.converted(x, computed(x.element));
        let wide = RankedType::new(x.element, &ty.dims[..]);
        let length: usize = dims.iter().map(|&dim| x.view.dims[dim].size).product();
        if length == 1 {
            // One element for each result.
            let moved = |x: &Place| Place::moved(x, &OpKind::Reshape, &wide, None);
            let x = moved(x).or_else(|| moved(&self.whole(x)))?;
            let start = Place::splat(start.base, &RankedType::new(start.element, &ty.dims[..]));
            let start = self.converted(&start, x.element);
            let result = self.arithmetic(&OpKind::Binary(op), x.element, &[start, x], &wide)?;
            return Some(self.converted(&result, ty.element));
        }
        if let Some((x, dims)) = self.reduced_last(op, combine, x, dims) {
            let result = self.reduce(Some(op), &x, start, &dims, &wide)?;
            return Some(self.converted(&result, ty.element));
        }
        let (x, lines) = self.lines(x, dims, true)?;
        let x = self.whole(&x);
        let sizes = Reduction {
            outer: lines.outer,
            reduced: lines.length,
            inner: lines.inner,
            op: combine,
        };
        let result = self.node(Kind::Reduce { sizes, initial }, vec![x], &wide);
        Some(self.converted(&result, ty.element))
    }

    /// `x` reduced along the last ones of dimensions that are not all neighbors, without an initial
    /// value, and the dimensions that are left: cheaper than a transposition.
    fn reduced_last(
        &mut self,
        op: BinaryOp,
        combine: Accumulate,
        x: &Place,
        dims: &[usize],
    ) -> Option<(Place, Vec<usize>)> {
        let mut rest = dims.to_vec();
        rest.sort_unstable();
        let mut last = Vec::new();
        while rest
            .last()
            .is_some_and(|&dim| last.is_empty() || last.contains(&(dim + 1)))
        {
            last.extend(rest.pop());
        }
        if rest.is_empty() {
            return None;
        }
        let initial = Format::of(x.element)?.identity(op)?;
        let (x, lines) = self.lines(x, &last, false)?;
        let sizes = Reduction {
            outer: lines.outer,
            reduced: lines.length,
            inner: lines.inner,
            op: combine,
        };
        let kept = (0..x.view.dims.len()).filter(|dim| !last.contains(dim));
        let kept: Vec<_> = kept.map(|dim| x.view.dims[dim].size).collect();
        let ty = RankedType::new(x.element, kept);
        let x = self.whole(&x);
        Some((
            self.node(Kind::Reduce { sizes, initial }, vec![x], &ty),
            rest,
        ))
    }

    /// A reduction over small windows, as elementwise operations on slices.
    fn reduce_window(
        &mut self,
        op: Option<BinaryOp>,
        x: &Place,
        initial: &Place,
        attributes: &WindowAttributes,
        ty: &RankedType,
    ) -> Option<Place> {
        let WindowAttributes {
            sizes,
            strides,
            base_dilations,
            window_dilations,
            padding,
        } = attributes;
        let op = op?;
        let element = computed(ty.element);
        let fill = self.scalar(initial)?;
        let count = sizes
            .iter()
            .try_fold(1usize, |all, &size| all.checked_mul(size))?;
        // The initial value is combined with each window, unless that changes nothing.
        let changes_nothing = match op {
            BinaryOp::Maximum => Some(fill) == least(ty.element),
            BinaryOp::Minimum => Some(fill) == greatest(ty.element),
            BinaryOp::Add => fill == 0,
            _ => false,
        };
        if !(1..=LARGEST_WINDOW).contains(&count) || !changes_nothing {
            return None;
        }
        let is_padded = padding.iter().any(|&padding| padding != (0, 0))
            || base_dilations.iter().any(|&dilation| dilation > 1);
        // Rounded once, after the last operation.
        let wide = RankedType::new(element, &ty.dims[..]);
        let mut source = self.without_gaps(x);
        source = self.converted(&source, element);
        if is_padded {
            let interior: Vec<_> = base_dilations.iter().map(|it| it - 1).collect();
            source = padded(&source, padding, &interior, fill, ty.elements())?;
            source = self.whole(&source);
        }
        // A sum of -0 alone is 0, since it starts with 0.
        let has_signed_zero = op == BinaryOp::Add && element.class() == ElementClass::Float;
        let mut result = has_signed_zero.then(|| Place::splat(initial.base, ty));
        if let Some(zero) = &result {
            result = Some(self.converted(zero, element));
        }
        for number in 0..count {
            let mut slice = source.clone();
            let mut rest = number;
            for dim in (0..ty.rank()).rev() {
                let of = &mut slice.view.dims[dim];
                let within = rest % sizes[dim] * window_dilations[dim];
                rest /= sizes[dim];
                slice.view.offset += within as isize * of.stride;
                of.stride = stepped(of.stride, strides[dim], ty.dims[dim]);
                of.size = ty.dims[dim];
            }
            result = Some(match result {
                None => slice,
                Some(before) => {
                    self.arithmetic(&OpKind::Binary(op), element, &[before, slice], &wide)?
                }
            });
        }
        result.map(|result| self.converted(&result, ty.element))
    }
}

/// The word of the least number of a type, infinity included.
fn least(element: ElementType) -> Option<u64> {
    let bits = element.bits();
    Some(match (element.class(), element.size()) {
        (ElementClass::Float, 8) => f64::NEG_INFINITY.to_bits(),
        (ElementClass::Float, _) => f32::NEG_INFINITY.to_bits().into(),
        (ElementClass::Signed, 8) => i64::MIN as u64,
        (ElementClass::Signed, _) => u64::from(u32::MAX << (bits - 1)),
        (ElementClass::Unsigned | ElementClass::Bool, _) => 0,
        _ => return None,
    })
}

/// The word of the greatest number of a type, infinity included.
fn greatest(element: ElementType) -> Option<u64> {
    let bits = element.bits();
    Some(match (element.class(), element.size()) {
        (ElementClass::Float, 8) => f64::INFINITY.to_bits(),
        (ElementClass::Float, _) => f32::INFINITY.to_bits().into(),
        (ElementClass::Signed, _) => (1 << (bits - 1)) - 1,
        (ElementClass::Unsigned | ElementClass::Bool, _) => u64::MAX >> (64 - bits),
        _ => return None,
    })
}

/// The operation that a region `(accumulator, element) -> accumulator op element` consists of.
pub(in super::super) fn operator(function: &Function, regions: &[Region]) -> Option<BinaryOp> {
    let [region] = regions else {
        return None;
    };
    let [operation] = &region.operations[..] else {
        return None;
    };
    let OpKind::Binary(op) = operation.kind else {
        return None;
    };
    let [x, y] = region.arguments[..] else {
        return None;
    };
    let is_whole = operation.operands[..] == [x, y] && operation.results[..] == region.results;
    (is_whole && function.ty(x) == function.ty(y)).then_some(op)
}

/// How elements of a type are combined, as those of the type that computes. `None` if they have no
/// kernel.
fn accumulate(op: BinaryOp, element: ElementType) -> Option<Accumulate> {
    let class = element.class();
    let [is_float, is_signed] = [ElementClass::Float, ElementClass::Signed].map(|it| it == class);
    Some(match op {
        BinaryOp::Add if is_float => Accumulate::AddF,
        BinaryOp::Multiply if is_float => Accumulate::MultiplyF,
        BinaryOp::Maximum if is_float => Accumulate::MaximumF,
        BinaryOp::Minimum if is_float => Accumulate::MinimumF,
        _ if is_float => return None,
        // 1 + 1 is 1.
        BinaryOp::Add if element == ElementType::Bool => Accumulate::Or,
        BinaryOp::Add => Accumulate::Add,
        BinaryOp::Multiply => Accumulate::Multiply,
        BinaryOp::Maximum if is_signed => Accumulate::MaximumS,
        BinaryOp::Minimum if is_signed => Accumulate::MinimumS,
        BinaryOp::Maximum => Accumulate::MaximumU,
        BinaryOp::Minimum => Accumulate::MinimumU,
        BinaryOp::And => Accumulate::And,
        BinaryOp::Or => Accumulate::Or,
        BinaryOp::Xor => Accumulate::Xor,
        _ => return None,
    })
}
