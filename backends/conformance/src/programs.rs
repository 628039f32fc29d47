//! Programs: types of arguments and results, numerics, serialization, and reported memory.

mod executables;

use halite_core::{Arg, CompileOptions, DType, ErrorKind, HostArray, HostBytes, Loaded};

use self::executables::{
    executable_reports_its_signature, executable_survives_serialization,
    invalid_serialized_executable_is_rejected, planned_memory_matches_the_types,
    used_memory_is_below_its_limit,
};
use super::{Case, Subject, support::*};

pub(super) const CASES: &[Case] = &[
    case!("programs", every_type_passes_through_a_program).except(HOLDS_ZEROS),
    case!("programs", program_without_arguments_works).except(HOLDS_ZEROS),
    case!("programs", program_without_results_works),
    case!("programs", empty_tensors_are_computed).except(HOLDS_ZEROS),
    case!("programs", small_matrix_products_are_exact).except(HOLDS_ZEROS),
    case!("programs", maximum_propagates_nan).except(HOLDS_ZEROS),
    case!("programs", loop_runs_the_requested_iterations).except(HOLDS_ZEROS),
    case!("programs", repeated_launch_is_bit_exact).except(HOLDS_ZEROS),
    case!("programs", executable_reports_its_signature),
    case!("programs", executable_survives_serialization),
    case!("programs", invalid_serialized_executable_is_rejected),
    case!("programs", planned_memory_matches_the_types),
    case!("programs", used_memory_is_below_its_limit),
];

fn every_type_passes_through_a_program(subject: &Subject) -> Checked {
    let client = subject.client();
    for (seed, dtype) in (1..).zip(DType::computed()) {
        let ty = ty(dtype, &[3, 5]);
        let t = stablehlo_type(&ty);
        let op = if dtype == DType::Bool {
            "xor"
        } else {
            "subtract"
        };
        let code = format!(
            "func.func public @main(%x: {t}) -> ({t}, {t}) {{
               %0 = stablehlo.{op} %x, %x : {t}
               return %x, %0 : {t}, {t} }}"
        );
        let loaded = compile(
            client,
            &program(
                "types",
                &code,
                std::slice::from_ref(&ty),
                &[ty.clone(), ty.clone()],
                &[],
            ),
        )?;
        // Random bits may be an infinite float, whose difference with itself is NaN: differences
        // are checked with zeros.
        for host in [noise(&ty, seed), HostArray::zeros(ty.clone())] {
            let x = client.upload(HostBytes::Borrowed(host.bytes()), &ty, first(client).into())?;
            let results = loaded.launch(vec![Arg::Borrow(&x)])?;
            same(
                "the type of a result",
                results[0].first().tensor_type(),
                &ty,
            )?;
            same_bytes(
                format!("{ty} returned by a program"),
                &read_bytes(&results[0])?,
                host.bytes(),
            )?;
            if !dtype.is_float() || host == HostArray::zeros(ty.clone()) {
                same_bytes(
                    format!("x {op} x of {ty}"),
                    &read_bytes(&results[1])?,
                    &vec![0; ty.bytes()],
                )?;
            }
        }
    }
    Ok(())
}

fn program_without_arguments_works(subject: &Subject) -> Checked {
    let client = subject.client();
    let code = "func.func public @main() -> (tensor<i32>, tensor<2xf32>, tensor<0x3xf32>) {
        %0 = stablehlo.constant dense<7> : tensor<i32>
        %1 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
        %2 = stablehlo.constant dense<> : tensor<0x3xf32>
        return %0, %1, %2 : tensor<i32>, tensor<2xf32>, tensor<0x3xf32> }";
    let types = [ty(DType::S32, &[]), f32s(&[2]), f32s(&[0, 3])];
    let constants = compile(client, &program("constants", code, &[], &types, &[]))?;
    let results = constants.launch(vec![])?;
    let found: Vec<_> = results
        .iter()
        .map(|result| result.first().tensor_type().clone())
        .collect();
    same("the types of constants", found, types.into())?;
    same("a scalar", read::<i32>(&results[0])?, vec![7])?;
    same("two floats", read::<f32>(&results[1])?, vec![1.0, 2.0])?;
    same("no floats", read::<f32>(&results[2])?, vec![])
}

