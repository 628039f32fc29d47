//! halite's kernels beside XLA's code, on the real CPU plugin.

mod attention;
mod convolution;
mod few_rows;
mod one_function;

use std::sync::Arc;

use halite_core::{
    Array, DType, HostArray, Kernels, Mesh, PartitionSpec, Result, Sharding,
    tree::{Leaf, Tree},
};
use halite_nn::{Jit, Tensor};
use halite_tests::eval::{Function, client, noise};

/// Runs `function` on arrays with these shardings.
fn run(
    kernels: Kernels,
    mesh: &Arc<Mesh>,
    function: impl Function,
    inputs: &[(HostArray, PartitionSpec)],
) -> Result<Vec<HostArray>> {
    let mut capabilities = client().capabilities();
    capabilities.kernels = kernels;
    let client = client().clone().with_capabilities(capabilities);
    let jit = Jit::<_, Vec<Leaf<()>>, Vec<Leaf<()>>>::function(&client, move |cx, inputs| {
        let inputs: Vec<Tensor<'_>> = inputs.into_leaves();
        function(cx, &inputs).into_iter().map(Leaf).collect()
    });
    let upload = |(host, spec): &(HostArray, PartitionSpec)| {
        Array::upload(&client, host, &Sharding::new(mesh, spec.clone())?).map(Leaf)
    };
    let arrays = inputs.iter().map(upload).collect::<Result<Vec<_>>>()?;
    let outputs = jit.on(mesh).run(&arrays)?;
    outputs.iter().map(|output| output.read()).collect()
}

fn mesh(devices: usize) -> Arc<Mesh> {
    let devices = client().local_devices()[..devices].to_vec();
    Arc::new(Mesh::new([("data", devices.len())], devices).unwrap())
}

fn f32_noise(seed: u64, dims: &[usize]) -> HostArray {
    noise(seed, dims, -1.0, 1.0).to_float(DType::F32).unwrap()
}

/// Compares results, relative to the largest value of each.
#[track_caller]
fn compare(name: &str, kernels: &[HostArray], compiler: &[HostArray], tolerance: f32) {
    assert_eq!(kernels.len(), compiler.len());
    for (index, (own, xla)) in kernels.iter().zip(compiler).enumerate() {
        let (own, xla) = (
            own.as_slice::<f32>().unwrap(),
            xla.as_slice::<f32>().unwrap(),
        );
        let largest = xla
            .iter()
            .fold(1e-3, |most: f32, value| most.max(value.abs()));
        for (a, b) in own.iter().zip(xla) {
            assert!(
                (a - b).abs() <= tolerance * largest,
                "{name}: result {index} has {a}, the compiler's {b}; the largest is {largest}"
            );
        }
    }
}

/// Makes the compiler infer the lifetimes of a closure as those of a function.
fn traced<F: Function>(function: F) -> F {
    function
}
