//! Helpers for cases: programs as text, transfers of values, and checks that end a case with a
//! message.

use std::{fmt, sync::Arc, time::Duration};

use halite_core::{
    Arg, Client, Code, CompileOptions, DType, DeviceBuffer, DeviceBuffers, DeviceId, Element,
    Error, ErrorKind, HostArray, HostBytes, Loaded, Program, Result, Signature, TensorType,
};

/// Limit of one wait within a case.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Reasons to except [`Null`](halite_core::Null) from a case.
pub(super) const HOLDS_ZEROS: &[(&str, &str)] = &[("null", "its buffers hold zeros")];
pub(super) const COMPILES_NOTHING: &[(&str, &str)] =
    &[("null", "it compiles nothing, so it accepts every program")];

/// A case of this module, named after its function.
macro_rules! case {
    ($group:literal, $name:ident) => {
        crate::Case::new(concat!($group, "::", stringify!($name)), $name)
    };
}
pub(super) use case;

/// Fails the case with a message unless the condition holds.
macro_rules! check {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(crate::support::Stop::Failed(format!($($message)+)));
        }
    };
}
pub(super) use check;

/// Result of a case, or of a part of it.
pub(super) type Checked<T = ()> = std::result::Result<T, Stop>;

/// Reason why a case ended early.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(String),
    Skipped(String),
}

impl From<Error> for Stop {
    /// A failure because of an unexpected error. A program that the backend does not support skips
    /// the case: accelerators need not have every operation.
    fn from(error: Error) -> Self {
        match (error.kind(), error.op()) {
            (ErrorKind::Unsupported, "compile") => Stop::Skipped(error.to_string()),
            _ => Stop::Failed(format!("{error:?}")),
        }
    }
}

/// Skips the case if an optional operation is unsupported.
pub(super) fn optional<T>(result: Result<T>) -> Checked<T> {
    result.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => Stop::Skipped(error.to_string()),
        _ => error.into(),
    })
}

/// Fails the case unless both values are equal.
pub(super) fn same<T: PartialEq + fmt::Debug>(what: impl fmt::Display, got: T, want: T) -> Checked {
    check!(
        got == want,
        "{what}: got {}, want {}",
        shown(&got),
        shown(&want)
    );
    Ok(())
}

fn shown(value: &impl fmt::Debug) -> String {
    let mut text = format!("{value:?}");
    if let Some((end, _)) = text.char_indices().nth(300) {
        text.truncate(end);
        text.push_str(" ...");
    }
    text
}

/// Fails the case at the first byte that differs.
pub(super) fn same_bytes(what: impl fmt::Display, got: &[u8], want: &[u8]) -> Checked {
    check!(
        got.len() == want.len(),
        "{what}: got {} bytes, want {}",
        got.len(),
        want.len()
    );
    let differs = got.iter().zip(want).position(|(got, want)| got != want);
    if let Some(at) = differs {
        check!(
            false,
            "{what}: byte {at} of {} is {:#04x}, want {:#04x}",
            want.len(),
            got[at],
            want[at]
        );
    }
    Ok(())
}

/// Fails the case unless `result` is an error of this kind whose text contains all of `words`.
pub(super) fn expect_error<T>(
    what: impl fmt::Display,
    result: Result<T>,
    kind: ErrorKind,
    words: &[&str],
) -> Checked {
    let Err(error) = result else {
        return Err(Stop::Failed(format!("{what} is accepted, want an error")));
    };
    check!(
        error.kind() == kind,
        "{what}: the error is of kind {:?}, want {kind:?}: {error}",
        error.kind()
    );
    let text = error.to_string();
    for word in words {
        check!(
            text.contains(word),
            "{what}: the error does not contain `{word}`: {text}"
        );
    }
    Ok(())
}

/// Runs `body(0)`, `body(1)`, ... on a thread each, and returns the first failure.
pub(super) fn on_threads(count: usize, body: impl Fn(usize) -> Checked + Sync) -> Checked {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let body = &body;
                std::thread::Builder::new().spawn_scoped(scope, move || body(number))
            })
            .collect();
        let mut ended = Ok(());
        for thread in threads {
            let thread = thread.map_err(no_thread)?;
            // Passes a panic of the thread on to the case.
            let result = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended = ended.and(result);
        }
        ended
    })
}

/// The error of a case for which the system cannot create a thread.
pub(super) fn no_thread(error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "conformance",
        "the system cannot create a thread for a case",
    )
    .caused_by(error)
}

/// The first local device.
pub(super) fn first(client: &Client) -> DeviceId {
    client.local_devices()[0]
}

pub(super) fn ty(dtype: DType, dims: &[usize]) -> TensorType {
    TensorType::new(dtype, dims)
}

pub(super) fn f32s(dims: &[usize]) -> TensorType {
    ty(DType::F32, dims)
}

