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

    /// Writes elements `range`, in row-major order, to `out`, each by `word`, and `fill` for padding.
    ///
    /// The view has to be [collapsed](Self::collapsed) for long rows.
    #[inline(always)]
    pub(crate) fn load<T: Copy, W: Copy>(
        &self,
        source: &[T],
        range: Range<usize>,
        out: &mut [W],
        fill: W,
        word: impl Fn(T) -> W,
    ) {
        if range.is_empty() {
            return;
        }
        let Some((inner, outer)) = self.dims.split_last() else {
            return out.fill(word(source[self.offset as usize]));
        };
        let mut rows = Rows::new(self, outer, range.start / inner.size);
        let mut within = range.start % inner.size;
        let mut rest = out;
        loop {
            let length = (inner.size - within).min(rest.len());
            let (row, next) = rest.split_at_mut(length);
            match (rows.position(), inner.gap) {
                (None, _) => row.fill(fill),
                (Some(from), Some(gap)) => {
                    for (at, out) in row.iter_mut().enumerate() {
                        let element = gap.element(within + at);
                        let from = element.map(|element| from + element * inner.stride);
                        *out = from.map_or(fill, |from| word(source[from as usize]));
                    }
                }
                (Some(from), None) => {
                    let from = from + within as isize * inner.stride;
                    load_row(source, from, inner.stride, row, &word);
                }
            }
            if next.is_empty() {
                return;
            }
            (rest, within) = (next, 0);
            rows.advance();
            if inner.gap.is_none() && inner.size <= SHORT {
                let count = rows.neighbors().min(rest.len() / inner.size);
                if let (1.., Some(from)) = (count, rows.position()) {
                    let (short, next) = rest.split_at_mut(count * inner.size);
                    let strides = [rows.last.stride, inner.stride];
                    load_rows(source, from, strides, inner.size, short, &word);
                    rest = next;
                    rows.skip(count);
                }
                if rest.is_empty() {
                    return;
                }
            }
        }
    }
}

/// Elements of rows that are loaded many at a time: to find the position of each takes longer.
const SHORT: usize = 16;

/// Loads a row from its first element on.
#[inline(always)]
fn load_row<T: Copy, W: Copy>(
    source: &[T],
    first: isize,
    stride: isize,
    out: &mut [W],
    word: &impl Fn(T) -> W,
) {
    let (at, count) = (first as usize, out.len());
    match stride {
        0 => out.fill(word(source[at])),
        1 => {
            for (out, &value) in out.iter_mut().zip(&source[at..][..count]) {
                *out = word(value);
            }
        }
        -1 => {
            let reversed = source[at + 1 - count..=at].iter().rev();
            for (out, &value) in out.iter_mut().zip(reversed) {
                *out = word(value);
            }
        }
        2 => load_every::<2, _, _>(&source[at..], out, word),
        3 => load_every::<3, _, _>(&source[at..], out, word),
        4 => load_every::<4, _, _>(&source[at..], out, word),
        _ => {
            let mut from = first;
            for out in out {
                *out = word(source[from as usize]);
                from += stride;
            }
        }
    }
}

/// Loads the first of `N` elements, and so on.
#[inline(always)]
fn load_every<const N: usize, T: Copy, W: Copy>(
    source: &[T],
    out: &mut [W],
    word: &impl Fn(T) -> W,
) {
    let (parts, rest) = source.as_chunks::<N>();
    let (whole, last) = out.split_at_mut(out.len().min(parts.len()));
    for (out, part) in whole.iter_mut().zip(parts) {
        *out = word(part[0]);
    }
    if let [last] = last {
        *last = word(rest[0]);
    }
}

/// Loads rows of `size` elements, given the distances of rows and of elements.
#[inline(always)]
fn load_rows<T: Copy, W: Copy>(
    source: &[T],
    first: isize,
    [outer, inner]: [isize; 2],
    size: usize,
    out: &mut [W],
    word: &impl Fn(T) -> W,
) {
    #[inline(always)]
    fn each<const N: usize, T: Copy, W: Copy>(
        source: &[T],
        first: isize,
        [outer, inner]: [isize; 2],
        out: &mut [W],
        word: &impl Fn(T) -> W,
    ) {
        for (row, out) in out.as_chunks_mut::<N>().0.iter_mut().enumerate() {
            let at = first + row as isize * outer;
            for (column, out) in out.iter_mut().enumerate() {
                *out = word(source[(at + column as isize * inner) as usize]);
            }
        }
    }
    let strides = [outer, inner];
    match size {
        2 => each::<2, _, _>(source, first, strides, out, word),
        3 => each::<3, _, _>(source, first, strides, out, word),
        4 => each::<4, _, _>(source, first, strides, out, word),
        _ => {
            for (row, out) in out.chunks_exact_mut(size).enumerate() {
                let mut from = first + row as isize * outer;
                for out in out {
                    *out = word(source[from as usize]);
                    from += inner;
                }
            }
        }
    }
}

/// The rows of a view, one after the other.
struct Rows<'v> {
    view: &'v View,
    /// All dimensions but that of the rows and the one before.
    outer: &'v [ViewDim],
    last: ViewDim,
    /// The index along `last`, and that along all outer dimensions.
    index: usize,
    group: usize,
    /// The position of the group; `None` in padding.
    before: Option<isize>,
}

impl<'v> Rows<'v> {
    #[inline(always)]
    fn new(view: &'v View, dims: &'v [ViewDim], row: usize) -> Self {
        const ONE: ViewDim = ViewDim {
            size: 1,
            stride: 0,
            gap: None,
        };
        let (last, outer) = dims.split_last().unwrap_or((&ONE, &[]));
        let (index, group) = (row % last.size, row / last.size);
        let before = view.group(outer, group);
        Rows {
            view,
            outer,
            last: *last,
            index,
            group,
            before,
        }
    }

    /// The position of the row's first element.
    #[inline(always)]
    fn position(&self) -> Option<isize> {
        let element = match self.last.gap {
            None => self.index as isize,
            Some(gap) => gap.element(self.index)?,
        };
        Some(self.before? + element * self.last.stride)
    }

    /// Number of rows from this one on that are equally far from each other.
    #[inline(always)]
    fn neighbors(&self) -> usize {
        match self.last.gap {
            None => self.last.size - self.index,
            Some(_) => 0,
        }
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.skip(1);
    }

    /// Goes on by as many rows of the same group, and maybe to the next group.
    #[inline(always)]
    fn skip(&mut self, count: usize) {
        self.index += count;
        if self.index == self.last.size {
            self.index = 0;
            self.group += 1;
            self.before = self.view.group(self.outer, self.group);
        }
    }
}

impl View {
    /// The position of an index over the outer dimensions; `None` in padding.
    fn group(&self, outer: &[ViewDim], mut index: usize) -> Option<isize> {
        let mut position = self.offset;
        for dim in outer.iter().rev() {
            let of_dim = index % dim.size;
            index /= dim.size;
            let element = match dim.gap {
                Some(gap) => gap.element(of_dim)?,
                None => of_dim as isize,
            };
            position += element * dim.stride;
        }
        Some(position)
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
