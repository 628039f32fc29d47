//! The fast executor: a program becomes a [`Plan`] once, which then runs any number of times.
//!
//! - `graph` inlines calls and sorts operations into a few kinds of nodes. Operations that only
//!   move elements (broadcasts, slices, transpositions, padding) become views of buffers. What has
//!   no kernel is a node that the oracle computes.
//! - `shape` finds the matrices whose rows and columns are reduced, and `group` merges elementwise
//!   nodes and reductions of one matrix into programs of one pass.
//! - `plan` orders these units, and says when each value is last used.
//! - `scalar` compiles regions to functions of scalars.
//! - `direct` has the operations that are never part of a group.
//! - `lockstep` executes a plan as all processes of a launch, on buffers that it keeps from launch
//!   to launch: `run` has the units that each process runs by itself, `collective` those between
//!   them.
//! - `label` names units in profiles.
//!
//! Kernels are those of `halite-kernels`. Except for nodes that have no kernel, nothing is shared
//! with the oracle.

mod arena;
mod collective;
mod contract;
mod direct;
mod elementwise;
mod graph;
mod group;
mod label;
mod lockstep;
mod place;
mod plan;
mod run;
mod scalar;
mod shape;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use graph::why_interpreted;
pub(crate) use lockstep::{Launch, Process};
pub(crate) use plan::Plan;
