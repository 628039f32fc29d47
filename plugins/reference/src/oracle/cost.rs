//! Estimates of what a program costs, by simple counts. Loops are counted once.

use halite_stablehlo::{Function, Module, OpKind, Operation, Region, Type};

/// `flops` and `bytes accessed` of one run of `main`.
pub(crate) fn cost(module: &Module) -> Vec<(String, f64)> {
    let mut cost = Cost {
        module,
        flops: 0.0,
        bytes: 0.0,
    };
    if let Ok(main) = module.main() {
        cost.add_region(main, &main.body);
    }
    vec![
        ("flops".to_owned(), cost.flops),
        ("bytes accessed".to_owned(), cost.bytes),
    ]
}

struct Cost<'m> {
    module: &'m Module,
    flops: f64,
    bytes: f64,
}

impl Cost<'_> {
    fn add_region(&mut self, function: &Function, region: &Region) {
        for op in &region.operations {
            match &op.kind {
                OpKind::Call { function }
                | OpKind::Composite {
                    decomposition: function,
                    ..
                } => {
                    if let Some(called) = self.module.function(function) {
                        self.add_region(called, &called.body);
                    }
                }
                OpKind::While | OpKind::If | OpKind::Case | OpKind::ManualComputation(_) => {
                    op.regions
                        .iter()
                        .for_each(|region| self.add_region(function, region));
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
