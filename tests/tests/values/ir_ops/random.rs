//! Random programs: the compiler takes what inference takes and finds the same types, and passes
//! change no value.

use halite_core::{CompileOptions, DType, HostArray, TensorType};
use halite_ir::{Graph, Interface, matrix_products, optimize, verify};
use halite_tests::eval::program;
use proptest::{prelude::*, test_runner::RngSeed};

use crate::ir_ops::{
    draw::{Draw, draw_op},
    support::*,
};

/// A graph of the valid operations among one draw for each seed; every value is an output.
fn draw_graph(seeds: &[u64], dtypes: &[DType]) -> (Graph, Vec<HostArray>) {
    let mut graph = Graph::new();
    let mut values = Vec::new();
    let mut inputs = Vec::new();
    for (i, dims) in [&[][..], &[3], &[2, 3], &[2, 3, 4], &[1, 3, 2]]
        .into_iter()
        .enumerate()
    {
        for &dtype in dtypes {
            let ty = TensorType::new(dtype, dims);
            values.push(graph.input(ty.clone()));
            let mut host = HostArray::zeros(ty);
            // Small bytes: `bool` of 0 and 1, small integers, tiny floats.
            host.bytes_mut()
                .iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = ((at * 5 + i) % 7 % 2) as u8);
            inputs.push(host);
        }
    }
    let mut results = Vec::new();
    for &seed in seeds {
        let (op, operands) = draw_op(&mut Draw(seed), &graph, &values, dtypes);
        let types: Vec<&TensorType> = operands.iter().map(|&operand| graph.ty(operand)).collect();
        let Ok(made) = halite_ir::infer(&op, &types) else {
            continue;
        };
        if made.iter().all(|ty| ty.elements() <= 500) {
            let made = graph
                .push(op, &operands, Some(std::panic::Location::caller()))
                .unwrap()
                .to_vec();
            values.extend(&made);
            results.extend(made);
        }
    }
    graph.set_outputs(results);
    (graph, inputs)
}

proptest! {
    // The same programs each time: a plugin that ends its process on one of them leaves no words of
    // which it was.
    #![proptest_config(ProptestConfig {
        cases: 10,
        rng_seed: RngSeed::Fixed(2),
        max_shrink_iters: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_compiler_takes_what_inference_takes(seeds in prop::collection::vec(any::<u64>(), 40..120)) {
        let dtypes = [DType::Bool, DType::S32, DType::U8, DType::F32, DType::Bf16, DType::U64];
        let (graph, _) = draw_graph(&seeds, &dtypes);
        verify(&graph).unwrap();
        // The client compares the types that the compiler found with those of the signature.
        let program = program(&graph, &Interface::new("random")).unwrap();
        if let Err(error) = client().compile(&program, &CompileOptions::default()) {
            return Err(TestCaseError::fail(format!("{error}\n{}", String::from_utf8_lossy(program.code.bytes()))));
        }
    }

    #[test]
    fn passes_change_no_value(seeds in prop::collection::vec(any::<u64>(), 40..120)) {
        let (graph, inputs) = draw_graph(&seeds, &[DType::Bool, DType::S32, DType::U8]);
        let optimized = optimize(graph.clone());
        verify(&optimized).unwrap();
        prop_assert!(optimized.nodes().len() <= graph.nodes().len());
        let inputs: Vec<&HostArray> = inputs.iter().collect();
        let before = run_graph(&graph, &inputs);
        for changed in [optimized, matrix_products(graph.clone())] {
            let after = run_graph(&changed, &inputs);
            for (i, (before, after)) in before.iter().zip(&after).enumerate() {
                prop_assert!(before == after, "output {} of {:?}", i, graph);
            }
        }
    }
}
