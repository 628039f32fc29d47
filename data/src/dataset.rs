//! Datasets: samples by index, each a row of named fields.

use std::sync::Arc;

use halite_core::Result;

use crate::{Field, SampleMut};

/// Samples that can be read by index, in any order and from many threads at once.
///
/// The same index and [key](SampleMut::key) must give the same sample every time: the order and the
/// batches of a run are a pure function of its seed only if the samples are. Random choices come
/// from the key alone.
///
/// ```
/// use std::path::PathBuf;
/// use halite_core::{DType, Result, TensorType};
/// use halite_data::{Dataset, Field, SampleMut, images::{Framing, read_image}};
///
/// /// Photographs, each with the number of its class.
/// struct Photographs {
///     files: Vec<(PathBuf, i32)>,
///     fields: [Field; 2],
/// }
///
/// impl Photographs {
///     fn new(files: Vec<(PathBuf, i32)>) -> Self {
///         let image = Field::new("image", TensorType::new(DType::U8, [224, 224, 3]));
///         let label = Field::new("label", TensorType::new(DType::S32, []));
///         Photographs { files, fields: [image, label] }
///     }
/// }
///
/// impl Dataset for Photographs {
///     fn len(&self) -> usize {
///         self.files.len()
///     }
///
///     fn fields(&self) -> &[Field] {
///         &self.fields
///     }
///
///     fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
///         let (path, label) = &self.files[index];
///         let image = Framing::new(224).apply(&read_image(path)?)?;
///         into.write(0, image.as_slice::<u8>()?)?;
///         into.write(1, &[*label])
///     }
/// }
/// ```
pub trait Dataset: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// The fields of a sample, in the order of the leaves of a task's batch.
    fn fields(&self) -> &[Field];

    /// Writes sample `index` into `into`: every byte of every field.
    ///
    /// # Errors
    /// If the sample cannot be read. `index` is below [`len`](Self::len).
    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()>;

    /// Digest of the samples and their order, if it is cheap to compute: a resumed run compares it
    /// with the saved one. `None`, the default, means unknown: a resumed run warns then.
    ///
    /// A dataset that wraps another one includes what it does to the samples: a run that resumes
    /// with another crop of the same images is another run.
    fn digest(&self) -> Option<String> {
        None
    }

    /// Returns whether samples are read fast in order only, as those of a
    /// [stream](crate::StreamDataset). Loaders refuse to shuffle such a dataset, and pad its last
    /// batch without reading its first samples again. Adapters return what the dataset does that
    /// they wrap.
    fn is_sequential(&self) -> bool {
        false
    }

    /// Returns whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name in reports; by default that of the type.
    fn name(&self) -> String {
        short_type_name(std::any::type_name::<Self>())
    }
}

/// Shortens `a::b::Crops<c::Images>` to `Crops`.
fn short_type_name(full: &str) -> String {
    let without_parameters = full.split('<').next().unwrap_or(full);
    without_parameters
        .rsplit("::")
        .next()
        .unwrap_or(full)
        .to_string()
}

macro_rules! forward_dataset {
    ($($pointer:ty),*) => {
        $(impl<D: Dataset + ?Sized> Dataset for $pointer {
            fn len(&self) -> usize {
                (**self).len()
            }

            fn fields(&self) -> &[Field] {
                (**self).fields()
            }

            fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
                (**self).read(index, into)
            }

            fn digest(&self) -> Option<String> {
                (**self).digest()
            }

            fn is_sequential(&self) -> bool {
                (**self).is_sequential()
            }

            fn name(&self) -> String {
                (**self).name()
            }
        })*
    };
}

forward_dataset!(&D, Box<D>, Arc<D>);

/// Validation data of a run: a [`Dataset`], an `Option` of one, `()` for none, or several with
/// names, `[("clean", clean), ("noisy", noisy)]`. Sets of different types are an
/// `Arc<dyn Dataset>` each.
pub trait ValidationSet {
    /// The datasets, in order, each with its name if it has one.
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)>;
}

impl<D: Dataset + 'static> ValidationSet for D {
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)> {
        vec![(None, Arc::new(self))]
    }
}

impl<D: Dataset + 'static> ValidationSet for Option<D> {
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)> {
        self.map_or(Vec::new(), ValidationSet::into_sets)
    }
}

impl ValidationSet for () {
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)> {
        Vec::new()
    }
}

impl<N: Into<String>, D: Dataset + 'static, const SETS: usize> ValidationSet for [(N, D); SETS] {
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)> {
        Vec::from(self).into_sets()
    }
}

impl<N: Into<String>, D: Dataset + 'static> ValidationSet for Vec<(N, D)> {
    fn into_sets(self) -> Vec<(Option<String>, Arc<dyn Dataset>)> {
        let named = |(name, dataset): (N, D)| -> (_, Arc<dyn Dataset>) {
            (Some(name.into()), Arc::new(dataset))
        };
        self.into_iter().map(named).collect()
    }
}
