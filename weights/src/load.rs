//! Loading of a file's tensors into the arrays of a model.

use std::{collections::HashMap, ops::Range, sync::Arc};

use halite_core::{
    Array, Client, DType, Error, ErrorKind, HostArray, Result, Sharding, TensorType,
    tree::{Empty, Leaf, Of, Tree},
};
use halite_nn::{Jit, Model, Param, Pattern, init, rng};

use crate::{
    HostTensors, NameMap, Report, TensorSource,
    convert::converted,
    plan::Plan,
    strides::{Elements, gather},
};

/// Bytes of host memory that uploads may hold before the next tensor is read.
const IN_FLIGHT: usize = 64 << 20;

/// The sharding of a parameter, by its path and type.
type ShardingOf<'a> = Box<dyn Fn(&str, &TensorType) -> Result<Arc<Sharding>> + 'a>;

/// Loads a file's tensors into the parameters of a model; by default every name, shape and dtype
/// must match.
///
/// Names and types are checked before anything is uploaded, and an error leaves no partial model.
/// Each device's shard is read directly into the memory that is uploaded; floats are converted to
/// the dtype of the parameter.
pub struct WeightLoader<'a> {
    source: &'a dyn TensorSource,
    map: &'a NameMap,
    replaced: Vec<String>,
    lenient: bool,
    seed: u64,
    stored: Option<DType>,
    sharding: Option<ShardingOf<'a>>,
}

/// A model that was loaded.
#[derive(Debug)]
pub struct LoadedModel<M> {
    /// The parameters.
    pub model: M,
    /// The replaced parameters; after a lenient load, also all other differences.
    pub report: Report,
}

impl<'a> WeightLoader<'a> {
    /// A strict load of `source` with the names of `map`.
    pub fn new(source: &'a dyn TensorSource, map: &'a NameMap) -> Self {
        WeightLoader {
            source,
            map,
            replaced: Vec::new(),
            lenient: false,
            seed: 0,
            stored: None,
            sharding: None,
        }
    }

    /// Initializes the parameters at and below `path`, a [`Pattern`], as in a new model, whatever
    /// the file has for them: a new head.
    pub fn replace(mut self, path: &str) -> Self {
        self.replaced.push(path.to_owned());
        self
    }

