//! Compiled programs: their signature, serialization, and reported memory.

use halite_core::{Arg, Client, CompileOptions, DType, ErrorKind, Loaded};

use super::super::{Subject, support::*};

pub(super) fn executable_reports_its_signature(subject: &Subject) -> Checked {
    let client = subject.client();
    for device in client.local_devices() {
        for program in [add(4, true), slow()] {
            let loaded = compile_on(client, &program, &[device])?;
            same("the signature", loaded.signature(), &program.signature)?;
            same("the devices", loaded.devices(), &[device])?;
        }
    }
    same(
        "the default devices",
        compile(client, &add(4, false))?.devices(),
        &[first(client)],
    )
}

fn check_add(client: &Client, loaded: &Loaded) -> Checked {
    let device = loaded.devices()[0];
    let (a, b) = (
        upload(client, &[1.0f32; 4], &[4], device)?,
        upload(client, &[2.0f32; 4], &[4], device)?,
    );
    let sum = launch_for_one(loaded, vec![Arg::Donate(a), Arg::Borrow(&b)])?;
    same(
        "the sum computed by a loaded program",
        read::<f32>(&sum)?,
        vec![3.0; 4],
    )
}

pub(super) fn executable_survives_serialization(subject: &Subject) -> Checked {
    let client = subject.client();
    let compiled = compile(client, &add(4, true))?;
    let bytes = optional(compiled.serialize())?;
    let loaded = optional(client.load(&bytes, compiled.signature(), &CompileOptions::default()))?;
    same(
        "the signature of a loaded program",
        loaded.signature(),
        compiled.signature(),
    )?;
    drop(compiled);
    check_add(client, &loaded)?;
    // A loaded program can be serialized, too.
    let again = client.load(
        &optional(loaded.serialize())?,
        loaded.signature(),
        &CompileOptions::default(),
    )?;
    check_add(client, &again)?;
    for device in client.local_devices().into_iter().skip(1).take(1) {
        let elsewhere = CompileOptions {
            devices: vec![device],
            ..CompileOptions::default()
        };
        let loaded = optional(client.load(&bytes, loaded.signature(), &elsewhere))?;
        same(
            "the device of a loaded program",
            loaded.devices(),
            &[device],
        )?;
        check_add(client, &loaded)?;
    }
    match subject.another() {
        Ok(other) => check_add(
            &other,
            &other.load(&bytes, loaded.signature(), &CompileOptions::default())?,
        ),
        Err(Stop::Skipped(_)) => Ok(()),
        Err(other) => Err(other),
    }
}

pub(super) fn invalid_serialized_executable_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let compiled = compile(client, &add(4, true))?;
    let bytes = optional(compiled.serialize())?;
    let load = |bytes: &[u8]| client.load(bytes, compiled.signature(), &CompileOptions::default());
    for length in [0, 1, 16, bytes.len() / 2, bytes.len() - 1] {
        check!(
            load(&bytes[..length]).is_err(),
            "{length} of {} serialized bytes are loaded",
            bytes.len()
        );
    }
    check!(
        load(b"not a program").is_err(),
        "text is loaded as a serialized program"
    );
    check!(
        load(&[0xff; 1000]).is_err(),
        "1000 bytes of 0xff are loaded as a serialized program"
    );
    for (what, inputs, outputs) in [
        ("other dimensions", [f32s(&[5]), f32s(&[5])], f32s(&[5])),
        (
            "another element type",
            [ty(DType::S32, &[4]), f32s(&[4])],
            f32s(&[4]),
        ),
    ] {
        let signature = halite_core::Signature {
            inputs: inputs.into(),
            outputs: vec![outputs],
            donated: vec![0],
        };
        let loaded = client.load(&bytes, &signature, &CompileOptions::default());
        expect_error(
            format!("a serialized program with a signature of {what}"),
            loaded,
            ErrorKind::InvalidArgument,
            &[],
        )?;
    }
    check_add(client, &load(&bytes)?)
}

pub(super) fn planned_memory_matches_the_types(subject: &Subject) -> Checked {
    let client = subject.client();
    let size = 1 << 20;
    for donated in [false, true] {
        let memory = optional(compile(client, &add(size, donated))?.memory())?;
        let bytes = 4 * size as u64;
        // Devices may pad, but not much.
        let about = |value: u64, want: u64| (want..=want + want / 8 + (1 << 16)).contains(&value);
        check!(
            about(memory.arguments, 2 * bytes),
            "for arguments of {} bytes, the plan is {memory:?}",
            2 * bytes
        );
        check!(
            about(memory.outputs, bytes),
            "for results of {bytes} bytes, the plan is {memory:?}"
        );
        check!(
            donated || memory.aliased == 0,
            "without donation, the plan is {memory:?}"
        );
        check!(
            !donated || about(memory.aliased, bytes),
            "for {bytes} donated bytes, the plan is {memory:?}"
        );
        check!(
            memory.temporary <= bytes,
            "for an addition of {bytes} bytes, the plan is {memory:?}"
        );
        check!(
            memory.peak.is_none_or(|peak| peak < 8 * bytes),
            "for an addition of {bytes} bytes, the plan is {memory:?}"
        );
    }
    Ok(())
}

pub(super) fn used_memory_is_below_its_limit(subject: &Subject) -> Checked {
    let client = subject.client();
    let kept = upload(client, &vec![1.0f32; 1 << 20], &[1 << 20], first(client))?;
    kept.first().ready()?.wait()?;
    for device in client
        .devices()
        .into_iter()
        .filter(|device| device.is_local())
    {
        let memory = optional(device.memory())?;
        check!(
            memory.limit.is_none_or(|limit| memory.in_use <= limit),
            "device {} reports {memory:?}",
            device.id().0
        );
        check!(
            memory.peak.is_none_or(|peak| memory.in_use <= peak),
            "device {} reports {memory:?}",
            device.id().0
        );
        let holds_it = device.id() == first(client) && &*client.platform().name != "null";
        check!(
            !holds_it || memory.in_use >= 4 << 20,
            "device {} holds 4 MiB, but reports {memory:?}",
            device.id().0
        );
    }
    Ok(())
}
