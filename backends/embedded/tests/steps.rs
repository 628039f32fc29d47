//! Training steps of `halite train mnist` in the fast mode, against the oracle.

use halite_core::DType;
use halite_embedded::Mode;

use crate::common::{Step, floats, open, read};

const MLP: &str = include_str!("programs/mlp_step.mlir");
const CNN: &str = include_str!("programs/cnn_step.mlir");

/// The state after some steps.
fn train(text: &str, mode: Mode, threads: usize, steps: usize) -> Vec<(DType, Vec<u8>)> {
    let mut step = Step::new(&open(mode, threads), text).expect("it compiles");
    for _ in 0..steps {
        step.step().expect("it launches");
    }
    let buffers = step.state.iter().chain(&step.batch);
    buffers
        .map(|it| (it.first().tensor_type().dtype(), read(it).expect("it runs")))
        .collect()
}

fn check(text: &str) {
    let (fast, oracle) = (
        train(text, Mode::Fast, 2, 2),
        train(text, Mode::Oracle, 1, 2),
    );
    for (number, ((dtype, fast), (_, oracle))) in fast.iter().zip(&oracle).enumerate() {
        if *dtype != DType::F32 {
            assert_eq!(fast, oracle, "result {number}");
            continue;
        }
        let (fast, oracle) = (floats(fast), floats(oracle));
        let largest = oracle
            .iter()
            .fold(0.0, |most: f32, value| most.max(value.abs()));
        for (at, (fast, oracle)) in fast.iter().zip(&oracle).enumerate() {
            let error = (fast - oracle).abs();
            assert!(
                error <= 2e-3 * largest,
                "result {number} at {at}: {fast}, not {oracle}"
            );
        }
    }
}

#[test]
fn mlp_step_is_that_of_the_oracle() {
    check(MLP);
}

#[test]
fn cnn_step_is_that_of_the_oracle() {
    check(CNN);
}

#[test]
fn bits_of_steps_do_not_depend_on_threads() {
    for text in [MLP, CNN] {
        assert_eq!(train(text, Mode::Fast, 1, 3), train(text, Mode::Fast, 3, 3));
    }
}
