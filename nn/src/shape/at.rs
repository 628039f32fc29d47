//! Slices by the terms of NumPy: `x.at(s![.., 1..5, -1])`.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::{
    Tensor,
    dim::{Dim, place, places_of, written},
};

/// Part of one dimension: an index, or a range with a step. [`s!`](crate::s) makes a list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice(Part);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Index(Option<i64>),
    Range {
        start: Option<i64>,
        end: End,
        step: usize,
    },
}

/// End of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    All,
    Before(Option<i64>),
    With(Option<i64>),
}

impl Slice {
    /// An index, which removes the dimension, or a range of indices. Negative numbers count from
    /// the end.
    pub fn of(part: impl IntoSlice) -> Self {
        part.into_slice()
    }

    /// Every `step`th element of a range.
    pub fn step(mut self, by: usize) -> Self {
        if let Part::Range { step, .. } = &mut self.0 {
            *step = by;
        }
        self
    }
}

/// What [`s!`](crate::s) takes for a dimension: an integer, or a range of integers.
pub trait IntoSlice {
    /// The part of the dimension.
    fn into_slice(self) -> Slice;
}

impl<D: Dim> IntoSlice for D {
    fn into_slice(self) -> Slice {
        Slice(Part::Index(self.number()))
    }
}

fn range(start: Option<i64>, end: End) -> Slice {
    let step = 1;
    Slice(Part::Range { start, end, step })
}

impl<D: Dim> IntoSlice for Range<D> {
    fn into_slice(self) -> Slice {
        range(self.start.number(), End::Before(self.end.number()))
    }
}

impl<D: Dim> IntoSlice for RangeInclusive<D> {
    fn into_slice(self) -> Slice {
        range(self.start().number(), End::With(self.end().number()))
    }
}

impl<D: Dim> IntoSlice for RangeFrom<D> {
    fn into_slice(self) -> Slice {
        range(self.start.number(), End::All)
    }
}

impl<D: Dim> IntoSlice for RangeTo<D> {
    fn into_slice(self) -> Slice {
        range(Some(0), End::Before(self.end.number()))
    }
}

impl<D: Dim> IntoSlice for RangeToInclusive<D> {
    fn into_slice(self) -> Slice {
        range(Some(0), End::With(self.end.number()))
    }
}

impl IntoSlice for RangeFull {
    fn into_slice(self) -> Slice {
        range(Some(0), End::All)
    }
}

/// Parts of the first dimensions, for [`Tensor::at`]: an index, a range, or a range and a step for
/// each, `s![.., 1..5, -1, ..10; 2]`. Negative numbers count from the end.
#[macro_export]
macro_rules! s {
    (@ [$($done:expr,)*]) => {{
        #[allow(clippy::reversed_empty_ranges)] // `1..-1` is not empty here
        let slices: [$crate::Slice; _] = [$($done,)*];
        slices
    }};
    (@ [$($done:expr,)*] $range:expr ; $step:expr , $($rest:tt)*) => {
        $crate::s!(@ [$($done,)* $crate::Slice::of($range).step($step),] $($rest)*)
    };
    (@ [$($done:expr,)*] $range:expr ; $step:expr) => {
        $crate::s!(@ [$($done,)* $crate::Slice::of($range).step($step),])
    };
    (@ [$($done:expr,)*] $part:expr , $($rest:tt)*) => {
        $crate::s!(@ [$($done,)* $crate::Slice::of($part),] $($rest)*)
    };
    (@ [$($done:expr,)*] $part:expr) => {
        $crate::s!(@ [$($done,)* $crate::Slice::of($part),])
    };
    ($($parts:tt)*) => { $crate::s!(@ [] $($parts)*) };
}

