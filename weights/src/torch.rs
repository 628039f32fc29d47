//! Files of `torch.save`: zip archives, and the older form, in which pickles are followed by the
//! storages.

use std::{
    collections::{BTreeMap, HashMap},
    io::BufReader,
    sync::Arc,
};

use halite_core::{DType, Error, ErrorKind, Result, TensorType};

use crate::{
    Format, TensorInfo, WeightFile,
    archive::{Archive, Entry},
    input::Input,
    pickle::{Id, Pickle, Storage, Tensor, Value},
    place::{Order, Place},
    problems::{Problems, corrupt, unsupported},
};

/// The start of the older form: a pickle of a number.
pub(crate) const LEGACY_MAGIC: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

const LEGACY_PROTOCOL: i64 = 1001;
/// Depth of dicts and lists in which tensors are.
const DEEPEST: usize = 32;
/// Most values in which tensors are looked for.
const MOST_VISITS: usize = 1 << 20;
/// Bytes of a key of a dict.
const LONGEST_KEY: usize = 4096;
/// Bytes of all names together.
const MOST_NAMES: usize = 64 << 20;
/// Bytes of a pickle in an archive.
const LARGEST_PICKLE: u64 = 1 << 30;
/// Bytes of a pickle that is compressed, as `torch.save` never does.
const LARGEST_DEFLATED: u64 = 64 << 20;
/// How often all storages together may be read: a million tensors may share one.
const MOST_READS: u64 = 64;

/// Where the bytes of a storage are, and how many.
#[derive(Clone, Copy, Debug)]
enum StorageBytes {
    Entry(Entry),
    At(u64, u64),
}

impl StorageBytes {
    fn len(self) -> u64 {
        match self {
            StorageBytes::Entry(entry) => entry.size,
            StorageBytes::At(_, len) => len,
        }
    }
}

/// The path of the pickle in an archive, which has `data.pkl` in one folder.
pub(crate) fn pickle_of(archive: &Archive) -> Option<&str> {
    let is_pickle = |name: &&String| {
        name.strip_suffix("/data.pkl")
            .is_some_and(|folder| !folder.contains('/'))
    };
    archive.entries.keys().find(is_pickle).map(String::as_str)
}

/// Reads the pickle of an archive.
pub(crate) fn open_zip(archive: &Archive, pickle: &str) -> Result<WeightFile> {
    let origin = archive.input.origin();
    let folder = pickle
        .strip_suffix("data.pkl")
        .expect("the pickle is `FOLDER/data.pkl`");
    if let Some(&order) = archive.entries.get(&format!("{folder}byteorder")) {
        let mut text = String::new();
        let mut reader = std::io::Read::take(archive.reader(order), 16);
        let _ = std::io::Read::read_to_string(&mut reader, &mut text);
        if text != "little" {
            let what = format!(
                "its byte order is `{}`; expected `little`",
                text.escape_debug()
            );
            return Err(unsupported(origin, what));
        }
    }
    let entry = archive.entry(pickle)?;
    let largest = if entry.is_deflated {
        LARGEST_DEFLATED
    } else {
        LARGEST_PICKLE
    };
    if entry.size > largest {
        let what = format!("`{pickle}` has {} bytes, more than {largest}", entry.size);
        return Err(corrupt(origin, what));
    }
    let read = Pickle::read(&mut BufReader::new(archive.reader(entry)));
    let pickle = read.map_err(|error| of_file(origin, &error))?;
    let found = named_tensors(&pickle).map_err(|error| of_file(origin, &error))?;
    let mut storages = HashMap::new();
    for (_, tensor) in &found {
        let key = &tensor.storage.key;
        if let Some(&entry) = archive.entries.get(&format!("{folder}data/{key}")) {
            storages.insert(key.clone(), StorageBytes::Entry(entry));
        }
    }
    located(&archive.input, Some(archive), found, &storages)
}

