//! Strided views: broadcasts, slices, transpositions, reversals and padding without a copy.

use std::ops::Range;

/// A tensor whose elements are those of a buffer, in another arrangement: element `(i, j, ..)` is
/// at `offset + i * stride_i + j * stride_j + ..`, or is `fill` where a [`Gap`] has no element.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct View {
    /// Position of the first element.
    pub offset: isize,
    /// The dimensions, outermost first.
    pub dims: Vec<ViewDim>,
    /// The bits of padding.
    pub fill: u32,
}

/// A dimension of a [`View`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ViewDim {
    /// Number of elements.
    pub size: usize,
    /// Distance in the buffer of neighbors.
    pub stride: isize,
    /// The padding; `None` if there is none.
    pub gap: Option<Gap>,
}

/// Padding along a dimension: position `p` has element `(p - low) / step` if that is one of `count`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Gap {
    /// Positions before the first element; negative if elements are cut off.
    pub low: isize,
    /// 1 + positions between two elements.
    pub step: usize,
    /// Number of elements.
    pub count: usize,
}

impl Gap {
    fn element(self, position: usize) -> Option<isize> {
        let from_first = position as isize - self.low;
        let step = self.step as isize;
        let element = from_first / step;
        let exists = from_first >= 0 && from_first % step == 0 && element < self.count as isize;
        exists.then_some(element)
    }
}

impl View {
    /// A view of all elements of a row-major buffer.
    pub fn contiguous(dims: &[usize]) -> Self {
        let mut stride = 1;
        let mut view: Vec<_> = (dims.iter().rev())
            .map(|&size| {
                let dim = ViewDim {
                    size,
                    stride,
                    gap: None,
                };
                stride *= size as isize;
                dim
            })
            .collect();
        view.reverse();
        View {
            offset: 0,
            dims: view,
            fill: 0,
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().map(|dim| dim.size).product()
    }

    /// Returns whether some elements are padding.
    pub fn has_gaps(&self) -> bool {
        self.dims.iter().any(|dim| dim.gap.is_some())
    }

    /// Returns whether the elements are the first ones of the buffer, in its order.
    pub fn is_contiguous(&self) -> bool {
        let mut stride = 1;
        let dense = self.dims.iter().rev().all(|dim| {
            let fits = dim.size == 1 || dim.stride == stride;
            stride *= dim.size as isize;
            fits && dim.gap.is_none()
        });
        (dense && self.offset == 0) || self.elements() == 0 && !self.has_gaps()
    }

    /// Returns whether all elements are one of the buffer.
    pub fn is_uniform(&self) -> bool {
        !self.has_gaps() && self.dims.iter().all(|dim| dim.size == 1 || dim.stride == 0)
    }

    /// The same elements with as few dimensions as possible.
    pub fn collapsed(&self) -> View {
        let mut dims: Vec<ViewDim> = Vec::with_capacity(self.dims.len());
        for &dim in self
            .dims
            .iter()
            .filter(|dim| dim.size != 1 || dim.gap.is_some())
        {
            match dims.last_mut() {
                Some(outer)
                    if outer.gap.is_none()
                        && dim.gap.is_none()
                        && outer.stride == dim.stride * dim.size as isize =>
                {
                    *outer = ViewDim {
                        size: outer.size * dim.size,
                        ..dim
                    };
                }
                _ => dims.push(dim),
            }
        }
        View {
            dims,
            ..self.clone()
        }
    }

    /// Calls `visit` with the runs that elements `range` consist of, in row-major order.
    ///
    /// The view has to be [collapsed](Self::collapsed) for long runs.
    fn for_each_run(&self, range: Range<usize>, mut visit: impl FnMut(Run)) {
        let Some((inner, outer)) = self.dims.split_last() else {
            if !range.is_empty() {
                visit(Run {
                    into: 0..1,
                    from: Some(self.offset),
                    stride: 0,
                });
            }
            return;
        };
        if range.is_empty() {
            return;
        }
        let mut rows = Rows::new(self.offset, outer, range.start / inner.size);
        let mut at = range.start;
        let mut within = at % inner.size;
        loop {
            let length = (inner.size - within).min(range.end - at);
            let into = at - range.start..at - range.start + length;
            match (rows.position(), inner.gap) {
                (Some(from), None) => {
                    let from = Some(from + within as isize * inner.stride);
                    visit(Run {
                        into,
                        from,
                        stride: inner.stride,
                    });
                }
                (Some(from), Some(gap)) => {
                    for (step, into) in into.enumerate() {
                        let element = gap.element(within + step);
                        let from = element.map(|element| from + element * inner.stride);
                        visit(Run {
                            into: into..into + 1,
                            from,
                            stride: 0,
                        });
                    }
                }
                (None, _) => visit(Run {
                    into,
                    from: None,
                    stride: 0,
                }),
            }
            at += length;
            if at == range.end {
                return;
            }
            within = 0;
            rows.advance();
        }
    }
}

/// The rows of a view, one after the other.
struct Rows<'v> {
    dims: &'v [ViewDim],
    /// For each dimension the index, and the position up to it; `None` in padding.
    path: Vec<(usize, Option<isize>)>,
    offset: isize,
}