impl<'t> Tensor<'t> {
    /// The part at `slices`, one for each of the first dimensions; the other dimensions stay whole.
    /// An index removes its dimension.
    ///
    /// ```
    /// use halite_core::{DType, TensorType};
    /// use halite_nn::{Trace, s};
    ///
    /// let cx = Trace::new();
    /// let x = cx.input(TensorType::new(DType::F32, [8, 6, 3]), "x");
    /// assert_eq!(x.at(s![.., 1..5, -1]).dims(), [8, 4]);
    /// assert_eq!(x.at(s![0]).dims(), [6, 3]);
    /// assert_eq!(x.at(s![-3.., ..;2]).dims(), [3, 3, 3]);
    /// let _ = x.at(s![8]); // a mistake with this line
    /// assert!(cx.check().unwrap_err().to_string().contains("index 8 of the 8 elements"));
    /// ```
    ///
    /// Indices are known when the function is traced; [`take`](Self::take) and
    /// [`dynamic_slice`](Self::dynamic_slice) take tensors. Unlike NumPy's, ranges beyond the end are
    /// mistakes.
    #[track_caller]
    pub fn at(self, slices: impl AsRef<[Slice]>) -> Tensor<'t> {
        let (slices, ty) = (slices.as_ref(), self.ty());
        if slices.len() > ty.rank() {
            return self.mistake("slice", || {
                let (count, rank) = (slices.len(), ty.rank());
                format!("{count} slices of {ty}, which has {rank} dimensions")
            });
        }
        let mut all = Vec::with_capacity(ty.rank());
        let mut kept = Vec::with_capacity(ty.rank());
        for (dim, &size) in ty.dims().iter().enumerate() {
            let bounds = match slices.get(dim) {
                None => Ok(Bounds::whole(size)),
                Some(slice) => slice.within(size),
            };
            let bounds = match bounds {
                Ok(bounds) => bounds,
                Err(why) => {
                    return self.mistake("slice", || format!("{why} of dimension {dim} of {ty}"));
                }
            };
            if !matches!(slices.get(dim), Some(Slice(Part::Index(_)))) {
                kept.push(bounds.count());
            }
            all.push(bounds);
        }
        let each = |of: fn(&Bounds) -> usize| all.iter().map(of).collect::<Vec<usize>>();
        let (starts, ends) = (each(|bounds| bounds.start), each(|bounds| bounds.end));
        let part = self.slice_strided(starts, ends, each(|bounds| bounds.step));
        part.reshape(kept)
    }
}

impl Slice {
    /// The indices of this within a dimension of `size`; otherwise the beginning of a message.
    fn within(&self, size: usize) -> Result<Bounds, String> {
        match self.0 {
            Part::Index(index) => place(index, size)
                .map(Bounds::one)
                .ok_or_else(|| match size {
                    0 => format!("index {} of the 0 elements", written(index)),
                    size => format!(
                        "index {} of the {size} elements ({})",
                        written(index),
                        places_of(size)
                    ),
                }),
            Part::Range { start, end, step } => Bounds::of(start, end, step, size),
        }
    }
}

/// A range within a dimension.
struct Bounds {
    start: usize,
    end: usize,
    step: usize,
}

impl Bounds {
    fn whole(size: usize) -> Self {
        Bounds {
            start: 0,
            end: size,
            step: 1,
        }
    }

    fn one(index: usize) -> Self {
        Bounds {
            start: index,
            end: index + 1,
            step: 1,
        }
    }

    fn count(&self) -> usize {
        (self.end - self.start).div_ceil(self.step)
    }

    /// The range within a dimension of `size`; otherwise the beginning of a message.
    fn of(start: Option<i64>, end: End, step: usize, size: usize) -> Result<Self, String> {
        if step == 0 {
            return Err(format!("a step of 0 over the {size} elements"));
        }
        // A range may begin and end behind the last element.
        let edge = |number: Option<i64>| match number {
            Some(number) if number < 0 => place(Some(number), size),
            number => place(number, size + 1),
        };
        let (from, to, text) = match end {
            End::All => (edge(start), Some(size), String::new()),
            End::Before(end) => (edge(start), edge(end), written(end)),
            End::With(end) => {
                let last = place(end, size).map(|last| last + 1);
                (edge(start), last, format!("={}", written(end)))
            }
        };
        match (from, to) {
            (Some(start), Some(end)) if start <= end => Ok(Bounds { start, end, step }),
            _ => Err(format!(
                "range {}..{text} of the {size} elements",
                written(start)
            )),
        }
    }
}
