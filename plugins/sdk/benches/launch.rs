//! Cost of a launch through the C table, over the backend directly: `cargo bench -p halite-plugin`.
//!
//! The backend does nothing, so that all the time is the SDK's. Prints nanoseconds per launch, the
//! median of several runs with the smallest and the largest.
#![allow(unsafe_code)]

use std::{fmt, hint::black_box, time::Instant};

use halite_core::{
    Arg, Backend, Buffer, Client, CompileOptions, DType, Device, Executable, HostBytes, Launch,
    Null, Program, Result, Signature, TensorType,
};
use halite_pjrt_sys::{PJRT_Api, buffer::*, client::*, event::*, executable::*};
use halite_plugin::{Options, Plugin};

struct Nothing;

impl Plugin for Nothing {
    fn open(_: &mut Options) -> Result<Client> {
        Ok(Client::new(Null::new(1)))
    }
}

const ROUNDS: usize = 20;
const LAUNCHES: usize = 20_000;

fn main() {
    for inputs in [1, 8] {
        let direct = measure(direct(inputs));
        let table = measure(through_table(inputs, false));
        let events = measure(through_table(inputs, true));
        println!(
            "{inputs} arguments, 1 result: {direct} ns directly, {table} ns through the C table, \
             {events} ns with an event: {:.0} ns more",
            events.median - direct.median
        );
    }
}

/// Nanoseconds per call: the median of several runs, and the smallest and largest.
struct Nanoseconds {
    median: f64,
    range: (f64, f64),
}

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (smallest, largest) = self.range;
        write!(f, "{:.0} ({smallest:.0} to {largest:.0})", self.median)
    }
}

fn measure(mut call: impl FnMut()) -> Nanoseconds {
    let round = |_| {
        let started = Instant::now();
        (0..LAUNCHES).for_each(|_| call());
        started.elapsed().as_nanos() as f64 / LAUNCHES as f64
    };
    let mut rounds: Vec<f64> = (0..ROUNDS).map(round).collect();
    rounds.sort_by(f64::total_cmp);
    Nanoseconds {
        median: rounds[ROUNDS / 2],
        range: (rounds[0], rounds[ROUNDS - 1]),
    }
}

fn program(inputs: usize) -> Program {
    let ty = TensorType::new(DType::F32, [4]);
    let arguments: Vec<_> = (0..inputs)
        .map(|index| format!("%{index}: tensor<4xf32>"))
        .collect();
    let code = format!(
        "func.func public @main({}) -> tensor<4xf32> {{ return %0 : tensor<4xf32> }}",
        arguments.join(", ")
    );
    Program {
        name: "main".into(),
        code: code.as_bytes().into(),
        signature: Signature {
            inputs: vec![ty.clone(); inputs],
            outputs: vec![ty],
            donated: Vec::new(),
        },
        partitions: 1,
        replicas: 1,
    }
}

fn direct(inputs: usize) -> impl FnMut() {
    let backend = Null::new(1);
    let program = program(inputs);
    let loaded = backend
        .compile(&program, &CompileOptions::default())
        .unwrap();
    let place = backend.devices()[0].id().into();
    let ty = program.signature.outputs[0].clone();
    let upload = |_| {
        backend
            .upload(HostBytes::Borrowed(&[0; 16]), &ty, place)
            .unwrap()
    };
    let arguments: Vec<_> = (0..inputs).map(upload).collect();
    move || {
        let args = vec![arguments.iter().map(Arg::Borrow).collect()];
        let launched = loaded.launch(Launch { args }).unwrap();
        black_box(launched.outputs[0][0].ready().is_ok());
    }
}

fn through_table(inputs: usize, with_event: bool) -> impl FnMut() {
    // SAFETY: the table is constant; every struct and what it points at lives during its call.
    unsafe {
        let table: &PJRT_Api = &*halite_plugin::api::<Nothing>();
        let mut create = PJRT_Client_Create_Args::new();
        assert!(table.PJRT_Client_Create.unwrap()(&mut create).is_null());
        let client = create.client;
        let code = program(inputs).code;
        let program = PJRT_Program {
            code: code.bytes().as_ptr().cast_mut().cast(),
            code_size: code.bytes().len(),
            format: "mlir".as_ptr().cast(),
            format_size: 4,
            ..PJRT_Program::new()
        };
        let mut compile = PJRT_Client_Compile_Args {
            client,
            program: &program,
            ..PJRT_Client_Compile_Args::new()
        };
        assert!(table.PJRT_Client_Compile.unwrap()(&mut compile).is_null());
        let upload = |_| {
            let mut args = PJRT_Client_BufferFromHostBuffer_Args {
                client,
                data: [0f32; 4].as_ptr().cast(),
                r#type: PJRT_Buffer_Type::F32,
                dims: &4,
                num_dims: 1,
                ..PJRT_Client_BufferFromHostBuffer_Args::new()
            };
            assert!(table.PJRT_Client_BufferFromHostBuffer.unwrap()(&mut args).is_null());
            args.buffer
        };
        let arguments: Vec<_> = (0..inputs).map(upload).collect();
        let executable = compile.executable;
        move || launch(table, executable, &arguments, with_event)
    }
}

/// One launch, and the destruction of what it returned.
///
/// # Safety
///
/// * The table is one of the SDK, and the handles are of it.
unsafe fn launch(
    table: &PJRT_Api,
    executable: *mut PJRT_LoadedExecutable,
    arguments: &[*mut PJRT_Buffer],
    with_event: bool,
) {
    let (mut buffer, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (rows, outputs) = ([arguments.as_ptr()], [&raw mut buffer]);
    let mut options = PJRT_ExecuteOptions::new();
    let mut args = PJRT_LoadedExecutable_Execute_Args {
        executable,
        options: &mut options,
        argument_lists: rows.as_ptr(),
        num_devices: 1,
        num_args: arguments.len(),
        output_lists: outputs.as_ptr(),
        device_complete_events: if with_event {
            &mut event
        } else {
            std::ptr::null_mut()
        },
        ..PJRT_LoadedExecutable_Execute_Args::new()
    };
    // SAFETY: the caller's condition; the lists live during the call.
    unsafe {
        assert!(table.PJRT_LoadedExecutable_Execute.unwrap()(&mut args).is_null());
        let mut destroy = PJRT_Buffer_Destroy_Args {
            buffer,
            ..PJRT_Buffer_Destroy_Args::new()
        };
        assert!(table.PJRT_Buffer_Destroy.unwrap()(&mut destroy).is_null());
        let mut destroy = PJRT_Event_Destroy_Args {
            event,
            ..PJRT_Event_Destroy_Args::new()
        };
        assert!(table.PJRT_Event_Destroy.unwrap()(&mut destroy).is_null());
    }
}
