//! Operations on constants, which are computed once.

use halite_core::Result;
use halite_stablehlo::{Function, Operation, ValueId};

use super::{
    super::place::Place,
    build::{Builder, tensor},
};
use crate::oracle::{Tensor, Value, compute};

/// Most elements of a result that is computed once, with the plan.
const LARGEST_FOLDED: usize = 1 << 18;

impl Builder<'_> {
    /// The results of an operation on small constants.
    pub(super) fn folded(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
    ) -> Result<Option<Vec<Tensor>>> {
        let types: Vec<_> = operation
            .results
            .iter()
            .map(|&id| function.ty(id))
            .collect();
        let fits = |&id: &ValueId| tensor(function, id).elements() <= LARGEST_FOLDED;
        if !operation.regions.is_empty() || !operation.results.iter().all(fits) {
            return Ok(None);
        }
        let constants = operands.iter().map(|place| self.tensor(place));
        let constants = constants.map(|tensor| tensor.map(Value::Tensor));
        let Some(constants) = constants.collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let has_room = |&id: &ValueId| self.has_room(tensor(function, id));
        if !operation.results.iter().all(has_room) {
            return Ok(None);
        }
        // What fails does so in a launch, and only if it is used.
        let Ok(Some(values)) = compute(&operation.kind, &constants, &types) else {
            return Ok(None);
        };
        values
            .iter()
            .map(|value| value.tensor().cloned())
            .collect::<Result<_>>()
            .map(Some)
    }

    /// The value of a place, if it is a small constant: all of a buffer, or one element of it.
    fn tensor(&self, place: &Place) -> Option<Tensor> {
        let Tensor { ty, bytes } = self.graph.bases[place.base].constant.as_ref()?;
        let is_whole = place.view.is_contiguous() && place.elements() == ty.elements();
        if is_whole {
            return Some(Tensor {
                ty: place.ty(),
                bytes: bytes.clone(),
            });
        }
        let elements = place.elements();
        let is_small = place.view.is_uniform() && (1..=LARGEST_FOLDED).contains(&elements);
        is_small.then(|| {
            let size = ty.element.size();
            let element = &bytes[place.view.offset as usize * size..][..size];
            Tensor::new(place.ty(), element.repeat(elements))
        })
    }
}
