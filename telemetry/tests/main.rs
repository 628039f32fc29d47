//! Integration tests of `halite-telemetry`, in one executable: each links all of its dependencies.

mod findings;
mod metrics;
