//! Values of a program's arguments.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use halite::{
    DType, Error, ErrorKind, HostArray, Result, TensorType,
    exchange::{ArtifactInput, npy},
};
use safetensors::SafeTensors;

/// Value of `--input`.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Npy(PathBuf),
    /// A tensor of a file; without a name, the one that is named like the argument.
    Safetensors(PathBuf, Option<String>),
    Zeros,
    Random(u64),
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "zeros" {
            return Ok(Input::Zeros);
        }
        if let Some(seed) = text.strip_prefix("random:") {
            let seed = seed.parse();
            return seed
                .map(Input::Random)
                .map_err(|_| format!("`{text}`: the seed must be a number from 0 to 2^64 - 1"));
        }
        if let Some((file, name)) = text.rsplit_once(".safetensors:") {
            let path = format!("{file}.safetensors").into();
            return Ok(Input::Safetensors(path, Some(name.to_owned())));
        }
        let path = PathBuf::from(text);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Ok(Input::Npy(path)),
            Some("safetensors") => Ok(Input::Safetensors(path, None)),
            _ => Err(format!(
                "`{text}`: expected FILE.npy, FILE.safetensors, FILE.safetensors:NAME, `zeros`, or \
                 `random:SEED`"
            )),
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Npy(path) | Input::Safetensors(path, None) => write!(f, "{}", path.display()),
            Input::Safetensors(path, Some(name)) => write!(f, "{}:{name}", path.display()),
            Input::Zeros => f.write_str("zeros"),
            Input::Random(seed) => write!(f, "random:{seed}"),
        }
    }
}

impl Input {
    /// Whether it has a value for any number of arguments.
    fn repeats(&self) -> bool {
        !matches!(self, Input::Npy(_) | Input::Safetensors(_, Some(_)))
    }
}

/// Loads the values of the arguments of a program.
///
/// # Errors
/// If there are fewer or more values than arguments, a file cannot be read, or an array is not of
/// the argument's type.
pub(super) fn load(given: &[Input], arguments: &[ArtifactInput]) -> Result<Vec<HostArray>> {
    let mut values = Vec::with_capacity(arguments.len());
    // Files that were read, so that one with all parameters is read once.
    let mut files = Files::default();
    for (index, argument) in arguments.iter().enumerate() {
        let last = given.last().filter(|last| last.repeats());
        let Some(input) = given.get(index).or(last) else {
            let missing = &arguments[index..];
            let list: Vec<String> = (missing.iter().take(8))
                .map(|argument| format!("{}: {}", argument.name, argument.ty))
                .collect();
            let more = if missing.len() > 8 { ", .." } else { "" };
            return Err(Error::invalid(
                "run",
                format!(
                    "no --input for {} of {} arguments: {}{more}; `--input zeros` or \
                     `random:SEED` as the last gives all of them",
                    missing.len(),
                    arguments.len(),
                    list.join(", ")
                ),
            ));
        };
        let value = files.value(input, argument, index)?;
        if value.ty() != &argument.ty {
            let (name, ty) = (&argument.name, &argument.ty);
            let message = format!("argument `{name}` is {ty}, {input} is {}", value.ty());
            return Err(Error::invalid("run", message));
        }
        values.push(value);
    }
    if given.len() > arguments.len() {
        let (given, count) = (given.len(), arguments.len());
        let message = format!("--input is given {given} times, the program has {count} arguments");
        return Err(Error::invalid("run", message));
    }
    Ok(values)
}

/// The safetensors file that was read last.
#[derive(Default)]
struct Files(Option<(PathBuf, Vec<u8>)>);

impl Files {
    fn value(
        &mut self,
        input: &Input,
        argument: &ArtifactInput,
        index: usize,
    ) -> Result<HostArray> {
        match input {
            Input::Zeros => HostArray::try_zeros(argument.ty.clone()),
            Input::Random(seed) => random(&argument.ty, seed.wrapping_add(index as u64)),
            Input::Npy(path) => {
                let array = npy::read(&read(path)?);
                array.map_err(|error| error.with_note(&format!("in {}", path.display())))
            }
            Input::Safetensors(path, name) => {
                if self.0.as_ref().is_none_or(|(known, _)| known != path) {
                    self.0 = Some((path.clone(), read(path)?));
                }
                let bytes = self.0.as_ref().map_or(&[][..], |(_, bytes)| bytes);
                tensor(bytes, name.as_deref().unwrap_or(&argument.name))
                    .map_err(|error| error.with_note(&format!("in {}", path.display())))
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| {
        let message = format!("cannot read {}", path.display());
        Error::new(ErrorKind::Io, "run", message).caused_by(error)
    })
}

/// A tensor of a safetensors file.
fn tensor(bytes: &[u8], name: &str) -> Result<HostArray> {
    let corrupt = |error| {
        Error::new(ErrorKind::Corrupt, "safetensors", "the file is damaged").caused_by(error)
    };
    let file = SafeTensors::deserialize(bytes).map_err(corrupt)?;
    let Ok(tensor) = file.tensor(name) else {
        let mut names = file.names();
        names.sort_unstable();
        names.truncate(8);
        let message = format!("no tensor `{name}`; there are {}, ..", names.join(", "));
        return Err(Error::invalid("safetensors", message));
    };
    // `F32`, `I32`, `BOOL`: halite's names but for signed integers.
    let format = tensor.dtype().to_string();
    let name = format.to_lowercase().replacen('i', "s", 1);
    let Some(dtype) = DType::from_name(&name) else {
        let message = format!("element type {format} has no arrays in halite");
        return Err(Error::new(ErrorKind::Unsupported, "safetensors", message));
    };
    HostArray::from_bytes(tensor.data(), TensorType::new(dtype, tensor.shape()))
}

/// Pseudo-random numbers: floats in [-1, 1), zeros and ones of other types.
fn random(ty: &TensorType, seed: u64) -> Result<HostArray> {
    let mut state = seed;
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let dtype = ty.dtype();
    if dtype.is_float() {
        let mut wide = HostArray::try_zeros(ty.with_dtype(DType::F32))?;
        for bytes in wide.bytes_mut().chunks_exact_mut(4) {
            let value = (next() >> 40) as f32 / (1 << 23) as f32 - 1.0;
            bytes.copy_from_slice(&value.to_ne_bytes());
        }
        return wide.to_float(dtype);
    }
    let mut array = HostArray::try_zeros(ty.clone())?;
    for bytes in array.bytes_mut().chunks_exact_mut(dtype.size()) {
        bytes[0] = (next() & 1) as u8;
    }
    Ok(array)
}
