//! Many cases as one program, since compiling takes most of the time.

use std::{fmt::Write, sync::Arc};

use halite_core::{
    Arg, Client, Code, CompileOptions, DeviceBuffers, HostBytes, Program, Result, Signature,
};

use crate::operations::draft::{Case, join, tensor_type};

/// The results of a case, as bytes.
pub(crate) type Results = Vec<Vec<u8>>;

/// Runs the cases on a client. If the program of all fails, each half is tried, down to one case.
pub(crate) fn run(client: &Client, cases: &[&Case]) -> Vec<Result<Results>> {
    if cases.is_empty() {
        return Vec::new();
    }
    match (run_program(client, cases), cases) {
        (Ok(results), _) => results.into_iter().map(Ok).collect(),
        (Err(error), [_]) => vec![Err(error)],
        (Err(_), _) => {
            let (first, second) = cases.split_at(cases.len() / 2);
            [run(client, first), run(client, second)]
                .into_iter()
                .flatten()
                .collect()
        }
    }
}

fn run_program(client: &Client, cases: &[&Case]) -> Result<Vec<Results>> {
    let loaded = client.compile(&program(cases), &CompileOptions::default())?;
    let device = client.local_devices()[0];
    let inputs = cases.iter().flat_map(|case| &case.inputs);
    let buffers = inputs.map(|input| {
        client.upload(
            HostBytes::Borrowed(&input.bytes),
            &tensor_type(&input.ty),
            device.into(),
        )
    });
    let buffers = buffers.collect::<Result<Vec<_>>>()?;
    let outputs = loaded.launch(buffers.iter().map(Arg::Borrow).collect())?;
    let mut outputs = outputs.iter().map(DeviceBuffers::first);
    let read = |case: &&Case| {
        let each = outputs.by_ref().take(case.outputs.len()).map(|buffer| {
            let mut bytes = vec![0; buffer.tensor_type().bytes()];
            buffer.read(&mut bytes).map(|()| bytes)
        });
        each.collect()
    };
    cases.iter().map(read).collect()
}

/// A program that calls each case.
pub(crate) fn program(cases: &[&Case]) -> Program {
    let (mut functions, mut calls) = (String::new(), String::new());
    let (mut parameters, mut results, mut types) = (Vec::new(), Vec::new(), Vec::new());
    for (at, case) in cases.iter().enumerate() {
        functions += &case.function("private", &format!("case{at}"));
        let of: Vec<_> = case.inputs.iter().map(|input| &input.ty).collect();
        let first = parameters.len();
        parameters.extend(
            of.iter()
                .enumerate()
                .map(|(at, ty)| format!("%p{}: {ty}", first + at)),
        );
        let names: Vec<_> = (first..parameters.len())
            .map(|at| format!("%p{at}"))
            .collect();
        let count = case.outputs.len();
        writeln!(
            calls,
            "  %r{at}:{count} = func.call @case{at}({}) : ({}) -> ({})",
            names.join(", "),
            join(&of),
            join(&case.outputs)
        )
        .expect("strings grow");
        results.extend((0..count).map(|result| format!("%r{at}#{result}")));
        types.extend(&case.outputs);
    }
    let code = format!(
        "{functions}func.func public @main({}) -> ({}) {{\n{calls}  func.return {} : {}\n}}\n",
        parameters.join(", "),
        join(&types),
        results.join(", "),
        join(&types),
    );
    let inputs = cases.iter().flat_map(|case| &case.inputs);
    Program {
        name: Arc::from("operations"),
        code: Code::from(code.as_bytes()),
        signature: Signature {
            inputs: inputs.map(|input| tensor_type(&input.ty)).collect(),
            outputs: types.into_iter().map(tensor_type).collect(),
            donated: Vec::new(),
        },
        partitions: 1,
        replicas: 1,
    }
}
