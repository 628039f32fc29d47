//! Random operations on random values, by two executors.

use std::collections::BTreeMap;

use half::{bf16, f16};
use halite_core::{
    Arg, Client, CompileOptions, DType, DeviceBuffers, HostArray, HostBytes, Program, Result,
    TensorType,
};
use halite_embedded::Mode;
use halite_ir::{Graph, Interface, Op};
use halite_tests::{
    embedded::open_plugin,
    eval::{client, program},
};

use crate::{
    embedded::embedded,
    ir_ops::draw::{Draw, draw_op},
};

const DTYPES: [DType; 9] = [
    DType::Bool,
    DType::U8,
    DType::S32,
    DType::U64,
    DType::S64,
    DType::F16,
    DType::Bf16,
    DType::F32,
    DType::F64,
];

/// A generator of bits (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Floats between -4 and 4, booleans, and integers that are small or have any bits.
    fn array(&mut self, ty: TensorType) -> HostArray {
        let size = ty.dtype().size();
        let mut host = HostArray::zeros(ty.clone());
        for bytes in host.bytes_mut().chunks_exact_mut(size) {
            let bits = self.next();
            let float = (bits % 8001) as f64 / 1000.0 - 4.0;
            let word = match ty.dtype() {
                DType::Bool => bits & 1,
                DType::F16 => f16::from_f64(float).to_bits().into(),
                DType::Bf16 => bf16::from_f64(float).to_bits().into(),
                DType::F32 => (float as f32).to_bits().into(),
                DType::F64 => float.to_bits(),
                _ if bits & 1 == 0 => bits >> 8,
                _ => (bits >> 8) % 10,
            };
            bytes.copy_from_slice(&word.to_le_bytes()[..size]);
        }
        host
    }
}

/// Operations on inputs, each result of which is an output.
struct Case {
    graph: Graph,
    inputs: Vec<HostArray>,
    /// The operation of each output.
    ops: Vec<Op>,
}

fn draw_case(random: &mut Random, draws: usize) -> Case {
    let mut graph = Graph::new();
    let (mut values, mut inputs) = (Vec::new(), Vec::new());
    for dims in [&[][..], &[3], &[2, 3], &[2, 3, 4], &[1, 3, 2]] {
        for dtype in DTYPES {
            let ty = TensorType::new(dtype, dims);
            values.push(graph.input(ty.clone()));
            inputs.push(random.array(ty));
        }
    }
    let (mut ops, mut results) = (Vec::new(), Vec::new());
    while ops.len() < draws {
        let (op, operands) = draw_op(&mut Draw(random.next()), &graph, &values, &DTYPES);
        let types: Vec<&TensorType> = operands.iter().map(|&id| graph.ty(id)).collect();
        let Ok(made) = halite_ir::infer(&op, &types) else {
            continue;
        };
        if made.iter().all(|ty| ty.elements() <= 500) {
            let made = graph.push(op.clone(), &operands, None).unwrap().to_vec();
            ops.extend(made.iter().map(|_| op.clone()));
            results.extend(made);
        }
    }
    graph.set_outputs(results);
    Case { graph, inputs, ops }
}

fn run(client: &Client, program: &Program, inputs: &[HostArray]) -> Result<Vec<HostArray>> {
    let loaded = client.compile(program, &CompileOptions::default())?;
    let device = client.local_devices()[0];
    let buffers = inputs.iter().map(|input| {
        client.upload(
            HostBytes::Borrowed(input.bytes()),
            input.ty(),
            device.into(),
        )
    });
    let buffers: Vec<_> = buffers.collect::<Result<_>>()?;
    let outputs = loaded.launch(buffers.iter().map(Arg::Borrow).collect())?;
    let read = |output: &DeviceBuffers| {
        let buffer = output.first();
        let mut host = HostArray::zeros(buffer.tensor_type().clone());
        buffer.read(host.bytes_mut())?;
        Ok(host)
    };
    outputs.iter().map(read).collect()
}

/// The largest difference of floats, relative to 1 or to the value; 0 for equal other types.
fn difference(left: &HostArray, right: &HostArray) -> f64 {
    let (Ok(left), Ok(right)) = (left.to_float(DType::F64), right.to_float(DType::F64)) else {
        return if left == right { 0.0 } else { f64::INFINITY };
    };
    let pairs = left
        .as_slice::<f64>()
        .unwrap()
        .iter()
        .zip(right.as_slice::<f64>().unwrap());
    pairs.fold(0.0, |largest, (&x, &y)| {
        let same = x == y || (x.is_nan() && y.is_nan());
        let apart = if same {
            0.0
        } else {
            (x - y).abs() / y.abs().max(1.0)
        };
        // Of one infinity and a number, or of one NaN.
        if apart.is_nan() {
            f64::INFINITY
        } else {
            f64::max(largest, apart)
        }
    })
}

/// Tolerance of results of this type: a few units in the last place, for XLA's approximations.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 4e-3,
        DType::Bf16 => 3e-2,
        _ => 0.0,
    }
}

/// The name of an operation, with that of its variant if it has no other attributes.
fn name_of(op: &Op) -> String {
    let text = format!("{op:?}");
    let end = text.find(['{', '[', ')', ' ']).unwrap_or(text.len());
    text[..end].replace('(', "::")
}

/// Numbers of results, by operation and dtype.
type Counts = BTreeMap<String, BTreeMap<&'static str, usize>>;

#[test]
fn random_operations_agree_with_xla() {
    let embedded = embedded(Mode::Oracle, 1);
    let mut random = Random(7);
    let (mut counts, mut wrong) = (Counts::new(), Vec::new());
    for _ in 0..20 {
        let case = draw_case(&mut random, 100);
        let program = program(&case.graph, &Interface::new("random")).unwrap();
        let xla = run(client(), &program, &case.inputs).unwrap();
        let own = run(&embedded, &program, &case.inputs).unwrap_or_else(|error| {
            panic!("{error}\n{}", String::from_utf8_lossy(program.code.bytes()))
        });
        for ((op, own), xla) in case.ops.iter().zip(&own).zip(&xla) {
            let dtypes = counts.entry(name_of(op)).or_default();
            *dtypes.entry(own.ty().dtype().name()).or_default() += 1;
            let apart = difference(own, xla);
            if apart > tolerance(own.ty().dtype()) {
                wrong.push(format!("{op:?} to {}: {apart}", own.ty()));
            }
        }
    }
    println!("results compared, by operation and dtype:");
    for (op, dtypes) in &counts {
        println!("{op:24} {dtypes:?}");
    }
    assert!(
        wrong.is_empty(),
        "{} results differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(counts.len() > 30, "{counts:?}");
}

/// The bits of the executor do not depend on the C API between it and its caller.
#[test]
fn random_operations_agree_through_the_c_api() {
    for mode in [Mode::Oracle, Mode::Fast] {
        let direct = embedded(mode, 1);
        let exported = open_plugin(1, mode == Mode::Oracle).unwrap();
        let mut random = Random(11);
        for _ in 0..40 {
            let case = draw_case(&mut random, 100);
            let program = program(&case.graph, &Interface::new("random")).unwrap();
            let direct = run(&direct, &program, &case.inputs).unwrap();
            let exported = run(&exported, &program, &case.inputs).unwrap();
            for ((op, direct), exported) in case.ops.iter().zip(&direct).zip(&exported) {
                assert!(direct.bytes() == exported.bytes(), "{op:?}, {mode:?}");
            }
        }
    }
}
