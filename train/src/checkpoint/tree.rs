//! Trees of arrays in one file, for programs without a trainer.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use halite_core::{
    Array, Client, Error, ErrorKind, HostArray, Result, Sharding, TensorType,
    tree::{Family, Tree},
};
use halite_nn::{ArraySpec, Param};

use super::{
    Saved, arrays,
    manifest::{COMMIT, MANIFEST},
    store::CheckpointStore,
    writer::check_names,
};
use crate::files::{self, Replacement};

/// Name of the array of a tree that is a single array.
const SINGLE: &str = "array";

/// Saves and loads any tree of arrays in one line.
///
/// The file is a safetensors file, whose arrays have the paths of the tree as names; Python's
/// `safetensors` reads it. [`CheckpointStore`] is the directory of a run's checkpoints, which also
/// have digests, and of which the last is never lost.
///
/// ```
/// use halite_core::{HostArray, TensorType, DType, tree::Tree};
/// use halite_train::Checkpoint;
///
/// #[derive(Tree)]
/// struct Line<L> {
///     slope: L,
///     offset: L,
/// }
///
/// # fn main() -> halite_core::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("line.safetensors");
/// let line = Line { slope: HostArray::scalar(3f32), offset: HostArray::scalar(-1f32) };
/// Checkpoint::save(&line, &path)?;
///
/// // What to expect: types, arrays on the host or on devices, or a model of `Param`.
/// let scalar = || TensorType::scalar(DType::F32);
/// let line = Checkpoint::load(&Line { slope: scalar(), offset: scalar() }, &path)?;
/// assert_eq!(line.slope.item::<f32>()?, 3.0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Checkpoint;

impl Checkpoint {
    /// Writes the arrays of `tree`, which are on the host or on devices, to a file. It is replaced
    /// as a whole once the new one is on the disk. The host has memory for one array of a device at
    /// a time.
    ///
    /// # Errors
    /// If the file cannot be written, or an array cannot be read from its devices. The file from
    /// before stays then.
    pub fn save<T: Tree<Leaf: SavedLeaf>>(tree: &T, path: impl AsRef<Path>) -> Result<()> {
        let leaves = tree.named();
        let types = leaves.iter().map(|(name, leaf)| (name_of(name), leaf.ty()));
        write_file(path.as_ref(), &types.collect::<Vec<_>>(), |index| {
            let (name, leaf) = &leaves[index];
            leaf.host()
                .map_err(|error| error.with_note(&format!("the array is `{}`", name_of(name))))
        })
    }

    /// Reads the arrays of a tree with the paths and types of `like` to the host.
    ///
    /// `path` is a file of [`save`](Self::save), or any safetensors file; or a run of the trainer,
    /// or one of its checkpoints, of which the parameters of the model are read. Of a run it is the
    /// best checkpoint, or the newest if none is marked as best. A run with averages of the
    /// parameters is validated, and its best checkpoint chosen, with the averages:
    /// [`load_average`](Self::load_average) reads these, this the parameters in training.
    ///
    /// # Errors
    /// If the file cannot be read; if its arrays differ from those of `like`: one error that lists
    /// each difference by path, with both types.
    pub fn load<T: Tree<Leaf: TypedLeaf>>(
        like: &T,
        path: impl AsRef<Path>,
    ) -> Result<<T::Family as Family>::Bare<HostArray>> {
        let (mut saved, wanted) = find(like, path.as_ref())?;
        let arrays = saved.take(&wanted)?;
        Ok(T::Family::into_bare(like.rebuild(arrays)))
    }

    /// Reads the parameters of a run like [`load`](Self::load), with the
    /// [averages](crate::TrainerBuilder::average) of the trained ones in their place.
    ///
    /// # Errors
    /// Those of [`load`](Self::load); if the run has no averages.
    pub fn load_average<T: Tree<Leaf: TypedLeaf>>(
        like: &T,
        path: impl AsRef<Path>,
    ) -> Result<<T::Family as Family>::Bare<HostArray>> {
        let mut saved = Saved::of_run(path)?;
        let averages = saved.averages()?;
        let wanted = like.named().into_iter().map(|(path, leaf)| {
            let name = averages.get(&path).cloned();
            let name = name.unwrap_or_else(|| format!("model.{path}"));
            (name, leaf.ty().clone())
        });
        let arrays = saved.take_some(&wanted.collect::<Vec<_>>())?;
        Ok(T::Family::into_bare(like.rebuild(arrays)))
    }

