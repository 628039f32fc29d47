//! Collectives on arrays, outside of programs: each is a small program, compiled at its first use
//! and cached.

use std::{
    collections::HashMap,
    fmt,
    panic::Location,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use halite_core::{
    Arg, Array, Client, CompileOptions, DType, DeviceBuffer, DeviceId, Error, ErrorKind, HostBytes,
    Launch, Loaded, Mesh, PartitionSpec, Pending, ReduceOp, Result, TensorType,
    tree::{Empty, Leaf},
};
use halite_ir::{Binary, Graph, Interface, Op, Reduction};

use crate::{Jit, Over, Tensor};

/// Collectives between the devices of a mesh, on arrays.
///
/// Participants are the shards of an array along mesh axes given by name. The result is not split
/// over these axes, unless documented otherwise. Calls return when the work is queued.
///
/// ```
/// use halite_core::{Array, Client, HostArray, Mesh, Null, PartitionSpec, ReduceOp, Sharding};
/// use halite_nn::ArrayCollectives;
/// use std::sync::Arc;
///
/// # fn main() -> halite_core::Result<()> {
/// let client = Client::new(Null::new(4)); // computes nothing; a real one comes from `halite_backends::Accelerator`
/// let mesh = Arc::new(Mesh::new([("data", 4)], client.local_devices())?);
/// // One row for each device.
/// let rows = Sharding::new(&mesh, PartitionSpec::first("data"))?;
/// let mine = Array::upload(&client, &HostArray::from_slice(&[1.0f32; 8], [4, 2])?, &rows)?;
///
/// let across = ArrayCollectives::new(&client, &mesh);
/// let sum = across.all_reduce(&mine, ReduceOp::Sum, "data")?;
/// assert_eq!(sum.ty().dims(), [1, 2], "one row, the same on all");
/// # Ok(())
/// # }
/// ```
pub struct ArrayCollectives {
    client: Client,
    mesh: Arc<Mesh>,
    programs: Mutex<HashMap<Key, Arc<Program>>>,
    /// One per device of the mesh; empty before the first barrier.
    touches: Mutex<Vec<Touch>>,
}

type Program = Jit<Empty<()>, Leaf<()>, Leaf<()>>;

/// Key of a cached program.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Key {
    operation: Operation,
    axes: Vec<Arc<str>>,
    ty: TensorType,
    spec: PartitionSpec,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Operation {
    AllReduce(ReduceOp),
    AllGather { dim: usize },
    ReduceScatter { op: ReduceOp, dim: usize },
    AllToAll { split: usize, concat: usize },
    Permute { pairs: Vec<(usize, usize)> },
    Broadcast { root: usize },
    Reshard(PartitionSpec),
}

impl ArrayCollectives {
    /// Collectives between the devices of `mesh`. Nothing is compiled yet.
    pub fn new(client: &Client, mesh: &Arc<Mesh>) -> Self {
        ArrayCollectives {
            client: client.clone(),
            mesh: mesh.clone(),
            programs: Mutex::default(),
            touches: Mutex::default(),
        }
    }

    /// The mesh.
    pub fn mesh(&self) -> &Arc<Mesh> {
        &self.mesh
    }

    /// Number of compiles.
    pub fn compiles(&self) -> u64 {
        self.programs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .map(|program| program.compiles())
            .sum()
    }

    /// Reduces the shards along `axes`, element by element.
    ///
    /// # Errors
    /// If the array is on another mesh, an axis does not exist, or `op` is not defined for the
    /// element type.
    #[track_caller]
    pub fn all_reduce(&self, array: &Array, op: ReduceOp, axes: impl Into<Over>) -> Result<Array> {
        self.run(Operation::AllReduce(op), axes.into(), array)
    }

    /// Concatenates the shards along `axes`, in their order, along dimension `dim`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); if dimension `dim` does not exist.
    #[track_caller]
    pub fn all_gather(&self, array: &Array, dim: usize, axes: impl Into<Over>) -> Result<Array> {
        self.run(Operation::AllGather { dim }, axes.into(), array)
    }

    /// Reduces the shards along `axes` and scatters the result: `axes` split its dimension `dim`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); if the dimension does not divide.
    #[track_caller]
    pub fn reduce_scatter(
        &self,
        array: &Array,
        op: ReduceOp,
        dim: usize,
        axes: impl Into<Over>,
    ) -> Result<Array> {
        self.run(Operation::ReduceScatter { op, dim }, axes.into(), array)
    }

    /// Splits each shard along dimension `split`, sends part `i` to the `i`th device along `axes`,
    /// and concatenates the received parts along dimension `concat`. `axes` split dimension `split`
    /// of the result: an array that they split along `concat` is resharded.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); if the dimension does not divide.
    #[track_caller]
    pub fn all_to_all(
        &self,
        array: &Array,
        split: usize,
        concat: usize,
        axes: impl Into<Over>,
    ) -> Result<Array> {
        self.run(Operation::AllToAll { split, concat }, axes.into(), array)
    }

    /// Sends shards between `(source, target)` pairs of indices along `axes`; a device that is the
    /// target of no pair gets zeros. The array is split over `axes` before and after.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); if the array is not split over `axes`.
    #[track_caller]
    pub fn collective_permute(
        &self,
        array: &Array,
        pairs: &[(usize, usize)],
        axes: impl Into<Over>,
    ) -> Result<Array> {
        self.run(
            Operation::Permute {
                pairs: pairs.to_vec(),
            },
            axes.into(),
            array,
        )
    }

    /// Copies the shard of the device at index `root` along `axes` to all devices along them, bit
    /// for bit.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); if `root` is not an index along `axes`.
    #[track_caller]
    pub fn broadcast(&self, array: &Array, root: usize, axes: impl Into<Over>) -> Result<Array> {
        self.run(Operation::Broadcast { root }, axes.into(), array)
    }

    /// Reshards an array to another spec on the same mesh, device to device; the host does not wait.
    /// To another mesh: [`Array::reshard`].
    ///
    /// # Errors
    /// If the array is on another mesh, or a dimension does not divide into its new parts.
    #[track_caller]
    pub fn reshard(&self, array: &Array, spec: &PartitionSpec) -> Result<Array> {
        self.run(Operation::Reshard(spec.clone()), Over::Axes(vec![]), array)
    }

    /// Waits until every device has finished the work queued on it before.
    ///
    /// # Errors
    /// [`ErrorKind::DeadlineExceeded`] with the devices that are late; the error of a device that
    /// fails.
    pub fn barrier(&self, name: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now().checked_add(patience);
        let mut waiting = Vec::with_capacity(self.mesh.size());
        {
            let mut touches = self.touches.lock().unwrap_or_else(PoisonError::into_inner);
            if touches.is_empty() {
                *touches = self
                    .mesh
                    .devices()
                    .iter()
                    .map(|&device| Touch::new(&self.client, device))
                    .collect::<Result<_>>()?;
            }
            for (touch, device) in touches.iter().zip(self.mesh.devices()) {
                waiting.push((device.0, touch.queue()?));
            }
        }
        let mut late = Vec::new();
        for (device, pending) in waiting {
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            match pending.wait_for(left) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::DeadlineExceeded => late.push(device),
                Err(error) => {
                    let message = format!("device {device} failed: {}", error.message());
                    return Err(Error::new(
                        error.kind(),
                        format!("barrier `{name}`"),
                        message,
                    ));
                }
            }
        }
        if late.is_empty() {
            return Ok(());
        }
        let message = format!(
            "waited {patience:?} for devices {late:?} of {}",
            self.mesh.size()
        );
        Err(Error::new(
            ErrorKind::DeadlineExceeded,
            format!("barrier `{name}`"),
            message,
        ))
    }

    #[track_caller]
    fn run(&self, operation: Operation, over: Over, array: &Array) -> Result<Array> {
        let name = operation.name();
        let fail = |message: String| Err(Error::invalid(name, message));
        let axes = match over {
            Over::Axes(axes) => axes,
            Over::Groups(_) => {
                return fail("expected names of mesh axes, got groups of devices".to_string());
            }
        };
        if let Some(axis) = axes.iter().find(|axis| self.mesh.axis(axis).is_none()) {
            return fail(format!(
                "unknown axis `{axis}`; expected one of {}",
                self.mesh
            ));
        }
        let members: usize = axes
            .iter()
            .filter_map(|axis| self.mesh.axis(axis))
            .product();
        if let Operation::Broadcast { root } = operation
            && root >= members
        {
            return fail(format!(
                "root {root} is out of range: {axes:?} of {} have {members} devices",
                self.mesh
            ));
        }
        let (mesh, spec) = (array.sharding().mesh(), array.sharding().spec());
        if *mesh != self.mesh {
            return fail(format!(
                "{} is on {mesh} {:?}, but the collectives are for {} {:?}",
                array.ty(),
                mesh.devices(),
                self.mesh,
                self.mesh.devices()
            ));
        }
        let key = Key {
            operation,
            axes,
            ty: array.ty().clone(),
            spec: spec.clone(),
        };
        let program = {
            let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
            let caller = Location::caller();
            programs
                .entry(key)
                .or_insert_with_key(|key| Arc::new(self.program(key, caller)))
                .clone()
        };
        Ok(program.run_with(Leaf(array))?.0)
    }

    fn program(&self, key: &Key, caller: &'static Location<'static>) -> Program {
        let (name, result_spec) = (key.operation.name(), key.result_spec());
        let (mesh, output_spec, key) = (self.mesh.clone(), result_spec.clone(), key.clone());
        let program = Program::function(&self.client, move |cx, Leaf(x)| {
            let _site = cx.called_from(caller);
            Leaf(match key.operation {
                // The compiler reshards, from the shardings of input and output.
                Operation::Reshard(_) => x,
                _ => {
                    let (inputs, outputs) = (
                        std::slice::from_ref(&key.spec),
                        std::slice::from_ref(&output_spec),
                    );
                    cx.shard_map(&mesh, &[x], inputs, outputs, |shards| {
                        vec![key.on_shard(shards[0])]
                    })[0]
                }
            })
        });
        program
            .named(name)
            .on(&self.mesh)
            .output_specs(move |_, _| result_spec.clone())
    }
}

