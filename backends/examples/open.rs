//! Opens an accelerator and says what it is: `cargo run --example open -- cpu:8`.

use halite_backends::{Accelerator, OpenOptions};
use halite_fetch::Bar;

fn main() -> halite_core::Result<()> {
    let accelerator: Accelerator = std::env::args()
        .nth(1)
        .as_deref()
        .unwrap_or("auto")
        .parse()?;
    let opened = accelerator.open_with(&OpenOptions::default(), &mut Bar::default())?;
    println!("{accelerator}: {}", opened.driver);
    println!("{:?}", opened.client.platform());
    for device in opened.client.devices() {
        println!("device {}: {}", device.id().0, device.kind());
    }
    Ok(())
}
