//! Integration tests of `halite-data`, in one executable: each links all of its dependencies.

mod digests;
mod hanging_reads;
mod images;
mod jpeg;
mod loader;
mod located;
mod mnist;
mod order;
mod pipeline;
mod prefetch;
mod sources;
mod text;
