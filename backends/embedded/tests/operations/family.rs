//! Families of cases: one operation, for all element types that it takes.

use std::fmt;

use halite_stablehlo::ElementType;

use crate::operations::random::Random;
use crate::operations::{
    compare::Tolerance,
    draft::{Case, Draft},
    reduce::{COMBINERS, combines},
};

type Write = dyn Fn(&mut Draft<'_>, ElementType) -> Option<Tolerance>;

/// Random cases of one operation.
pub(crate) struct Family {
    pub(crate) operation: &'static str,
    pub(crate) variant: String,
    write: Box<Write>,
}

impl Family {
    /// Cases that `write` writes; it returns `None` for element types that the operation does not
    /// take.
    pub(crate) fn new(
        operation: &'static str,
        write: impl Fn(&mut Draft<'_>, ElementType) -> Option<Tolerance> + 'static,
    ) -> Self {
        Family {
            operation,
            variant: String::new(),
            write: Box::new(write),
        }
    }

    /// The family with another name for its variant of the operation.
    pub(crate) fn variant(self, name: impl Into<String>) -> Self {
        Family {
            variant: name.into(),
            ..self
        }
    }

    /// A random case about `element`.
    pub(crate) fn draw(&self, random: &mut Random, element: ElementType) -> Option<Case> {
        let mut draft = Draft::new(random);
        let tolerance = (self.write)(&mut draft, element)?;
        Some(draft.finish(self.operation, element, self.variant.clone(), tolerance))
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.variant)
    }
}

/// One family for each element type that the operation may convert to.
pub(crate) fn variants(
    operation: &'static str,
    write: fn(&mut Draft<'_>, ElementType, ElementType) -> Option<Tolerance>,
) -> Vec<Family> {
    let family = |to: ElementType| {
        let family = Family::new(operation, move |draft, from| write(draft, from, to));
        family.variant(format!("to {to}"))
    };
    ElementType::ALL.map(family).into()
}

/// One family for each operation that combines two elements, for the types that it combines.
pub(crate) fn accumulations(
    operation: &'static str,
    write: fn(&mut Draft<'_>, &str, ElementType) -> Option<Tolerance>,
) -> Vec<Family> {
    let family = |combiner: &'static str| {
        let family = Family::new(operation, move |draft, element| {
            combines(combiner, element).then(|| write(draft, combiner, element))?
        });
        family.variant(combiner)
    };
    COMBINERS.map(family).into()
}
