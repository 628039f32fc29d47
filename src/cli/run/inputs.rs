//! Values of a program's arguments.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use halite::{
    DType, Error, ErrorKind, HostArray, Result, TensorType,
    backends::host_memory,
    core::{files, float8},
    exchange::{ArtifactInput, npy},
};
use safetensors::{Dtype, SafeTensors};

use crate::cli::io_error;

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
/// If there are fewer or more values than arguments, a file cannot be read, an array is not of the
/// argument's type, or all of them are more than the memory of this machine.
pub(super) fn load(given: &[Input], arguments: &[ArtifactInput]) -> Result<Vec<HostArray>> {
    check_memory(arguments, host_memory() as u64)?;
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

/// Checks that the arguments fit the `memory` of this machine: systems reserve more than they have,
/// and end the process when it is written to.
fn check_memory(arguments: &[ArtifactInput], memory: u64) -> Result<()> {
    let bytes = arguments.iter().fold(0, |sum: u64, argument| {
        let bytes = argument.ty.checked_bytes().unwrap_or(usize::MAX);
        sum.saturating_add(bytes as u64)
    });
    if bytes <= memory {
        return Ok(());
    }
    let message = format!(
        "the arguments have {bytes} bytes, more than the {memory} bytes of memory of this machine"
    );
    Err(Error::new(ErrorKind::OutOfMemory, "run", message))
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
                let array = npy::read_as(&read(path)?, argument.ty.dtype());
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
    files::read_input(path).map_err(io_error("run", "read", path))
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
    let Some(dtype) = dtype_of(tensor.dtype()) else {
        let message = format!(
            "`{name}` is of element type {}; halite has no arrays of it",
            tensor.dtype()
        );
        return Err(Error::new(ErrorKind::Unsupported, "safetensors", message));
    };
    HostArray::from_bytes(tensor.data(), TensorType::new(dtype, tensor.shape()))
}

/// The element type of a safetensors file in halite.
fn dtype_of(format: Dtype) -> Option<DType> {
    DType::from_safetensors_name(&format.to_string())
}

/// Pseudo-random numbers: floats and the parts of complex numbers in [-1, 1), zeros and ones of
/// integers and booleans.
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
    if let Some((part, parts)) = parts_of(dtype) {
        // Rounded down to what the narrow types have exactly, since the nearest may be 1.
        let step = match dtype {
            DType::F16 => 2048.0,
            DType::Bf16 => 256.0,
            _ => (1 << 23) as f32,
        };
        let count = ty.elements().saturating_mul(parts);
        let mut wide = HostArray::try_zeros(TensorType::new(DType::F32, [count]))?;
        for bytes in wide.bytes_mut().chunks_exact_mut(4) {
            let value = (next() >> 40) as f32 / (1 << 23) as f32 - 1.0;
            bytes.copy_from_slice(&((value * step).floor() / step).to_ne_bytes());
        }
        return HostArray::from_bytes(wide.to_float(part)?.bytes(), ty.clone());
    }
    let values = float8_values(dtype);
    let mut array = HostArray::try_zeros(ty.clone())?;
    for bytes in array.bytes_mut().chunks_exact_mut(dtype.size()) {
        bytes[0] = match &values[..] {
            [] => (next() & 1) as u8,
            values => {
                let value = (next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
                // E8M0 has positive values alone.
                let has_sign = values[0].0 < 0.0;
                nearest(values, if has_sign { value } else { value.abs() })
            }
        };
    }
    Ok(array)
}

/// The floats that an element consists of, and their number.
fn parts_of(dtype: DType) -> Option<(DType, usize)> {
    match dtype {
        DType::C64 => Some((DType::F32, 2)),
        DType::C128 => Some((DType::F64, 2)),
        _ => dtype.is_float().then_some((dtype, 1)),
    }
}

/// The values of an 8-bit float in [-1, 1) with their bits, ascending; empty for other types.
fn float8_values(dtype: DType) -> Vec<(f64, u8)> {
    let value = |bits| float8(dtype, bits).map(|value| (value, bits));
    let mut values: Vec<_> = (0..=u8::MAX).filter_map(value).collect();
    values.retain(|(value, _)| (-1.0..1.0).contains(value));
    values.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    values
}

/// The bits of the value that is nearest.
fn nearest(values: &[(f64, u8)], to: f64) -> u8 {
    let above = values.partition_point(|&(value, _)| value < to);
    let near = &values[above.saturating_sub(1)..values.len().min(above + 1)];
    let distance = |(value, _): &&(f64, u8)| (value - to).abs();
    let nearest = near
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)));
    nearest.map_or(0, |&(_, bits)| bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_floats_are_between_minus_one_and_one() {
        for dtype in DType::ALL {
            let ty = TensorType::new(dtype, [5000]);
            let array = random(&ty, 1).unwrap();
            let of_bits: Vec<_> = array
                .bytes()
                .iter()
                .map(|&bits| float8(dtype, bits))
                .collect();
            let values: Vec<f64> = match parts_of(dtype) {
                Some((part, parts)) => {
                    let floats = TensorType::new(part, [5000 * parts]);
                    let floats = HostArray::from_bytes(array.bytes(), floats).unwrap();
                    let wide = floats.to_float(DType::F64).unwrap();
                    wide.as_slice::<f64>().unwrap().to_vec()
                }
                None => match of_bits.into_iter().collect() {
                    Some(values) => values,
                    None => {
                        assert!(array.bytes().iter().all(|&byte| byte <= 1), "{dtype}");
                        continue;
                    }
                },
            };
            assert!(
                values.iter().all(|value| (-1.0..1.0).contains(value)),
                "{dtype}"
            );
            let size = values.iter().map(|value| value.abs()).sum::<f64>() / values.len() as f64;
            // E8M0 has powers of 2 alone.
            assert!((0.3..0.6).contains(&size), "{dtype}: {size}");
        }
    }

    #[test]
    fn formats_of_safetensors_are_types_of_halite() {
        let named = |name: &str| serde_json::from_str::<Dtype>(&format!("{name:?}")).unwrap();
        for (name, dtype) in [
            ("BOOL", DType::Bool),
            ("I8", DType::S8),
            ("U64", DType::U64),
            ("BF16", DType::Bf16),
            ("F8_E4M3", DType::F8E4M3Fn),
            ("F8_E5M2", DType::F8E5M2),
            ("C64", DType::C64),
        ] {
            assert_eq!(dtype_of(named(name)), Some(dtype), "{name}");
        }
        assert_eq!(dtype_of(named("F4")), None);
    }
}
