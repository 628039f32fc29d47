//! Saving of a model's arrays under the original names, as safetensors.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fs,
    path::Path,
};

use halite_core::{
    Array, DType, Error, ErrorKind, HostArray, Result, TensorType, files,
    tree::{Of, Tree, same_structure},
};
use halite_nn::Param;
use serde_json::json;

use crate::{
    NameMap, SafetensorsWriter, TensorInfo,
    convert::{convert, converts},
    plan::Plan,
    strides::{Axis, scatter},
};

/// Saves models as safetensors, with the names and layouts of a [`NameMap`]: what PyTorch, or any
/// other program that knows the original, loads.
///
/// ```
/// use halite_core::{Client, Tree};
/// use halite_nn::{Linear, Model};
/// use halite_reference::{Options, Reference};
/// use halite_weights::{NameMap, WeightSaver, TensorSource, open};
///
/// # fn main() -> halite_core::Result<()> {
/// # let client = Client::new(Reference::new(&Options::default())?);
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("linear.safetensors");
/// let layer = Linear::new(4, 2);
/// let values = layer.initialize(&client, 42)?;
/// WeightSaver::new(&NameMap::torch()).save(&layer, &values, &path)?;
/// assert_eq!(open(&path)?.read("weight")?.ty().dims(), [2, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WeightSaver<'a> {
    map: &'a NameMap,
    dtype: Option<DType>,
    metadata: BTreeMap<String, String>,
    file_bytes: u64,
}

impl<'a> WeightSaver<'a> {
    /// Saves with the names of `map`, in the types of the parameters.
    pub fn new(map: &'a NameMap) -> Self {
        WeightSaver {
            map,
            dtype: None,
            metadata: [("format".to_owned(), "pt".to_owned())].into(),
            file_bytes: 5_000_000_000,
        }
    }

