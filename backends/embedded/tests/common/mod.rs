//! Programs of text, and their runs.
#![allow(dead_code, reason = "the examples use a part")]

#[path = "../../../../tests/src/combinations.rs"]
#[allow(unreachable_pub, reason = "public in a crate that is above this one")]
pub(crate) mod combinations;
pub(crate) mod devices;
pub(crate) mod interpreted;

use std::sync::Arc;

use halite_core::{
    Arg, Client, Code, CompileOptions, DType, DeviceBuffers, HostBytes, Loaded, Program, Result,
    Signature, TensorType,
};
use halite_embedded::{Embedded, Mode, Options};
use halite_stablehlo::{Function, Module, ValueId};

/// A client of the embedded executor.
pub(crate) fn open(mode: Mode, threads: usize) -> Client {
    let options = Options {
        mode,
        threads,
        ..Options::default()
    };
    let name = match mode {
        Mode::Oracle => "oracle",
        _ => "embedded",
    };
    let client = Client::new(Embedded::new(&options).expect("the executor starts"));
    combinations::recorded(client, name)
}

/// A program as clients compile it, its signature read from its text.
pub(crate) fn program(text: &str) -> Program {
    let module = Module::parse(text).expect("the program parses");
    let main = module.main().expect("it has a main function");
    let ty = |main: &Function, id: &ValueId| {
        let ty = main.ty(*id).as_tensor().expect("tensors only");
        ty.tensor_type().expect("arrays of clients only")
    };
    let is_donated = |&index: &usize| {
        main.input_attributes[index]
            .get("tf.aliasing_output")
            .is_some()
    };
    Program {
        name: Arc::from("test"),
        code: Code::from(text.as_bytes()),
        signature: Signature {
            inputs: main.body.arguments.iter().map(|id| ty(main, id)).collect(),
            outputs: main.body.results.iter().map(|id| ty(main, id)).collect(),
            donated: (0..main.input_attributes.len())
                .filter(is_donated)
                .collect(),
        },
        partitions: 1,
        replicas: 1,
    }
}

pub(crate) fn upload(client: &Client, ty: &TensorType, bytes: &[u8]) -> Result<DeviceBuffers> {
    client.upload(
        HostBytes::Borrowed(bytes),
        ty,
        client.local_devices()[0].into(),
    )
}

pub(crate) fn read(data: &DeviceBuffers) -> Result<Vec<u8>> {
    let buffer = data.first();
    let mut bytes = vec![0; buffer.tensor_type().bytes()];
    buffer.read(&mut bytes)?;
    Ok(bytes)
}

/// Compiles a program and runs it once.
pub(crate) fn run(client: &Client, program: &Program, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    let loaded = client.compile(program, &CompileOptions::default())?;
    let inputs = program.signature.inputs.iter().zip(inputs);
    let buffers = inputs
        .map(|(ty, bytes)| upload(client, ty, bytes))
        .collect::<Result<Vec<_>>>()?;
    let outputs = loaded.launch(buffers.iter().map(Arg::Borrow).collect())?;
    outputs.iter().map(read).collect()
}

/// A training step of `halite train mnist`, with parameters, batch and hyperparameters.
pub(crate) struct Step {
    pub(crate) loaded: Loaded,
    /// Inputs that are donated, each replaced by the output of the same number.
    pub(crate) state: Vec<DeviceBuffers>,
    pub(crate) batch: Vec<DeviceBuffers>,
}

impl Step {
    pub(crate) fn new(client: &Client, text: &str) -> Result<Self> {
        let program = program(text);
        let loaded = client.compile(&program, &CompileOptions::default())?;
        let Signature {
            inputs, donated, ..
        } = &program.signature;
        let floats = donated
            .iter()
            .filter(|&&at| inputs[at].dtype() == DType::F32)
            .count();
        // Parameters, and then both moments of each.
        let parameters = floats / 3;
        let mut buffers = Vec::new();
        for (number, ty) in inputs.iter().enumerate() {
            let bytes = initial(number, number < parameters, ty);
            buffers.push(upload(client, ty, &bytes)?);
        }
        let batch = buffers.split_off(donated.len());
        Ok(Step {
            loaded,
            state: buffers,
            batch,
        })
    }

    /// Queues one step.
    pub(crate) fn step(&mut self) -> Result<()> {
        let mut args: Vec<Arg<'_, DeviceBuffers>> = self.state.drain(..).map(Arg::Donate).collect();
        let count = args.len();
        args.extend(self.batch.iter().map(Arg::Borrow));
        self.state = self.loaded.launch(args)?;
        // The metrics come after the state: they replace the ones that were borrowed.
        let metrics = self.state.split_off(count);
        for metric in metrics {
            let at = self
                .batch
                .iter()
                .position(|it| it.first().tensor_type() == metric.first().tensor_type());
            self.batch[at.expect("metrics are an input")] = metric;
        }
        Ok(())
    }

    /// Waits for all steps.
    pub(crate) fn wait(&self) -> Result<()> {
        self.state[0].first().ready()?.wait()
    }
}

/// The first value of an input of a step.
fn initial(number: usize, is_parameter: bool, ty: &TensorType) -> Vec<u8> {
    // Warmup steps, two factors of the peak, decay steps, two terms of the decay; beta1, 1 - beta1,
    // beta2, 1 - beta2, their logarithms, epsilon.
    const HYPERPARAMETERS: [f32; 13] = [
        10.0,
        2e-3,
        0.1,
        100.0,
        1e-3,
        1e-3,
        0.9,
        0.1,
        0.999,
        0.001,
        -0.105_360_52,
        -0.001_000_500_4,
        1e-8,
    ];
    let hash = |at: usize| (at + 1).wrapping_mul(2_654_435_761 + 40_503 * number) >> 7;
    let elements = 0..ty.elements();
    let fan_in = ty.dims().iter().rev().skip(1).product::<usize>().max(1) as f32;
    let floats = |f: &dyn Fn(usize) -> f32| -> Vec<u8> {
        elements
            .clone()
            .flat_map(|at| f(at).to_le_bytes())
            .collect()
    };
    match ty.dtype() {
        DType::F32 if is_parameter => {
            floats(&|at| ((hash(at) % 2001) as f32 / 1000.0 - 1.0) / fan_in.sqrt())
        }
        DType::F32 if ty.dims() == [13] => floats(&|at| HYPERPARAMETERS[at]),
        // The weights of the samples.
        DType::F32 if ty.dims().len() == 1 && number > 20 && ty.dims() != [6] => floats(&|_| 1.0),
        DType::F32 => floats(&|_| 0.0),
        DType::U8 if ty.dims().len() > 1 => elements.map(|at| (hash(at) % 256) as u8).collect(),
        DType::U8 => elements.map(|at| (hash(at) % 10) as u8).collect(),
        _ => vec![0; ty.bytes()],
    }
}

/// Bytes as floats.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|&word| f32::from_le_bytes(word)).collect()
}
