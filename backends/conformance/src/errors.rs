//! Invalid input is rejected with a message, before it reaches a driver that would abort the
//! process or misread the bits.

use halite_core::{
    Arg, Client, CompileOptions, DType, DeviceBuffers, DeviceId, ErrorKind, FlagValue, Null,
    Program, Signature,
};

use super::{Case, Subject, support::*};

const NO_PLACEMENT: &[(&str, &str)] = &[(
    "null",
    "its buffers have no placement, so it checks types only",
)];

pub(super) const CASES: &[Case] = &[
    case!("errors", wrong_number_of_arguments_is_rejected),
    case!("errors", argument_of_wrong_type_is_rejected),
    case!("errors", argument_on_wrong_device_is_rejected)
        .devices(2)
        .except(NO_PLACEMENT),
    case!("errors", buffer_of_another_backend_is_rejected)
        .except(&[("null", "there is no other backend without a plugin")]),
    case!("errors", buffer_of_another_client_is_rejected).except(NO_PLACEMENT),
    case!("errors", invalid_program_is_rejected).except(COMPILES_NOTHING),
    case!("errors", wrong_signature_is_rejected).except(COMPILES_NOTHING),
    case!("errors", invalid_flags_are_rejected).except(COMPILES_NOTHING),
    case!("errors", wrong_devices_are_rejected),
];

fn values(client: &Client, values: &[f32]) -> Checked<DeviceBuffers> {
    Ok(upload(client, values, &[values.len()], first(client))?)
}

/// Checks that the rejected input had no other effect.
fn still_adds(client: &Client) -> Checked {
    let add = compile(client, &add(4, false))?;
    let a = values(client, &[1.0; 4])?;
    let sum = read::<f32>(&launch_for_one(
        &add,
        vec![Arg::Borrow(&a), Arg::Borrow(&a)],
    )?)?;
    let zeros_only = &*client.platform().name == "null";
    check!(
        zeros_only || sum == [2.0; 4],
        "1 + 1 is {sum:?} after invalid input was rejected"
    );
    Ok(())
}

fn wrong_number_of_arguments_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let add = compile(client, &add(4, false))?;
    let a = values(client, &[1.0; 4])?;
    for count in [0, 1, 3, 100] {
        let wrong = add.launch((0..count).map(|_| Arg::Borrow(&a)).collect());
        expect_error(
            format!("a launch with {count} arguments for 2"),
            wrong,
            ErrorKind::InvalidArgument,
            &[],
        )?;
    }
    let twice = DeviceBuffers::join([values(client, &[1.0; 4])?, values(client, &[1.0; 4])?])?;
    expect_error(
        "a launch for 2 devices of 1",
        add.launch(vec![Arg::Borrow(&twice), Arg::Borrow(&twice)]),
        ErrorKind::InvalidArgument,
        &[],
    )?;
    still_adds(client)
}

fn argument_of_wrong_type_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let add = compile(client, &add(4, true))?;
    let good = values(client, &[1.0; 4])?;
    let types = [
        // The same size: a driver would read them as floats.
        ty(DType::S32, &[4]),
        ty(DType::U8, &[16]),
        f32s(&[2, 2]),
        f32s(&[4, 1]),
        f32s(&[1, 4]),
        // Other sizes: a driver would read out of bounds.
        f32s(&[3]),
        f32s(&[5]),
        f32s(&[0]),
        f32s(&[]),
        ty(DType::F64, &[4]),
        ty(DType::F16, &[4]),
        ty(DType::Bool, &[4]),
    ];
    for ty in &types {
        let host = noise(ty, 1);
        let upload = || {
            client.upload(
                halite_core::HostBytes::Borrowed(host.bytes()),
                ty,
                first(client).into(),
            )
        };
        let wrong = upload()?;
        let words = ["f32[4]", &*ty.to_string()];
        let check = |how: &str, args| {
            expect_error(
                format!("{ty} {how} for f32[4]"),
                add.launch(args),
                ErrorKind::InvalidArgument,
                &words,
            )
        };
        check(
            "as argument 0",
            vec![Arg::Borrow(&wrong), Arg::Borrow(&good)],
        )?;
        check(
            "as argument 1",
            vec![Arg::Borrow(&good), Arg::Borrow(&wrong)],
        )?;
        check("donated", vec![Arg::Donate(upload()?), Arg::Borrow(&good)])?;
    }
    still_adds(client)
}

