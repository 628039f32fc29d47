//! Operations with regions, and those that compute nothing.

use halite_core::{DType, Result, TensorType};

use super::Infer;
use crate::Graph;

impl Infer<'_> {
    pub(super) fn while_loop(self, carried: usize, condition: &Graph, body: &Graph) -> Result<Vec<TensorType>> {
        if carried == 0 || carried > self.operands.len() {
            return self.fail(format!("{carried} carried values of operands {}; at least one is carried", self.list()));
        }
        self.takes("the condition", condition, self.operands)?;
        self.takes("the body", body, self.operands)?;
        let answer = condition.output_types();
        if answer != [TensorType::scalar(DType::Bool)] {
            return self.fail(format!("the condition gives {answer:?}; it is to give [bool[]]"));
        }
        let next = body.output_types();
        let carried = &self.operands[..carried];
        if !next.iter().eq(carried.iter().copied()) {
            return self.fail(format!(
                "the body gives {next:?}, the carried values are {carried:?}{}",
                first_difference(&next, carried)
            ));
        }
        Ok(next)
    }

    pub(super) fn case(self, branches: &[Graph]) -> Result<Vec<TensorType>> {
        let Some((index, inputs)) = self.operands.split_first() else {
            return self.fail("takes an index and the inputs of its branches, got none");
        };
        if **index != TensorType::scalar(DType::S32) {
            return self.fail(format!("the index is {index}; it is to be s32[]"));
        }
        let Some((first, rest)) = branches.split_first() else {
            return self.fail("takes one branch or more, got none");
        };
        for (i, branch) in branches.iter().enumerate() {
            self.takes(&format!("branch {i}"), branch, inputs)?;
        }
        let results = first.output_types();
        for (i, branch) in rest.iter().enumerate() {
            let other = branch.output_types();
            if other != results {
                let wanted: Vec<&TensorType> = results.iter().collect();
                let difference = first_difference(&other, &wanted);
                return self.fail(format!("branch 0 gives {results:?}, branch {} gives {other:?}{difference}", i + 1));
            }
        }
        Ok(results)
    }

    pub(super) fn optimization_barrier(self) -> Result<Vec<TensorType>> {
        if self.operands.is_empty() {
            return self.fail("takes one operand or more, got none");
        }
        Ok(self.operands.iter().map(|&ty| ty.clone()).collect())
    }

    pub(super) fn takes(self, what: &str, region: &Graph, operands: &[&TensorType]) -> Result<()> {
        if let Some(output) = region.outputs().iter().find(|output| output.index() >= region.value_count()) {
            return self.fail(format!("{what} gives value {}, it has {}", output.index(), region.value_count()));
        }
        let inputs = region.input_types();
        match inputs.iter().eq(operands.iter().copied()) {
            true => Ok(()),
            false => {
                self.fail(format!("{what} takes {inputs:?}, it is given {operands:?}{}", first_difference(&inputs, operands)))
            }
        }
    }
}

/// Where two long lists of types part.
fn first_difference(left: &[TensorType], right: &[&TensorType]) -> String {
    match left.iter().zip(right).position(|(left, right)| left != *right) {
        Some(at) => format!("; number {at} is {} and {}", left[at], right[at]),
        None => format!("; they are {} and {}", left.len(), right.len()),
    }
}
