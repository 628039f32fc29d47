use std::fmt;

use halite_core::{Error, Family, Result};

use super::{Gradient, Named, Optimizer};
use crate::{Param, Pattern, Schedule, Tensor};

/// An optimizer with other settings for groups of parameters: see [`Optimizer::group`].
#[derive(Clone)]
pub struct Groups<O> {
    default: O,
    groups: Vec<(Pattern, O)>,
}

impl<O: Optimizer> Groups<O> {
    pub(super) fn new(default: O) -> Self {
        Groups {
            default,
            groups: Vec::new(),
        }
    }

    /// Adds a group: as [`Optimizer::group`].
    ///
    /// # Errors
    /// If it is not a valid pattern.
    pub fn group(mut self, pattern: &str, settings: impl FnOnce(O) -> O) -> Result<Self>
    where
        O: Clone,
    {
        let settings = settings(self.default.clone());
        self.groups.push((pattern.parse()?, settings));
        Ok(self)
    }

    /// Number of the first group whose pattern matches; `None` for the default.
    fn number(&self, named: Named<'_>) -> Option<usize> {
        (self.groups.iter()).position(|(pattern, _)| pattern.matches(named.path))
    }

    fn of(&self, named: Named<'_>) -> &O {
        (self.number(named)).map_or(&self.default, |number| &self.groups[number].1)
    }
}

impl<O: Optimizer> Optimizer for Groups<O> {
    type Slot = O::Slot;

    fn slot(&self, named: Named<'_>) -> <Self::Slot as Family>::Of<Param> {
        self.of(named).slot(named)
    }

    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slot: <Self::Slot as Family>::Of<Tensor<'t>>,
    ) -> (Tensor<'t>, <Self::Slot as Family>::Of<Tensor<'t>>) {
        self.of(gradient.named).direction(gradient, slot)
    }

    fn first_update(&self, named: Named<'_>) -> u64 {
        self.of(named).first_update(named)
    }

    fn is_elementwise(&self, named: Named<'_>) -> bool {
        self.of(named).is_elementwise(named)
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        let groups = self.groups.iter().flat_map(|(pattern, group)| {
            let schedules = group.schedules().into_iter();
            schedules.map(move |(name, schedule)| (format!("{name} of {pattern}"), schedule))
        });
        self.default.schedules().into_iter().chain(groups).collect()
    }

    fn check(&self, params: &[Named<'_>]) -> Result<()> {
        let of = |number: Option<usize>| -> Vec<Named<'_>> {
            let params = params.iter().copied();
            params
                .filter(|named| self.number(*named) == number)
                .collect()
        };
        self.default.check(&of(None))?;
        for (number, (pattern, group)) in self.groups.iter().enumerate() {
            let members = of(Some(number));
            if members.is_empty() {
                return Err(unmatched(&format!("group `{pattern}`"), params));
            }
            group.check(&members)?;
        }
        Ok(())
    }
}

/// By pattern, in their order.
impl<O: fmt::Debug> fmt::Debug for Groups<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (pattern, group) in &self.groups {
            map.entry(&format_args!("{pattern}"), group);
        }
        map.entry(&format_args!("others"), &self.default).finish()
    }
}

/// The error for a part of the optimizer without parameters.
pub(super) fn unmatched(part: &str, params: &[Named<'_>]) -> Error {
    const SHOWN: usize = 8;
    let names = params.iter().take(SHOWN);
    let names: Vec<String> = names.map(|named| format!("`{}`", named.path)).collect();
    let more = match params.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "{part} has no parameter: it matches none of the trained ones, or those before it take \
         them; trained are {}{more}",
        names.join(", ")
    );
    Error::invalid("optimizer", message)
}
