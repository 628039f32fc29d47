//! Results of calls.

use std::sync::LazyLock;

use half::bf16;
use halite_core::{
    DType, Element, Error, HostArray, TensorType, custom_call,
    tree::{Empty, Leaf},
};
use halite_nn::{CustomOp, ScanOptions};
use halite_tests::eval::{eval, host, noise};

use crate::custom_ops::CUBE;

/// Sum and difference of two `s32` tensors, and the name that the call has as an attribute, as
/// bytes.
static SUM: LazyLock<CustomOp> = LazyLock::new(|| {
    custom_call::register("test.sum_difference", |call| {
        let attributes = call.attributes();
        let ([a, b], [sum, difference, name]) = call.buffers()?;
        let (a, b) = (a.as_slice::<i32>()?, b.as_slice::<i32>()?);
        for (index, sum) in sum.as_mut_slice::<i32>()?.iter_mut().enumerate() {
            *sum = a[index] + b[index];
        }
        for (index, difference) in difference.as_mut_slice::<i32>()?.iter_mut().enumerate() {
            *difference = a[index] - b[index];
        }
        assert!(attributes.bool("on")? && attributes.int("count")? == -3);
        let text = attributes.str("name")?.as_bytes();
        name.as_mut_slice::<u8>()?.copy_from_slice(text);
        Ok(())
    })
    .unwrap();
    CustomOp::new("test.sum_difference", |x| {
        let name = TensorType::new(DType::U8, [6]);
        Ok(vec![x[0].clone(), x[1].clone(), name])
    })
    .attribute("name", "sum\"ä")
    .attribute("on", true)
    .attribute("count", -3)
});

#[test]
fn function_computes_from_operands() {
    let x = noise(1, &[3, 5], -2.0, 2.0);
    let results = eval(
        |cx, x| {
            let [y] = CUBE.call(cx, &[x[0] + 1.0]);
            vec![y * 2.0]
        },
        std::slice::from_ref(&x),
    );
    for (x, y) in (x.as_slice::<f64>().unwrap().iter()).zip(results[0].as_slice::<f64>().unwrap()) {
        assert!((y - (x + 1.0).powi(3)).abs() < 1e-12, "{x}: {y}");
    }
}

#[test]
fn results_may_be_several() {
    let inputs = [host(&[1i32, 2, 3], &[3]), host(&[10i32, 20, 30], &[3])];
    let results = eval(|cx, x| SUM.call::<3>(cx, &[x[0], x[1]]).to_vec(), &inputs);
    assert_eq!(results[0], host(&[11i32, 22, 33], &[3]));
    assert_eq!(results[1], host(&[-9i32, -18, -27], &[3]));
    assert_eq!(results[2], host("sum\"ä".as_bytes(), &[6]));
}

/// Registers a function that copies values of one type, and calls it.
#[track_caller]
fn copies<T: Element>(values: &[T]) {
    let target = format!("test.copy_{}", T::DTYPE);
    custom_call::register(&*target, |call| {
        let ([x], [y]) = call.buffers()?;
        let (x, y) = (x.as_slice::<T>()?, y.as_mut_slice::<T>()?);
        y.copy_from_slice(x);
        Ok(())
    })
    .unwrap();
    let op = CustomOp::new(target, |x| Ok(vec![x[0].clone()]));
    let x = host(values, &[values.len()]);
    let result = eval(
        move |cx, x| op.call::<1>(cx, x).to_vec(),
        std::slice::from_ref(&x),
    );
    assert_eq!(result[0], x);
}

#[test]
fn every_host_type_is_copied() {
    copies(&[true, false, true]);
    copies(&[-1i8, 0, 127]);
    copies(&[-1i16, 300]);
    copies(&[i32::MIN, 7]);
    copies(&[i64::MAX, -7]);
    copies(&[255u8, 1, 2]);
    copies(&[u16::MAX]);
    copies(&[u32::MAX, 0]);
    copies(&[u64::MAX, 0]);
    copies(&[half::f16::from_f32(0.1), half::f16::NEG_INFINITY]);
    copies(&[bf16::from_f32(0.1), bf16::NAN]);
    copies(&[f32::NAN, -0.0, 1e-40]);
}

#[test]
fn empty_buffers_are_passed() {
    let empty = host::<f64>(&[], &[0, 4]);
    let results = eval(
        |cx, x| CUBE.call::<1>(cx, x).to_vec(),
        std::slice::from_ref(&empty),
    );
    assert_eq!(results[0], empty);
}