impl<'v> Rows<'v> {
    fn new(offset: isize, dims: &'v [ViewDim], mut row: usize) -> Self {
        let mut path = vec![(0, None); dims.len()];
        for (dim, step) in dims.iter().zip(&mut path).rev() {
            step.0 = row % dim.size;
            row /= dim.size;
        }
        let mut rows = Rows { dims, path, offset };
        rows.update(0);
        rows
    }

    /// The position of the row's first element.
    fn position(&self) -> Option<isize> {
        self.path.last().map_or(Some(self.offset), |step| step.1)
    }

    fn advance(&mut self) {
        for at in (0..self.dims.len()).rev() {
            self.path[at].0 += 1;
            if self.path[at].0 < self.dims[at].size {
                return self.update(at);
            }
            self.path[at].0 = 0;
        }
    }

    /// Computes positions from one dimension on.
    fn update(&mut self, first: usize) {
        let mut before = if first == 0 {
            Some(self.offset)
        } else {
            self.path[first - 1].1
        };
        for (dim, (index, position)) in self.dims.iter().zip(&mut self.path).skip(first) {
            let element = match dim.gap {
                Some(gap) => gap.element(*index),
                None => Some(*index as isize),
            };
            let step = element.map(|element| element * dim.stride);
            *position = before.zip(step).map(|(before, step)| before + step);
            before = *position;
        }
    }
}

/// A part of a row of a view.
struct Run {
    /// Positions in the destination.
    into: Range<usize>,
    /// Position of the first element in the buffer; `None` for padding.
    from: Option<isize>,
    /// Distance of the following elements.
    stride: isize,
}

impl View {
    /// Writes elements `range` to `out`, each by `word`.
    #[inline(always)]
    pub(crate) fn load<T: Copy>(
        &self,
        source: &[T],
        range: Range<usize>,
        out: &mut [u32],
        word: impl Fn(T) -> u32,
    ) {
        self.for_each_run(range, |run| {
            let out = &mut out[run.into];
            let Some(from) = run.from else {
                return out.fill(self.fill);
            };
            let from = from as usize;
            match run.stride {
                0 => out.fill(word(source[from])),
                1 => {
                    let source = &source[from..from + out.len()];
                    out.iter_mut()
                        .zip(source)
                        .for_each(|(out, &value)| *out = word(value));
                }
                stride if stride > 0 => {
                    let source = source[from..].iter().step_by(stride as usize);
                    out.iter_mut()
                        .zip(source)
                        .for_each(|(out, &value)| *out = word(value));
                }
                stride => {
                    let source = source[..=from].iter().rev().step_by(stride.unsigned_abs());
                    out.iter_mut()
                        .zip(source)
                        .for_each(|(out, &value)| *out = word(value));
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(view: &View, source: &[u32]) -> Vec<u32> {
        let mut all = Vec::new();
        let view = view.collapsed();
        // In two parts, so that one starts within a row.
        let (count, half) = (view.elements(), view.elements() / 3);
        for range in [0..half, half..count] {
            let mut out = vec![0; range.len()];
            view.load(source, range, &mut out, |word| word);
            all.extend(out);
        }
        all
    }

    #[test]
    fn transposition_swaps_strides() {
        let mut view = View::contiguous(&[2, 3]);
        view.dims.swap(0, 1);
        assert_eq!(load(&view, &[0, 1, 2, 3, 4, 5]), [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn negative_strides_reverse() {
        let mut view = View::contiguous(&[4]);
        view.dims[0].stride = -1;
        view.offset = 3;
        assert_eq!(load(&view, &[0, 1, 2, 3]), [3, 2, 1, 0]);
    }

    #[test]
    fn gaps_are_filled() {
        let mut view = View::contiguous(&[2]);
        view.dims[0] = ViewDim {
            size: 6,
            stride: 1,
            gap: Some(Gap {
                low: 1,
                step: 3,
                count: 2,
            }),
        };
        view.fill = 9;
        assert_eq!(load(&view, &[5, 6]), [9, 5, 9, 9, 6, 9]);
        view.dims[0].gap = Some(Gap {
            low: -1,
            step: 1,
            count: 2,
        });
        assert_eq!(load(&view, &[5, 6]), [6, 9, 9, 9, 9, 9]);
    }

    #[test]
    fn contiguous_dimensions_collapse() {
        let view = View::contiguous(&[2, 1, 3, 4]);
        assert_eq!(view.collapsed(), View::contiguous(&[24]));
        assert!(view.is_contiguous());
    }
}