    /// Reads the arrays of a tree like [`load`](Self::load), and uploads them to the client's first
    /// device. The host has memory for one at a time, besides those whose memory the device uses.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), and of uploads.
    #[track_caller]
    pub fn load_on<T: Tree<Leaf: TypedLeaf>>(
        client: &Client,
        like: &T,
        path: impl AsRef<Path>,
    ) -> Result<<T::Family as Family>::Bare<Array>> {
        let devices = client.local_devices();
        let device = *devices.first().ok_or_else(|| {
            let message = format!("{client:?} has no device for this process");
            Error::new(ErrorKind::Unavailable, "load", message)
        })?;
        let sharding = Sharding::single(device);
        let (mut source, wanted) = find(like, path.as_ref())?;
        let mut arrays = Vec::new();
        source.take_each(&wanted, |host| {
            let array = Array::upload_shared(client, &Arc::new(host), &sharding)?;
            array.wait()?;
            arrays.push(array);
            Ok(())
        })?;
        Ok(T::Family::into_bare(like.rebuild(arrays)))
    }
}

/// A leaf that [`Checkpoint::load`] takes a type of.
pub trait TypedLeaf {
    /// Element type and dimensions.
    fn ty(&self) -> &TensorType;
}

/// A leaf that [`Checkpoint::save`] writes.
pub trait SavedLeaf: TypedLeaf {
    /// The array on the host.
    ///
    /// # Errors
    /// If it cannot be read from its devices.
    fn host(&self) -> Result<Cow<'_, HostArray>>;
}

macro_rules! typed {
    ($($leaf:ty: |$it:ident| $ty:expr;)*) => {$(
        impl TypedLeaf for $leaf {
            fn ty(&self) -> &TensorType {
                let $it = self;
                $ty
            }
        }
    )*};
}

typed! {
    TensorType: |ty| ty;
    HostArray: |array| HostArray::ty(array);
    Array: |array| Array::ty(array);
    Param: |param| &param.ty;
    ArraySpec: |spec| &spec.ty;
}

impl SavedLeaf for HostArray {
    fn host(&self) -> Result<Cow<'_, HostArray>> {
        Ok(Cow::Borrowed(self))
    }
}

impl SavedLeaf for Array {
    fn host(&self) -> Result<Cow<'_, HostArray>> {
        Ok(Cow::Owned(self.fetch()?.wait()?))
    }
}

fn name_of(path: &str) -> &str {
    match path {
        "" => SINGLE,
        path => path,
    }
}

/// Arrays on the disk, and whether others than the wanted ones are a difference.
struct Source {
    saved: Saved,
    is_model: bool,
}

impl Source {
    fn take(&mut self, wanted: &[(String, TensorType)]) -> Result<Vec<HostArray>> {
        if self.is_model {
            self.saved.take_some(wanted)
        } else {
            self.saved.take_all(wanted)
        }
    }

    fn take_each(
        &mut self,
        wanted: &[(String, TensorType)],
        mut then: impl FnMut(HostArray) -> Result<()>,
    ) -> Result<()> {
        if !self.is_model {
            self.saved.check(wanted, self.saved.differences(wanted))?;
        }
        self.saved.take_each(wanted, |_, array| then(array))
    }
}

/// Opens the arrays at `path`, and returns names and types of the leaves of `like` in it.
fn find<T: Tree<Leaf: TypedLeaf>>(
    like: &T,
    path: &Path,
) -> Result<(Source, Vec<(String, TensorType)>)> {
    let saved = if path.is_dir() {
        Saved::of_run(path)?
    } else {
        Saved::of_file(path)?
    };
    // A file may be one of weights that a run keeps.
    let first = like.named().into_iter().next().map(|(path, _)| path);
    let has = |name: &str| saved.arrays().any(|(array, _)| array == name);
    let is_of_run = |path: String| !has(name_of(&path)) && has(&format!("model.{path}"));
    let is_model = path.is_dir() || first.is_some_and(is_of_run);
    let name = |path: String| {
        if is_model {
            format!("model.{path}")
        } else {
            name_of(&path).to_string()
        }
    };
    let leaves = like.named().into_iter();
    let wanted = leaves.map(|(path, leaf)| (name(path), leaf.ty().clone()));
    Ok((Source { saved, is_model }, wanted.collect()))
}

