//! halite: hardware abstraction for machine learning, and the training stack on top of it.
//!
//! A model is written once. The same code trains on every accelerator that has a PJRT plugin.
#![forbid(unsafe_code)]

pub mod models;

pub use halite_backends as backends;
pub use halite_core::{
    Array, Client, DType, DeviceId, Error, ErrorKind, HostArray, Mesh, PartitionSpec, Result, Sharding, TensorType,
    tree::{self, Tree},
};
pub use halite_data as data;
pub use halite_fetch as fetch;
pub use halite_ir as ir;
pub use halite_nn::{self as nn, Param};
pub use halite_train as train;

/// What most programs need: `use halite::prelude::*`.
pub mod prelude {
    pub use halite_backends::Accelerator;
    pub use halite_core::{
        Array, Client, DType, Error, HostArray, Result, TensorType,
        tree::{Empty, Leaf, Tree},
    };
    pub use halite_data::{Dataset, Digits, InMemory, Labeled};
    pub use halite_nn::*;
    pub use halite_train::{Predict, Task, Trainer};
}