fn program_without_results_works(subject: &Subject) -> Checked {
    let client = subject.client();
    let x = upload(client, &[1.0f32, 2.0], &[2], first(client))?;
    let cases = [
        ("no argument", "", &[][..]),
        ("an argument", "%x: tensor<2xf32>", &[]),
        (
            "a donated argument",
            "%x: tensor<2xf32> {jax.buffer_donor = true}",
            &[0],
        ),
    ];
    for (what, argument, donated) in cases {
        let inputs = vec![f32s(&[2]); usize::from(!argument.is_empty())];
        let code = format!("func.func public @main({argument}) {{ return }}");
        let loaded = compile(client, &program("nothing", &code, &inputs, &[], donated))?;
        let launch = |loaded: &Loaded| -> Checked {
            let arguments = inputs.iter().map(|_| Arg::Borrow(&x)).collect();
            let results = loaded.launch(arguments)?;
            same(format!("the number of results, {what}"), results.len(), 0)
        };
        launch(&loaded)?;
        // Reporting them is optional.
        match loaded.output_shardings() {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            found => same(format!("the shardings of results, {what}"), found?, vec![])?,
        }
        let bytes = optional(loaded.serialize())?;
        let options = CompileOptions::default();
        launch(&optional(client.load(
            &bytes,
            loaded.signature(),
            &options,
        ))?)?;
    }
    Ok(())
}

fn empty_tensors_are_computed(subject: &Subject) -> Checked {
    let client = subject.client();
    let code = "func.func public @main(%a: tensor<0x3xf32>, %b: tensor<f32>)
          -> (tensor<3xf32>, tensor<0x3xf32>) {
        %0 = stablehlo.reduce(%a init: %b) applies stablehlo.add across dimensions = [0]
          : (tensor<0x3xf32>, tensor<f32>) -> tensor<3xf32>
        %1 = stablehlo.add %a, %a : tensor<0x3xf32>
        return %0, %1 : tensor<3xf32>, tensor<0x3xf32> }";
    let (arguments, results) = ([f32s(&[0, 3]), f32s(&[])], [f32s(&[3]), f32s(&[0, 3])]);
    let loaded = compile(client, &program("empty", code, &arguments, &results, &[]))?;
    let a = upload::<f32>(client, &[], &[0, 3], first(client))?;
    let b = upload(client, &[4.0f32], &[], first(client))?;
    let results = loaded.launch(vec![Arg::Borrow(&a), Arg::Borrow(&b)])?;
    same(
        "the sum of no elements, from 4",
        read::<f32>(&results[0])?,
        vec![4.0; 3],
    )?;
    same(
        "an empty sum of two tensors",
        read::<f32>(&results[1])?,
        vec![],
    )
}

fn small_matrix_products_are_exact(subject: &Subject) -> Checked {
    let client = subject.client();
    // Integers below 2^8 are exact in every float type, and so are their sums here, whatever
    // precision the device multiplies with.
    let (rows, inner, columns) = (17, 31, 13);
    let code = format!(
        "func.func public @main(%a: tensor<{rows}x{inner}xf32>, %b: tensor<{inner}x{columns}xf32>) -> tensor<{rows}x{columns}xf32> {{
           %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<{rows}x{inner}xf32>, tensor<{inner}x{columns}xf32>) -> tensor<{rows}x{columns}xf32>
           return %0 : tensor<{rows}x{columns}xf32> }}"
    );
    let product = program(
        "product",
        &code,
        &[f32s(&[rows, inner]), f32s(&[inner, columns])],
        &[f32s(&[rows, columns])],
        &[],
    );
    let a: Vec<f32> = (0..rows * inner)
        .map(|i| (i * 7 % 11) as f32 - 5.0)
        .collect();
    let b: Vec<f32> = (0..inner * columns)
        .map(|i| (i * 5 % 13) as f32 - 6.0)
        .collect();
    let cell = |at: usize| {
        (0..inner)
            .map(|k| a[at / columns * inner + k] * b[k * columns + at % columns])
            .sum()
    };
    let want: Vec<f32> = (0..rows * columns).map(cell).collect();
    let loaded = compile(client, &product)?;
    let a = upload(client, &a, &[rows, inner], first(client))?;
    let b = upload(client, &b, &[inner, columns], first(client))?;
    same(
        "the product",
        read::<f32>(&launch_for_one(
            &loaded,
            vec![Arg::Borrow(&a), Arg::Borrow(&b)],
        )?)?,
        want,
    )
}

