//! Buffers of several devices: joined, split, and passed to launches in parts.

use halite_core::{
    Arg, Client, Code, CompileOptions, DType, DeviceBuffers, ErrorKind, HostBytes, Loaded, Null,
    Program, Signature, TensorType,
};

const DEVICES: usize = 3;

fn ty() -> TensorType {
    TensorType::new(DType::F32, [2])
}

fn upload(client: &Client, device: usize) -> DeviceBuffers {
    let place = client.local_devices()[device].into();
    let bytes = HostBytes::Borrowed(&[0; 8]);
    client.upload(bytes, &ty(), place).unwrap()
}

fn upload_to(client: &Client, devices: impl Iterator<Item = usize>) -> DeviceBuffers {
    DeviceBuffers::join(devices.map(|device| upload(client, device))).unwrap()
}

fn devices(buffers: &DeviceBuffers) -> Vec<u32> {
    let ids = buffers.iter().map(|buffer| buffer.placement().device.0);
    ids.collect()
}

/// A program of two inputs, of which the first may be donated, and one output.
fn program(client: &Client) -> Loaded {
    let program = Program {
        name: "step".into(),
        code: Code::from(""),
        signature: Signature {
            inputs: vec![ty(); 2],
            outputs: vec![ty()],
            donated: vec![0],
        },
        partitions: DEVICES,
        replicas: 1,
    };
    client
        .compile(&program, &CompileOptions::default())
        .unwrap()
}

#[test]
fn joined_buffers_split_into_the_same() {
    let client = Client::new(Null::new(DEVICES as u32));
    let buffers = upload_to(&client, [2, 0, 1].into_iter());
    assert_eq!((buffers.len(), devices(&buffers)), (3, vec![2, 0, 1]));
    assert_eq!(buffers.first().placement().device.0, 2);
    assert!(buffers.get(3).is_none());
    let parts: Vec<_> = buffers.split().collect();
    assert!(parts.iter().map(devices).eq([vec![2], vec![0], vec![1]]));
    assert_eq!(devices(&DeviceBuffers::join(parts).unwrap()), [2, 0, 1]);
}

#[test]
fn buffers_of_two_clients_are_not_joined() {
    let [one, other] = [1, 1].map(|devices| Client::new(Null::new(devices)));
    let error = DeviceBuffers::join([upload(&one, 0), upload(&other, 0)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = DeviceBuffers::join([]).unwrap_err();
    assert!(error.to_string().contains("no buffers"), "{error}");
}

#[test]
fn arguments_are_passed_whole_or_in_parts() {
    let client = Client::new(Null::new(DEVICES as u32));
    let step = program(&client);
    let batch = upload_to(&client, 0..DEVICES);
    let state = upload_to(&client, 0..DEVICES);
    let mut outputs = step
        .launch(vec![Arg::Donate(state), Arg::Borrow(&batch)])
        .unwrap();
    assert_eq!((outputs.len(), devices(&outputs[0])), (1, vec![0, 1, 2]));
    let parts: Vec<_> = batch.split().collect();
    let mut args: Vec<_> = outputs.remove(0).split().map(Arg::Donate).collect();
    args.extend(parts.iter().map(Arg::Borrow));
    assert_eq!(devices(&step.launch(args).unwrap()[0]), [0, 1, 2]);
}

#[test]
fn arguments_for_another_number_of_devices_are_refused() {
    let client = Client::new(Null::new(DEVICES as u32));
    let step = program(&client);
    let refused = |counts: &[usize]| {
        let args: Vec<_> = (counts.iter())
            .map(|&count| upload_to(&client, (0..count).map(|at| at % DEVICES)))
            .collect();
        let error = step
            .launch(args.iter().map(Arg::Borrow).collect())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    };
    let one_each = "`step` has 2 buffers, expected one for each of 3 devices";
    assert!(refused(&[3, 2]).contains(one_each));
    // A part does not reach into the next argument.
    assert!(refused(&[2, 4]).contains("`step` has 6 buffers"));
    assert!(refused(&[6]).contains("`step` has 6 buffers"));
    // The number of arguments is the backend's to check.
    assert!(refused(&[3]).contains("got arguments"));
}
