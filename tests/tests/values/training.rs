//! The trainer as a library, on the CPU plugin: learning, resuming, metrics, errors.

mod alternating;
mod cause;
mod closures;
mod custom;
mod exact;
mod finite;
mod launches;
mod layouts;
mod learns;
mod mistakes;
mod own_loop;
mod pipelines;
mod planned;
mod precision;
mod resume;
mod support;
mod text;
mod values;
mod weights;