#[test]
fn scan_calls_the_function_in_each_iteration() {
    let x = host(&[1.5f64, -1.0], &[2]);
    let results = eval(
        |cx, x| {
            let options = ScanOptions {
                length: Some(3),
                ..ScanOptions::default()
            };
            let (Leaf(y), _) = cx.scan_with(options, Leaf(x[0]), Empty::new(), |Leaf(x), _| {
                let [y] = CUBE.call(cx, &[x]);
                (Leaf(y), Empty::new())
            });
            vec![y]
        },
        std::slice::from_ref(&x),
    );
    let cube = |x: f64| 0.5 * x * x * x;
    let expected = [1.5, -1.0].map(|x| cube(cube(cube(x))));
    let found = results[0].as_slice::<f64>().unwrap();
    assert!(
        (found[0] - expected[0]).abs() < 1e-12 && found[1] == expected[1],
        "{found:?}"
    );
}

#[test]
fn side_effects_happen_without_results() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    custom_call::register("test.count", |call| {
        let ([x], []) = call.buffers()?;
        CALLS.fetch_add(x.ty().elements(), Relaxed);
        Ok(())
    })
    .unwrap();
    let op = CustomOp::new("test.count", |_| Ok(vec![])).side_effect();
    let x = host(&[1.0f32, 2.0], &[2]);
    let results = eval(
        move |cx, x| {
            let [] = op.call(cx, x);
            vec![x[0] + 1.0]
        },
        &[x],
    );
    assert_eq!(results[0], host(&[2.0f32, 3.0], &[2]));
    assert_eq!(CALLS.load(Relaxed), 2);
}

#[test]
fn each_device_calls_the_function_on_its_shard() {
    use std::sync::{Arc, Mutex};

    use halite_core::{Array, Mesh, PartitionSpec, Sharding};
    use halite_nn::{Manual, jit};
    use halite_tests::eval::client;

    static SHAPES: Mutex<Vec<Vec<usize>>> = Mutex::new(Vec::new());
    custom_call::register("test.negate", |call| {
        let ([x], [y]) = call.buffers()?;
        SHAPES
            .lock()
            .map_err(|_| Error::invalid("test", "poisoned"))?
            .push(x.ty().dims().to_vec());
        let pairs = (y.as_mut_slice::<f32>()?.iter_mut()).zip(x.as_slice::<f32>()?);
        pairs.for_each(|(y, x)| *y = -x);
        Ok(())
    })
    .unwrap();
    let op = CustomOp::new("test.negate", |x| Ok(vec![x[0].clone()]));
    let mesh =
        Arc::new(Mesh::new([("data", 8)], client().local_devices().iter().copied()).unwrap());
    let rows = PartitionSpec::first("data");
    let x: Vec<f32> = (0..48).map(|i| i as f32).collect();
    let x = HostArray::from_slice(&x, [16, 3]).unwrap();
    let array = Array::upload(client(), &x, &Sharding::new(&mesh, rows.clone()).unwrap()).unwrap();
    let over = mesh.clone();
    let negate = jit(client(), move |cx, [x]| {
        let specs = [rows.clone()];
        let y = cx.shard_map(Manual::over(&over), &[x], &specs, &specs, |parts| {
            op.call::<1>(cx, parts).to_vec()
        });
        [y[0]]
    })
    .on(&mesh);
    let [y] = negate.run([&array]).unwrap();
    let expected: Vec<f32> = (0..48).map(|i| -(i as f32)).collect();
    assert_eq!(y.read().unwrap().as_slice::<f32>().unwrap(), expected);
    assert_eq!(*SHAPES.lock().unwrap(), vec![vec![2, 3]; 8]);
}

/// XLA would lay the result of a call out by columns for a gather along these.
#[test]
fn results_that_are_gathered_by_columns_are_rows() {
    use std::sync::Arc;

    use halite_core::{Array, Mesh, PartitionSpec, Sharding};
    use halite_nn::{Manual, jit};
    use halite_tests::eval::client;

    custom_call::register("test.rows", |call| {
        let ([x], [y]) = call.buffers()?;
        y.bytes_mut().copy_from_slice(x.bytes());
        Ok(())
    })
    .unwrap();
    let op = CustomOp::new("test.rows", |x| Ok(vec![x[0].with_dims([2, 4])]));
    let devices = client().local_devices();
    let mesh = Arc::new(Mesh::new([("data", 2)], devices.iter().copied().take(2)).unwrap());
    let x: Vec<f64> = (0..16).map(f64::from).collect();
    let x = HostArray::from_slice(&x, [16]).unwrap();
    let array = Array::upload(client(), &x, &Sharding::replicated(&mesh)).unwrap();
    let over = mesh.clone();
    let program = jit(client(), move |cx, [x]| {
        let rows = [PartitionSpec::first("data")];
        let columns = [PartitionSpec::new([vec![], vec!["data"]])];
        let y = cx.shard_map(Manual::over(&over), &[x], &rows, &columns, |parts| {
            op.call::<1>(cx, parts).to_vec()
        });
        [y[0].reshape([4, 4])]
    });
    let [y] = program.on(&mesh).run([&array]).unwrap();
    let expected = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15].map(f64::from);
    assert_eq!(y.read().unwrap().as_slice::<f64>().unwrap(), expected);
}