    /// Initializes each parameter that the file does not have, or has in other dimensions or
    /// another element type, and skips tensors that no parameter uses; of a
    /// [`Stack`](halite_nn::Stack), only the layers that are missing are initialized. The
    /// [`Report`] lists them. The counterpart of PyTorch's `strict=False`.
    pub fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }

    /// Sets the seed for parameters that are initialized (default 0).
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Stores floats on the devices in this type, rounded to nearest, whatever the parameters
    /// declare; they have the declared type when they are read.
    pub fn stored_as(mut self, dtype: DType) -> Self {
        self.stored = Some(dtype);
        self
    }

    /// Sets the sharding of each parameter, by its path and type; otherwise all are on the client's
    /// first device. Each device's shard alone is read for it.
    pub fn sharded(
        mut self,
        sharding: impl Fn(&str, &TensorType) -> Result<Arc<Sharding>> + 'a,
    ) -> Self {
        self.sharding = Some(Box::new(sharding));
        self
    }

    /// Compares the file with the model, and reads nothing.
    ///
    /// # Errors
    /// If the map does not fit the model, or a replaced path matches no parameter.
    pub fn report<M: Tree<Leaf = Param>>(&self, model: &M) -> Result<Report> {
        let plan = Plan::new(self.map, model)?;
        Ok(plan
            .compare(self.source, self.map, &self.replaced_patterns(&plan)?)
            .0)
    }

    /// Loads a model of this description.
    ///
    /// # Errors
    /// If the file does not fit the model: one error with every missing and unexpected tensor, and
    /// every mismatch of shapes and dtypes. If the file cannot be read, or a device has too little
    /// memory.
    #[track_caller]
    pub fn load<M: Model>(&self, client: &Client, model: &M) -> Result<LoadedModel<Of<M, Array>>> {
        if let Some(dtype) = self.stored.filter(|dtype| !dtype.is_float()) {
            let message = format!("stored_as {dtype}: expected f16, bf16, f32 or f64");
            return Err(Error::invalid("load weights", message));
        }
        let plan = Plan::new(self.map, model)?;
        let replaced = self.replaced_patterns(&plan)?;
        let (report, found) = plan.compare(self.source, self.map, &replaced);
        if !(self.lenient || report.is_complete()) {
            return Err(report.to_error());
        }
        let shardings = self.shardings(client, &plan)?;
        let is_replaced =
            |leaf: &crate::plan::Leaf| replaced.iter().any(|path| path.matches(&leaf.path));
        let is_found = |piece: &crate::plan::Piece| found[piece.original].is_some();
        let fresh: Vec<usize> = (plan.leaves.iter().enumerate())
            .filter(|(_, leaf)| is_replaced(leaf) || !leaf.pieces.iter().all(is_found))
            .map(|(index, _)| index)
            .collect();
        let initialized = initialize(client, model, &fresh, self.seed)?;
        let mut initialized: HashMap<usize, Array> = fresh.into_iter().zip(initialized).collect();
        let (mut arrays, mut waited, mut in_flight) = (Vec::new(), 0, 0);
        for (number, (leaf, sharding)) in plan.leaves.iter().zip(&shardings).enumerate() {
            let stored = self.stored_type(&leaf.ty);
            let initial = match initialized.remove(&number) {
                // Layers of a stack that the file has are read.
                Some(array) if !is_replaced(leaf) && leaf.pieces.iter().any(is_found) => {
                    Some([("", array.read()?)].into_iter().collect::<HostTensors>())
                }
                Some(array) => {
                    arrays.push(placed(client, array, sharding, stored)?);
                    continue;
                }
                None => None,
            };
            let initial = initial.as_ref();
            arrays.push(self.upload(client, &plan, &found, number, sharding, initial)?);
            in_flight += leaf.ty.with_dtype(stored).bytes();
            if in_flight > IN_FLIGHT {
                // Uploads hold the host's memory until they are done.
                arrays[waited..].iter().try_for_each(Array::wait)?;
                (waited, in_flight) = (arrays.len(), 0);
            }
        }
        arrays[waited..].iter().try_for_each(Array::wait)?;
        Ok(LoadedModel {
            model: model.rebuild(arrays),
            report,
        })
    }

    /// Patterns of the replaced paths, and of what is below them.
    fn replaced_patterns(&self, plan: &Plan) -> Result<Vec<Pattern>> {
        let mut patterns = Vec::new();
        for path in &self.replaced {
            let these: [Pattern; 2] = [path.parse()?, format!("{path}.**").parse()?];
            let matches = |path: &str| these.iter().any(|pattern| pattern.matches(path));
            if !plan.leaves.iter().any(|leaf| matches(&leaf.path)) {
                let nearest = these[0].nearest(plan.leaves.iter().map(|leaf| &*leaf.path));
                let nearest =
                    nearest.map_or(String::new(), |path| format!("; did you mean `{path}`?"));
                let message = format!("`{path}` to replace is no parameter of the model{nearest}");
                return Err(Error::invalid("load weights", message));
            }
            patterns.extend(these);
        }
        Ok(patterns)
    }

    fn shardings(&self, client: &Client, plan: &Plan) -> Result<Vec<Arc<Sharding>>> {
        let first = client.local_devices().first().copied().ok_or_else(|| {
            let message = format!("{client:?} has no local device");
            Error::new(ErrorKind::Unavailable, "load weights", message)
        })?;
        let single = Sharding::single(first);
        let sharding = |leaf: &crate::plan::Leaf| {
            let sharding = match &self.sharding {
                Some(sharding) => sharding(&leaf.path, &leaf.ty)?,
                None => single.clone(),
            };
            let checked = sharding.shard_type(&leaf.ty);
            checked.map_err(|error| error.with_note(&format!("for `{}`", leaf.path)))?;
            Ok(sharding)
        };
        plan.leaves.iter().map(sharding).collect()
    }

    fn stored_type(&self, ty: &TensorType) -> DType {
        self.stored
            .filter(|_| ty.dtype().is_float())
            .unwrap_or(ty.dtype())
    }

    /// Reads and uploads a parameter, shard by shard. Layers that were not found are those of
    /// `initial`.
    fn upload(
        &self,
        client: &Client,
        plan: &Plan,
        found: &[Option<usize>],
        number: usize,
        sharding: &Arc<Sharding>,
        initial: Option<&HostTensors>,
    ) -> Result<Array> {
        let ty = &plan.leaves[number].ty;
        let stored = self.stored_type(ty);
        let narrow = Array::from_parts(client, &ty.with_dtype(stored), sharding, |ranges| {
            let dims: Vec<usize> = ranges.iter().map(Range::len).collect();
            let mut part = match initial {
                Some(initial) => converted(initial.read_range("", ranges)?, stored)?,
                None => HostArray::try_zeros(TensorType::new(stored, dims))?,
            };
            for copy in plan.copies(number, ranges)? {
                let Some(index) = found[copy.original] else {
                    continue;
                };
                let read =
                    |elements, into: &mut [u8]| self.source.read_elements(index, elements, into);
                let dtype = self.source.tensors()[index].ty.dtype();
                let elements = Elements { dtype, read: &read };
                let into = part.bytes_mut();
                gather(&elements, copy.base, &copy.axes, stored, into, copy.start)?;
            }
            Ok(part)
        })?;
        Array::from_shards_as(ty.clone(), sharding, narrow.into_shards(), stored)
    }
}

impl std::fmt::Debug for WeightLoader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeightLoader")
            .field("source", &self.source.origin())
            .field("replaced", &self.replaced)
            .field("lenient", &self.lenient)
            .finish_non_exhaustive()
    }
}

/// Initial values of the parameters at these positions, as those of a new model, on the first
/// device.
#[track_caller]
fn initialize<M: Model>(
    client: &Client,
    model: &M,
    positions: &[usize],
    seed: u64,
) -> Result<Vec<Array>> {
    if positions.is_empty() {
        return Ok(Vec::new());
    }
    let (model, positions) = (model.described(), positions.to_vec());
    let key = Array::from_slice(client, &rng::key(seed), [2])?;
    // What is not returned is not computed.
    let arrays =
        Jit::<Empty<()>, Leaf<()>, Vec<Leaf<()>>>::function(client, move |cx, Leaf(key)| {
            let all = init(cx, &model, rng::fold_in(key, 0)).into_leaves();
            positions
                .iter()
                .map(|&position| Leaf(all[position]))
                .collect()
        })
        .named("init")
        .runs_once()
        .of_line(std::panic::Location::caller())
        .run_with(Leaf(&key))?;
    Ok(arrays.into_iter().map(|Leaf(array)| array).collect())
}

/// An array on other devices, or stored in another type.
fn placed(client: &Client, array: Array, sharding: &Arc<Sharding>, stored: DType) -> Result<Array> {
    if stored != array.ty().dtype() {
        return Array::upload_as(client, &Arc::new(array.read()?), sharding, stored);
    }
    if array.sharding() == sharding {
        return Ok(array);
    }
    array.reshard(client, sharding)
}