/// The type in StableHLO syntax: `tensor<2x3xf32>`.
pub(super) fn stablehlo_type(ty: &TensorType) -> String {
    let element = match ty.dtype() {
        DType::Bool => "i1",
        DType::S8 => "i8",
        DType::S16 => "i16",
        DType::S32 => "i32",
        DType::S64 => "i64",
        DType::U8 => "ui8",
        DType::U16 => "ui16",
        DType::U32 => "ui32",
        DType::U64 => "ui64",
        float => float.name(),
    };
    let dims: String = ty.dims().iter().map(|dim| format!("{dim}x")).collect();
    format!("tensor<{dims}{element}>")
}

/// Reproducible random bits; 0 or 1 for `bool`.
pub(super) fn noise(ty: &TensorType, seed: u64) -> HostArray {
    let mut host = HostArray::zeros(ty.clone());
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for byte in host.bytes_mut() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 32) as u8;
        if ty.dtype() == DType::Bool {
            *byte &= 1;
        }
    }
    host
}

pub(super) fn upload<T: Element>(
    client: &Client,
    values: &[T],
    dims: &[usize],
    device: DeviceId,
) -> Result<DeviceBuffers> {
    let host = HostArray::from_slice(values, dims)?;
    client.upload(HostBytes::Borrowed(host.bytes()), host.ty(), device.into())
}

/// Reads data on one device.
pub(super) fn read<T: Element>(data: &DeviceBuffers) -> Result<Vec<T>> {
    read_shard(data.first())
}

pub(super) fn read_shard<T: Element>(buffer: DeviceBuffer<'_>) -> Result<Vec<T>> {
    let mut host = HostArray::zeros(buffer.tensor_type().clone());
    buffer.read(host.bytes_mut())?;
    Ok(host.as_slice()?.to_vec())
}

pub(super) fn read_bytes(data: &DeviceBuffers) -> Result<Vec<u8>> {
    let buffer = data.first();
    let mut bytes = vec![0xa5; buffer.tensor_type().bytes()];
    buffer.read(&mut bytes)?;
    Ok(bytes)
}

/// A program for one device.
pub(super) fn program(
    name: &str,
    code: &str,
    inputs: &[TensorType],
    outputs: &[TensorType],
    donated: &[usize],
) -> Program {
    Program {
        name: Arc::from(name),
        code: Code::from(code.as_bytes()),
        signature: Signature {
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            donated: donated.to_vec(),
        },
        partitions: 1,
        replicas: 1,
    }
}

/// `(a, b) -> a + b` on vectors of `n` floats; `a` is donatable if `donated`.
pub(super) fn add(n: usize, donated: bool) -> Program {
    let attribute = if donated {
        " {tf.aliasing_output = 0 : i32}"
    } else {
        ""
    };
    let code = format!(
        "module @add {{
  func.func public @main(%a: tensor<{n}xf32>{attribute}, %b: tensor<{n}xf32>) -> tensor<{n}xf32> {{
    %0 = stablehlo.add %a, %b : tensor<{n}xf32>
    return %0 : tensor<{n}xf32>
  }}
}}"
    );
    program(
        "add",
        &code,
        &[f32s(&[n]), f32s(&[n])],
        &[f32s(&[n])],
        if donated { &[0] } else { &[] },
    )
}

/// `(x [128, 128], steps) -> x` after `steps` iterations of `x = tanh(x x / 128)`: takes any time.
pub(super) fn slow() -> Program {
    let code = "module @slow {
  func.func public @main(%x: tensor<128x128xf32>, %steps: tensor<i32>) -> tensor<128x128xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%i = %zero, %n = %steps, %v = %x) : tensor<i32>, tensor<i32>, tensor<128x128xf32>
    cond {
      %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %scale = stablehlo.constant dense<0.0078125> : tensor<128x128xf32>
      %product = stablehlo.dot_general %v, %v, contracting_dims = [1] x [0] : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
      %scaled = stablehlo.multiply %product, %scale : tensor<128x128xf32>
      %bounded = stablehlo.tanh %scaled : tensor<128x128xf32>
      stablehlo.return %next, %n, %bounded : tensor<i32>, tensor<i32>, tensor<128x128xf32>
    }
    return %0#2 : tensor<128x128xf32>
  }
}";
    program(
        "slow",
        code,
        &[f32s(&[128, 128]), ty(DType::S32, &[])],
        &[f32s(&[128, 128])],
        &[],
    )
}

/// Compiles for the first devices.
pub(super) fn compile(client: &Client, program: &Program) -> Result<Loaded> {
    client.compile(program, &CompileOptions::default())
}

/// Compiles for these devices.
pub(super) fn compile_on(
    client: &Client,
    program: &Program,
    devices: &[DeviceId],
) -> Result<Loaded> {
    client.compile(
        program,
        &CompileOptions {
            devices: devices.to_vec(),
            ..CompileOptions::default()
        },
    )
}

/// Launches a program with one result and returns it.
pub(super) fn launch_for_one(
    loaded: &Loaded,
    args: Vec<Arg<'_, DeviceBuffers>>,
) -> Result<DeviceBuffers> {
    let mut results = loaded.launch(args)?;
    let one = results.len() == 1;
    results
        .pop()
        .filter(|_| one)
        .ok_or_else(|| Error::new(ErrorKind::Internal, "launch", "expected one result"))
}