fn maximum_propagates_nan(subject: &Subject) -> Checked {
    let client = subject.client();
    let code = "func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
        %0 = stablehlo.maximum %a, %b : tensor<4xf32>
        %1 = stablehlo.minimum %a, %b : tensor<4xf32>
        return %0, %1 : tensor<4xf32>, tensor<4xf32> }";
    let four = f32s(&[4]);
    let loaded = compile(
        client,
        &program(
            "extremes",
            code,
            &[four.clone(), four.clone()],
            &[four.clone(), four],
            &[],
        ),
    )?;
    let a = upload(client, &[f32::NAN, 1.0, f32::NAN, 2.0], &[4], first(client))?;
    let b = upload(
        client,
        &[1.0, f32::NAN, f32::NAN, -3.0],
        &[4],
        first(client),
    )?;
    // Without it, a ReLU or a max-pooling would hide that a model diverged.
    let results = loaded.launch(vec![Arg::Borrow(&a), Arg::Borrow(&b)])?;
    for ((what, last), result) in [("maximum", 2.0), ("minimum", -3.0)]
        .into_iter()
        .zip(&results)
    {
        let values = read::<f32>(result)?;
        let right = values[..3].iter().all(|value| value.is_nan()) && values[3] == last;
        check!(
            right,
            "the {what} of (NaN, 1, NaN, 2) and (1, NaN, NaN, -3) is {values:?}"
        );
    }
    Ok(())
}

fn loop_runs_the_requested_iterations(subject: &Subject) -> Checked {
    let client = subject.client();
    let code = "func.func public @main(%n: tensor<i32>) -> (tensor<i32>, tensor<i64>) {
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %start = stablehlo.constant dense<0> : tensor<i64>
        %0:3 = stablehlo.while(%i = %zero, %to = %n, %sum = %start) : tensor<i32>, tensor<i32>, tensor<i64>
        cond {
          %more = stablehlo.compare LT, %i, %to : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %more : tensor<i1>
        } do {
          %one = stablehlo.constant dense<1> : tensor<i32>
          %next = stablehlo.add %i, %one : tensor<i32>
          %wide = stablehlo.convert %next : (tensor<i32>) -> tensor<i64>
          %more = stablehlo.add %sum, %wide : tensor<i64>
          stablehlo.return %next, %to, %more : tensor<i32>, tensor<i32>, tensor<i64>
        }
        return %0#0, %0#2 : tensor<i32>, tensor<i64> }";
    let signature = (
        [ty(DType::S32, &[])],
        [ty(DType::S32, &[]), ty(DType::S64, &[])],
    );
    let loaded = compile(
        client,
        &program("loop", code, &signature.0, &signature.1, &[]),
    )?;
    for n in [0i32, 1, 10, 1000] {
        let count = upload(client, &[n], &[], first(client))?;
        let results = loaded.launch(vec![Arg::Borrow(&count)])?;
        same(
            format!("the counter after {n} iterations"),
            read::<i32>(&results[0])?,
            vec![n],
        )?;
        same(
            format!("the sum of 1 to {n}"),
            read::<i64>(&results[1])?,
            vec![i64::from(n) * i64::from(n + 1) / 2],
        )?;
    }
    Ok(())
}

fn repeated_launch_is_bit_exact(subject: &Subject) -> Checked {
    let client = subject.client();
    let slow = compile(client, &slow())?;
    let values: Vec<f32> = (0..128 * 128)
        .map(|i| ((i * 7919) % 2003) as f32 / 1001.5 - 1.0)
        .collect();
    let x = upload(client, &values, &[128, 128], first(client))?;
    let steps = upload(client, &[2i32], &[], first(client))?;
    let run = || -> Checked<Vec<u8>> {
        Ok(read_bytes(&launch_for_one(
            &slow,
            vec![Arg::Borrow(&x), Arg::Borrow(&steps)],
        )?)?)
    };
    let want = run()?;
    check!(
        want.iter().any(|byte| *byte != 0),
        "the matrix products are all zero"
    );
    for _ in 0..5 {
        same_bytes("repeated matrix products", &run()?, &want)?;
    }
    Ok(())
}
