//! Dimensions as arguments: numbers from the first, or negative ones from the last.

use halite_core::TensorType;

use crate::{Tensor, check::Checked};

/// Number of a dimension: 0 is the first, -1 the last. All integers have it.
pub trait Dim: Copy {
    /// The number; `None` if it is beyond all dimensions.
    #[doc(hidden)]
    fn number(self) -> Option<i64>;
}

macro_rules! integers_are_dims {
    ($($integer:ty)*) => {$(
        impl Dim for $integer {
            fn number(self) -> Option<i64> {
                self.try_into().ok()
            }
        }
    )*};
}
integers_are_dims!(usize u32 u64 isize i32 i64);

/// Numbers of dimensions, as an array, a slice or a vector: see [`Dim`].
pub trait Dims {
    /// The numbers; `None` for those beyond all dimensions.
    #[doc(hidden)]
    fn numbers(&self) -> Vec<Option<i64>>;
}

impl<D: Dim> Dims for [D] {
    fn numbers(&self) -> Vec<Option<i64>> {
        self.iter().map(|dim| dim.number()).collect()
    }
}

impl<D: Dim, const N: usize> Dims for [D; N] {
    fn numbers(&self) -> Vec<Option<i64>> {
        self[..].numbers()
    }
}

impl<D: Dim> Dims for Vec<D> {
    fn numbers(&self) -> Vec<Option<i64>> {
        self[..].numbers()
    }
}

impl<D: Dims + ?Sized> Dims for &D {
    fn numbers(&self) -> Vec<Option<i64>> {
        D::numbers(self)
    }
}

/// Number `of` these `places`, counted from the first or, if it is negative, from the last.
pub(crate) fn place(number: Option<i64>, places: usize) -> Option<usize> {
    let number = number?;
    let place = if number < 0 {
        places.checked_sub(usize::try_from(number.unsigned_abs()).ok()?)?
    } else {
        usize::try_from(number).ok()?
    };
    (place < places).then_some(place)
}

/// `0 to 2, or -3 to -1 from the last`, of three.
pub(crate) fn places_of(count: usize) -> String {
    match count {
        1 => "0, or -1 from the last".into(),
        count => format!("0 to {}, or -{count} to -1 from the last", count - 1),
    }
}

/// A number as the user wrote it.
pub(crate) fn written(number: Option<i64>) -> String {
    number.map_or("beyond 2^63".into(), |number| number.to_string())
}

impl<'t> Tensor<'t> {
    /// Checks that `dims` are dimensions of this, without duplicates, and counts them from the
    /// first.
    #[track_caller]
    pub(crate) fn known_dims(self, op: &str, dims: impl Dims) -> Checked<'t, Vec<usize>> {
        let ty = self.ty();
        if self.is_error() {
            return Err(self);
        }
        let numbers = dims.numbers();
        let mut known = Vec::with_capacity(numbers.len());
        for &number in &numbers {
            let Some(dim) = place(number, ty.rank()) else {
                return Err(self.mistake(op, || no_dimension(number, &ty)));
            };
            if known.contains(&dim) {
                let list: Vec<String> = numbers.iter().map(|&number| written(number)).collect();
                return Err(self.mistake(op, || {
                    format!(
                        "dimension {dim} of {ty} appears twice in [{}]",
                        list.join(", ")
                    )
                }));
            }
            known.push(dim);
        }
        Ok(known)
    }

    /// Checks that `dim` is a dimension of this, and counts it from the first.
    #[track_caller]
    pub(crate) fn known_dim(self, op: &str, dim: impl Dim) -> Checked<'t, usize> {
        Ok(self.known_dims(op, [dim])?[0])
    }

    /// Counts a place for a new dimension of this from the first: one more than there are
    /// dimensions.
    #[track_caller]
    pub(crate) fn known_place(self, op: &str, dim: impl Dim) -> Checked<'t, usize> {
        if self.is_error() {
            return Err(self);
        }
        let (number, ty) = (dim.number(), self.ty());
        let Some(found) = place(number, ty.rank() + 1) else {
            return Err(self.mistake(op, || {
                let places = places_of(ty.rank() + 1);
                format!("no place {} in {ty}: places are {places}", written(number))
            }));
        };
        Ok(found)
    }
}

/// Message for a number that is not a dimension of `ty`.
pub(crate) fn no_dimension(number: Option<i64>, ty: &TensorType) -> String {
    let number = written(number);
    match ty.rank() {
        0 => format!("dimension {number} of {ty}, which has none"),
        rank => format!(
            "dimension {number} of {ty}, whose dimensions are {}",
            places_of(rank)
        ),
    }
}
