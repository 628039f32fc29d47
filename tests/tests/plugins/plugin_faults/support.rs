//! The plugin and the executor that it is compared with, and programs as text.

use std::sync::{Arc, OnceLock};

use halite_backends::Accelerator;
use halite_core::{Array, Client, Faults, HostArray, Mesh, Sharding};
use halite_exchange::Artifact;
use halite_nn::{Tensor, Trace, jit};
use halite_tests::eval;

/// XLA's CPU plugin.
pub(crate) fn plugin() -> &'static Client {
    eval::client()
}

/// The embedded executor, with which the plugin is compared.
pub(crate) fn embedded() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let embedded = Accelerator::Embedded { devices: Some(8) };
        embedded.open().expect("halite contains it")
    })
}

/// Arrays with a mesh of the first devices of a client.
pub(crate) struct Devices<'c> {
    client: &'c Client,
    pub(crate) mesh: Arc<Mesh>,
}

impl<'c> Devices<'c> {
    pub(crate) fn new(client: &'c Client, axes: &[(&str, usize)]) -> Self {
        let count = axes.iter().map(|(_, size)| size).product();
        let devices = client.local_devices()[..count].to_vec();
        let mesh = Mesh::new(axes.iter().copied(), devices).unwrap();
        Devices {
            client,
            mesh: Arc::new(mesh),
        }
    }

    pub(crate) fn upload(&self, values: &[f32], dims: &[usize], spec: &str) -> Array {
        let sharding = Sharding::new(&self.mesh, spec.parse().unwrap()).unwrap();
        let host = HostArray::from_slice(values, dims).unwrap();
        Array::upload(self.client, &host, &sharding).unwrap()
    }

    pub(crate) fn run<const N: usize>(
        &self,
        function: impl for<'t> Fn(&'t Trace, [Tensor<'t>; N]) -> [Tensor<'t>; 2] + Send + Sync + 'static,
        inputs: [&Array; N],
    ) -> [Vec<f32>; 2] {
        let results = jit(self.client, function).on(&self.mesh).run(inputs);
        results.unwrap().map(|result| result.to_vec().unwrap())
    }
}

/// The same client, whose compiler has these faults.
pub(crate) fn with_faults(client: &Client, faults: Faults) -> Client {
    let mut capabilities = client.capabilities();
    capabilities.faults = faults;
    client.clone().with_capabilities(capabilities)
}

/// Runs a program as it is, without halite's lowering, on one device of the plugin.
pub(crate) fn run_text(text: &str, inputs: &[HostArray]) -> Vec<HostArray> {
    let client = with_faults(plugin(), Faults::NONE);
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