/// Work for one device that finishes after everything queued on it before. One program over all
/// devices would tell less: if one of them is late, some plugins let all wait.
struct Touch {
    program: Loaded,
    token: DeviceBuffer,
}

impl Touch {
    fn new(client: &Client, device: DeviceId) -> Result<Self> {
        let ty = TensorType::scalar(DType::S32);
        let mut graph = Graph::new();
        let token = graph.input(ty.clone());
        let next = graph.push(Op::Binary(Binary::Add), &[token, token], None)?[0];
        graph.set_outputs(vec![next]);
        let program = halite_ir::program(&graph, &Interface::new("barrier"))?;
        Ok(Touch {
            program: client.compile(
                &program,
                &CompileOptions {
                    devices: vec![device],
                    ..CompileOptions::default()
                },
            )?,
            token: client.upload(HostBytes::Borrowed(&[0; 4]), &ty, device.into())?,
        })
    }

    fn queue(&self) -> Result<Pending<()>> {
        let launched = self.program.launch(Launch {
            args: vec![vec![Arg::Borrow(&self.token)]],
        })?;
        Ok(launched.outputs[0][0].ready()?.pending("barrier"))
    }
}

impl fmt::Debug for ArrayCollectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ArrayCollectives({}, compiled {} times)",
            self.mesh,
            self.compiles()
        )
    }
}

