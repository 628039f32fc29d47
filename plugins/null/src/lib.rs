//! x
#![forbid(unsafe_code)]
fn open(options: &mut halite_plugin::Options) -> halite_core::Result<halite_core::Null> {
    let devices = options.int("devices")?.unwrap_or(1);
    Ok(halite_core::Null::new(devices.clamp(1, 64) as u32))
}
halite_plugin::export_plugin!(open);
