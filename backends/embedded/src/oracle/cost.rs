//! Estimates of what a program costs, by simple counts. Loops are counted once.

use std::collections::HashMap;

use halite_stablehlo::{Function, Module, OpKind, Operation, Region, Type};

/// `flops` and `bytes accessed` of one run of `main`.
pub(crate) fn cost(module: &Module) -> Vec<(String, f64)> {
    let mut known = HashMap::new();
    let cost = match module.main() {
        Ok(main) => Cost::of_function(module, main, &mut known),
        Err(_) => Cost::default(),
    };
    vec![
        ("flops".to_owned(), cost.flops),
        ("bytes accessed".to_owned(), cost.bytes),
    ]
}

#[derive(Clone, Copy, Default)]
struct Cost {
    flops: f64,
    bytes: f64,
}

/// Costs of functions by name, so that each is computed once however often it is called.
type Known<'m> = HashMap<&'m str, Cost>;

impl Cost {
    fn of_function<'m>(module: &'m Module, function: &'m Function, known: &mut Known<'m>) -> Self {
        if let Some(&cost) = known.get(&*function.name) {
            return cost;
        }
        let mut cost = Cost::default();
        cost.add_region(module, function, &function.body, known);
        known.insert(&function.name, cost);
        cost
    }

    fn add_region<'m>(
        &mut self,
        module: &'m Module,
        function: &'m Function,
        region: &'m Region,
        known: &mut Known<'m>,
    ) {
        for op in &region.operations {
            match &op.kind {
                OpKind::Call { function }
                | OpKind::Composite {
                    decomposition: function,
                    ..
                } => {
                    if let Some(called) = module.function(function) {
                        let called = Cost::of_function(module, called, known);
                        self.flops += called.flops;
                        self.bytes += called.bytes;
                    }
                }
                OpKind::While | OpKind::If | OpKind::Case | OpKind::ManualComputation(_) => {
                    for region in &op.regions {
                        self.add_region(module, function, region, known);
                    }
                }
                _ => self.add(function, op),
            }
        }
    }

    fn add(&mut self, function: &Function, op: &Operation) {
        let values = op.operands.iter().chain(&op.results);
        self.bytes += values.map(|&id| bytes(function.ty(id))).sum::<f64>();
        let elements = |id| {
            function
                .ty(id)
                .as_tensor()
                .map_or(0.0, |ty| ty.elements() as f64)
        };
        let dims = |at: usize| {
            let operand = op
                .operands
                .get(at)
                .and_then(|&id| function.ty(id).as_tensor());
            operand.map_or(&[][..], |ty| &ty.dims)
        };
        let size = |all: &[usize], dims: &[usize]| -> f64 {
            dims.iter()
                .filter_map(|&dim| all.get(dim))
                .map(|&size| size as f64)
                .product()
        };
        let results: f64 = op.results.iter().map(|&id| elements(id)).sum();
        self.flops += match &op.kind {
            OpKind::Unary(_) | OpKind::Binary(_) | OpKind::Compare { .. } | OpKind::Clamp => {
                results
            }
            OpKind::DotGeneral(dot) => 2.0 * results * size(dims(0), &dot.lhs_contracting),
            OpKind::Convolution(convolution) => {
                let kernel = &convolution.kernel;
                let window = size(dims(1), &kernel.spatial) * size(dims(1), &[kernel.feature]);
                2.0 * results * window
            }
            OpKind::Reduce { .. } | OpKind::Scatter(_) | OpKind::Map { .. } => {
                op.operands.iter().map(|&id| elements(id)).sum()
            }
            OpKind::ReduceWindow(window) => {
                results
                    * window
                        .sizes
                        .iter()
                        .map(|&size| size as f64)
                        .product::<f64>()
            }
            _ => 0.0,
        };
    }
}

fn bytes(ty: &Type) -> f64 {
    ty.as_tensor().map_or(0.0, |ty| ty.bytes() as f64)
}
