//! The gradient of a scan: a scan in the other direction over the residuals of the iterations.

use std::collections::HashMap;

use halite_core::TensorType;
use halite_ir::Graph;

use super::{
    Back, Step,
    linearize::{BackwardInputs, Linearized},
    residuals::ResidualPolicy,
};
use crate::{Tensor, control, control::ScanSpec, special::wide};

impl<'t> Step<'_, 't> {
    /// Linearizes the body, adds the residuals to the stacked results of the forward scan, and
    /// records the backward scan.
    #[track_caller]
    pub(super) fn scan(&self, spec: ScanSpec, body: &Graph) -> Back<'t> {
        let mut back = self.nothing();
        if spec.length == 0 {
            // The carried results are the initial values.
            back[..spec.carried].copy_from_slice(&self.cotangents[..spec.carried]);
            return back;
        }
        let Ok(linear) = self.linearize(body, 0, ResidualPolicy::Scan(spec)) else {
            return self.broken();
        };
        let backward = BackwardScan::new(self, spec, &linear);
        let Some(gradients) = backward.record() else {
            return self.broken();
        };
        for (operand, gradient) in backward.operands().zip(gradients) {
            back[operand] = Some(gradient);
        }
        back
    }
}

/// The scan that runs the backward pass of the body in the opposite direction.
///
/// It carries the cotangents of the carried values, and the sums so far of the cotangents of
/// invariant inputs. It scans over the cotangents of stacked outputs, the scanned inputs, and the
/// residuals, and stacks the cotangents of scanned inputs.
struct BackwardScan<'a, 't> {
    step: &'a Step<'a, 't>,
    spec: ScanSpec,
    linear: &'a Linearized,
    /// Carried values with cotangents, by their positions, which are the same among the inputs and
    /// the outputs.
    carried: &'a [usize],
    /// Stacked outputs with cotangents, by their positions among the outputs.
    stacked: &'a [usize],
    /// Invariant inputs with cotangents, which are summed over the iterations.
    summed: Vec<usize>,
    /// Scanned inputs with cotangents, which are stacked.
    sliced: Vec<usize>,
    /// Scanned inputs whose values the backward pass uses.
    primals: Vec<usize>,
    /// Position of the first scanned input, after the carried and the invariant ones.
    first_scanned: usize,
}

impl<'a, 't> BackwardScan<'a, 't> {
    fn new(step: &'a Step<'a, 't>, spec: ScanSpec, linear: &'a Linearized) -> Self {
        let first_scanned = step.node.operands.len() - spec.scanned;
        let outputs = &linear.seeded_outputs;
        let (carried, stacked) =
            outputs.split_at(outputs.partition_point(|&output| output < spec.carried));
        let among = |inputs: &[usize], from: usize, to: usize| -> Vec<usize> {
            let within = inputs.iter().copied().filter(|at| (from..to).contains(at));
            within.collect()
        };
        BackwardScan {
            step,
            spec,
            linear,
            carried,
            stacked,
            summed: among(&linear.active_inputs, spec.carried, first_scanned),
            sliced: among(&linear.active_inputs, first_scanned, usize::MAX),
            primals: among(&linear.primals, first_scanned, usize::MAX),
            first_scanned,
        }
    }

    /// The operands of the forward scan whose cotangents are computed, in the order of
    /// [`record`](Self::record).
    fn operands(&self) -> impl Iterator<Item = usize> {
        let carried = self.carried.iter().chain(&self.summed);
        carried.chain(&self.sliced).copied()
    }

    /// Records the scan and returns the cotangents; `None` if there is a mistake in it.
    #[track_caller]
    fn record(&self) -> Option<Vec<Tensor<'t>>> {
        if self.operands().next().is_none() {
            return Some(vec![]);
        }
        let (step, trace) = (self.step, self.step.trace);
        let widened = |forward: Graph| {
            let new = forward.outputs().len() - step.node.results.len();
            let residuals = self.spec.residuals + new;
            ScanSpec {
                residuals,
                ..self.spec
            }
            .op(forward)
        };
        let residuals = step.save_residuals(self.linear, widened).ok()?;
        let hoisted = self.hoisted();
        let initial = self.initial();
        let mut scanned: Vec<Tensor<'t>> = Vec::new();
        for &output in self.stacked {
            scanned.push(step.cotangents[output].expect("stacked outputs in use have cotangents"));
        }
        scanned.extend(self.primals.iter().map(|&input| step.x(input)));
        scanned.extend(residuals);

