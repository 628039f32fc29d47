//! Clients and golden files.

use std::{path::PathBuf, sync::OnceLock};

use halite_backends::Accelerator;
use halite_core::Client;

/// Path of a file or directory that a script in `golden` wrote.
pub(crate) fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// XLA's CPU plugin, which is installed if it is missing, and the embedded executor.
pub(crate) fn clients() -> [&'static Client; 2] {
    static CLIENTS: OnceLock<[Client; 2]> = OnceLock::new();
    let clients = CLIENTS.get_or_init(|| {
        ["cpu", "embedded"].map(|name| {
            let accelerator: Accelerator = name.parse().unwrap();
            accelerator.open().unwrap()
        })
    });
    clients.each_ref()
}
