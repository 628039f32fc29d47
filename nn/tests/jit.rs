//! The cache of a jit function's programs.

use std::sync::Arc;

use halite_core::{
    Array, Client, DType, DeviceId, HostArray, Mesh, Null, PartitionSpec, Sharding, TensorType,
    tree::Empty, tree::Leaf,
};
use halite_nn::{ArraySpec, Jit, Tensor, grad, jit_step};

#[test]
fn prepared_program_is_the_most_recently_used() {
    let client = Client::new(Null::new(1));
    let device = Arc::new(Sharding::single(client.local_devices()[0]));
    let double: Jit<Empty<()>, Leaf<()>, Leaf<()>> =
        Jit::function(&client, |_, Leaf(x): Leaf<Tensor<'_>>| Leaf(x * 2.0)).max_programs(2);
    let prepare = |elements: usize| {
        let spec = ArraySpec::new(TensorType::new(DType::F32, [elements]), &device);
        double.prepare(&Empty::new(), &Leaf(spec)).unwrap();
        double.compiles()
    };
    assert_eq!([1, 2, 1].map(prepare), [1, 2, 2]);
    // 2 is dropped for 3, so 1 need not be compiled again.
    assert_eq!([3, 1].map(prepare), [3, 3]);
}

/// A function that adds an input to a state, with a state and an input on these shardings.
fn added(
    client: &Client,
    shardings: [&Arc<Sharding>; 2],
) -> halite_core::Result<(Arc<Sharding>, u64)> {
    let [mut state, input] = shardings.map(|sharding| {
        let values = HostArray::from_slice(&[1.0f32, 2.0], [2]).unwrap();
        Array::upload(client, &values, sharding).unwrap()
    });
    let add: Jit<Leaf<()>, Leaf<()>, Empty<()>> = Jit::new(
        client,
        |_, Leaf(state): Leaf<Tensor<'_>>, Leaf(input): Leaf<Tensor<'_>>| {
            (Leaf(state + input), Empty::new())
        },
    );
    for _ in 0..2 {
        (state, _) = add.call(state, &input)?;
    }
    Ok((state.sharding().clone(), add.compiles()))
}

#[test]
fn meshes_of_one_device_are_one_mesh() {
    let client = Client::new(Null::new(2));
    let on = |axes: &[(&str, usize)], device| {
        let mesh = Mesh::new(axes.iter().copied(), [DeviceId(device)]).unwrap();
        let spec = match axes {
            [] => PartitionSpec::replicated(),
            [(name, _), ..] => PartitionSpec::first(*name),
        };
        Sharding::new(&Arc::new(mesh), spec).unwrap()
    };
    let (none, data, model) = (on(&[], 0), on(&[("data", 1)], 0), on(&[("model", 1)], 0));
    for shardings in [[&none, &data], [&data, &none], [&data, &model]] {
        let (sharding, compiles) = added(&client, shardings).unwrap();
        // The next state is where the state was, so nothing is compiled again.
        assert_eq!((&sharding, compiles), (shardings[0], 1));
    }
    let other = on(&[], 1);
    let error = added(&client, [&data, &other]).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "has argument 0 on mesh(data=1) of device 0, but argument 1 is on mesh() of device 1; \
             a call has all arguments on one mesh"
        ),
        "{error}"
    );
}

#[test]
fn gradients_that_change_no_state_are_a_mistake() {
    let client = Client::new(Null::new(1));
    let x = || Array::scalar(&client, 2.0f32).unwrap();
    let learn = jit_step(&client, &x(), |_cx, x, [rate]| {
        let loss = (x - 1.0).square();
        let _next = x - rate * grad(loss, &x);
        (x, [loss])
    });
    let error = learn.call(x(), [&x()]).err().unwrap().to_string();
    assert!(
        error.contains("jit.rs:") && error.contains("grad: gradients are taken here"),
        "{error}"
    );
    assert!(error.contains("`state.update(gradients)`"), "{error}");
    // A function without gradients may return its state.
    let read = jit_step(&client, &x(), |_cx, x, [y]| (x, [x * y]));
    read.call(x(), [&x()]).unwrap();
}