    /// Converts floats to this type, rounded to nearest.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Adds a text to the metadata of the files. `format` is `pt`, which programs for PyTorch expect.
    pub fn metadata(mut self, key: impl Into<String>, text: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), text.into());
        self
    }

    /// Sets the size from which [`save_directory`](Self::save_directory) begins another file: 5 GB.
    pub fn file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes;
        self
    }

    /// Saves the parameters `values` of a model as one file, in the place of an older one.
    ///
    /// # Errors
    /// If the map does not fit the model, or `values` do not; if an array cannot be read, or the
    /// file cannot be written: an older one is untouched then.
    pub fn save<M: Tree<Leaf = Param>>(
        &self,
        model: &M,
        values: &Of<M, Array>,
        path: impl AsRef<Path>,
    ) -> Result<()> {
        let (plan, arrays) = self.plan::<M>(model, values)?;
        let order = plan.order();
        self.write(&plan, &arrays, &order, path.as_ref())
    }

    /// Saves the parameters `values` of a model in a directory, in the form of Hugging Face:
    /// `model.safetensors`, or several files of bounded size and their index.
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub fn save_directory<M: Tree<Leaf = Param>>(
        &self,
        model: &M,
        values: &Of<M, Array>,
        directory: impl AsRef<Path>,
    ) -> Result<()> {
        const INDEX: &str = "model.safetensors.index.json";
        let directory = directory.as_ref();
        let failed = |error| {
            let message = format!("cannot write in `{}`", directory.display());
            Error::new(ErrorKind::Io, "save weights", message).caused_by(error)
        };
        let (plan, arrays) = self.plan::<M>(model, values)?;
        fs::create_dir_all(directory).map_err(failed)?;
        let mut shards: Vec<Vec<usize>> = vec![Vec::new()];
        let (mut size, mut total) = (0, 0);
        for original in plan.order() {
            let bytes = self.saved(&plan.originals[original].info.ty).bytes() as u64;
            let shard = shards.last().expect("there is a file");
            if !shard.is_empty() && size + bytes > self.file_bytes {
                shards.push(Vec::new());
                size = 0;
            }
            shards.last_mut().expect("there is a file").push(original);
            (size, total) = (size + bytes, total + bytes);
        }
        if let [all] = &shards[..] {
            return self.write(&plan, &arrays, all, &directory.join("model.safetensors"));
        }
        let mut files_of = BTreeMap::new();
        for (number, shard) in shards.iter().enumerate() {
            let file = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
            self.write(&plan, &arrays, shard, &directory.join(&file))?;
            for &original in shard {
                files_of.insert(plan.originals[original].info.name.clone(), file.clone());
            }
        }
        let index = json!({"metadata": {"total_size": total}, "weight_map": files_of});
        let text = serde_json::to_vec_pretty(&index).expect("an index has texts and numbers");
        files::replace(&directory.join(INDEX), &text).map_err(failed)
    }

    fn plan<'v, M: Tree<Leaf = Param>>(
        &self,
        model: &M,
        values: &'v Of<M, Array>,
    ) -> Result<(Plan, Vec<&'v Array>)> {
        let invalid = |message: String| Err(Error::invalid("save weights", message));
        let plan = Plan::new(self.map, model)?;
        if let Err(error) = same_structure(model, values) {
            return invalid(format!("the values do not fit the model: {error}"));
        }
        let mut arrays = Vec::with_capacity(plan.leaves.len());
        values.for_each(|_, array| arrays.push(array));
        for (leaf, array) in plan.leaves.iter().zip(&arrays) {
            if leaf.ty != *array.ty() {
                return invalid(format!(
                    "`{}` is {}, given {}",
                    leaf.path,
                    leaf.ty,
                    array.ty()
                ));
            }
        }
        Ok((plan, arrays))
    }

    fn saved(&self, ty: &TensorType) -> TensorType {
        match self.dtype {
            Some(dtype) if converts(ty.dtype(), dtype) => ty.with_dtype(dtype),
            _ => ty.clone(),
        }
    }

    /// Writes these tensors to a file. An array is on the host from its first tensor to its last.
    fn write(
        &self,
        plan: &Plan,
        arrays: &[&Array],
        originals: &[usize],
        path: &Path,
    ) -> Result<()> {
        let infos: Vec<TensorInfo> = (originals.iter())
            .map(|&original| {
                let info = &plan.originals[original].info;
                TensorInfo {
                    name: info.name.clone(),
                    ty: self.saved(&info.ty),
                }
            })
            .collect();
        let mut writer = SafetensorsWriter::create(path, &infos, &self.metadata)?;
        let mut last_use = HashMap::new();
        for (place, &original) in originals.iter().enumerate() {
            for &(leaf, _) in &plan.originals[original].parts {
                last_use.insert(leaf, place);
            }
        }
        let mut hosts: HashMap<usize, HostArray> = HashMap::new();
        for (place, &number) in originals.iter().enumerate() {
            let original = &plan.originals[number];
            let mut tensor = HostArray::try_zeros(original.info.ty.clone())?;
            for &(leaf, layer) in &original.parts {
                let host = match hosts.entry(leaf) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(unread) => unread.insert(arrays[leaf].read()?),
                };
                let ranges: Vec<_> = host.ty().dims().iter().map(|&dim| 0..dim).collect();
                let copies = plan.copies(leaf, &ranges)?;
                let copy = &copies[layer];
                // From the parameter to the tensor: the other direction of the same axes.
                let turn = |axis: &Axis| Axis {
                    len: axis.len,
                    from: axis.into,
                    into: axis.from,
                };
                let axes: Vec<Axis> = copy.axes.iter().map(turn).collect();
                let size = host.ty().dtype().size();
                scatter(
                    size,
                    host.bytes(),
                    copy.start,
                    &axes,
                    tensor.bytes_mut(),
                    copy.base,
                );
                if last_use[&leaf] == place {
                    hosts.remove(&leaf);
                }
            }
            let ty = self.saved(tensor.ty());
            if ty != *tensor.ty() {
                let mut narrow = HostArray::try_zeros(ty.clone())?;
                let dtype = tensor.ty().dtype();
                convert(tensor.bytes(), dtype, ty.dtype(), narrow.bytes_mut())?;
                tensor = narrow;
            }
            writer.write(&tensor)?;
        }
        writer.finish()
    }
}

impl Plan {
    /// The order of tensors in a file: those of the same parameters together, so that each
    /// parameter is read once.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.originals.len()).collect();
        order.sort_by_key(|&original| self.originals[original].parts[0]);
        order
    }
}
