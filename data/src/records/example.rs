//! `tf.train.Example`, the usual payload of TFRecord files.
//!
//! A protocol buffer (`tensorflow/core/example/example.proto`): a map from names to lists of bytes,
//! of `f32`, or of `i64`.

use std::collections::BTreeMap;

use halite_core::{Error, ErrorKind, Result};

/// A `tf.train.Example`: lists of values by name.
///
/// ```
/// use halite_data::records::Example;
///
/// let mut example = Example::default();
/// example.set_bytes("image/encoded", [&b"a JPEG file"[..]]);
/// example.set_integers("image/class/label", [7]);
/// let payload = example.encode(); // for `write_record`
///
/// let example = Example::parse(&payload)?;
/// assert_eq!(example.bytes("image/encoded")?, [b"a JPEG file"]);
/// assert_eq!(example.integers("image/class/label")?, [7]);
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Example {
    features: BTreeMap<String, Values>,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    Bytes(Vec<Vec<u8>>),
    Floats(Vec<f32>),
    Integers(Vec<i64>),
    /// A feature of no kind.
    None,
}

impl Example {
    /// Parses a payload. Of a name that is there twice, the last list holds.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not such a message.
    pub fn parse(payload: &[u8]) -> Result<Self> {
        let parsed = parse(payload);
        parsed.ok_or_else(|| {
            let message = format!(
                "a payload of {} bytes is not a `tf.train.Example`",
                payload.len()
            );
            Error::new(ErrorKind::Corrupt, CONTEXT, message)
        })
    }

    /// The names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.features.keys().map(String::as_str)
    }

    /// A list of bytes, such as an encoded image.
    ///
    /// # Errors
    /// If there is no such list; the message has the names that are there.
    pub fn bytes(&self, name: &str) -> Result<&[Vec<u8>]> {
        match self.features.get(name) {
            Some(Values::Bytes(values)) => Ok(values),
            Some(Values::None) => Ok(&[]),
            other => Err(self.lacks(name, "bytes", other)),
        }
    }

    /// A list of `f32`.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub fn floats(&self, name: &str) -> Result<&[f32]> {
        match self.features.get(name) {
            Some(Values::Floats(values)) => Ok(values),
            Some(Values::None) => Ok(&[]),
            other => Err(self.lacks(name, "floats", other)),
        }
    }

    /// A list of integers.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub fn integers(&self, name: &str) -> Result<&[i64]> {
        match self.features.get(name) {
            Some(Values::Integers(values)) => Ok(values),
            Some(Values::None) => Ok(&[]),
            other => Err(self.lacks(name, "integers", other)),
        }
    }

    /// Sets a list of bytes.
    pub fn set_bytes<B: Into<Vec<u8>>>(
        &mut self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = B>,
    ) {
        let values = values.into_iter().map(Into::into).collect();
        self.features.insert(name.into(), Values::Bytes(values));
    }

    /// Sets a list of `f32`.
    pub fn set_floats(&mut self, name: impl Into<String>, values: impl IntoIterator<Item = f32>) {
        let values = values.into_iter().collect();
        self.features.insert(name.into(), Values::Floats(values));
    }

    /// Sets a list of integers.
    pub fn set_integers(&mut self, name: impl Into<String>, values: impl IntoIterator<Item = i64>) {
        let values = values.into_iter().collect();
        self.features.insert(name.into(), Values::Integers(values));
    }

    /// The payload of a record.
    pub fn encode(&self) -> Vec<u8> {
        let mut features = Vec::new();
        for (name, values) in &self.features {
            let (field, list) = match values {
                Values::Bytes(values) => (1, {
                    let mut list = Vec::new();
                    values.iter().for_each(|value| put(&mut list, 1, value));
                    list
                }),
                Values::Floats(values) => {
                    let packed: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                    (2, packed_list(&packed))
                }
                Values::Integers(values) => {
                    let mut packed = Vec::new();
                    values
                        .iter()
                        .for_each(|&v| put_varint(&mut packed, v as u64));
                    (3, packed_list(&packed))
                }
                Values::None => continue,
            };
            let mut feature = Vec::new();
            put(&mut feature, field, &list);
            let mut entry = Vec::new();
            put(&mut entry, 1, name.as_bytes());
            put(&mut entry, 2, &feature);
            put(&mut features, 1, &entry);
        }
        let mut example = Vec::new();
        put(&mut example, 1, &features);
        example
    }

    fn lacks(&self, name: &str, kind: &str, found: Option<&Values>) -> Error {
        let message = match found {
            None => {
                let names: Vec<&str> = self.names().collect();
                format!("no feature `{name}`; there are [{}]", names.join(", "))
            }
            Some(values) => {
                let found = match values {
                    Values::Bytes(_) => "bytes",
                    Values::Floats(_) => "floats",
                    Values::Integers(_) | Values::None => "integers",
                };
                format!("the feature `{name}` has {found}; {kind} requested")
            }
        };
        Error::invalid(CONTEXT, message)
    }
}

