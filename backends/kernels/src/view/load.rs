//! Copies of the elements of a view to contiguous memory, row by row.

use std::ops::Range;

use super::{View, ViewDim};

impl View {
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
    strides: [isize; 2],
    size: usize,
    out: &mut [W],
    word: &impl Fn(T) -> W,
) {
    let [outer, inner] = strides;
    #[inline(always)]
    fn each<const N: usize, T: Copy, W: Copy>(
        source: &[T],
        first: isize,
        strides: [isize; 2],
        out: &mut [W],
        word: &impl Fn(T) -> W,
    ) {
        let [outer, inner] = strides;
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
    pub(super) fn new(view: &'v View, dims: &'v [ViewDim], row: usize) -> Self {
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
