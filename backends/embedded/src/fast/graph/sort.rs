//! Sorts by functions of scalars. A complex number is two of them.

use halite_stablehlo::{BinaryOp, Function, OpKind, Operation, RankedType, Region, UnaryOp};

use super::{
    super::{
        direct::{
            Lines,
            complex::Complexes,
            sort::{Comparator, Sort},
        },
        place::Place,
        scalar::{self, Floats, Order},
    },
    build::Builder,
};

const PARTS: [UnaryOp; 2] = [UnaryOp::Real, UnaryOp::Imag];

impl Builder<'_> {
    /// The results of a sort. `None` if its comparator is no function of scalars.
    pub(super) fn sort_by_region(
        &mut self,
        function: &Function,
        operation: &Operation,
        operands: &[Place],
        dim: usize,
    ) -> Option<Vec<Place>> {
        let region = operation.regions.first()?;
        let is_complex = |x: &Place| x.element.part().is_some();
        if !operands.iter().any(is_complex) {
            let comparator = scalar::Function::new(self.module, function, region)?;
            return Some(self.sort(comparator_of(comparator), operands, dim));
        }
        let region = of_parts(region, operands.iter().map(is_complex))?;
        let comparator = scalar::Function::new(self.module, function, &region)?;
        let mut parts = Vec::new();
        for x in operands {
            let Some(element) = x.element.part() else {
                parts.push(x.clone());
                continue;
            };
            let ty = RankedType::new(element, &*x.ty().dims);
            for op in PARTS {
                let part = Complexes::new(&OpKind::Unary(op), x.element)?;
                parts.push(self.direct(part, std::slice::from_ref(x), &ty));
            }
        }
        let mut sorted = self
            .sort(comparator_of(comparator), &parts, dim)
            .into_iter();
        let mut results = Vec::with_capacity(operands.len());
        for x in operands {
            let first = sorted.next()?;
            results.push(if is_complex(x) {
                let join = Complexes::new(&OpKind::Binary(BinaryOp::Complex), first.element)?;
                let pair = [first, sorted.next()?];
                self.direct(join, &pair, &x.ty())
            } else {
                first
            });
        }
        Some(results)
    }

    pub(super) fn sort(
        &mut self,
        comparator: Comparator,
        operands: &[Place],
        dim: usize,
    ) -> Vec<Place> {
        let types: Vec<_> = operands.iter().map(Place::ty).collect();
        let (inputs, operands) = self.inputs(operands, Some(dim));
        let lines = Lines::along(&types[0].dims, dim);
        let kernel = Sort {
            lines,
            dim,
            count: lines.length,
            inputs,
            comparator,
        };
        self.direct_of(kernel, &operands, &types.iter().collect::<Vec<_>>())
    }
}

/// What decides between two elements, by keys if they have an order.
pub(super) fn comparator_of(function: scalar::Function) -> Comparator {
    let orders = function.orders();
    let is_total = |order: &Order| order.floats != Floats::Partial || !order.format.is_float();
    if !orders.is_empty() && orders.iter().all(is_total) {
        Comparator::Orders(orders)
    } else {
        Comparator::Function(function, orders)
    }
}

/// A comparator that gets both parts of complex numbers, each as a pair. `None` if it does not take
/// each part once.
fn of_parts(region: &Region, is_complex: impl Iterator<Item = bool>) -> Option<Region> {
    let mut operations = region.operations.clone();
    let mut arguments = Vec::new();
    for (pair, is_complex) in region.arguments.chunks(2).zip(is_complex) {
        if !is_complex {
            arguments.extend(pair);
            continue;
        }
        for op in PARTS {
            for argument in pair {
                let is_part =
                    |it: &Operation| it.kind == OpKind::Unary(op) && it.operands[..] == [*argument];
                let at = operations.iter().position(is_part)?;
                arguments.extend(operations.remove(at).results);
            }
        }
    }
    Some(Region {
        arguments,
        operations,
        results: region.results.clone(),
    })
}