/// Reads the older form.
pub(crate) fn open_legacy(input: &Input) -> Result<WeightFile> {
    let origin = input.origin();
    let mut reader = BufReader::with_capacity(1 << 16, input.reader());
    let mut next = || Pickle::read(&mut reader).map_err(|error| of_file(origin, &error));
    next()?; // the magic number, which the caller has seen
    let protocol = next()?;
    if *protocol.value(protocol.root()) != Value::Int(LEGACY_PROTOCOL) {
        return Err(unsupported(origin, "the protocol is not 1001"));
    }
    let system = next()?;
    if !is_little_endian(&system) {
        return Err(unsupported(origin, "it is not little-endian"));
    }
    let (pickle, keys) = (next()?, next()?);
    let Value::List(keys_of) = keys.value(keys.root()) else {
        return Err(corrupt(origin, "the keys of its storages are not a list"));
    };
    let found = named_tensors(&pickle).map_err(|error| of_file(origin, &error))?;
    // Buffered bytes are not read yet.
    let buffered = reader.buffer().len() as u64;
    let mut at = reader.into_inner().position() - buffered;
    let mut sizes: HashMap<&str, usize> = HashMap::new();
    for value in pickle.values() {
        if let Value::Storage(storage) = value {
            sizes.insert(&storage.key, storage.dtype.map_or(1, DType::size));
        }
    }
    let mut storages = HashMap::new();
    for &key in keys_of {
        let Value::Text(key) = keys.value(key) else {
            return Err(corrupt(origin, "the key of a storage is not text"));
        };
        let size = sizes.get(&**key).copied();
        let size =
            size.ok_or_else(|| corrupt(origin, format!("no storage `{}`", key.escape_debug())))?;
        let mut count = [0; 8];
        input.read_at(at, &mut count).map_err(|error| {
            corrupt(
                origin,
                format!("storage `{key}` is missing: the file is truncated"),
            )
            .caused_by(error)
        })?;
        let bytes = u64::from_le_bytes(count).checked_mul(size as u64);
        let end = bytes.and_then(|bytes| at.checked_add(8)?.checked_add(bytes));
        let (Some(bytes), Some(end)) = (bytes, end.filter(|&end| end <= input.len())) else {
            let what = format!(
                "storage `{key}` has {} elements of {size} bytes at {at}, the file has {} bytes: it is \
                 truncated",
                u64::from_le_bytes(count),
                input.len()
            );
            return Err(corrupt(origin, what));
        };
        storages.insert(Arc::from(&**key), StorageBytes::At(at + 8, bytes));
        at = end;
    }
    located(input, None, found, &storages)
}

/// An error of a pickle with the file it is in.
fn of_file(origin: &str, error: &Error) -> Error {
    Error::new(
        error.kind(),
        "weights",
        format!("{origin}: {}", error.message()),
    )
}

fn is_little_endian(system: &Pickle) -> bool {
    let Value::Dict(pairs) = system.value(system.root()) else {
        return false;
    };
    pairs.iter().any(|&(key, value)| {
        matches!(system.value(key), Value::Text(key) if key == "little_endian")
            && *system.value(value) == Value::Bool(true)
    })
}

/// All tensors in the dicts and lists of a pickle, named by keys and indices with dots between
/// them.
fn named_tensors(pickle: &Pickle) -> Result<Vec<(String, &Tensor)>> {
    let mut search = Search {
        pickle,
        found: Vec::new(),
        visits: 0,
        names: 0,
    };
    search.visit(&mut String::new(), pickle.root(), 0)?;
    Ok(search.found)
}

struct Search<'p> {
    pickle: &'p Pickle,
    found: Vec<(String, &'p Tensor)>,
    visits: usize,
    names: usize,
}

