//! Sets of classes of elements that operations are defined on.

use crate::ElementClass::{self, Bool, Complex, Float, Signed, Unsigned};

pub(crate) const ANY: &[ElementClass] = &[Bool, Signed, Unsigned, Float, Complex];
pub(crate) const BITS: &[ElementClass] = &[Bool, Signed, Unsigned];
pub(crate) const NUMBER: &[ElementClass] = &[Signed, Unsigned, Float, Complex];
pub(crate) const INTEGER: &[ElementClass] = &[Signed, Unsigned];
pub(crate) const INEXACT: &[ElementClass] = &[Float, Complex];
pub(crate) const FLOAT: &[ElementClass] = &[Float];
/// What has an absolute value.
pub(crate) const SIGNED: &[ElementClass] = &[Signed, Float, Complex];
