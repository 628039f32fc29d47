//! Custom calls of functions that the process registers. Backends without them return
//! [`ErrorKind::Unsupported`] when they compile, and skip the cases.

use std::sync::LazyLock;

use halite_core::{
    Arg, Client, DeviceBuffers, Error, ErrorKind, Loaded, Result,
    custom_call::{self, Arguments},
};

use super::{Case, Subject, support::*};

pub(super) const CASES: &[Case] = &[
    case!("custom_calls", function_computes_results).except(HOLDS_ZEROS),
    case!("custom_calls", error_of_a_function_names_its_target).except(HOLDS_ZEROS),
    case!("custom_calls", panic_of_a_function_is_an_error).except(HOLDS_ZEROS),
    case!("custom_calls", empty_buffers_are_passed),
    case!("custom_calls", each_device_calls_the_function)
        .devices(2)
        .except(HOLDS_ZEROS),
    case!("custom_calls", unregistered_target_is_rejected).except(COMPILES_NOTHING),
];

/// The function `y[i] = factor * x[i] + i`. The attribute `mode` selects an error or a panic.
const TARGET: &str = "halite.conformance.scale";

static REGISTERED: LazyLock<Result<()>> = LazyLock::new(|| custom_call::register(TARGET, scale));

fn scale(call: &mut Arguments<'_>) -> Result<()> {
    let attributes = call.attributes();
    match attributes.str("mode")? {
        "error" => return Err(Error::invalid(TARGET, "the mode is `error`")),
        "panic" => panic!("the mode is `panic`"),
        _ => {}
    }
    let (factor, ([x], [y])) = (attributes.float("factor")? as f32, call.buffers()?);
    let pairs = y
        .as_mut_slice::<f32>()?
        .iter_mut()
        .zip(x.as_slice::<f32>()?);
    for (index, (y, x)) in pairs.enumerate() {
        *y = factor * x + index as f32;
    }
    Ok(())
}

/// A program of `n` floats that calls `target` on each of several devices.
fn call(client: &Client, target: &str, mode: &str, n: usize, devices: usize) -> Checked<Loaded> {
    if let Err(error) = &*REGISTERED {
        return Err(Stop::Failed(error.to_string()));
    }
    let code = format!(
        "func.func public @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{
           %0 = stablehlo.custom_call @{target}(%x) {{
             api_version = 4 : i32, backend_config = {{factor = 2.0 : f64, mode = \"{mode}\"}}
           }} : (tensor<{n}xf32>) -> tensor<{n}xf32>
           return %0 : tensor<{n}xf32> }}"
    );
    let mut program = program("custom", &code, &[f32s(&[n])], &[f32s(&[n])], &[]);
    program.replicas = devices;
    let devices = &client.local_devices()[..devices];
    Ok(compile_on(client, &program, devices)?)
}

fn function_computes_results(subject: &Subject) -> Checked {
    let client = subject.client();
    let loaded = call(client, TARGET, "run", 3, 1)?;
    for start in [0.0f32, 10.0] {
        let x = upload(client, &[start, start, start + 1.0], &[3], first(client))?;
        let y = launch_for_one(&loaded, vec![Arg::Borrow(&x)])?;
        let want = vec![2.0 * start, 2.0 * start + 1.0, 2.0 * start + 4.0];
        same("the result of a function", read::<f32>(&y)?, want)?;
    }
    Ok(())
}

/// The error of a launch, or of reading its result.
fn error_of(client: &Client, loaded: &Loaded) -> Result<()> {
    let x = upload(client, &[1.0f32; 3], &[3], first(client))?;
    let y = launch_for_one(loaded, vec![Arg::Borrow(&x)])?;
    read::<f32>(&y).map(|_| ())
}

fn error_of_a_function_names_its_target(subject: &Subject) -> Checked {
    let client = subject.client();
    let loaded = call(client, TARGET, "error", 3, 1)?;
    expect_error(
        "a function that fails",
        error_of(client, &loaded),
        ErrorKind::InvalidArgument,
        &[TARGET, "the mode is `error`"],
    )?;
    function_computes_results(subject)
}

fn panic_of_a_function_is_an_error(subject: &Subject) -> Checked {
    let client = subject.client();
    let loaded = call(client, TARGET, "panic", 3, 1)?;
    expect_error(
        "a function that panics",
        error_of(client, &loaded),
        ErrorKind::Internal,
        &[TARGET, "panicked: the mode is `panic`"],
    )?;
    function_computes_results(subject)
}

fn empty_buffers_are_passed(subject: &Subject) -> Checked {
    let client = subject.client();
    let loaded = call(client, TARGET, "run", 0, 1)?;
    let x = upload::<f32>(client, &[], &[0], first(client))?;
    let y = launch_for_one(&loaded, vec![Arg::Borrow(&x)])?;
    same("the result of no elements", read::<f32>(&y)?, vec![])
}

fn each_device_calls_the_function(subject: &Subject) -> Checked {
    let client = subject.client();
    let count = client.local_devices().len();
    let loaded = call(client, TARGET, "run", 2, count)?;
    let inputs = (client.local_devices().iter().zip(0u8..))
        .map(|(&device, index)| upload(client, &[f32::from(index); 2], &[2], device))
        .collect::<Result<Vec<_>>>()?;
    let results = loaded.launch(vec![Arg::Borrow(&DeviceBuffers::join(inputs)?)])?;
    for (index, result) in (0u8..).zip(results[0].iter()) {
        let twice = 2.0 * f32::from(index);
        same(
            format!("the result on device {index}"),
            read_shard::<f32>(result)?,
            vec![twice, twice + 1.0],
        )?;
    }
    Ok(())
}

fn unregistered_target_is_rejected(subject: &Subject) -> Checked {
    const UNKNOWN: &str = "halite.conformance.unregistered";
    let client = subject.client();
    let result = call(client, UNKNOWN, "run", 3, 1);
    match result {
        Ok(_) => Err(Stop::Failed(format!("a call of `{UNKNOWN}` compiles"))),
        Err(Stop::Failed(message) | Stop::Skipped(message)) if message.contains(UNKNOWN) => Ok(()),
        Err(Stop::Failed(message)) => Err(Stop::Failed(format!(
            "the error does not name `{UNKNOWN}`: {message}"
        ))),
        // The backend has no custom calls at all.
        Err(skipped) => Err(skipped),
    }
}
