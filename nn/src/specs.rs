//! Types and shardings of the arguments and results of a program: over the axes of a mesh, and on its
//! devices.

mod array_spec;
mod sharded_type;

pub use array_spec::ArraySpec;
pub use sharded_type::ShardedType;
