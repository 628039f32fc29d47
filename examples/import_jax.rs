//! Programs that JAX exported: runs one as it is, differentiates another one.
//!
//! `cargo run --release --example import_jax -- forward.jax`, where Python has written
//! `jax.export.export(jax.jit(forward))(params, x).serialize()` to `forward.jax`. Without a file, it
//! uses a small program in MLIR text.
use halite::{
    exchange::{Artifact, export},
    prelude::*,
};

const LAYER: &str = "
func.func @main(%w: tensor<3x2xf32>, %x: tensor<4x3xf32>) -> tensor<4x2xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  %1 = stablehlo.tanh %0 : tensor<4x2xf32>
  return %1 : tensor<4x2xf32>
}";

fn main() -> Result<()> {
    let artifact = match std::env::args().nth(1) {
        Some(path) => Artifact::open(path)?,
        None => Artifact::read(LAYER.as_bytes())?,
    };
    for input in artifact.inputs() {
        println!("input {}: {}", input.name, input.ty);
    }
    let client = Accelerator::auto().open()?;

    // As a compiled program.
    let program = artifact.compile(&client)?;
    let inputs: Vec<Array> = (artifact.inputs().iter())
        .map(|input| {
            Array::upload(
                &client,
                &HostArray::zeros(input.ty.clone()),
                program.sharding(),
            )
        })
        .collect::<Result<_>>()?;
    for output in program.run(&inputs.iter().collect::<Vec<_>>())? {
        println!("{output}");
    }

    // As a function of a trace: here, the gradient of the sum of its first result.
    let function = artifact.function()?;
    let gradients = jit_vec(&client, move |cx, inputs| {
        let loss = function.call(cx, &inputs)[0].sum_all();
        grad(loss, &inputs)
    });
    for gradient in gradients.run(&inputs)? {
        println!("gradient {gradient}");
    }

    // And to JAX, with the gradients.
    let path = std::env::temp_dir().join("gradients.jax");
    export(&gradients, &inputs)?.save(&path)?;
    println!("jax.export.deserialize(open({path:?}, 'rb').read()).call(..)");
    Ok(())
}
