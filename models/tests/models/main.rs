//! Published models against the libraries they come from, on XLA's CPU plugin and on the embedded
//! executor.

mod common;
mod decoders;
mod generation;
mod smollm2;
