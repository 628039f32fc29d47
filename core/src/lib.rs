//! The contract between accelerators and programs: backends, clients, arrays, shardings, trees.
#![forbid(unsafe_code)]
