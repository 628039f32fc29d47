//! Operations that have a kernel, or are views.

use halite_core::Result;
use halite_kernels::{Accumulate, Reduction};
use halite_stablehlo::{
    BinaryOp, ElementType, Function, OpKind, Operation, RankedType, Region, WindowAttributes,
};

use super::{
    super::{
        contract::{convolution, dot_general, padded_input},
        direct::{
            Direct,
            concatenate::Concatenate,
            rows::{GatherRows, ScatterRows, gathers_rows, scatters_rows},
            slice::{DynamicSlice, DynamicUpdate},
        },
        elementwise::{Elementwise, fits_register, is_word},
        place::{Place, padded, stepped},
    },
    Kind,
    build::Builder,
};
use crate::oracle::{Tensor, allocate};

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
        let fits =
            fits_register(ty.element) && operands.iter().all(|place| fits_register(place.element));
        if !fits {
            return Ok(None);
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
            (OpKind::Concatenate { dim }, parts) => Some(self.concatenate(parts, *dim, ty)),
            (OpKind::DotGeneral(attributes), [x, y]) if has_floats(operands, ty) => {
                let (x, y) = (self.without_gaps(x), self.without_gaps(y));
                let product = dot_general(&x, &y, attributes);
                product.map(|product| self.node(Kind::Product(Box::new(product)), vec![x, y], ty))
            }
            (OpKind::Convolution(attributes), [x, kernel]) if has_floats(operands, ty) => {
                let (x, kernel) = (self.without_gaps(x), self.without_gaps(kernel));
                let Some(x) = padded_input(&x, attributes, ty.elements()) else {
                    return Ok(None);
                };
                let x = self.without_gaps(&x);
                let result = convolution(&x, &kernel, attributes, ty);
                result.map(|(product, order)| {
                    let permuted: Vec<_> = order.iter().map(|&dim| ty.dims[dim]).collect();
                    let permuted = RankedType::new(ty.element, permuted);
                    let operands = vec![x, kernel];
                    let mut result =
                        self.node(Kind::Product(Box::new(product)), operands, &permuted);
                    let dims = result.view.dims.clone();
                    order
                        .iter()
                        .zip(dims)
                        .for_each(|(&dim, of)| result.view.dims[dim] = of);
                    result
                })
            }
            (OpKind::Reduce { dims }, [x, initial]) => {
                let op = operator(function, &operation.regions);
                self.reduce(op, x, initial, dims, ty)
            }
            (OpKind::ReduceWindow(attributes), [x, initial]) => {
                let op = operator(function, &operation.regions);
                self.reduce_window(op, x, initial, attributes, ty)
            }
            (OpKind::Gather(attributes), [x, indices])
                if is_word(indices.element)
                    && gathers_rows(attributes, &x.ty(), &indices.ty(), ty) =>
            {
                Some(self.direct(GatherRows, operands, ty))
            }
            (OpKind::Scatter(attributes), [x, indices, updates])
                if has_floats(&[x.clone(), updates.clone()], ty)
                    && is_word(indices.element)
                    && operator(function, &operation.regions) == Some(BinaryOp::Add)
                    && scatters_rows(attributes, &x.ty(), &indices.ty(), &updates.ty()) =>
            {
                Some(self.direct(ScatterRows, operands, ty))
            }
            (OpKind::DynamicSlice { .. }, _) => Some(self.direct(DynamicSlice, operands, ty)),
            (OpKind::DynamicUpdateSlice, [x, part, starts @ ..]) => {
                let dims = part.ty().dims.to_vec();
                let mut operands = vec![x.clone(), self.in_order(part)];
                operands.extend_from_slice(starts);
                Some(self.direct(DynamicUpdate { dims }, &operands, ty))
            }
            (_, [first, ..]) => {
                let from = if *kind == OpKind::Select {
                    ty.element
                } else {
                    first.element
                };
                let op = Elementwise::new(kind, from, ty.element);
                op.map(|op| self.elementwise(op, operands, ty))
            }
            _ => None,
        })
    }

    fn elementwise(&mut self, op: Elementwise, operands: &[Place], ty: &RankedType) -> Place {
        let spread = |x: &Place| {
            // Scalar predicates and limits are broadcast.
            let is_scalar = x.view.dims.len() != ty.rank();
            let kind = OpKind::BroadcastInDim {
                mapping: Vec::new(),
            };
            let spread = is_scalar
                .then(|| Place::moved(x, &kind, &RankedType::new(x.element, &ty.dims[..]), None));
            spread.flatten().unwrap_or_else(|| x.clone())
        };
        let operands: Vec<_> = operands.iter().map(spread).collect();
        if let (Elementwise::Clamp(maximum, minimum), [low, x, high]) = (op, &operands[..]) {
            let parts = vec![x.clone(), low.clone()];
            let lower = self.node(Kind::Elementwise(Elementwise::Binary(maximum)), parts, ty);
            let parts = vec![lower, high.clone()];
            return self.node(Kind::Elementwise(Elementwise::Binary(minimum)), parts, ty);
        }
        self.node(Kind::Elementwise(op), operands, ty)
    }

    /// The value of a constant scalar.
    fn scalar(&self, place: &Place) -> Option<u32> {
        self.graph.bases[place.base]
            .scalar()
            .filter(|_| !place.view.has_gaps())
    }

    fn without_gaps(&mut self, place: &Place) -> Place {
        if place.view.has_gaps() {
            self.whole(place)
        } else {
            place.clone()
        }
    }

    /// Counts along one dimension, as a view of a line. `None` if the plan has no room for it.
    fn iota(&mut self, dim: usize, ty: &RankedType) -> Result<Option<Place>> {
        let size = ty.dims.get(dim).copied().unwrap_or(0);
        let line = RankedType::new(ty.element, [size]);
        if !self.has_room(&line) {
            return Ok(None);
        }
        let mut bytes = allocate(line.bytes())?;
        for at in 0..size {
            match ty.element {
                ElementType::F32 => bytes.extend_from_slice(&(at as f32).to_le_bytes()),
                element => bytes.extend_from_slice(&at.to_le_bytes()[..element.size()]),
            }
        }
        let base = self.base(&line, Some(Tensor::new(line.clone(), bytes)));
        let mut place = Place::whole(base, ty);
        for (at, of) in place.view.dims.iter_mut().enumerate() {
            of.stride = isize::from(at == dim);
        }
        Ok(Some(place))
    }

    fn concatenate(&mut self, parts: &[Place], dim: usize, ty: &RankedType) -> Place {
        let behind: usize = ty.dims[dim + 1..].iter().product();
        let row = |part: &Place| part.view.dims[dim].size * behind * ty.element.size();
        let bytes = parts.iter().map(row).collect();
        self.direct(Concatenate { bytes }, parts, ty)
    }

    /// Adds a node of an operation on whole buffers.
    fn direct(
        &mut self,
        kernel: impl Direct + 'static,
        operands: &[Place],
        ty: &RankedType,
    ) -> Place {
        let operands = operands.iter().map(|place| self.whole(place)).collect();
        self.node(Kind::Direct(Box::new(kernel)), operands, ty)
    }

    fn reduce(
        &mut self,
        op: Option<BinaryOp>,
        x: &Place,
        initial: &Place,
        dims: &[usize],
        ty: &RankedType,
    ) -> Option<Place> {
        let op = accumulate(op?, x.element)?;
        let initial = self.scalar(initial)?;
        let rank = x.view.dims.len();
        let is_reduced = |dim: usize| dims.contains(&dim);
        let size = |range: std::ops::Range<usize>| -> usize {
            range.map(|dim| x.view.dims[dim].size).product()
        };
        let first = (0..rank).find(|&dim| is_reduced(dim)).unwrap_or(rank);
        let last = (0..rank)
            .rfind(|&dim| is_reduced(dim))
            .map_or(rank, |dim| dim + 1);
        let (x, outer, reduced, inner) = if (first..last).all(is_reduced) {
            (
                x.clone(),
                size(0..first),
                size(first..last),
                size(last..rank),
            )
        } else {
            // What is reduced comes last.
            let mut permutation: Vec<_> = (0..rank).filter(|&dim| !is_reduced(dim)).collect();
            permutation.extend((0..rank).filter(|&dim| is_reduced(dim)));
            let sizes: Vec<_> = permutation
                .iter()
                .map(|&dim| x.view.dims[dim].size)
                .collect();
            let moved = RankedType::new(x.element, sizes);
            let kind = OpKind::Transpose { permutation };
            let x = Place::moved(x, &kind, &moved, None)?;
            (
                x,
                ty.elements(),
                dims.iter().map(|&dim| size(dim..dim + 1)).product(),
                1,
            )
        };
        let x = self.whole(&x);
        let sizes = Reduction {
            outer,
            reduced,
            inner,
            op,
        };
        Some(self.node(Kind::Reduce { sizes, initial }, vec![x], ty))
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
        let kernel = Elementwise::new(&OpKind::Binary(op), ty.element, ty.element)?;
        let fill = self.scalar(initial)?;
        let count = sizes
            .iter()
            .try_fold(1usize, |all, &size| all.checked_mul(size))?;
        // The initial value is combined with each window, unless that changes nothing.
        let changes_nothing = match (op, ty.element) {
            (BinaryOp::Maximum, ElementType::F32) => fill == f32::NEG_INFINITY.to_bits(),
            (BinaryOp::Minimum, ElementType::F32) => fill == f32::INFINITY.to_bits(),
            (BinaryOp::Add, _) => fill == 0,
            _ => false,
        };
        if !(1..=LARGEST_WINDOW).contains(&count) || !changes_nothing {
            return None;
        }
        let is_padded = padding.iter().any(|&padding| padding != (0, 0))
            || base_dilations.iter().any(|&dilation| dilation > 1);
        let mut source = self.without_gaps(x);
        if is_padded {
            let interior: Vec<_> = base_dilations.iter().map(|it| it - 1).collect();
            source = padded(&source, padding, &interior, fill, ty.elements())?;
            source = self.whole(&source);
        }
        // A sum of -0 alone is 0, since it starts with 0.
        let has_signed_zero = op == BinaryOp::Add && ty.element == ElementType::F32;
        let mut result = has_signed_zero.then(|| Place::splat(initial.base, ty));
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
                Some(before) => self.node(Kind::Elementwise(kernel), vec![before, slice], ty),
            });
        }
        result
    }
}

fn has_floats(operands: &[Place], ty: &RankedType) -> bool {
    operands
        .iter()
        .map(|place| place.element)
        .chain([ty.element])
        .all(|it| it == ElementType::F32)
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
    let is_whole = operation.operands == [x, y] && operation.results == region.results;
    (is_whole && function.ty(x) == function.ty(y)).then_some(op)
}

fn accumulate(op: BinaryOp, element: ElementType) -> Option<Accumulate> {
    if !is_word(element) {
        return None;
    }
    let is_signed = element == ElementType::S32;
    Some(match op {
        BinaryOp::Add if element == ElementType::F32 => Accumulate::AddF,
        BinaryOp::Multiply if element == ElementType::F32 => Accumulate::MultiplyF,
        BinaryOp::Maximum if element == ElementType::F32 => Accumulate::MaximumF,
        BinaryOp::Minimum if element == ElementType::F32 => Accumulate::MinimumF,
        _ if element == ElementType::F32 => return None,
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