fn argument_on_wrong_device_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let devices = client.local_devices();
    let add = compile_on(client, &add(4, false), &devices[..1])?;
    let here = upload(client, &[1.0f32; 4], &[4], devices[0])?;
    let there = upload(client, &[1.0f32; 4], &[4], devices[1])?;
    let words = [&*devices[0].0.to_string(), &*devices[1].0.to_string()];
    for args in [[&here, &there], [&there, &here], [&there, &there]] {
        let wrong = add.launch(args.map(Arg::Borrow).into());
        expect_error(
            "an argument on another device",
            wrong,
            ErrorKind::InvalidArgument,
            &words,
        )?;
    }
    still_adds(client)
}

fn buffer_of_another_backend_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let add = compile(client, &add(4, true))?;
    let good = values(client, &[1.0; 4])?;
    let foreign = || values(&Client::new(Null::new(1)), &[1.0; 4]);
    let wrong = add.launch(vec![Arg::Borrow(&good), Arg::Borrow(&foreign()?)]);
    expect_error(
        "a buffer of another backend",
        wrong,
        ErrorKind::InvalidArgument,
        &["another backend"],
    )?;
    let wrong = add.launch(vec![Arg::Donate(foreign()?), Arg::Borrow(&good)]);
    expect_error(
        "a donated buffer of another backend",
        wrong,
        ErrorKind::InvalidArgument,
        &["another backend"],
    )?;
    still_adds(client)
}

fn buffer_of_another_client_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let other = subject.another()?;
    let add = compile(client, &add(4, true))?;
    let (good, foreign) = (values(client, &[1.0; 4])?, values(&other, &[1.0; 4])?);
    let wrong = add.launch(vec![Arg::Borrow(&good), Arg::Borrow(&foreign)]);
    expect_error(
        "a buffer of another client",
        wrong,
        ErrorKind::InvalidArgument,
        &["client"],
    )?;
    let wrong = add.launch(vec![Arg::Donate(foreign), Arg::Borrow(&good)]);
    expect_error(
        "a donated buffer of another client",
        wrong,
        ErrorKind::InvalidArgument,
        &["client"],
    )?;
    still_adds(client)?;
    still_adds(&other)
}

fn invalid_program_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let with_body = |body: &str| {
        format!("func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{\n{body}\n}}")
    };
    let texts = [
        ("an empty text", String::new()),
        ("garbage", "not a program".into()),
        (
            "an unknown dialect",
            with_body("%0 = halite.double %a : tensor<4xf32> return %0 : tensor<4xf32>"),
        ),
        (
            "an unknown op",
            with_body("%0 = stablehlo.no_such_op %a : tensor<4xf32> return %0 : tensor<4xf32>"),
        ),
        (
            "a name that is not defined",
            with_body("return %b : tensor<4xf32>"),
        ),
        (
            "a result of another type",
            with_body("return %a : tensor<5xf32>"),
        ),
        (
            "types that do not add",
            "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
               %b = stablehlo.constant dense<1.0> : tensor<5xf32>
               %0 = stablehlo.add %a, %b : (tensor<4xf32>, tensor<5xf32>) -> tensor<4xf32>
               return %0 : tensor<4xf32> }"
                .into(),
        ),
        (
            "no main",
            with_body("return %a : tensor<4xf32>").replace("@main", "@other"),
        ),
        (
            "a truncated text",
            "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {".into(),
        ),
    ];
    let wanted = |code: &[u8]| Program {
        code: code.into(),
        ..program("broken", "", &[f32s(&[4])], &[f32s(&[4])], &[])
    };
    for (what, text) in &texts {
        expect_compile_error(what, client, &wanted(text.as_bytes()))?;
    }
    for (what, bytes) in [
        ("bytes that are not text", &[0u8, 255, 254, 3][..]),
        ("truncated bytecode", b"ML\xefR\x06StableHLO_v1.0.0\x00"),
    ] {
        expect_compile_error(what, client, &wanted(bytes))?;
    }
    still_adds(client)
}

