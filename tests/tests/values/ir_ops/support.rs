//! Programs of one operation, and running them.

use std::sync::OnceLock;

use halite_core::{Arg, Client, CompileOptions, DType, Element, HostArray, HostBytes, TensorType};
use halite_ir::{Graph, Interface, Op, Value, unrolled};
use halite_tests::eval::{self, program};

/// What the tests run on: eight devices.
pub(crate) fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(eval::open)
}

/// A tensor of `values`.
pub(crate) fn host<T: Element>(values: &[T], dims: &[usize]) -> HostArray {
    HostArray::from_slice(values, dims).unwrap()
}

/// `0, 1, 2, ..` as floats.
pub(crate) fn count(dims: &[usize]) -> HostArray {
    let values: Vec<f32> = (0..dims.iter().product())
        .map(|i: usize| i as f32)
        .collect();
    host(&values, dims)
}

/// Floats that are not in order, between -1 and 1, the same each time.
pub(crate) fn noise(dims: &[usize]) -> HostArray {
    let value = |i: usize| ((i * 7919 + 104_729) % 2003) as f32 / 1001.5 - 1.0;
    let values: Vec<f32> = (0..dims.iter().product()).map(value).collect();
    host(&values, dims)
}

fn graph_of(op: Op, inputs: &[&HostArray]) -> Graph {
    let mut graph = Graph::new();
    let operands: Vec<Value> = inputs
        .iter()
        .map(|input| graph.input(input.ty().clone()))
        .collect();
    let results = graph
        .push(op, &operands, Some(std::panic::Location::caller()))
        .unwrap()
        .to_vec();
    graph.set_outputs(results);
    graph
}

/// The outputs of `graph` on `inputs`, of one device.
pub(crate) fn run_graph(graph: &Graph, inputs: &[&HostArray]) -> Vec<HostArray> {
    let program = program(graph, &Interface::new("test")).unwrap();
    let text = || String::from_utf8(program.code.bytes().to_vec()).unwrap();
    let client = client();
    let loaded = client
        .compile(&program, &CompileOptions::default())
        .unwrap_or_else(|error| panic!("{error}\n{}", text()));
    let device = client.local_devices()[0];
    let upload = |input: &&HostArray| {
        client
            .upload(
                HostBytes::Borrowed(input.bytes()),
                input.ty(),
                device.into(),
            )
            .unwrap()
    };
    let buffers: Vec<_> = inputs.iter().map(upload).collect();
    let outputs = loaded
        .launch(buffers.iter().map(Arg::Borrow).collect())
        .unwrap_or_else(|error| panic!("{error}\n{}", text()));
    let read = |output: &halite_core::DeviceBuffers| {
        let buffer = output.first();
        let mut host = HostArray::zeros(buffer.tensor_type().clone());
        buffer.read(host.bytes_mut()).unwrap();
        host
    };
    outputs.iter().map(read).collect()
}

/// `op` gives exactly `expected`: same types, same bits. A loop of a fixed length does unrolled, too.
#[track_caller]
pub(crate) fn gives(op: Op, inputs: &[&HostArray], expected: &[HostArray]) {
    let graph = graph_of(op.clone(), inputs);
    if let Op::Scan { .. } = op {
        let unrolled = unrolled(graph.clone(), usize::MAX);
        assert!(run_graph(&unrolled, inputs) == expected, "{op:?}, unrolled");
    }
    let got = run_graph(&graph, inputs);
    let say = |arrays: &[HostArray]| {
        arrays
            .iter()
            .map(|array| format!("{array:?} {}", values(array)))
            .collect::<Vec<_>>()
    };
    assert!(
        got == expected,
        "{op:?}\n     got {:?}\nexpected {:?}",
        say(&got),
        say(expected)
    );
}

#[track_caller]
pub(crate) fn close(got: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let same = got == expected || got.is_nan() && expected.is_nan();
        let near = (got - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(
            same || near,
            "{what}: element {i} is {got}, expected {expected}"
        );
    }
}

/// Elements for a message.
fn values(array: &HostArray) -> String {
    match array.ty().dtype() {
        DType::Bool => format!("{:?}", array.as_slice::<bool>()),
        DType::S8 => format!("{:?}", array.as_slice::<i8>()),
        DType::S16 => format!("{:?}", array.as_slice::<i16>()),
        DType::S32 => format!("{:?}", array.as_slice::<i32>()),
        DType::S64 => format!("{:?}", array.as_slice::<i64>()),
        DType::U8 => format!("{:?}", array.as_slice::<u8>()),
        DType::U16 => format!("{:?}", array.as_slice::<u16>()),
        DType::U32 => format!("{:?}", array.as_slice::<u32>()),
        DType::U64 => format!("{:?}", array.as_slice::<u64>()),
        DType::F16 => format!("{:?}", array.as_slice::<half::f16>()),
        DType::Bf16 => format!("{:?}", array.as_slice::<half::bf16>()),
        DType::F32 => format!("{:?}", array.as_slice::<f32>()),
        DType::F64 => format!("{:?}", array.as_slice::<f64>()),
        _ => array.to_string(),
    }
}

/// All indices of a tensor of `dims`, row-major.
pub(crate) fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let dims = dims.to_vec();
    (0..dims.iter().product::<usize>()).map(move |flat| {
        let mut rest = flat;
        let mut index = vec![0; dims.len()];
        for (at, size) in index.iter_mut().zip(&dims).rev() {
            *at = rest % size;
            rest /= size;
        }
        index
    })
}

/// A tensor of `dims` by a function of the index.
pub(crate) fn by_index(dims: &[usize], value: impl Fn(&[usize]) -> f32) -> HostArray {
    let values: Vec<f32> = indices(dims).map(|index| value(&index)).collect();
    host(&values, dims)
}

/// The element at `index`.
pub(crate) fn at(array: &HostArray, index: &[usize]) -> f32 {
    let flat = array
        .ty()
        .dims()
        .iter()
        .zip(index)
        .fold(0, |flat, (&size, &at)| {
            assert!(at < size, "{index:?} of {array:?}");
            flat * size + at
        });
    array.as_slice::<f32>().unwrap()[flat]
}

/// A graph of some inputs.
pub(crate) fn graph<const N: usize>(
    inputs: [TensorType; N],
    body: impl FnOnce(&mut Graph, [Value; N]) -> Vec<Value>,
) -> Graph {
    let mut graph = Graph::new();
    let inputs = inputs.map(|ty| graph.input(ty));
    let outputs = body(&mut graph, inputs);
    graph.set_outputs(outputs);
    graph
}

/// Pushes an operation with one result.
pub(crate) fn push(graph: &mut Graph, op: Op, operands: &[Value]) -> Value {
    graph.push(op, operands, None).unwrap()[0]
}
