//! Operations between the processes of a job.
//!
//! A program is compiled for the devices of one process. What it exchanges with other processes are
//! custom calls in a manual region over the local mesh: each device exchanges its part of a vector
//! with the devices in its place in other processes. The calls of a program are chained by a token,
//! so that all processes make them in one order.
//!
//! Gradients are those of the sum of the losses of all processes.

mod collectives;
mod gradients;
mod shards;

use std::panic::Location;

use halite_core::{DType, PartitionSpec, TensorType};
use halite_ir::{Attachment, CustomCall};

pub use self::shards::ProcessShards;
pub(crate) use self::shards::gather;
use crate::{
    CustomVjp, Manual, Tensor, Trace, context,
    grad::GradientRule,
    process_group::{JOB, NAME, Processes, REDUCE, ROOT, Reduce, target},
    shard_map,
    special::wide,
};

/// Bytes of an exchange: more tensors than fit are several. Fewer pay more for waiting, and larger
/// ones for memory.
const BUCKET: usize = 16 << 20;

/// What processes exchange, over vectors; `P` is the number of processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// `[n]` to the reduction over processes, `[n]`.
    AllReduce(Reduce),
    /// `[P, n]` to the row of this process of the sum, `[n]`.
    ReduceScatter,
    /// `[n]` to the rows of all processes, `[P, n]`.
    AllGather,
    /// `[n]` to that of the process `root`.
    Broadcast { root: usize },
}

/// The sum over processes.
const SUM: Kind = Kind::AllReduce(Reduce::Sum);

impl Kind {
    fn target(self) -> &'static str {
        match self {
            Kind::AllReduce(_) => target::ALL_REDUCE,
            Kind::ReduceScatter => target::REDUCE_SCATTER,
            Kind::AllGather => target::ALL_GATHER,
            Kind::Broadcast { .. } => target::BROADCAST,
        }
    }

    /// Dimensions of the result for operands of these dimensions.
    fn dims(self, dims: &[usize], processes: usize) -> Vec<usize> {
        match self {
            Kind::AllReduce(_) | Kind::Broadcast { .. } => dims.to_vec(),
            Kind::ReduceScatter => dims[1..].to_vec(),
            Kind::AllGather => [&[processes], dims].concat(),
        }
    }
}

impl Trace {
    /// The sums over the processes of each of these tensors, which are floats; the tensors
    /// themselves where there is one process.
    ///
    /// Tensors are packed into few exchanges; those of 16-bit floats are added in `f32`.
    /// `name` is for messages.
    #[track_caller]
    pub fn process_sums<'t>(&'t self, name: &str, tensors: &[Tensor<'t>]) -> Vec<Tensor<'t>> {
        let Some(processes) = self.processes() else {
            return tensors.to_vec();
        };
        let _site = self.called_from(Location::caller());
        if let Some(error) = tensors.iter().find(|tensor| tensor.is_error()) {
            return vec![*error; tensors.len()];
        }
        if let Some(other) = tensors.iter().find(|tensor| !tensor.dtype().is_float()) {
            let error = other.mistake("process_sums", || {
                format!("{} has no floats; convert it first", other.ty())
            });
            return vec![error; tensors.len()];
        }
        let mut sums: Vec<Option<Tensor<'t>>> = vec![None; tensors.len()];
        let types = tensors.iter().map(|tensor| tensor.ty());
        for bucket in buckets(types.map(|ty| ty.with_dtype(wide(ty.dtype())))) {
            let vectors = bucket.iter().map(|&index| {
                let tensor = tensors[index];
                tensor.convert(wide(tensor.dtype())).flatten()
            });
            let packed = self.concat(&vectors.collect::<Vec<_>>(), 0);
            let packed = exchange(self, &processes, SUM, name, packed);
            let mut start = 0;
            for index in bucket {
                let (ty, count) = (tensors[index].ty(), tensors[index].ty().elements());
                let sum = packed.slice_dim(0, start..start + count);
                sums[index] = Some(sum.reshape(ty.dims()).convert(ty.dtype()));
                start += count;
            }
        }
        let sums = sums.into_iter();
        sums.map(|sum| sum.expect("each tensor is in a bucket"))
            .collect()
    }

    /// The rank of the process that runs the program: an `s32` scalar.
    #[track_caller]
    pub fn process_index(&self) -> Tensor<'_> {
        let Some(processes) = self.processes() else {
            return self.scalar(0.0, DType::S32);
        };
        let call = CustomCall {
            target: target::INDEX.to_string(),
            attributes: vec![(JOB.to_string(), (processes.number() as i64).into())],
            results: vec![TensorType::scalar(DType::S32)],
            ..CustomCall::default()
        };
        self.custom_call(call, &[])[0]
    }
}

/// The means over the processes of these tensors; the tensors where there is one process.
#[track_caller]
pub(crate) fn means<'t, const N: usize>(
    cx: &'t Trace,
    name: &str,
    tensors: [Tensor<'t>; N],
) -> [Tensor<'t>; N] {
    let Some(processes) = cx.processes() else {
        return tensors;
    };
    let sums = cx.process_sums(name, &tensors);
    std::array::from_fn(|index| sums[index] / processes.size() as f64)
}

