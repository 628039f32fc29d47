//! Saving of a model's arrays under the original names, as safetensors.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    fs, io,
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
    convert::{converted, converts},
    plan::{Original, Plan},
    strides::{Axis, scatter},
};

const INDEX: &str = "model.safetensors.index.json";

/// Saves models as safetensors, with the names and layouts of a [`NameMap`]: what PyTorch, or any
/// other program that knows the original, loads.
///
/// ```
/// use halite_core::{Client, Tree};
/// use halite_nn::{Linear, Model};
/// use halite_embedded::{Options, Embedded};
/// use halite_weights::{NameMap, WeightSaver, TensorSource, open};
///
/// # fn main() -> halite_core::Result<()> {
/// # let client = Client::new(Embedded::new(&Options::default())?);
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

    /// Sets the maximum size of a file of [`save_directory`](Self::save_directory) in bytes (default
    /// 5 GB); a larger tensor has a file of its own.
    pub fn file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes;
        self
    }

    /// Checks that a model of this description can be saved, before there are values of it.
    ///
    /// # Errors
    /// If the map does not fit the model.
    pub fn check<M: Tree<Leaf = Param>>(&self, model: &M) -> Result<()> {
        Plan::new(self.map, model).map(drop)
    }

    /// Saves the parameters `values` of a model as one file, in the place of an older one. In a job
    /// of several processes, one of them saves.
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
        let order = self.order(&plan);
        self.write(&plan, &arrays, &order, path.as_ref())?.rename()
    }

    /// Saves the parameters `values` of a model in a directory, in Hugging Face's layout:
    /// `model.safetensors`, or several files of bounded size and their index. Files of this kind from
    /// an earlier save are replaced or removed. In a job of several processes, one of them saves.
    ///
    /// # Errors
    /// As [`save`](Self::save): while files are written, an older save is untouched. If renaming them
    /// fails, the directory has no index.
    pub fn save_directory<M: Tree<Leaf = Param>>(
        &self,
        model: &M,
        values: &Of<M, Array>,
        directory: impl AsRef<Path>,
    ) -> Result<()> {
        let directory = directory.as_ref();
        let failed = |error| {
            let message = format!("cannot write in `{}`", directory.display());
            Error::new(ErrorKind::Io, "save weights", message).caused_by(error)
        };
        let (plan, arrays) = self.plan::<M>(model, values)?;
        fs::create_dir_all(directory).map_err(failed)?;
        let mut shards: Vec<Vec<usize>> = vec![Vec::new()];
        let (mut size, mut total) = (0, 0);
        for original in self.order(&plan) {
            let bytes = self.saved(&plan.originals[original].info.ty).bytes() as u64;
            let shard = shards.last().expect("there is a file");
            if !shard.is_empty() && size + bytes > self.file_bytes {
                shards.push(Vec::new());
                size = 0;
            }
            shards.last_mut().expect("there is a file").push(original);
            (size, total) = (size + bytes, total + bytes);
        }
        let (mut files_of, mut written) = (BTreeMap::new(), BTreeMap::new());
        for (number, shard) in shards.iter().enumerate() {
            let file = match shards.len() {
                1 => "model.safetensors".to_owned(),
                count => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
            };
            let writer = self.write(&plan, &arrays, shard, &directory.join(&file))?;
            for &original in shard {
                files_of.insert(plan.originals[original].info.name.clone(), file.clone());
            }
            written.insert(file, writer);
        }
        let names: BTreeSet<String> = written.keys().cloned().collect();
        // Without an index, several files are not opened: old and new ones are never mixed.
        remove(directory, |name| name == INDEX).map_err(failed)?;
        written
            .into_values()
            .try_for_each(SafetensorsWriter::rename)?;
        remove(directory, |name| {
            is_of_a_save(name) && !names.contains(name)
        })
        .map_err(failed)?;
        if names.len() == 1 {
            return Ok(());
        }
        let index = json!({"metadata": {"total_size": total}, "weight_map": files_of});
        let text = serde_json::to_vec_pretty(&index).expect("an index has texts and numbers");
        files::replace(&directory.join(INDEX), &text).map_err(failed)
    }

    /// The tensors of a file, by name.
    pub(crate) fn tensors<M: Tree<Leaf = Param>>(
        &self,
        model: &M,
        values: &Of<M, Array>,
    ) -> Result<BTreeMap<String, HostArray>> {
        let (plan, arrays) = self.plan::<M>(model, values)?;
        let mut hosts = HashMap::new();
        let tensor = |(number, original): (usize, &Original)| {
            let tensor = self.tensor(&plan, &arrays, number, &mut hosts)?;
            Ok((original.info.name.clone(), tensor))
        };
        plan.originals.iter().enumerate().map(tensor).collect()
    }

    /// A tensor of a file, from the parameters that it has; `hosts` are those that were read.
    fn tensor(
        &self,
        plan: &Plan,
        arrays: &[&Array],
        number: usize,
        hosts: &mut HashMap<usize, HostArray>,
    ) -> Result<HostArray> {
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
        }
        let dtype = self.saved(tensor.ty()).dtype();
        converted(tensor, dtype)
    }

    fn plan<'v, M: Tree<Leaf = Param>>(
        &self,
        model: &M,
        values: &'v Of<M, Array>,
    ) -> Result<(Plan, Vec<&'v Array>)> {
        let invalid = |message: String| Err(Error::invalid("save weights", message));
        if let Some(dtype) = self.dtype.filter(|dtype| !dtype.is_float()) {
            return invalid(format!("dtype {dtype}: expected f16, bf16, f32 or f64"));
        }
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

    /// The order of tensors in a file: the largest elements first, so that all are aligned; those of
    /// the same parameters together, so that each parameter is read once.
    fn order(&self, plan: &Plan) -> Vec<usize> {
        let mut order: Vec<usize> = (0..plan.originals.len()).collect();
        order.sort_by_key(|&original| {
            let original = &plan.originals[original];
            let size = self.saved(&original.info.ty).dtype().size();
            (Reverse(size), original.parts[0])
        });
        order
    }

    /// Writes these tensors to a file, which still has its temporary name. An array is on the host
    /// from its first tensor to its last.
    fn write(
        &self,
        plan: &Plan,
        arrays: &[&Array],
        originals: &[usize],
        path: &Path,
    ) -> Result<SafetensorsWriter> {
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
            writer.write(&self.tensor(plan, arrays, number, &mut hosts)?)?;
            for (leaf, _) in &plan.originals[number].parts {
                if last_use[leaf] == place {
                    hosts.remove(leaf);
                }
            }
        }
        writer.flush()?;
        Ok(writer)
    }
}

/// Whether a save in a directory writes files of this name.
fn is_of_a_save(name: &str) -> bool {
    let numbers = || {
        name.strip_prefix("model-")?
            .strip_suffix(".safetensors")?
            .split_once("-of-")
    };
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    name == "model.safetensors"
        || numbers().is_some_and(|(number, count)| is_number(number) && is_number(count))
}

/// Removes the files of a directory whose name is chosen.
fn remove(directory: &Path, chosen: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&chosen) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