/// Writes arrays of these names and types to the file `path`, which is replaced as a whole. `array`
/// gives the one of an index, in the order of the file.
///
/// # Errors
/// If the file cannot be written, a name is not one of a safetensors file or not unique, or `array`
/// fails. The file from before stays then.
fn write_file<'a>(
    path: &Path,
    types: &[(&str, &TensorType)],
    mut array: impl FnMut(usize) -> Result<Cow<'a, HostArray>>,
) -> Result<()> {
    check_names(types)?;
    let new = Replacement::of("checkpoint", path)?;
    arrays::write(new.folder(), new.name(), types, |index| {
        array(index).map(Held)
    })?;
    new.complete()
        .map_err(|error| files::failed("checkpoint", "write", path, &error))
}

/// An array that may be borrowed, for the writer.
struct Held<'a>(Cow<'a, HostArray>);

impl std::borrow::Borrow<HostArray> for Held<'_> {
    fn borrow(&self) -> &HostArray {
        &self.0
    }
}

impl Saved {
    /// Reads the best checkpoint of the run in `dir`, or the newest if none is marked as best; or
    /// the checkpoint or the [file of weights](crate::ModelCheckpoint::save_weights_only) that `dir`
    /// is.
    ///
    /// # Errors
    /// If there is no checkpoint, or it cannot be read.
    pub fn of_run(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        if dir.is_file() {
            return Saved::of_file(dir);
        }
        if dir.join(MANIFEST).is_file() || dir.join(COMMIT).is_file() {
            return Saved::read(dir);
        }
        let store = CheckpointStore::open_read_only(checkpoints_of(dir))?;
        let saved = match store.load_best()? {
            Some(best) => Some(best),
            None => store.latest()?,
        };
        saved.ok_or_else(|| {
            let message = format!(
                "no checkpoint in {}; give the directory of a run (`--out` of `halite train`), or \
                 a folder in its `checkpoints`",
                dir.display()
            );
            Error::new(ErrorKind::Unavailable, "load", message)
        })
    }

    /// Names of the arrays of the model by their paths, with the
    /// [averages](crate::TrainerBuilder::average) of the trained parameters in their place:
    /// `average.weight` for `weight`, and `model.mean` for a statistic that is not trained.
    ///
    /// # Errors
    /// If the run has no averages.
    pub fn averages(&self) -> Result<BTreeMap<String, String>> {
        let below = |prefix: &'static str| {
            self.arrays().filter_map(move |(name, _)| {
                Some((name.strip_prefix(prefix)?.to_string(), name.to_string()))
            })
        };
        if below("average.").next().is_none() {
            let message = format!(
                "{} has no averages of the parameters; a run keeps them with `--ema 0.999` \
                 (`TrainerBuilder::average`)",
                self.path().display()
            );
            return Err(Error::invalid("checkpoint", message));
        }
        // The later of two names of a path stays.
        Ok(below("model.").chain(below("average.")).collect())
    }

    /// Writes arrays to one safetensors file, which other programs read, without a device and with
    /// memory for one array. `name` gives the name of an array in the file; those without one are
    /// left out. The file is replaced as a whole. Returns the number of arrays.
    ///
    /// # Errors
    /// If the file cannot be written, two arrays get the same name, or none has one.
    pub fn export(
        &self,
        path: impl AsRef<Path>,
        name: impl Fn(&str) -> Option<String>,
    ) -> Result<usize> {
        let chosen: Vec<(String, (&str, &TensorType))> = self
            .arrays()
            .filter_map(|(array, ty)| Some((name(array)?, (array, ty))))
            .collect();
        if chosen.is_empty() {
            let message = format!("{} has no such array to export", self.path().display());
            return Err(Error::invalid("checkpoint", message));
        }
        let types: Vec<(&str, &TensorType)> = (chosen.iter())
            .map(|(name, (_, ty))| (&**name, *ty))
            .collect();
        write_file(path.as_ref(), &types, |index| {
            self.array(chosen[index].1.0).map(Cow::Owned)
        })?;
        Ok(chosen.len())
    }
}

impl Saved {
    /// Writes the parameters of the model to one file, and their averages if there are some.
    pub(super) fn export_weights(&self, path: &Path) -> Result<()> {
        let is_weight = |name: &str| name.starts_with("model.") || name.starts_with("average.");
        self.export(path, |name| is_weight(name).then(|| name.to_string()))?;
        Ok(())
    }
}

/// The directory of the checkpoints of the run in `dir`, which may be that directory.
pub(super) fn checkpoints_of(dir: &Path) -> PathBuf {
    let inside = dir.join("checkpoints");
    if inside.is_dir() {
        inside
    } else {
        dir.to_path_buf()
    }
}