/// Exchanges `x`, with the gradient of the exchange.
#[track_caller]
fn exchange<'t>(
    cx: &'t Trace,
    processes: &Processes,
    kind: Kind,
    name: &str,
    x: Tensor<'t>,
) -> Tensor<'t> {
    let (job, label) = (processes.clone(), name.to_string());
    let rule = GradientRule::new(move |vjp: CustomVjp<'_, 2, 2>| {
        let [dy, _] = vjp.cotangents;
        [Some(pulled_back(&job, kind, &label, dy)), None]
    });
    let call = CustomCall {
        target: format!("{}_over_devices", kind.target()),
        attachment: match kind {
            // The gradient is that of the call: unknown.
            Kind::AllReduce(reduce) if reduce != Reduce::Sum => None,
            _ => Some(Attachment::new(rule)),
        },
        ..CustomCall::default()
    };
    let [y, token] = cx.composite(call, [x, context::process_token(cx)], |[x, token]| {
        exchange_parts(cx, processes, kind, name, x, token)
    });
    context::exchanged(cx, token);
    y
}

/// Exchanges the parts of the local devices.
#[track_caller]
fn exchange_parts<'t>(
    cx: &'t Trace,
    processes: &Processes,
    kind: Kind,
    name: &str,
    x: Tensor<'t>,
    token: Tensor<'t>,
) -> [Tensor<'t>; 2] {
    let mesh = processes.local_mesh();
    let axes: Vec<&str> = mesh.axes().map(|(name, _)| name).collect();
    if let Some(manual) = shard_map::manual_axes(cx) {
        // The code of one device exchanges what that device has.
        let axes: Vec<&str> = manual.axes.iter().map(|(name, _)| &**name).collect();
        let device = cx.axis_index(&axes[..]);
        return call(cx, processes, kind, name, [x, token, device]);
    }
    if mesh.size() == 1 {
        let device = cx.scalar(0.0, DType::S32);
        return call(cx, processes, kind, name, [x, token, device]);
    }
    let last = x.rank() - 1;
    let length = x.dims()[last];
    let padded = padded(x, length.next_multiple_of(mesh.size()));
    let split = |rank: usize| {
        let whole = std::iter::repeat_n(vec![], rank - 1);
        PartitionSpec::new(whole.chain([axes.clone()]))
    };
    let rank = kind.dims(&x.dims(), processes.size()).len();
    let outputs = cx.shard_map(
        Manual::over(mesh).unchecked(),
        &[padded, token],
        &[split(last + 1), PartitionSpec::replicated()],
        &[split(rank), PartitionSpec::replicated()],
        |parts| {
            let device = cx.axis_index(&axes[..]);
            let operands = [parts[0], parts[1], device];
            call(cx, processes, kind, name, operands).to_vec()
        },
    );
    [outputs[0].slice_dim(rank - 1, 0..length), outputs[1]]
}

/// The call of one device: of values, token and number of the device. It takes and returns
/// vectors, whose elements have one order in memory.
#[track_caller]
fn call<'t>(
    cx: &'t Trace,
    processes: &Processes,
    kind: Kind,
    name: &str,
    operands: [Tensor<'t>; 3],
) -> [Tensor<'t>; 2] {
    let [x, token, device] = operands;
    let dims = kind.dims(&x.dims(), processes.size());
    let x = x.flatten();
    let mut attributes = vec![
        (JOB.to_string(), (processes.number() as i64).into()),
        (NAME.to_string(), name.into()),
    ];
    match kind {
        Kind::AllReduce(reduce) => {
            attributes.push((REDUCE.to_string(), reduce.name().into()));
        }
        Kind::Broadcast { root } => attributes.push((ROOT.to_string(), (root as i64).into())),
        Kind::ReduceScatter | Kind::AllGather => {}
    }
    let result = x.ty().with_dims([dims.iter().product()]);
    let call = CustomCall {
        target: kind.target().to_string(),
        attributes,
        results: vec![result, token.ty()],
        ..CustomCall::default()
    };
    let results = cx.custom_call(call, &[x, token, device]);
    [results[0].reshape(dims), results[1]]
}

/// The cotangent of the operand of an exchange, from that of its result.
#[track_caller]
fn pulled_back<'t>(processes: &Processes, kind: Kind, name: &str, dy: Tensor<'t>) -> Tensor<'t> {
    let cx = dy.trace();
    let name = format!("gradient of {name}");
    let adjoint = match kind {
        Kind::AllReduce(_) | Kind::Broadcast { .. } => SUM,
        Kind::ReduceScatter => Kind::AllGather,
        Kind::AllGather => Kind::ReduceScatter,
    };
    let dx = exchange(cx, processes, adjoint, &name, dy);
    match kind {
        Kind::Broadcast { root } => cx.process_index().eq(root as f64).select(dx, 0.0),
        _ => dx,
    }
}

/// `x` with zeros at the end of its last dimension.
#[track_caller]
fn padded<'t>(x: Tensor<'t>, length: usize) -> Tensor<'t> {
    let mut dims = x.dims();
    let last = dims.len() - 1;
    dims[last] = length - dims[last];
    match dims[last] {
        0 => x,
        _ => {
            let zeros = x.trace().full(0.0, &x.ty().with_dims(dims));
            x.trace().concat(&[x, zeros], last)
        }
    }
}

/// Indices of the tensors of these types in each exchange: of one element type, and not too large.
fn buckets(types: impl IntoIterator<Item = TensorType>) -> Vec<Vec<usize>> {
    let mut buckets: Vec<(DType, usize, Vec<usize>)> = Vec::new();
    for (index, ty) in types.into_iter().enumerate() {
        let (dtype, bytes) = (ty.dtype(), ty.bytes());
        let open = buckets.iter_mut().rev().find(|bucket| bucket.0 == dtype);
        match open.filter(|bucket| bucket.1 + bytes <= BUCKET) {
            Some((_, sum, indices)) => {
                *sum += bytes;
                indices.push(index);
            }
            None => buckets.push((dtype, bytes, vec![index])),
        }
    }
    buckets.into_iter().map(|(_, _, indices)| indices).collect()
}
