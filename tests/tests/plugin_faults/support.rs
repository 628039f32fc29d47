//! The plugin and the executor that it is compared with, and programs as text.

use std::sync::OnceLock;

use halite_backends::Accelerator;
use halite_core::{Array, Client, HostArray};
use halite_exchange::Artifact;
use halite_tests::eval;

/// XLA's CPU plugin.
pub(crate) fn plugin() -> &'static Client {
    eval::client()
}

/// The embedded executor, with which the plugin is compared.
pub(crate) fn embedded() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let embedded = Accelerator::Embedded { devices: Some(4) };
        embedded.open().expect("halite contains it")
    })
}

/// Runs a program as it is, without halite's lowering, on one device of the plugin.
pub(crate) fn run_text(text: &str, inputs: &[HostArray]) -> Vec<HostArray> {
    let client = plugin().clone().with_faults(halite_core::Faults::NONE);
    run_text_on(&client, text, inputs)
}

/// Runs a program from elsewhere on one device.
pub(crate) fn run_text_on(client: &Client, text: &str, inputs: &[HostArray]) -> Vec<HostArray> {
    let artifact = Artifact::read(text.as_bytes()).expect("a program");
    let program = artifact.compile(client).expect("it compiles");
    let arrays: Vec<Array> = (inputs.iter())
        .map(|input| Array::upload(client, input, program.sharding()).expect("it is uploaded"))
        .collect();
    let outputs = program.run(&arrays.iter().collect::<Vec<_>>());
    let outputs = outputs.expect("it runs");
    (outputs.iter().map(Array::read))
        .collect::<Result<_, _>>()
        .expect("results are read")
}

/// The number in an environment variable.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value}: expected a number")),
        Err(_) => default,
    }
}
