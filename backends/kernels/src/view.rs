//! Strided views: broadcasts, slices, transpositions, reversals and padding without a copy.

mod load;

/// A tensor whose elements are those of a buffer, in another arrangement: element `(i, j, ..)` is
/// at `offset + i * stride_i + j * stride_j + ..`, or is `fill` where a [`Gap`] has no element.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct View {
    /// Position of the first element.
    pub offset: isize,
    /// The dimensions, outermost first.
    pub dims: Vec<ViewDim>,
    /// The word of padding.
    pub fill: u64,
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

/// Padding along a dimension: position `p` has element `(p - low) / step`, if it is one of `count`.
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
    #[inline(always)]
    fn element(self, position: usize) -> Option<isize> {
        let from_first = position as isize - self.low;
        let (element, rest) = match self.step {
            1 => (from_first, 0),
            2 => (from_first >> 1, from_first & 1),
            step => (from_first / step as isize, from_first % step as isize),
        };
        let exists = from_first >= 0 && rest == 0 && element < self.count as isize;
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

    /// Returns whether the elements, of a collapsed view, are neighbors in order.
    pub(crate) fn is_line(&self) -> bool {
        matches!(
            self.dims[..],
            [ViewDim {
                stride: 1,
                gap: None,
                ..
            }]
        )
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
}

impl View {}

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
            view.load(source, range, &mut out, view.fill as u32, |word| word);
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
    fn rows_of_any_stride_are_those_of_a_naive_loop() {
        let source: Vec<u32> = (0..400).collect();
        for size in [1, 2, 3, 4, 5, 17, 40] {
            for stride in [-7, -2, -1, 0, 1, 2, 3, 4, 5, 9] {
                let mut view = View::contiguous(&[3, size]);
                (view.dims[0].stride, view.dims[1].stride) = (1, stride);
                view.offset = 1 - (stride * (size as isize - 1)).min(0);
                let at = |row: usize, column: usize| {
                    (view.offset + row as isize + column as isize * stride) as u32
                };
                let expected: Vec<u32> = (0..3)
                    .flat_map(|row| (0..size).map(move |column| (row, column)))
                    .map(|(row, column)| at(row, column))
                    .collect();
                assert_eq!(load(&view, &source), expected, "{size} by {stride}");
            }
        }
    }

    #[test]
    fn contiguous_dimensions_collapse() {
        let view = View::contiguous(&[2, 1, 3, 4]);
        assert_eq!(view.collapsed(), View::contiguous(&[24]));
        assert!(view.is_contiguous());
    }
}
