//! Places: where the elements of a value are.

use halite_kernels::{Gap, View, ViewDim};
use halite_stablehlo::{ElementType, OpKind, RankedType};

/// Elements of a padded operand up to which it is copied, whatever the sizes of operand and result.
pub(super) const ALWAYS_PADDED: usize = 1 << 24;

/// Number of a buffer: an input, a constant, or a result of a node.
pub(super) type Base = usize;

/// A value as a view of a buffer.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Place {
    pub(super) base: Base,
    pub(super) element: ElementType,
    pub(super) view: View,
}

impl Place {
    /// All of a buffer.
    pub(super) fn whole(base: Base, ty: &RankedType) -> Self {
        Place {
            base,
            element: ty.element,
            view: View::contiguous(&ty.dims),
        }
    }

    /// All elements are the first of the buffer.
    pub(super) fn splat(base: Base, ty: &RankedType) -> Self {
        let mut place = Place::whole(base, ty);
        place.view.dims.iter_mut().for_each(|dim| dim.stride = 0);
        place
    }

    /// The first elements along each dimension of the buffer that include all of the view.
    pub(super) fn extents(&self, dims: &[usize]) -> Vec<usize> {
        let whole = View::contiguous(dims);
        let is_part = |(of, whole): (&ViewDim, &ViewDim)| {
            of.gap.is_none() && of.size <= whole.size && (of.size == 1 || of.stride == whole.stride)
        };
        let is_first = self.view.offset == 0
            && self.view.dims.len() == dims.len()
            && self.view.dims.iter().zip(&whole.dims).all(is_part);
        if is_first {
            self.view.dims.iter().map(|dim| dim.size).collect()
        } else {
            dims.to_vec()
        }
    }

    pub(super) fn elements(&self) -> usize {
        self.view.elements()
    }

    pub(super) fn ty(&self) -> RankedType {
        let dims: Vec<_> = self.view.dims.iter().map(|dim| dim.size).collect();
        RankedType::new(self.element, dims)
    }

    /// The value of an operation that only moves elements of `x`, without a copy. `None` if it
    /// needs one. `fill` is the word of padding.
    pub(super) fn moved(
        x: &Place,
        kind: &OpKind,
        ty: &RankedType,
        fill: Option<u64>,
    ) -> Option<Place> {
        let view = &x.view;
        if view.has_gaps() && !matches!(kind, OpKind::Transpose { .. }) {
            return None;
        }
        let view = match kind {
            OpKind::Reshape => reshape(view, &ty.dims)?,
            OpKind::BroadcastInDim { mapping } => broadcast(view, mapping, &ty.dims),
            OpKind::Transpose { permutation } => View {
                dims: permutation.iter().map(|&from| view.dims[from]).collect(),
                ..view.clone()
            },
            OpKind::Reverse { dims } => reverse(view, dims),
            OpKind::Slice {
                starts, strides, ..
            } => {
                let mut view = view.clone();
                for (dim, of) in view.dims.iter_mut().enumerate() {
                    view.offset += starts[dim] as isize * of.stride;
                    of.stride = stepped(of.stride, strides[dim], ty.dims[dim]);
                    of.size = ty.dims[dim];
                }
                view
            }
            OpKind::Pad { low, interior, .. } => pad(view, low, interior, &ty.dims, fill?),
            _ => return None,
        };
        Some(Place {
            base: x.base,
            element: ty.element,
            view,
        })
    }
}

/// Distance in the buffer of the `size` elements that are `step` apart. The step of one element
/// alone may be any number.
pub(super) fn stepped(stride: isize, step: usize, size: usize) -> isize {
    if size > 1 {
        stride * step as isize
    } else {
        stride
    }
}

/// `x` as windows see it, of which the caller makes a copy. `None` if the copy is not worth its
/// memory: a window may be far larger than operand and result, and then meets padding alone, whose
/// size may exceed the address space.
pub(super) fn padded(
    x: &Place,
    padding: &[(i64, i64)],
    interior: &[usize],
    fill: u64,
    results: usize,
) -> Option<Place> {
    let dims = x.view.dims.iter().enumerate().map(|(dim, of)| {
        let filled = of.size + of.size.saturating_sub(1) * interior[dim];
        usize::try_from(filled as i64 + padding[dim].0 + padding[dim].1).ok()
    });
    let dims: Vec<usize> = dims.collect::<Option<_>>()?;
    let elements = (dims.iter()).try_fold(1usize, |all, &size| all.checked_mul(size))?;
    let most = x.elements().saturating_add(results).saturating_mul(16);
    let low: Vec<i64> = padding.iter().map(|padding| padding.0).collect();
    (elements <= most.max(ALWAYS_PADDED)).then(|| Place {
        view: pad(&x.view, &low, interior, &dims, fill),
        ..x.clone()
    })
}

fn pad(view: &View, low: &[i64], interior: &[usize], dims: &[usize], fill: u64) -> View {
    let dim = |(dim, &of): (usize, &ViewDim)| {
        let (low, step) = (low[dim] as isize, interior[dim] + 1);
        let changes = low != 0 || step != 1 || dims[dim] != of.size;
        let gap = changes.then_some(Gap {
            low,
            step,
            count: of.size,
        });
        ViewDim {
            size: dims[dim],
            gap,
            ..of
        }
    };
    View {
        offset: view.offset,
        dims: view.dims.iter().enumerate().map(dim).collect(),
        fill,
    }
}

fn broadcast(view: &View, mapping: &[usize], dims: &[usize]) -> View {
    let mut result = View {
        offset: view.offset,
        dims: dims
            .iter()
            .map(|&size| ViewDim {
                size,
                stride: 0,
                gap: None,
            })
            .collect(),
        fill: 0,
    };
    for (from, &to) in view.dims.iter().zip(mapping) {
        if from.size != 1 {
            result.dims[to].stride = from.stride;
        }
    }
    result
}

fn reverse(view: &View, dims: &[usize]) -> View {
    let mut view = view.clone();
    for &dim in dims {
        let of = &mut view.dims[dim];
        view.offset += of.size.saturating_sub(1) as isize * of.stride;
        of.stride = -of.stride;
    }
    view
}

/// The same elements in row-major order with other dimensions. `None` if no strides describe them.
fn reshape(view: &View, dims: &[usize]) -> Option<View> {
    let mut result = View::contiguous(dims);
    if view.elements() == 0 {
        return Some(result);
    }
    result.offset = view.offset;
    // Each collapsed dimension is split into new ones, from the innermost on.
    let collapsed = view.collapsed();
    let mut sources = collapsed.dims.iter().rev();
    let (mut left, mut stride) = (1, 0);
    for dim in result.dims.iter_mut().rev() {
        if dim.size == 1 {
            dim.stride = 0;
            continue;
        }
        if left == 1 {
            let source = sources.next()?;
            (left, stride) = (source.size, source.stride);
        }
        if left % dim.size != 0 {
            return None;
        }
        dim.stride = stride;
        left /= dim.size;
        stride *= dim.size as isize;
    }
    Some(result)
}
