//! Serialized programs, their properties, and programs compiled for a topology.

use halite_core::{Arg, Backend, CompileOptions, DeviceId, ErrorKind, Executable};

use crate::common::*;

#[test]
fn serialized_program_keeps_donation() {
    let client = cpu(4);
    let compiled = compile(&client, &add(4, true));
    let bytes = compiled.serialize().unwrap();
    let signature = compiled.signature().clone();
    let elsewhere = CompileOptions {
        devices: vec![DeviceId(2)],
        ..Default::default()
    };
    for (options, device) in [(CompileOptions::default(), 0), (elsewhere, 2)] {
        let loaded = client
            .load(&bytes, &"add".into(), &signature, &options)
            .unwrap();
        assert_eq!(loaded.devices(), [DeviceId(device)]);
        let (a, b) = (
            upload(&client, &[1.0f32; 4], &[4], device),
            upload(&client, &[2.0f32; 4], &[4], device),
        );
        let address = a.device_address().unwrap();
        let sum = run(&loaded, vec![Arg::Donate(a), Arg::Borrow(&b)]).unwrap();
        assert_eq!(read::<f32>(&sum[0]), [3.0; 4]);
        assert_eq!(
            sum[0].device_address().unwrap(),
            address,
            "donation is kept"
        );
    }

    let sharded = compile(&client, &sharded(4));
    let bytes = sharded.serialize().unwrap();
    let devices: Vec<_> = [3, 1, 0, 2].map(DeviceId).to_vec();
    let moved = client
        .load(
            &bytes,
            &"sharded".into(),
            sharded.signature(),
            &CompileOptions {
                devices: devices.clone(),
                ..Default::default()
            },
        )
        .unwrap();
    assert_eq!(moved.devices(), devices);
}

#[test]
fn bytes_of_other_origin_are_refused() {
    let client = cpu(1);
    let compiled = compile(&client, &add(4, false));
    let bytes = compiled.serialize().unwrap();
    let load = |bytes: &[u8], signature| {
        client
            .load(bytes, &"kept".into(), signature, &CompileOptions::default())
            .unwrap_err()
    };
    let signature = compiled.signature();
    assert_eq!(
        load(&[], signature).message(),
        "no bytes given; expected the result of `serialize`"
    );
    assert_eq!(
        load(&bytes[..bytes.len() / 2], signature).kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(
        load(b"not a program", signature).kind(),
        ErrorKind::InvalidArgument
    );
    // A bit of the machine code.
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 8;
    let error = load(&flipped, signature);
    assert_eq!(
        (error.kind(), error.platform()),
        (ErrorKind::Corrupt, Some("cpu"))
    );
    assert!(
        error.message().contains("its SHA-256 is not the one"),
        "{error}"
    );
    // The signature of another program.
    let error = load(&bytes, compile(&client, &add(5, false)).signature());
    assert_eq!(
        error.message(),
        "`kept`: argument 0 of the program is f32[4] on each device, its signature has f32[5]"
    );
}

#[test]
fn program_reports_memory() {
    let client = cpu(1);
    let compiled = compile(&client, &add(1000, true));
    let memory = compiled.memory().unwrap();
    assert_eq!(
        (memory.arguments, memory.outputs, memory.aliased),
        (8000, 4000, 4000)
    );
    let (format, bytes) = compiled.program().optimized().unwrap();
    assert_eq!(format, "hlo_with_config");
    assert!(bytes.len() > 100);
    assert_eq!(compiled.program().name().unwrap(), "add");
    assert_eq!(
        compiled.program().output_types().unwrap(),
        [Some(f32s(&[1000]))]
    );
    assert_eq!(
        (
            compiled.program().replicas().unwrap(),
            compiled.program().partitions().unwrap()
        ),
        (1, 1)
    );
    let again = compile(&client, &add(1000, true));
    assert_eq!(
        compiled.program().fingerprint().unwrap(),
        again.program().fingerprint().unwrap()
    );
    assert_ne!(
        compiled.program().fingerprint().unwrap(),
        compile(&client, &add(999, true))
            .program()
            .fingerprint()
            .unwrap()
    );
    // This plugin has no cost analysis.
    if let Err(error) = compiled.cost() {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn program_compiled_for_a_topology_loads() {
    let client = cpu(2);
    let topology = client.topology().unwrap();
    assert_eq!(&**topology.platform(), "cpu");
    assert_eq!(
        topology
            .devices()
            .unwrap()
            .iter()
            .map(|device| device.id.0)
            .collect::<Vec<_>>(),
        [0, 1]
    );
    let again = client
        .plugin()
        .deserialize_topology(&topology.serialize().unwrap())
        .unwrap();
    assert_eq!(
        again.fingerprint().unwrap(),
        topology.fingerprint().unwrap()
    );
    client
        .plugin()
        .deserialize_topology(b"not a topology")
        .unwrap_err();

    let program = add(4, false);
    let compiled = again.compile(&program, &CompileOptions::default()).unwrap();
    assert_eq!(compiled.memory().unwrap().arguments, 32);
    let loaded = client
        .load(
            &compiled.serialize().unwrap(),
            &program.name,
            &program.signature,
            &CompileOptions::default(),
        )
        .unwrap();
    let a = upload(&client, &[1.0f32; 4], &[4], 0);
    assert_eq!(
        read::<f32>(&run(&loaded, vec![Arg::Borrow(&a), Arg::Borrow(&a)]).unwrap()[0]),
        [2.0; 4]
    );
}

#[test]
fn topology_refuses_unknown_devices() {
    let topology = cpu(2).topology().unwrap();
    let wrong = CompileOptions {
        devices: vec![DeviceId(9)],
        ..Default::default()
    };
    assert_eq!(
        topology
            .compile(&add(4, false), &wrong)
            .unwrap_err()
            .message(),
        "`test`: unknown device 9; expected one of [0, 1]"
    );
}

#[test]
fn topologies_of_tpus_need_their_plugin() {
    let client = cpu(1);
    let error = client.plugin().topology("v5e:32x32", vec![]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error
            .message()
            .starts_with("`v5e:32x32`: a v5e has at most 16 chips along each axis"),
        "{error}"
    );
    let error = client.plugin().topology("v5e:2x2", vec![]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().starts_with("`v5e:2x2`: "), "{error}");
}
