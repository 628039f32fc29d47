//! Rules of operations: the types of the results of operations on tensors of these types, or why
//! the operands or the attributes do not fit
//! (<https://openxla.org/stablehlo/spec>).
//!
//! A rule is written once for all who need it: [`Module::verify`](crate::Module::verify), whose
//! tensors are of [`RankedType`]s, and recorders of programs, whose tensors are of `TensorType`s.
//! Errors are messages without the operation and its place, and name types as the caller writes
//! them. Arguments may be arbitrary: dimensions that are out of range or appear twice, sizes that
//! overflow, wrong counts.
//!
//! ```
//! use halite_core::{DType, TensorType};
//! use halite_stablehlo::rules;
//!
//! let x = TensorType::new(DType::F32, [2, 3]);
//! assert_eq!(rules::transpose(&[&x], &[1, 0]).unwrap().dims(), [3, 2]);
//! assert_eq!(
//!     rules::transpose(&[&x], &[0, 2]).unwrap_err(),
//!     "dimension 2 of f32[2, 3], whose dimensions are 0 to 1"
//! );
//! ```

mod contraction;
mod elementwise;
mod gather;
mod linalg;
mod list;
mod shape;
mod window;

use std::fmt;

use halite_core::TensorType;

use crate::{ElementClass, ElementType, RankedType};

pub(crate) use self::elementwise::complex_of;
pub use self::{
    contraction::{convolution, dot},
    elementwise::{
        binary, bitcast_convert, clamp, compare, convert, reduce_precision, select, unary,
    },
    gather::{gather, scatter},
    linalg::{cholesky, triangular_solve},
    list::check_dim,
    shape::{
        broadcast, concatenate, dynamic_slice, dynamic_update_slice, iota, pad, reshape, reverse,
        slice, transpose,
    },
    window::{reduce, select_and_scatter, sort, windows},
};

/// What a rule returns: the error is a message without the operation and its place.
pub type Check<T = ()> = Result<T, String>;

/// Returns an error with the message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// The type of a tensor.
pub trait TensorLike: Clone + PartialEq + fmt::Display {
    /// Classes of elements that such tensors may have.
    const CLASSES: &'static [ElementClass];

    /// Type of each element.
    fn element(&self) -> ElementType;

    /// Sizes of the dimensions, outermost first.
    fn dims(&self) -> &[usize];

    /// The same element type with other dimensions.
    fn with_dims(&self, dims: &[usize]) -> Self;

    /// The same dimensions with another element type.
    ///
    /// # Errors
    /// If such tensors have no elements of this type.
    fn with_element(&self, element: ElementType) -> Check<Self>;

    /// Number of dimensions.
    fn rank(&self) -> usize {
        self.dims().len()
    }
}

impl TensorLike for RankedType {
    const CLASSES: &'static [ElementClass] = crate::ops::classes::ANY;

    fn element(&self) -> ElementType {
        self.element
    }

    fn dims(&self) -> &[usize] {
        &self.dims
    }

    fn with_dims(&self, dims: &[usize]) -> Self {
        RankedType::new(self.element, dims)
    }

    fn with_element(&self, element: ElementType) -> Check<Self> {
        Ok(RankedType::new(element, &*self.dims))
    }
}

impl TensorLike for TensorType {
    const CLASSES: &'static [ElementClass] = &[
        ElementClass::Bool,
        ElementClass::Signed,
        ElementClass::Unsigned,
        ElementClass::Float,
    ];

    fn element(&self) -> ElementType {
        self.dtype().into()
    }

    fn dims(&self) -> &[usize] {
        self.dims()
    }

    fn with_dims(&self, dims: &[usize]) -> Self {
        self.with_dims(dims)
    }

    fn with_element(&self, element: ElementType) -> Check<Self> {
        match element.dtype() {
            Some(dtype) => Ok(self.with_dtype(dtype)),
            None => Err(format!("no array has elements of type {element}")),
        }
    }
}

/// The operands, if there are `N`.
///
/// # Errors
/// If there are fewer or more.
pub fn take<'a, const N: usize, T: TensorLike>(operands: &[&'a T]) -> Check<[&'a T; N]> {
    operands.try_into().map_err(|_| {
        let plural = if N == 1 { "" } else { "s" };
        format!("takes {N} operand{plural}, got {}", listed(operands))
    })
}

/// The first operand.
fn first<'a, T: TensorLike>(operands: &[&'a T]) -> Check<&'a T> {
    let first = operands.first().copied();
    first.ok_or_else(|| "takes one operand or more, got none".to_owned())
}

/// The operands for a message: `2 (f32[3], f32[4])`.
pub fn listed<T: TensorLike>(operands: &[&T]) -> String {
    if operands.is_empty() {
        return "none".to_owned();
    }
    let types: Vec<String> = operands.iter().map(|ty| ty.to_string()).collect();
    format!("{} ({})", types.len(), types.join(", "))
}

/// Checks that the elements are of one of these classes.
///
/// # Errors
/// With the classes that such tensors may have.
pub fn check_class<T: TensorLike>(ty: &T, classes: &[ElementClass]) -> Check {
    use ElementClass::{Bool, Complex, Float, Signed, Unsigned};

    let class = ty.element().class();
    if classes.contains(&class) {
        return Ok(());
    }
    let takes = |class| classes.contains(&class) && T::CLASSES.contains(&class);
    let integers = match (takes(Signed), takes(Unsigned)) {
        (true, true) => Some("integers"),
        (true, false) => Some("signed integers"),
        (false, true) => Some("unsigned integers"),
        (false, false) => None,
    };
    let names: Vec<&str> = [
        takes(Bool).then_some("bool"),
        integers,
        takes(Float).then_some("floats"),
        takes(Complex).then_some("complex numbers"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let names = match &*names {
        [] => "none of the elements that such tensors have".to_owned(),
        [one] => (*one).to_owned(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    };
    let converts = matches!(class, Bool) || matches!(class, Signed | Unsigned) && takes(Float);
    let advice = if converts { " (convert first)" } else { "" };
    Err(format!("takes {names}, not {ty}{advice}"))
}

/// Checks that the type is that of a scalar with these elements.
fn check_scalar_of<T: TensorLike>(what: &str, ty: &T, of: &T) -> Check {
    let needed = of.with_dims(&[]);
    ensure!(
        *ty == needed,
        "{what} is {ty}, for {of} it must be {needed}"
    );
    Ok(())
}
