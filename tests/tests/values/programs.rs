//! Digests of programs, so that a change of lowering shows. `tests/golden/programs.txt` has a line
//! for each; `UPDATE_EXPECT=1` writes it.

use std::fmt::Write as _;

use expect_test::expect_file;
use halite_benches::{Forward, Visitor, Workload, visit};
use halite_core::{Capabilities, DType, DTypePolicy, Kernels, Narrowing, Program, Result};
use halite_ir::{Interface, optimize, with_precision};
use halite_nn::Optimizer;
use halite_stablehlo::Module;
use halite_tests::{
    golden,
    lowering::{digest, lowered},
    parallel,
};

use crate::networks::{build::build, description::Network};

/// Number of random networks.
const NETWORKS: u64 = 200;

#[test]
fn programs_are_what_they_were() {
    let mut lines = String::new();
    let mut add = |name: String, module: &Module| {
        writeln!(lines, "{name} {}", digest(module)).expect("a string can be written to");
    };
    for (group, graph) in golden::graphs(&crate::golden::functions(), true) {
        let module = lowered(&optimize(graph), &Interface::default()).unwrap();
        add(format!("golden {group}"), &module);
    }
    for (name, graph) in crate::edge_values::graphs() {
        let module = lowered(&optimize(graph), &Interface::default()).unwrap();
        add(format!("rows {name}"), &module);
    }
    let networks = parallel::map(2, 1..NETWORKS + 1, |seed| {
        let graph = build(&Network::draw(seed), DType::F32).unwrap().graph;
        let mixed = with_precision(
            graph.clone(),
            &DTypePolicy::BF16_MIXED,
            &Narrowing::Everywhere,
        );
        [graph, mixed].map(|graph| lowered(&optimize(graph), &Interface::default()).unwrap())
    });
    for (seed, [single, mixed]) in (1..).zip(&networks) {
        add(format!("network {seed} f32"), single);
        add(format!("network {seed} bf16-mixed"), mixed);
    }
    for name in ["w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"] {
        for (target, capabilities) in targets() {
            for precision in [DTypePolicy::F32, DTypePolicy::BF16_MIXED] {
                let lower = Lower {
                    precision,
                    capabilities,
                };
                let program = visit(name, lower).unwrap();
                let module = Module::from_code(&program.code).unwrap();
                add(format!("workload {name} {precision} {target}"), &module);
            }
        }
    }
    expect_file!["../../golden/programs.txt"].assert_eq(&lines);
}

/// Capabilities of which programs take other forms.
fn targets() -> [(&'static str, Capabilities); 2] {
    let mut cpu = Capabilities::PORTABLE;
    cpu.kernels = Kernels::All;
    cpu.one_function = true;
    cpu.rounds_products = false;
    cpu.faults.integer_convolutions = false;
    cpu.faults.reversed_kernels = false;
    cpu.faults.equal_indices = false;
    [("portable", Capabilities::PORTABLE), ("cpu", cpu)]
}

struct Lower {
    precision: DTypePolicy,
    capabilities: Capabilities,
}

impl Visitor for Lower {
    type Output = Program;

    fn visit<M: Forward, O: Optimizer + Clone>(self, workload: Workload<M, O>) -> Result<Program> {
        workload.lower(self.precision, &self.capabilities)
    }
}
