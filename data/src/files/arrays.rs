//! Rows of the arrays of a file.

use std::{fmt, path::Path};

use halite_core::{Error, ErrorKind, HostArray, Result, guard};
use halite_weights::{TensorSource, WeightFile, open};

use crate::{Dataset, Field, SampleMut, digest::digest_of_some};

/// Arrays of a file as a dataset: sample `i` is row `i` of each, `[samples, ..]`.
///
/// Files are `.npy` and `.npz` of NumPy, safetensors, what `torch.save` wrote, and whatever else
/// [`halite_weights::open`] reads. Rows are read where they are, so a file may be larger than
/// memory; arrays that are compressed (`numpy.savez_compressed`) or in column-major order are read
/// into memory when the file is opened. The field of a `.npy` file is named as the file without its
/// ending.
///
/// ```
/// use halite_core::HostArray;
/// use halite_data::{ArrayFile, Dataset, DatasetExt};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = |name: &str| dir.path().join(name);
/// # let images = HostArray::from_slice(&[0u8; 60], [10, 2, 3])?;
/// # let labels = HostArray::from_slice(&[0u32; 10], [10])?;
/// # std::fs::write(path("images.npy"), halite_weights::npy::write(&images))?;
/// # std::fs::write(path("labels.npy"), halite_weights::npy::write(&labels))?;
/// let labels = ArrayFile::open(path("labels.npy"))?;
/// let data = ArrayFile::open(path("images.npy"))?.zip(labels)?;
/// assert_eq!(data.len(), 10);
/// assert_eq!(data.fields()[0].name, "images");
/// assert_eq!(data.fields()[0].ty.to_string(), "u8[2, 3]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ArrayFile {
    file: WeightFile,
    fields: Vec<Field>,
    columns: Vec<Column>,
    len: usize,
}

/// Where the rows of a field are.
#[derive(Debug)]
enum Column {
    /// Index of the array in the file.
    InFile(usize),
    InMemory(HostArray),
}

const CONTEXT: &str = "arrays";

impl ArrayFile {
    /// Opens a file. All of its arrays are fields, in the order of the file, which is that of the
    /// names for `.npz`.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, truncated, of another format, or has elements that
    /// are not numbers; if it has no arrays, a scalar, no rows, or arrays of different lengths.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::of(opened(path.as_ref())?)
    }

    /// Opens a file; the fields are the arrays of these names, in this order.
    ///
    /// # Errors
    /// If there is no array of a name, or as [`open`](Self::open) for these arrays.
    pub fn open_fields<N: AsRef<str>>(
        path: impl AsRef<Path>,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self> {
        let file = opened(path.as_ref())?;
        let find = |name: N| file.find(name.as_ref());
        let indices = names.into_iter().map(find).collect::<Result<Vec<_>>>()?;
        Self::new(file, &indices)
    }

    /// All arrays of an opened file, as [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of(file: WeightFile) -> Result<Self> {
        let indices: Vec<usize> = (0..file.tensors().len()).collect();
        Self::new(file, &indices)
    }

    fn new(file: WeightFile, indices: &[usize]) -> Result<Self> {
        let origin = file.origin();
        let failed = |reason: String| {
            let message = format!("{origin}: {reason}");
            Error::new(ErrorKind::InvalidArgument, CONTEXT, message)
        };
        let (mut fields, mut columns) = (Vec::<Field>::new(), Vec::new());
        let mut len = None;
        for &index in indices {
            let tensor = &file.tensors()[index];
            let (name, ty) = (&tensor.name, &tensor.ty);
            let Some((&rows, dims)) = ty.dims().split_first() else {
                let reason = "is a scalar: the first dimension must count the samples";
                return Err(failed(format!("`{name}` {reason}")));
            };
            if *len.get_or_insert(rows) != rows {
                let (first, len) = (&fields[0].name, len.unwrap_or(0));
                return Err(failed(format!(
                    "`{name}` is {ty}, and `{first}` has {len} rows; `open_fields` selects arrays"
                )));
            }
            fields.push(Field::new(name, ty.with_dims(dims)));
            columns.push(if file.reads_parts(index) {
                Column::InFile(index)
            } else {
                let mut array = HostArray::try_zeros(ty.clone())?;
                file.read_elements(index, 0..ty.elements(), array.bytes_mut())?;
                Column::InMemory(array)
            });
        }
        match len {
            None => Err(failed("no arrays".to_owned())),
            Some(0) => Err(failed(format!("`{}` has no rows", fields[0].name))),
            Some(len) => Ok(ArrayFile {
                file,
                fields,
                columns,
                len,
            }),
        }
    }
}

/// Opens a file. Archives of `.npz` are read by other crates.
fn opened(path: &Path) -> Result<WeightFile> {
    guard::call(|| open(path)).unwrap_or_else(|panic| {
        let message = format!("{}: {panic}", path.display());
        Err(Error::new(ErrorKind::Corrupt, CONTEXT, message))
    })
}

impl Dataset for ArrayFile {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        for (place, column) in self.columns.iter().enumerate() {
            let bytes = into.bytes_mut(place);
            match column {
                Column::InMemory(array) => {
                    let size = bytes.len();
                    bytes.copy_from_slice(&array.bytes()[index * size..][..size]);
                }
                Column::InFile(array) => {
                    let row = self.fields[place].ty.elements();
                    let elements = index * row..(index + 1) * row;
                    let read = self.file.read_elements(*array, elements, bytes);
                    read.map_err(|error| {
                        let name = &self.fields[place].name;
                        let message = format!("row {index} of `{name}`");
                        Error::new(error.kind(), CONTEXT, message).caused_by(error)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Digest of the number of rows, the fields, and eight samples.
    fn digest(&self) -> Option<String> {
        Some(format!("{} rows {}", self.len, digest_of_some(self)?))
    }

    fn name(&self) -> String {
        self.file.origin()
    }
}

impl fmt::Debug for ArrayFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayFile")
            .field("file", &self.file)
            .field("fields", &self.fields)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
