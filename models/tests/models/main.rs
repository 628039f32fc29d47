//! Models compared with the libraries they come from, with weights of the packages that ship them, on
//! XLA's CPU plugin and on the embedded executor.

mod bert;
mod common;
mod decoders;
mod generation;
mod gguf;
mod keys;
mod lora;
mod packages;
mod photographs;
mod smollm2;
mod soft_labels;
mod stochastic_depth;
mod tokenizers;
mod vision;