const CONTEXT: &str = "tf.train.Example";

/// Appends a length-delimited field.
fn put(into: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    into.push(field << 3 | 2);
    put_varint(into, bytes.len() as u64);
    into.extend(bytes);
}

fn packed_list(packed: &[u8]) -> Vec<u8> {
    let mut list = Vec::new();
    put(&mut list, 1, packed);
    list
}

fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// One field of a message.
enum Item<'a> {
    Varint(u64),
    Fixed64,
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

/// The fields of a message; `None` in place of the first that is malformed.
struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..10 {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                return None;
            }
            value |= bits << (7 * place);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let count = usize::try_from(count).ok()?;
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn item(&mut self) -> Option<(u64, Item<'a>)> {
        let tag = self.varint()?;
        let item = match tag & 7 {
            0 => Item::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Item::Fixed64
            }
            2 => {
                let count = self.varint()?;
                Item::Bytes(self.take(count)?)
            }
            5 => Item::Fixed32(self.take(4)?.try_into().ok()?),
            _ => return None,
        };
        Some((tag >> 3, item))
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = Option<(u64, Item<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let item = self.item();
        if item.is_none() {
            self.0 = &[];
        }
        Some(item)
    }
}

/// The fields of this number that have bytes.
fn messages(bytes: &[u8], number: u64) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    for item in Message(bytes) {
        match item? {
            (field, Item::Bytes(bytes)) if field == number => found.push(bytes),
            (field, _) if field == number => return None,
            _ => {}
        }
    }
    Some(found)
}

fn parse(payload: &[u8]) -> Option<Example> {
    let mut example = Example::default();
    for features in messages(payload, 1)? {
        for entry in messages(features, 1)? {
            let name = messages(entry, 1)?.pop().unwrap_or_default();
            let name = std::str::from_utf8(name).ok()?.to_owned();
            let mut values = Values::None;
            for feature in messages(entry, 2)? {
                for item in Message(feature) {
                    match item? {
                        (kind @ 1..=3, Item::Bytes(list)) => values = list_of(kind, list)?,
                        (1..=3, _) => return None,
                        _ => {}
                    }
                }
            }
            example.features.insert(name, values);
        }
    }
    Some(example)
}

/// A list of bytes (1), floats (2) or integers (3), packed or not.
fn list_of(kind: u64, list: &[u8]) -> Option<Values> {
    if kind == 1 {
        let values = messages(list, 1)?.into_iter().map(<[u8]>::to_vec);
        return Some(Values::Bytes(values.collect()));
    }
    let (mut floats, mut integers) = (Vec::new(), Vec::new());
    for item in Message(list) {
        match (kind, item?) {
            (2, (1, Item::Bytes(packed))) => {
                let (values, rest) = packed.as_chunks::<4>();
                if !rest.is_empty() {
                    return None;
                }
                floats.extend(values.iter().map(|&value| f32::from_le_bytes(value)));
            }
            (2, (1, Item::Fixed32(value))) => floats.push(f32::from_le_bytes(value)),
            (3, (1, Item::Bytes(packed))) => {
                let mut packed = Message(packed);
                while !packed.0.is_empty() {
                    integers.push(packed.varint()? as i64);
                }
            }
            (3, (1, Item::Varint(value))) => integers.push(value as i64),
            (_, (1, _)) => return None,
            _ => {}
        }
    }
    Some(match kind {
        2 => Values::Floats(floats),
        _ => Values::Integers(integers),
    })
}
