//! Collectives on arrays, outside of programs: each is a small program, compiled at its first use
//! and cached.

mod barrier;
mod operation;

use std::{
    collections::HashMap,
    fmt,
    panic::Location,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use halite_core::{
    Array, Client, Error, ErrorKind, Mesh, PartitionSpec, ReduceOp, Result,
    tree::{Empty, Leaf},
};

use crate::{Jit, Over};
use barrier::Touch;
use operation::{Key, Operation};

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
                    .filter(|&&device| self.client.addresses(&[device]))
                    .map(|&device| Touch::new(&self.client, device))
                    .collect::<Result<_>>()?;
            }
            let devices = self.mesh.devices().iter();
            let devices = devices.filter(|&&device| self.client.addresses(&[device]));
            for (touch, device) in touches.iter().zip(devices) {
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
