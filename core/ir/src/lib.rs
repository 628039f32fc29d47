//! The op set, graphs, shape inference, verification and StableHLO text.
#![forbid(unsafe_code)]
