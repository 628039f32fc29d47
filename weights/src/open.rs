//! Opening of files and directories: the format is that of the contents, not of the name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::{
    Format, TensorSource, WeightFile, archive,
    archive::Archive,
    gguf,
    input::Input,
    npy, npz,
    problems::{Problems, corrupt, unsupported},
    safetensors, torch,
};

/// Opens a file of tensors, or a directory in Hugging Face's layout: with
/// `model.safetensors`, or `pytorch_model.bin`, or an index of several of these, or a GGUF file.
///
/// Headers are read and checked; the tensors are read when they are asked for.
///
/// ```
/// use halite_core::HostArray;
/// use halite_weights::{TensorSource, npy, open};
///
/// # fn main() -> halite_core::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("bias.npy");
/// let bias = HostArray::from_slice(&[1.0f32, 2.0], [2])?;
/// std::fs::write(&path, npy::write(&bias))?;
/// let file = open(&path)?;
/// assert_eq!(file.tensors()[0].ty.to_string(), "f32[2]");
/// assert_eq!(file.read("bias")?, bias);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If it cannot be read, is damaged, or is of no known format: one error with all that is wrong. A
/// pickle that asks for anything but tensors is refused, and nothing of it is executed.
pub fn open(path: impl AsRef<Path>) -> Result<WeightFile> {
    let path = path.as_ref();
    if path.is_dir() {
        return open_directory(path);
    }
    open_input(Input::open(path)?)
}

/// Opens a file that is in memory; `origin` names it in messages.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(bytes: Vec<u8>, origin: &str) -> Result<WeightFile> {
    open_input(Input::memory(bytes, origin))
}

fn open_input(input: Input) -> Result<WeightFile> {
    let mut start = [0; 16];
    let start = &mut start[..input.len().min(16) as usize];
    input.read_at(0, start)?;
    if start.starts_with(gguf::MAGIC) {
        return gguf::open(input);
    }
    if start.starts_with(archive::MAGIC) {
        let archive = Archive::open(input)?;
        return match torch::pickle_of(&archive) {
            Some(pickle) => torch::open_zip(&archive, pickle),
            None => npz::open_npz(&archive),
        };
    }
    if start.starts_with(npy::MAGIC) {
        return npz::open_npy(input);
    }
    if start.starts_with(torch::LEGACY_MAGIC) {
        return torch::open_legacy(&input);
    }
    if safetensors::recognizes(start, input.len()) {
        return safetensors::open(input);
    }
    let what = if start.is_empty() {
        "the file is empty".to_owned()
    } else {
        format!("it starts with the bytes {start:02x?}")
    };
    Err(unsupported(
        input.origin(),
        format!(
            "{what}; expected safetensors, a file of torch.save, .npz, .npy or GGUF, complete from \
             its start"
        ),
    ))
}

/// Files of a directory by format: the index if there is one.
fn open_directory(path: &Path) -> Result<WeightFile> {
    let origin = path.display().to_string();
    let unreadable = |error| {
        let message = format!("cannot read the directory `{origin}`");
        Error::new(ErrorKind::Io, "weights", message).caused_by(error)
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        names.extend(entry.map_err(unreadable)?.file_name().into_string());
    }
    names.sort();
    let mut found: BTreeMap<Format, Vec<&str>> = BTreeMap::new();
    for name in &names {
        let weights = name.strip_suffix(".index.json").unwrap_or(name);
        let format = if weights.ends_with(".safetensors") {
            Format::Safetensors
        } else if weights.starts_with("pytorch_model") && weights.ends_with(".bin") {
            Format::Torch
        } else if weights.ends_with(".gguf") {
            Format::Gguf
        } else {
            continue;
        };
        found.entry(format).or_default().push(name);
    }
    let files = match found.len() {
        1 => found.into_values().next().expect("there is one format"),
        0 => {
            let message = format!(
                "`{origin}` holds no .safetensors, pytorch_model.bin or .gguf; open other files by \
                 their path"
            );
            return Err(Error::invalid("weights", message));
        }
        _ => {
            let all: Vec<&str> = found.into_values().flatten().collect();
            let message = format!(
                "`{origin}` holds weights in several formats ({}); open one of them by its path",
                all.join(", ")
            );
            return Err(Error::invalid("weights", message));
        }
    };
    let indices: Vec<&&str> = files
        .iter()
        .filter(|name| name.ends_with(".index.json"))
        .collect();
    match (&indices[..], &files[..]) {
        ([index], _) => open_sharded(path, index),
        ([], [file]) => open_input(Input::open(&path.join(file))?),
        _ => {
            let message = format!(
                "`{origin}` holds {}, and no single index of them; open one by its path",
                files.join(", ")
            );
            Err(Error::invalid("weights", message))
        }
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Opens the files that an index lists, as one.
fn open_sharded(directory: &Path, index: &str) -> Result<WeightFile> {
    let path: PathBuf = directory.join(index);
    let origin = path.display().to_string();
    let input = Input::open(&path)?;
    let parsed = serde_json::from_reader(std::io::BufReader::new(input.reader()));
    let index: Index = parsed.map_err(|error| {
        corrupt(&origin, "it has no `weight_map` of names and files").caused_by(error)
    })?;
    let mut of_file: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, file) in &index.weight_map {
        of_file.entry(file).or_default().push(name);
    }
    let mut problems = Problems::default();
    let (mut tensors, mut metadata, mut format) = (Vec::new(), BTreeMap::new(), None);
    for (name, listed) in of_file {
        if Path::new(name)
            .file_name()
            .is_none_or(|plain| plain != name)
        {
            problems.push(format!(
                "`{}` is not the name of a file beside it",
                name.escape_debug()
            ));
            continue;
        }
        let file = match Input::open(&directory.join(name)).and_then(open_input) {
            Ok(file) => file,
            Err(error) => {
                problems.push(error.to_string());
                continue;
            }
        };
        let held: BTreeSet<&str> = (file.tensors().iter()).map(|info| &*info.name).collect();
        for tensor in listed.iter().filter(|&&tensor| !held.contains(tensor)) {
            problems.push(format!("`{tensor}` is not in `{name}`"));
        }
        for info in file.tensors() {
            if index.weight_map.get(&info.name).map(String::as_str) != Some(name) {
                problems.push(format!(
                    "`{}` is in `{name}`, the index does not say so",
                    info.name
                ));
            }
        }
        format = format.or(Some(file.format()));
        tensors.extend(file.tensors.into_iter().zip(file.places));
        metadata.extend(file.metadata);
    }
    problems.into_result(ErrorKind::Corrupt, &origin)?;
    let format = format.ok_or_else(|| corrupt(&origin, "the index lists no file"))?;
    let mut file = WeightFile::new(format, &directory.display().to_string(), tensors)?;
    file.metadata = metadata;
    Ok(file)
}
