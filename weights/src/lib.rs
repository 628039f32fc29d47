//! Published weights: files of tensors, and how their names and layouts become those of a model.
//!
//! [`open`] reads safetensors (one file, or several with an index), files of `torch.save` in both
//! forms, `.npz`, `.npy` and GGUF. A [`NameMap`] declares, in one place, which tensor of the file
//! is which parameter of a model; [`WeightLoader`] uploads them to one device or the shards of
//! several, and [`WeightSaver`] writes them back under the original names.
//!
//! ```
//! use halite_core::{Client, HostArray, Tree};
//! use halite_nn::Linear;
//! use halite_embedded::{Options, Embedded};
//! use halite_weights::{HostTensors, WeightLoader, NameMap};
//!
//! #[derive(Tree)]
//! struct Classifier<L> {
//!     body: Linear<L>,
//!     head: Linear<L>,
//! }
//!
//! # fn main() -> halite_core::Result<()> {
//! let client = Client::new(Embedded::new(&Options::default())?);
//! // What `open("model.safetensors")?` is for a file of PyTorch: weights are [out, in].
//! let file: HostTensors = [
//!     ("features.0.weight", HostArray::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2])?),
//!     ("features.0.bias", HostArray::from_slice(&[0.0f32; 3], [3])?),
//!     ("fc.weight", HostArray::from_slice(&[0.0f32; 3000], [1000, 3])?),
//!     ("fc.bias", HostArray::from_slice(&[0.0f32; 1000], [1000])?),
//! ]
//! .into_iter()
//! .collect();
//! let names = NameMap::torch().rename("body", "features.0").rename("head", "fc");
//!
//! // Ten classes instead of a thousand: the head is initialized, everything else must be there.
//! let model = Classifier { body: Linear::new(2, 3), head: Linear::new(3, 10) };
//! let loaded = WeightLoader::new(&file, &names).replace("head").load(&client, &model)?;
//! assert_eq!(loaded.model.body.weight.to_vec::<f32>()?, [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
//! assert_eq!(loaded.report.replaced.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! Without the feature `models`, which is on by default, there are the readers and writers of
//! files, and neither models nor devices: `halite-nn` is not a dependency.
//!
//! Files are untrusted: readers do not panic, execute nothing of a pickle, and bound memory by the
//! size of the file plus a few hundred megabytes of headers.
#![forbid(unsafe_code)]

#[cfg(feature = "models")]
mod adapters;
mod archive;
mod config;
mod convert;
mod file;
mod format;
#[doc(hidden)]
pub mod fuzz;
mod gguf;
mod input;
pub mod keys;
#[cfg(feature = "models")]
mod layout;
#[cfg(feature = "models")]
mod load;
mod metadata;
#[cfg(feature = "models")]
mod names;
pub mod npy;
mod npz;
mod open;
mod pickle;
mod place;
#[cfg(feature = "models")]
mod plan;
mod problems;
mod quantized;
#[cfg(feature = "models")]
mod report;
mod safetensors;
#[cfg(feature = "models")]
mod save;
mod source;
mod strides;
#[cfg(feature = "models")]
mod template;
mod torch;

#[cfg(feature = "models")]
pub use adapters::{
    AdapterConfig, check_adapters, load_adapters, load_adapters_ignoring, save_adapters,
};
pub use config::Config;
pub use file::WeightFile;
pub use format::Format;
pub use keys::KeyTable;
#[cfg(feature = "models")]
pub use layout::Layout;
#[cfg(feature = "models")]
pub use load::{LoadedModel, WeightLoader};
pub use metadata::MetadataValue;
#[cfg(feature = "models")]
pub use names::NameMap;
pub use open::{open, open_bytes};
#[cfg(feature = "models")]
pub use report::{Mismatch, Report};
pub use safetensors::SafetensorsWriter;
#[cfg(feature = "models")]
pub use save::WeightSaver;
pub use source::{Below, HostTensors, TensorInfo, TensorSource};
