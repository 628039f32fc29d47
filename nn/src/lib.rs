//! Tracing, gradients, layers, losses and optimizers.
#![forbid(unsafe_code)]
