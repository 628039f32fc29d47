//! The trainer as a library, on the CPU plugin: learning, resuming, metrics, errors.

mod cause;
mod custom;
mod exact;
mod finite;
mod layouts;
mod learns;
mod mistakes;
mod planned;
mod precision;
mod resume;
mod support;
mod text;
mod values;
