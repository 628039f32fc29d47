//! Datasets of files: arrays of NumPy and safetensors, and lines of JSON.

mod arrays;
pub(crate) mod json_lines;

pub use self::{
    arrays::ArrayFile,
    json_lines::{JsonLines, JsonLinesDataset},
};
