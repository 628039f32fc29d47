//! Loops and branches: nodes whose regions are plans of their own.

use halite_core::Result;
use halite_kernels::{Binary, Compare, Operation as Instruction};
use halite_stablehlo::{OpKind, Operation};

use super::{
    super::{
        elementwise::Elementwise,
        place::{Base, Place},
        plan::Plan,
    },
    Bound, Branch, Counter, Graph, Kind, Loop,
    build::{Builder, Captures, Values, region_graph, tensor},
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
        let captures = self.captures(operation, values)?;
        let mut regions = Vec::with_capacity(operation.regions.len());
        for region in &operation.regions {
            let (running, depth) = (self.running.clone(), depth + 1);
            let (module, budget) = (self.module, &mut self.budget);
            let graph = region_graph(module, running, function, region, &captures, depth, budget)?;
            match graph {
                Some(graph) => regions.push(graph),
                None => return Ok(None),
            }
        }
        let Some(kind) = kind(operation, regions) else {
            return Ok(None);
        };
        let operands = self.with_captures(operands, &captures.inputs, values)?;
        let of = &self.module.functions[function];
        let types: Vec<_> = operation.results.iter().map(|&id| tensor(of, id)).collect();
        let results: Vec<_> = types.iter().map(|ty| self.base(ty, None)).collect();
        self.nodes_of(kind, operands, results.clone());
        let whole = |(base, ty)| Place::whole(base, ty);
        Ok(Some(results.into_iter().zip(types).map(whole).collect()))
    }

    /// What the regions of an operation use of the values around it.
    fn captures(&self, operation: &Operation, values: &Values) -> Result<Captures> {
        let mut all = Captures::default();
        for id in captures(operation) {
            let place = self.value(values, id)?;
            match &self.graph.bases[place.base].constant {
                Some(tensor) => all.constants.push((id, place, tensor.clone())),
                None => all.inputs.push(id),
            }
        }
        Ok(all)
    }
}

fn kind(operation: &Operation, graphs: Vec<Graph>) -> Option<Kind> {
    if operation.kind == OpKind::While {
        let counter = match &graphs[..] {
            [condition, body] => counter(condition, body),
            _ => None,
        };
        let plans: Vec<_> = graphs.into_iter().map(Plan::of).collect();
        let [condition, body] = plans.try_into().ok()?;
        return Some(Kind::Loop(Box::new(Loop {
            condition,
            body,
            counter,
        })));
    }
    let is_if = operation.kind == OpKind::If;
    let regions: Vec<_> = graphs.into_iter().map(Plan::of).collect();
    (!regions.is_empty()).then(|| Kind::Branch(Box::new(Branch { regions, is_if })))
}

/// The counter of a loop with these regions, if its condition depends on nothing else.
fn counter(condition: &Graph, body: &Graph) -> Option<Counter> {
    let ([node], &[holds]) = (&condition.nodes[..], &condition.outputs[..]) else {
        return None;
    };
    let (true, [counted, bound]) = (node.results == [holds], &node.operands[..]) else {
        return None;
    };
    let Kind::Elementwise(Elementwise::Apply(Instruction::Compare(
        Compare::LessS | Compare::LessU,
    ))) = node.kind
    else {
        return None;
    };
    let is_scalar = |place: &Place| condition.bases[place.base].ty.elements() == 1;
    if !is_scalar(counted) || !is_scalar(bound) {
        return None;
    }
    let input = condition
        .inputs
        .iter()
        .position(|&base| base == counted.base)?;
    let of_body = body.inputs[input];
    let next = &body.nodes[body.bases[*body.outputs.get(input)?].node?];
    let is_one = |base: Base| body.bases[base].scalar() == Some(1);
    let is_next = match &next.operands[..] {
        [x, y] => x.base == of_body && is_one(y.base) || y.base == of_body && is_one(x.base),
        _ => false,
    };
    let Kind::Elementwise(Elementwise::Apply(Instruction::Binary(Binary::Add))) = next.kind else {
        return None;
    };
    let holds_words = matches!(counted.element.size(), 4 | 8);
    if !is_next || !holds_words {
        return None;
    }
    let bound = match &condition.bases[bound.base].constant {
        Some(tensor) => Bound::Constant(tensor.clone()),
        None => {
            let of = condition
                .inputs
                .iter()
                .position(|&base| base == bound.base)?;
            // A value of the state has to stay the same; those behind it are captures.
            let is_same = body
                .outputs
                .get(of)
                .is_none_or(|&base| base == body.inputs[of]);
            is_same.then_some(Bound::Input(of))?
        }
    };
    Some(Counter {
        input,
        element: counted.element,
        bound,
    })
}
