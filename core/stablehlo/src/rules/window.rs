//! Reductions, sorting and windows. No number of their arithmetic overflows.

use super::{
    Check, TensorLike, ensure, first,
    list::{check_dim, check_dims, check_each, check_items, without},
    take,
};
use crate::WindowAttributes;

/// A reduction along these dimensions, which the result does not have.
///
/// # Errors
/// If they are not different dimensions of `x`.
pub fn reduce<T: TensorLike>(x: &T, dims: &[usize]) -> Check<T> {
    check_dims("dimension", dims, x)?;
    Ok(x.with_dims(&without(x.dims(), dims)))
}

/// Operands of the same dimensions, which are sorted together along one of them.
///
/// # Errors
/// If the dimensions differ, or do not have this one.
pub fn sort<T: TensorLike>(operands: &[&T], dim: usize) -> Check<Vec<T>> {
    let whole = first(operands)?;
    check_dim("dimension", dim, whole)?;
    if let Some(other) = operands.iter().find(|other| other.dims() != whole.dims()) {
        return Err(format!(
            "{whole} and {other} are sorted together, and must have the same dimensions"
        ));
    }
    Ok(operands.iter().map(|&ty| ty.clone()).collect())
}

/// An element for each position of a window on `x`.
///
/// # Errors
/// If a list has not an item for each dimension, or an item is out of range.
pub fn windows<T: TensorLike>(x: &T, windows: &WindowAttributes) -> Check<T> {
    for (what, items) in [
        ("window sizes", &windows.sizes),
        ("window strides", &windows.strides),
        ("base dilations", &windows.base_dilations),
        ("window dilations", &windows.window_dilations),
    ] {
        check_each(what, items, x)?;
        check_items(what, items, 1)?;
    }
    check_each("paddings", &windows.padding, x)?;
    let position = |(dim, &size): (usize, &usize)| {
        let window = Window {
            size,
            base_dilation: windows.base_dilations[dim],
            padding: windows.padding[dim],
            window: windows.sizes[dim],
            window_dilation: windows.window_dilations[dim],
            stride: windows.strides[dim],
        };
        let positions = window.positions();
        positions.map_err(|why| format!("windows along dimension {dim} of {x}: {why}"))
    };
    let dims: Check<Vec<usize>> = x.dims().iter().enumerate().map(position).collect();
    Ok(x.with_dims(&dims?))
}

/// The first operand's type: each element of the second is added to the one that its window selects.
///
/// # Errors
/// If the second has not an element for each position of the window, or the window has dilations.
pub fn select_and_scatter<T: TensorLike>(operands: &[&T], window: &WindowAttributes) -> Check<T> {
    let [x, source] = take(operands)?;
    let expected = windows(x, window)?;
    let mut dilations = window.base_dilations.iter().chain(&window.window_dilations);
    ensure!(
        dilations.all(|&dilation| dilation == 1),
        "the window has dilations; they are all to be 1"
    );
    ensure!(
        *source == expected,
        "the source is {source}, the windows of {x} are {expected}"
    );
    Ok(x.clone())
}

/// Bound of all sizes, so that executors may add a few of them in 64 bits.
const MAX_SIZE: i128 = 1 << 60;

fn bounded(what: &str, number: i128) -> Check<i128> {
    ensure!(
        number.abs() <= MAX_SIZE,
        "{what} is {number}; its magnitude must not exceed 2^60"
    );
    Ok(number)
}

/// Number of elements from the first to the last of `count`, `step` apart.
fn span(what: &str, count: usize, step: usize) -> Check<i128> {
    // Both fit 64 bits, and their product 127: the counts are those of types, below 2^63.
    let span = match i128::try_from(count) {
        Ok(0) => Some(0),
        Ok(count) => (count - 1)
            .checked_mul(step as i128)
            .and_then(|span| span.checked_add(1)),
        Err(_) => None,
    };
    bounded(what, span.unwrap_or(i128::MAX))
}

/// Size of a dimension of `size` elements that are `step` apart, padded on both sides.
pub(super) fn padded(size: usize, step: usize, padding: (i64, i64)) -> Check<i128> {
    let low = bounded("the padding", padding.0.into())?;
    let high = bounded("the padding", padding.1.into())?;
    bounded(
        "the padded size",
        span("the dilated size", size, step)? + low + high,
    )
}

/// One dimension of windows over a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Size of the tensor.
    pub(super) size: usize,
    pub(super) base_dilation: usize,
    pub(super) padding: (i64, i64),
    pub(super) window: usize,
    pub(super) window_dilation: usize,
    pub(super) stride: usize,
}

impl Window {
    /// Number of positions of the window. The stride and the dilations must not be 0.
    pub(super) fn positions(self) -> Check<usize> {
        let padded = padded(self.size, self.base_dilation, self.padding)?;
        let window = span("the dilated window", self.window, self.window_dilation)?;
        if padded <= 0 || window > padded {
            return Ok(0);
        }
        let positions = (padded - window) / self.stride as i128 + 1;
        usize::try_from(positions).map_err(|_| format!("the window has {positions} positions"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_the_specification() {
        let window = Window {
            size: 5,
            base_dilation: 1,
            padding: (0, 0),
            window: 3,
            window_dilation: 1,
            stride: 1,
        };
        let positions = |window: Window| window.positions().unwrap();
        assert_eq!(positions(window), 3);
        assert_eq!(
            positions(Window {
                stride: 2,
                ..window
            }),
            2
        );
        assert_eq!(
            positions(Window {
                padding: (1, 1),
                ..window
            }),
            5
        );
        assert_eq!(
            positions(Window {
                padding: (-3, 0),
                ..window
            }),
            0
        );
        assert_eq!(
            positions(Window {
                padding: (-9, 0),
                ..window
            }),
            0
        );
        assert_eq!(
            positions(Window {
                base_dilation: 2,
                ..window
            }),
            7
        );
        assert_eq!(
            positions(Window {
                window_dilation: 2,
                ..window
            }),
            1
        );
        assert_eq!(positions(Window { size: 0, ..window }), 0);
        assert_eq!(
            positions(Window {
                size: 0,
                padding: (2, 2),
                ..window
            }),
            2
        );
    }

    #[test]
    fn huge_windows_are_errors() {
        let huge = usize::MAX;
        let window = Window {
            size: huge,
            base_dilation: huge,
            padding: (i64::MIN, i64::MAX),
            window: huge,
            window_dilation: huge,
            stride: 1,
        };
        assert!(window.positions().is_err());
        assert!(padded(1, 1, (i64::MIN, 0)).is_err());
        assert!(padded(2, huge, (0, 0)).is_err());
    }
}
