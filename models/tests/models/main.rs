//! Models compared with the libraries they come from, with weights of the packages that ship them, on
//! XLA's CPU plugin and on the embedded executor.

mod bert;
mod common;
mod decoders;
mod generation;
mod lora;
mod packages;
mod photographs;
mod smollm2;
mod soft_labels;
mod stochastic_depth;
mod tokenizers;
mod vision;

/// The modules whose tests open one accelerator; the others open both.
#[test]
fn suite_passes_on_embedded() {
    halite_tests::embedded::rerun(&[
        "bert::",
        "decoders::",
        "generation::",
        "lora::",
        "smollm2::",
        "tokenizers::",
    ]);
}
