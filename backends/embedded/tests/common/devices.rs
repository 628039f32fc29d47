//! Programs of one input and one output, launched on several devices.

use std::sync::Arc;

use halite_core::{
    Arg, Client, Code, CompileOptions, DType, DeviceBuffers, HostArray, HostBytes, Placement,
    Program, Result, Signature, TensorType,
};
use halite_embedded::{Embedded, Options};

pub(crate) fn client(devices: u32) -> Client {
    let options = Options {
        devices,
        ..Options::default()
    };
    Client::new(Embedded::new(&options).unwrap())
}

/// A program of one input and one output of these dimensions of `f32`, on each device.
pub(crate) fn program(code: &str, input: &[usize], output: &[usize]) -> Program {
    let ty = |dims| TensorType::new(DType::F32, dims);
    Program {
        name: Arc::from("test"),
        code: Code::from(code.as_bytes()),
        signature: Signature {
            inputs: vec![ty(input)],
            outputs: vec![ty(output)],
            donated: Vec::new(),
        },
        partitions: 1,
        replicas: 1,
    }
}

/// Launches on all devices with these arguments, one for each.
pub(crate) fn launch(
    client: &Client,
    program: &Program,
    args: &[HostArray],
) -> Result<Vec<DeviceBuffers>> {
    let loaded = client.compile(program, &CompileOptions::default())?;
    let devices = client.local_devices();
    let upload = |(host, &device): (&HostArray, _)| {
        client.upload(
            HostBytes::Borrowed(host.bytes()),
            host.ty(),
            Placement::from(device),
        )
    };
    let buffers: Vec<_> = args
        .iter()
        .zip(&devices)
        .map(upload)
        .collect::<Result<_>>()?;
    let mut outputs = loaded.launch(buffers.iter().map(Arg::Borrow).collect())?;
    Ok(outputs.swap_remove(0).split().collect())
}

pub(crate) fn read(data: &DeviceBuffers) -> Result<Vec<f32>> {
    let buffer = data.first();
    let mut host = HostArray::zeros(buffer.tensor_type().clone());
    buffer.read(host.bytes_mut())?;
    Ok(host.as_slice()?.to_vec())
}

pub(crate) fn scalars(values: &[f32]) -> Vec<HostArray> {
    values
        .iter()
        .map(|&value| HostArray::scalar(value))
        .collect()
}

pub(crate) const SUM: &str = "({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    })";
