//! Operations with regions, and identities.

use halite_core::{DType, TensorType};
use halite_stablehlo::rules::Check;

use super::{Infer, fail};
use crate::{CustomCall, Graph};

impl Infer<'_> {
    pub(super) fn while_loop(
        self,
        carried: usize,
        condition: &Graph,
        body: &Graph,
    ) -> Check<Vec<TensorType>> {
        if carried == 0 || carried > self.operands.len() {
            return fail(format!(
                "{carried} carried values of operands {}; at least one is carried",
                self.listed()
            ));
        }
        self.takes("the condition", condition, self.operands)?;
        self.takes("the body", body, self.operands)?;
        let answer = condition.output_types();
        if answer != [TensorType::scalar(DType::Bool)] {
            return fail(format!(
                "the condition returns {answer:?}; it must return [bool[]]"
            ));
        }
        let next = body.output_types();
        let carried = &self.operands[..carried];
        if !next.iter().eq(carried.iter().copied()) {
            return fail(format!(
                "the body returns {next:?}, the carried values are {carried:?}{}",
                first_difference(&next, carried)
            ));
        }
        Ok(next)
    }

    pub(super) fn scan(
        self,
        carried: usize,
        scanned: usize,
        length: usize,
        residuals: usize,
        body: &Graph,
    ) -> Check<Vec<TensorType>> {
        let invariant = self
            .operands
            .len()
            .checked_sub(carried)
            .and_then(|rest| rest.checked_sub(scanned));
        let Some(invariant) = invariant else {
            return fail(format!(
                "{carried} carried and {scanned} scanned values of operands {}",
                self.listed()
            ));
        };
        if i32::try_from(length).is_err() {
            return fail(format!("{length} iterations exceed the range of s32"));
        }
        let (whole, scanned) = self.operands.split_at(carried + invariant);
        for (i, ty) in scanned.iter().enumerate() {
            if ty.dims().first() != Some(&length) {
                return fail(format!(
                    "scanned operand {i} is {ty}; for {length} iterations its first dimension must be {length}"
                ));
            }
        }
        let slices: Vec<TensorType> = scanned
            .iter()
            .map(|ty| TensorType::new(ty.dtype(), &ty.dims()[1..]))
            .collect();
        self.takes(
            "the body",
            body,
            &whole.iter().copied().chain(&slices).collect::<Vec<_>>(),
        )?;
        let mut results = body.output_types();
        let carried_types = &self.operands[..carried];
        if results.len() < carried || !results[..carried].iter().eq(carried_types.iter().copied()) {
            let next = &results[..carried.min(results.len())];
            let difference = first_difference(next, carried_types);
            return fail(format!(
                "the body returns {next:?}, the carried values are {carried_types:?}{difference}"
            ));
        }
        let stacked = results.len() - carried;
        if residuals > stacked {
            return fail(format!(
                "{residuals} residuals of {stacked} stacked results"
            ));
        }
        if results.is_empty() {
            return fail("the body returns nothing; it must return one value or more");
        }
        for y in &mut results[carried..] {
            *y = TensorType::new(y.dtype(), [&[length], y.dims()].concat());
        }
        Ok(results)
    }

    pub(super) fn checkpoint(self, body: &Graph) -> Check<Vec<TensorType>> {
        self.takes("the body", body, self.operands)?;
        if body.outputs().is_empty() {
            return fail("the body returns nothing; it must return one value or more");
        }
        Ok(body.output_types())
    }

    pub(super) fn custom_call(self, call: &CustomCall) -> Check<Vec<TensorType>> {
        let Some(decomposition) = &call.decomposition else {
            return Ok(call.results.clone());
        };
        self.takes("the decomposition", decomposition, self.operands)?;
        let found = decomposition.output_types();
        if found != call.results {
            return fail(format!(
                "the decomposition returns {found:?}, the call {:?}",
                call.results
            ));
        }
        Ok(found)
    }

    pub(super) fn case(self, branches: &[Graph]) -> Check<Vec<TensorType>> {
        let Some((index, inputs)) = self.operands.split_first() else {
            return fail("takes an index and the inputs of its branches, got none");
        };
        if **index != TensorType::scalar(DType::S32) {
            return fail(format!("the index is {index}; it must be s32[]"));
        }
        let Some((first, rest)) = branches.split_first() else {
            return fail("takes one branch or more, got none");
        };
        for (i, branch) in branches.iter().enumerate() {
            self.takes(&format!("branch {i}"), branch, inputs)?;
        }
        let results = first.output_types();
        for (i, branch) in rest.iter().enumerate() {
            let other = branch.output_types();
            if other != results {
                let expected: Vec<&TensorType> = results.iter().collect();
                let difference = first_difference(&other, &expected);
                return fail(format!(
                    "branch 0 returns {results:?}, branch {} returns {other:?}{difference}",
                    i + 1
                ));
            }
        }
        Ok(results)
    }

    pub(super) fn optimization_barrier(self) -> Check<Vec<TensorType>> {
        if self.operands.is_empty() {
            return fail("takes one operand or more, got none");
        }
        Ok(self.operands.iter().map(|&ty| ty.clone()).collect())
    }

    pub(super) fn takes(self, what: &str, region: &Graph, operands: &[&TensorType]) -> Check {
        if let Some(output) = region
            .outputs()
            .iter()
            .find(|output| output.index() >= region.value_count())
        {
            return fail(format!(
                "{what} returns value {}, it has {}",
                output.index(),
                region.value_count()
            ));
        }
        let inputs = region.input_types();
        match inputs.iter().eq(operands.iter().copied()) {
            true => Ok(()),
            false => fail(format!(
                "{what} takes {inputs:?}, the operands are {operands:?}{}",
                first_difference(&inputs, operands)
            )),
        }
    }
}

/// Where two long lists of types part.
fn first_difference(left: &[TensorType], right: &[&TensorType]) -> String {
    match left
        .iter()
        .zip(right)
        .position(|(left, right)| left != *right)
    {
        Some(at) => format!("; number {at} is {} and {}", left[at], right[at]),
        None => format!("; they are {} and {}", left.len(), right.len()),
    }
}
