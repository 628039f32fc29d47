//! Datasets, samplers, loaders and prefetch.
#![forbid(unsafe_code)]