impl Operation {
    fn name(&self) -> &'static str {
        match self {
            Operation::AllReduce(_) => "all_reduce",
            Operation::AllGather { .. } => "all_gather",
            Operation::ReduceScatter { .. } => "reduce_scatter",
            Operation::AllToAll { .. } => "all_to_all",
            Operation::Permute { .. } => "collective_permute",
            Operation::Broadcast { .. } => "broadcast",
            Operation::Reshard(_) => "reshard",
        }
    }
}

impl Key {
    /// Partition spec of the result.
    fn result_spec(&self) -> PartitionSpec {
        let rest = self.spec.without(&self.axes);
        match &self.operation {
            Operation::AllReduce(_) | Operation::AllGather { .. } | Operation::Broadcast { .. } => {
                rest
            }
            // A dimension out of range is reported by the traced operation.
            Operation::ReduceScatter { dim, .. } | Operation::AllToAll { split: dim, .. }
                if *dim >= self.ty.rank() =>
            {
                rest
            }
            Operation::ReduceScatter { dim, .. } | Operation::AllToAll { split: dim, .. } => {
                rest.split(*dim, &self.axes)
            }
            Operation::Permute { .. } => self.spec.clone(),
            Operation::Reshard(spec) => spec.clone(),
        }
    }

    /// The computation of one device on its shard.
    #[track_caller]
    fn on_shard<'t>(&self, x: Tensor<'t>) -> Tensor<'t> {
        let over = || Over::Axes(self.axes.clone());
        match &self.operation {
            Operation::AllReduce(ReduceOp::Mean) => x.all_reduce_mean(over()),
            Operation::AllReduce(op) => x.all_reduce(reduction(*op), over()),
            Operation::AllGather { dim } => x.all_gather(*dim, over()),
            Operation::ReduceScatter {
                op: ReduceOp::Mean,
                dim,
            } => x.reduce_scatter_mean(*dim, over()),
            Operation::ReduceScatter { op, dim } => x.reduce_scatter(reduction(*op), *dim, over()),
            Operation::AllToAll { split, concat } => x.all_to_all(*split, *concat, over()),
            Operation::Permute { pairs } => x.collective_permute(pairs, over()),
            Operation::Broadcast { root } => broadcast(x, *root, &over()),
            Operation::Reshard(_) => x,
        }
    }
}

/// The shard of the device at index `root`, as a sum of its bits and zeros: a sum of floats would
/// turn -0 into +0.
#[track_caller]
fn broadcast<'t>(x: Tensor<'t>, root: usize, over: &Over) -> Tensor<'t> {
    let dtype = x.dtype();
    let bits = match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    };
    let mine = if dtype == DType::Bool {
        x.convert(bits)
    } else {
        x.bitcast(bits)
    };
    let is_root = x.trace().axis_index(over.clone()).eq(root as f64);
    let sum = is_root
        .select(mine, mine.zeros_like())
        .all_reduce(Reduction::Sum, over.clone());
    if dtype == DType::Bool {
        sum.ne(0)
    } else {
        sum.bitcast(dtype)
    }
}

const fn reduction(op: ReduceOp) -> Reduction {
    match op {
        // A mean is a sum, divided.
        ReduceOp::Sum | ReduceOp::Mean => Reduction::Sum,
        ReduceOp::Product => Reduction::Product,
        ReduceOp::Min => Reduction::Min,
        ReduceOp::Max => Reduction::Max,
        ReduceOp::And => Reduction::And,
        ReduceOp::Or => Reduction::Or,
    }
}