        let slices = scanned
            .iter()
            .map(|x| TensorType::new(x.dtype(), &x.dims()[1..]));
        let types: Vec<TensorType> = initial.iter().map(|x| x.ty()).chain(slices).collect();
        let (region, outputs) = trace.region(&types, |inputs| {
            let (carry, slices) = inputs.split_at(initial.len());
            self.iteration(&hoisted, carry, slices)
        });
        if outputs.iter().any(|output| output.is_error()) {
            return None;
        }
        let spec = ScanSpec {
            carried: initial.len(),
            scanned: scanned.len(),
            length: self.spec.length,
            reverse: !self.spec.reverse,
            residuals: 0,
        };
        let region = region.giving(&outputs);
        let mut results =
            control::push_scan(trace, spec, region, &initial, &scanned, step.node.origin);
        let sums = &mut results[self.carried.len()..initial.len()];
        for (sum, &input) in sums.iter_mut().zip(&self.summed) {
            *sum = sum.convert(step.ty(input).dtype());
        }
        Some(results)
    }

    /// Values that are the same in all iterations, computed once.
    fn hoisted(&self) -> Vec<Tensor<'t>> {
        let invariant: Vec<Tensor<'t>> = (self.spec.carried..self.first_scanned)
            .map(|input| self.step.x(input))
            .collect();
        self.step.trace.inline(&self.linear.hoisted, &invariant)
    }

    /// Initial values: the cotangents of the last carried values, and sums of 0.
    #[track_caller]
    fn initial(&self) -> Vec<Tensor<'t>> {
        let step = self.step;
        let carried = self.carried.iter().map(|&output| {
            let cotangent = step.cotangents[output];
            cotangent.unwrap_or_else(|| step.y(output).zeros_like())
        });
        let sums = self.summed.iter().map(|&input| {
            let ty = step.ty(input);
            step.trace.full(0.0, &ty.with_dtype(wide(ty.dtype())))
        });
        carried.chain(sums).collect()
    }

    /// One iteration: the next carried cotangents, the next sums, and the cotangents of the slices.
    #[track_caller]
    fn iteration(
        &self,
        hoisted: &[Tensor<'t>],
        carry: &[Tensor<'t>],
        slices: &[Tensor<'t>],
    ) -> Vec<Tensor<'t>> {
        let (carried, sums) = carry.split_at(self.carried.len());
        let (stacked, slices) = slices.split_at(self.stacked.len());
        let (primals, residuals) = slices.split_at(self.primals.len());
        let mut primals = primals.iter().copied();
        let primals: Vec<Tensor<'t>> = (self.linear.primals.iter())
            .map(|&input| {
                if input < self.first_scanned {
                    self.step.x(input)
                } else {
                    primals
                        .next()
                        .expect("a slice of each scanned input in use")
                }
            })
            .collect();
        let given = BackwardInputs {
            primals: &primals,
            hoisted,
            residuals,
            cotangents: &[carried, stacked].concat(),
        };
        let gradients = self.linear.pull_back(self.step.trace, given);
        let gradients: HashMap<usize, Tensor<'t>> =
            (self.linear.active_inputs.iter().copied().zip(gradients)).collect();
        let gradient = |input: usize| gradients.get(&input).copied();
        let known = "inputs with cotangents";
        let mut outputs: Vec<Tensor<'t>> = (self.carried.iter().zip(carried))
            .map(|(&input, cotangent)| gradient(input).unwrap_or_else(|| cotangent.zeros_like()))
            .collect();
        for (&input, &sum) in self.summed.iter().zip(sums) {
            outputs.push(sum + gradient(input).expect(known).convert(sum.dtype()));
        }
        let sliced = self.sliced.iter();
        outputs.extend(sliced.map(|&input| gradient(input).expect(known)));
        outputs
    }
}