impl<'p> Search<'p> {
    fn visit(&mut self, name: &mut String, id: Id, depth: usize) -> Result<()> {
        // Keys that are passed over count, too: a long dict may be in a list a million times.
        self.visits += match self.pickle.value(id) {
            Value::Dict(pairs) => 1 + pairs.len(),
            _ => 1,
        };
        if depth > DEEPEST || self.visits > MOST_VISITS {
            return bad(format!(
                "dicts and lists are nested deeper than {DEEPEST}, or have more than {MOST_VISITS} values"
            ));
        }
        let before = name.len();
        let mut enter = |search: &mut Self, key: std::fmt::Arguments<'_>, value: Id| {
            use std::fmt::Write;
            let dot = if name.is_empty() { "" } else { "." };
            write!(name, "{dot}{key}").expect("writing to a string does not fail");
            let result = search.visit(name, value, depth + 1);
            name.truncate(before);
            result
        };
        let pickle = self.pickle;
        match pickle.value(id) {
            Value::Tensor(tensor) => {
                self.names += name.len();
                if self.names > MOST_NAMES {
                    return bad(format!(
                        "the names of tensors have more than {MOST_NAMES} bytes"
                    ));
                }
                let name = if name.is_empty() { "tensor" } else { name };
                self.found.push((name.to_owned(), tensor));
            }
            Value::Dict(pairs) => {
                for (place, key) in self.keys(pairs)? {
                    let known = self.found.len();
                    let value = pairs[place].1;
                    match key {
                        Key::Text(key) => enter(self, format_args!("{key}"), value)?,
                        Key::Int(key) => enter(self, format_args!("{key}"), value)?,
                        Key::Other(_) => enter(self, format_args!("?"), value)?,
                    }
                    if let (Key::Other(key), true) = (key, self.found.len() > known) {
                        let kind = pickle.value(key);
                        return bad(format!(
                            "a key on the way to a tensor is neither text nor an integer: \
                             {kind:.40?}"
                        ));
                    }
                }
            }
            Value::List(elements) | Value::Tuple(elements) => {
                for (index, &element) in elements.iter().enumerate() {
                    enter(self, format_args!("{index}"), element)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The keys of a dict with the places of their values, in the order of the places. A key that is
    /// set again has its last value.
    fn keys(&self, pairs: &[(Id, Id)]) -> Result<Vec<(usize, Key<'p>)>> {
        let mut last = BTreeMap::new();
        for (place, &(key, _)) in pairs.iter().enumerate() {
            let key = match self.pickle.value(key) {
                Value::Text(key) if key.len() > LONGEST_KEY => {
                    return bad(format!("a key of {} bytes", key.len()));
                }
                Value::Text(key) => Key::Text(key),
                Value::Int(key) => Key::Int(*key),
                _ => Key::Other(key),
            };
            last.insert(key, place);
        }
        let mut places: Vec<_> = last.into_iter().map(|(key, place)| (place, key)).collect();
        places.sort_unstable();
        Ok(places)
    }
}

fn bad<T>(what: String) -> Result<T> {
    Err(Error::new(ErrorKind::Corrupt, "pickle", what))
}

#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Key<'p> {
    Text(&'p str),
    Int(i64),
    Other(Id),
}

/// Tensors with their places in storages.
fn located(
    input: &Input,
    archive: Option<&Archive>,
    found: Vec<(String, &Tensor)>,
    storages: &HashMap<Arc<str>, StorageBytes>,
) -> Result<WeightFile> {
    let mut problems = Problems::default();
    let held: u64 = storages.values().map(|bytes| bytes.len()).sum();
    let mut read = 0u64;
    let mut tensors = Vec::with_capacity(found.len());
    for (name, tensor) in found {
        let Some(&bytes) = storages.get(&tensor.storage.key) else {
            problems.push(format!(
                "the storage `{}` of `{name}` is missing",
                tensor.storage.key
            ));
            continue;
        };
        if let Some(problem) = size_problem(&name, tensor, bytes) {
            problems.push(problem);
            continue;
        }
        match place_of(&name, tensor, bytes, input, archive) {
            Ok((ty, place)) => {
                read = read.saturating_add(place.whole_bytes(&ty));
                tensors.push((TensorInfo { name, ty }, place));
            }
            Err(problem) => problems.push(problem),
        }
    }
    if read > held.saturating_mul(MOST_READS) {
        problems.push(format!(
            "its tensors share storages of {held} bytes, of which {read} would be read; save \
             `tensor.contiguous()`"
        ));
    }
    problems.into_result(ErrorKind::Corrupt, input.origin())?;
    WeightFile::new(Format::Torch, input.origin(), tensors)
}

/// What is wrong with a storage that has another size than the pickle says.
fn size_problem(name: &str, tensor: &Tensor, bytes: StorageBytes) -> Option<String> {
    let Storage {
        key, dtype, count, ..
    } = &tensor.storage;
    let size = dtype.map_or(1, DType::size) as u64;
    let expected = count.checked_mul(size);
    (expected != Some(bytes.len())).then(|| {
        format!(
            "the storage `{key}` of `{name}` has {} bytes, and the pickle says {count} elements of \
             {size}",
            bytes.len()
        )
    })
}

fn place_of(
    name: &str,
    tensor: &Tensor,
    bytes: StorageBytes,
    input: &Input,
    archive: Option<&Archive>,
) -> Result<(TensorType, Place), String> {
    let ty = TensorType::new(tensor.dtype, &tensor.dims);
    ty.checked_bytes()
        .map_err(|error| format!("`{name}`: {}", error.message()))?;
    let size = ty.dtype().size() as u64;
    let is_empty = ty.dims().contains(&0);
    let last = (ty.dims().iter().zip(&tensor.strides)).try_fold(0u64, |last, (&dim, &stride)| {
        let steps = (dim as u64).saturating_sub(1);
        last.checked_add(steps.checked_mul(stride as u64)?)
    });
    let start = tensor.offset.checked_add(tensor.storage.start);
    let end = start
        .zip(last)
        .and_then(|(start, last)| start.checked_add(last)?.checked_add(1));
    let end = if is_empty { Some(0) } else { end };
    let start = if is_empty { Some(0) } else { start };
    let fits = |end: &u64| end.checked_mul(size).is_some_and(|end| end <= bytes.len());
    let (Some(start), Some(_)) = (start, end.filter(fits)) else {
        return Err(format!(
            "`{name}` is {ty} with strides {:?} at element {}, its storage has {} bytes",
            tensor.strides,
            tensor.offset,
            bytes.len()
        ));
    };
    if ty.bytes() as u64 > bytes.len() {
        return Err(format!(
            "`{name}` is {ty} of a storage of {} bytes, which it repeats; save `tensor.contiguous()`",
            bytes.len()
        ));
    }
    let order = if is_row_major(ty.dims(), &tensor.strides) {
        Order::RowMajor
    } else {
        Order::Strided(tensor.strides.clone())
    };
    let offset = start * size;
    let place = match (bytes, archive) {
        (StorageBytes::Entry(entry), Some(archive)) => archive.place(entry, offset, order),
        (StorageBytes::Entry(entry), None) => unreachable!("{entry:?} is of an archive"),
        (StorageBytes::At(start, _), _) => Place {
            input: input.clone(),
            offset: start + offset,
            order,
            deflated: None,
        },
    };
    Ok((ty, place))
}

/// Strides of dimensions of one element say nothing.
fn is_row_major(dims: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1usize;
    dims.iter().zip(strides).rev().all(|(&dim, &stride)| {
        let fits = dim == 1 || stride == expected;
        expected = dim.saturating_mul(expected);
        fits
    }) || dims.contains(&0)
}