/// Checks that compiling is an error that names the program. Its kind depends on the compiler stage
/// that reports it.
fn expect_compile_error(what: &str, client: &Client, program: &Program) -> Checked {
    match compile(client, program) {
        Ok(_) => Err(Stop::Failed(format!("{what} compiles"))),
        Err(error) => {
            check!(
                !error.message().is_empty(),
                "{what}: the error has no message"
            );
            check!(
                error.message().contains(&*program.name),
                "{what}: the error does not name `{}`: {error}",
                program.name
            );
            Ok(())
        }
    }
}

fn wrong_signature_is_rejected(subject: &Subject) -> Checked {
    type Change = fn(&mut Signature);
    let wrong: [(&str, Change); 10] = [
        ("an argument too few", |it| it.inputs.truncate(1)),
        ("an argument too many", |it| it.inputs.push(f32s(&[4]))),
        ("an argument of another element type", |it| {
            it.inputs[1] = ty(DType::S32, &[4]);
        }),
        ("an argument of other dimensions", |it| {
            it.inputs[0] = f32s(&[2, 2]);
        }),
        ("a result too few", |it| it.outputs.clear()),
        ("a result too many", |it| it.outputs.push(f32s(&[4]))),
        ("a result of another element type", |it| {
            it.outputs[0] = ty(DType::U32, &[4]);
        }),
        ("a result of other dimensions", |it| {
            it.outputs[0] = f32s(&[8]);
        }),
        ("a donated argument that does not exist", |it| {
            it.donated = vec![2];
        }),
        ("donated arguments out of order", |it| {
            it.donated = vec![1, 0];
        }),
    ];
    let client = subject.client();
    for (what, change) in wrong {
        let mut program = add(4, false);
        change(&mut program.signature);
        expect_error(
            format!("a signature with {what}"),
            compile(client, &program),
            ErrorKind::InvalidArgument,
            &["add"],
        )?;
    }
    still_adds(client)
}

fn invalid_flags_are_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    for (name, value) in [
        ("halite_no_such_flag", FlagValue::Bool(true)),
        ("", FlagValue::Int(1)),
        (
            "xla_backend_optimization_level",
            FlagValue::Str("much".into()),
        ),
    ] {
        let flags = vec![(name.to_owned(), value.clone())];
        let compiled = client.compile(
            &add(4, false),
            &CompileOptions {
                flags,
                ..CompileOptions::default()
            },
        );
        check!(
            compiled.is_err(),
            "the flag `{name}` = {value:?} is accepted"
        );
    }
    still_adds(client)
}

fn wrong_devices_are_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let devices = client.local_devices();
    let here = devices.len();
    for (what, wrong) in [
        ("an unknown device", vec![DeviceId(u32::MAX)]),
        ("two devices for one", vec![devices[0], devices[0]]),
    ] {
        let compiled = compile_on(client, &add(4, false), &wrong);
        expect_error(
            format!("a compilation for {what}"),
            compiled,
            ErrorKind::InvalidArgument,
            &[],
        )?;
    }
    let mut wide = add(4, false);
    wide.replicas = client.devices().len() + 1;
    expect_error(
        "a program for one device too many",
        compile(client, &wide),
        ErrorKind::InvalidArgument,
        &[],
    )?;
    if here > 1 {
        wide.replicas = 2;
        let twice = compile_on(client, &wide, &[devices[0], devices[0]]);
        // The null backend computes nothing and accepts it.
        check!(
            twice.is_err() || &*client.platform().name == "null",
            "two replicas on one device are accepted"
        );
    }
    still_adds(client)
}
