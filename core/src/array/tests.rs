use super::*;
use crate::{Code, DType, Mesh, PartitionSpec};

#[test]
fn stored_type_may_differ_from_the_reported_type() {
    let client = Client::new(crate::Null::new(1));
    let device = Sharding::single(client.local_devices()[0]);
    let host = HostArray::from_slice(&[1.0f32, 2.0, 3.0], [3]).unwrap();
    let array = Array::upload_as(&client, &Arc::new(host.clone()), &device, DType::Bf16).unwrap();
    assert_eq!((array.ty(), array.stored()), (host.ty(), DType::Bf16));
    assert_eq!(array.shards().first().tensor_type().to_string(), "bf16[3]");
    assert_eq!(array.copy().unwrap().read().unwrap().ty(), host.ty());
    assert_eq!(array.fetch().unwrap().wait().unwrap().ty(), host.ty());
    let integers = Arc::new(HostArray::scalar(1i32));
    let error = Array::upload_as(&client, &integers, &device, DType::Bf16)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "host array: s32[] as bf16: both must be floats");
    // Shards of another type than the array's are taken only by name.
    let (ty, shards) = (array.ty().clone(), array.into_shards());
    assert!(Array::from_shards(ty, &device, shards).is_err());
}

#[test]
fn first_device_receives_slices_or_scalars() {
    let client = Client::new(crate::Null::new(2));
    let array = Array::from_slice(&client, &[1.5f64, -2.0], [2]).unwrap();
    assert_eq!(
        array.sharding().mesh().devices(),
        &client.local_devices()[..1]
    );
    assert_eq!(
        array.to_vec::<f64>().unwrap(),
        [0.0; 2],
        "Null stores nothing"
    );
    assert!(array.to_vec::<f32>().is_err());
    let one = Array::scalar(&client, true).unwrap();
    assert!(one.item::<bool>().is_ok());
    assert!(array.item::<f64>().is_err(), "two elements");
    assert!(Array::from_slice(&client, &[1u8; 3], [2]).is_err());
}

#[test]
fn text_of_a_sharded_array_names_the_mesh() {
    let client = Client::new(crate::Null::new(2));
    let mesh = Arc::new(Mesh::new([("data", 2)], client.local_devices()).unwrap());
    let rows = Sharding::new(&mesh, PartitionSpec::first("data")).unwrap();
    let host = HostArray::from_slice(&[1i32, 2], [2]).unwrap();
    let text = Array::upload(&client, &host, &rows).unwrap().to_string();
    assert!(
        text.starts_with("[0, 0] s32[2] on ") && text.contains("data"),
        "{text}"
    );
}

#[test]
fn read_beyond_host_memory_is_an_error() {
    const HUGE: usize = 1 << 60;
    let client = Client::new(crate::Null::new(1))
        .with_other_users(|| Some("4242 has the device open".to_owned()));
    let ty = TensorType::new(DType::U8, [HUGE]);
    let program = crate::Program {
        name: "huge".into(),
        code: Code::from(""),
        signature: crate::Signature {
            outputs: vec![ty.clone()],
            ..crate::Signature::default()
        },
        partitions: 1,
        replicas: 1,
    };
    let loaded = client
        .compile(&program, &crate::CompileOptions::default())
        .unwrap();
    let mut launched = loaded.launch(vec![]).unwrap();
    let device = Sharding::single(client.local_devices()[0]);
    let array = Array::from_shards(ty, &device, launched.remove(0)).unwrap();
    let error = array.fetch().unwrap().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    // The memory is the host's, not the device's.
    assert!(error.is_of_host(), "{error}");
    assert!(!error.to_string().contains("4242"), "{error}");
    assert_eq!(array.read().unwrap_err().kind(), ErrorKind::OutOfMemory);
}

#[test]
fn fetch_into_uses_the_memory() {
    let client = Client::new(crate::Null::new(1));
    let array = Array::from_slice(&client, &[1.0f32; 64], [64]).unwrap();
    let memory = HostArray::zeros(array.ty().clone());
    let address = memory.bytes().as_ptr();
    let fetched = array.fetch_into(memory).unwrap().wait().unwrap();
    assert_eq!(
        (fetched.ty(), fetched.bytes().as_ptr()),
        (array.ty(), address)
    );
    // Memory of another type is not used.
    let other = array.fetch_into(HostArray::scalar(1u8)).unwrap();
    assert_eq!(other.wait().unwrap().ty(), array.ty());
    // The shards of an array are pasted into it.
    let client = Client::new(crate::Null::new(2));
    let mesh = Arc::new(Mesh::new([("x", 2)], client.local_devices()).unwrap());
    let halves = Sharding::new(&mesh, PartitionSpec::first("x")).unwrap();
    let array = Array::upload(&client, &fetched, &halves).unwrap();
    let pasted = array.fetch_into(fetched).unwrap().wait().unwrap();
    assert_eq!(pasted.bytes().as_ptr(), address);
}
