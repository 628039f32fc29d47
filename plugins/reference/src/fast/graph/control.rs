//! Loops and branches: nodes whose regions are plans of their own.

use halite_core::Result;
use halite_stablehlo::{OpKind, Operation};

use super::{
    super::{place::Place, plan::Plan},
    Branch, Kind, Loop,
    build::{Builder, Values, region_graph, tensor},
    capture::captures,
};

impl Builder<'_> {
    /// `while`, `if` or `case`. `None` if a region cannot be a plan.
    pub(super) fn control(
        &mut self,
        function: usize,
        operation: &Operation,
        operands: &[Place],
        values: &Values,
        depth: usize,
    ) -> Result<Option<Vec<Place>>> {
        let captures = captures(operation);
        let mut regions = Vec::with_capacity(operation.regions.len());
        for region in &operation.regions {
            let (running, depth) = (self.running.clone(), depth + 1);
            let (module, budget) = (self.module, &mut self.budget);
            let graph = region_graph(module, running, function, region, &captures, depth, budget)?;
            match graph {
                Some(graph) => regions.push(Plan::of(graph)),
                None => return Ok(None),
            }
        }
        let Some(kind) = kind(operation, regions) else {
            return Ok(None);
        };
        let operands = self.with_captures(operands, &captures, values)?;
        let of = &self.module.functions[function];
        let types: Vec<_> = operation.results.iter().map(|&id| tensor(of, id)).collect();
        let results: Vec<_> = types.iter().map(|ty| self.base(ty, None)).collect();
        self.nodes_of(kind, operands, results.clone());
        let whole = |(base, ty)| Place::whole(base, ty);
        Ok(Some(results.into_iter().zip(types).map(whole).collect()))
    }
}

fn kind(operation: &Operation, regions: Vec<Plan>) -> Option<Kind> {
    if operation.kind == OpKind::While {
        let [condition, body] = regions.try_into().ok()?;
        return Some(Kind::Loop(Box::new(Loop { condition, body })));
    }
    let is_if = operation.kind == OpKind::If;
    (!regions.is_empty()).then(|| Kind::Branch(Box::new(Branch { regions, is_if })))
}
