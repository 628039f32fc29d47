//! Converts a file of tensors of any format to safetensors, one tensor at a time:
//!
//! ```text
//! cargo run --release -p halite-weights --example convert -- model.pth model.safetensors
//! ```

use halite_core::{Error, Result};
use halite_weights::{SafetensorsWriter, TensorInfo, TensorSource, open};

fn main() -> Result<()> {
    let mut paths = std::env::args().skip(1);
    let (Some(from), Some(into)) = (paths.next(), paths.next()) else {
        return Err(Error::invalid(
            "convert",
            "usage: convert FILE OUT.safetensors",
        ));
    };
    let file = open(&from)?;
    let mut writer = SafetensorsWriter::create(&into, file.tensors(), &Default::default())?;
    for TensorInfo { name, ty } in file.tensors() {
        println!("{name}  {ty}");
        writer.write(&file.read(name)?)?;
    }
    writer.finish()
}
