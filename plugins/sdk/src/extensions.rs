//! The extensions of the table, which form a list: each node points at the next one.

mod layouts;
mod shardings;

pub(crate) use self::layouts::EXTENSION as FIRST;
