//! Writer of artifacts, as serialization version 11 of JAX writes them.

use halite_core::{Error, ErrorKind, Result, TensorType};

use super::{Exported, PyTree, slot};
use crate::flatbuffer::{Value, write};

/// The calling convention of programs without effects, symbolic dimensions and shardings is the
/// same in all versions. This is the one that the oldest readers know.
const CALLING_CONVENTION: u16 = 9;

/// JAX writes this number, whatever its version, for the sake of old readers.
const SERIALIZATION_VERSION: u16 = 3;

impl Exported {
    /// Serializes it for `jax.export.deserialize`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if an argument or result has no type, if there are more than
    /// 65,535 arguments, or if the artifact is larger than 2 GiB.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        // Offsets have 31 bits. The rest of the artifact is small beside the program.
        if self.program.len() > (1 << 31) - (1 << 26) {
            let length = halite_core::format_count(self.program.len() as u64);
            return Err(unsupported(format!(
                "a program of {length} bytes; artifacts have at most 2 GiB: leave parameters as \
                 inputs"
            )));
        }
        let used = (self.used_inputs.iter())
            .map(|&index| u16::try_from(index))
            .collect::<Result<_, _>>()
            .map_err(|_| {
                let count = self.input_types.len();
                unsupported(format!("{count} arguments; artifacts have at most 65,536"))
            })?;
        let devices = u32::try_from(self.devices).unwrap_or(u32::MAX);
        let unspecified = |types: &[_]| Value::List(vec![Value::Table(Vec::new()); types.len()]);
        let platforms = self.platforms.iter().cloned().map(Value::Text).collect();
        Ok(write(&[
            (
                slot::SERIALIZATION_VERSION,
                Value::U16(SERIALIZATION_VERSION),
            ),
            (slot::NAME, Value::Text(self.name.clone())),
            (slot::INPUT_TREE, self.inputs.value()),
            (slot::INPUT_TYPES, types(&self.input_types, "argument")?),
            (slot::OUTPUT_TREE, self.outputs.value()),
            (slot::OUTPUT_TYPES, types(&self.output_types, "result")?),
            (slot::INPUT_SHARDINGS, unspecified(&self.input_types)),
            (slot::OUTPUT_SHARDINGS, unspecified(&self.output_types)),
            (slot::PLATFORMS, Value::List(platforms)),
            (slot::PROGRAM, Value::Bytes(self.program.to_vec())),
            (slot::CALLING_CONVENTION, Value::U16(CALLING_CONVENTION)),
            (slot::USED_INPUTS, Value::U16s(used)),
            (slot::DEVICES, Value::U32(devices)),
        ]))
    }
}

impl PyTree {
    fn value(&self) -> Value {
        let list = |children: &[PyTree]| Value::List(children.iter().map(PyTree::value).collect());
        let node = |kind, fields: Vec<(usize, Value)>| {
            Value::Table([vec![(0, Value::U8(kind))], fields].concat())
        };
        match self {
            PyTree::Leaf => node(0, vec![]),
            PyTree::None => node(1, vec![]),
            PyTree::Tuple(children) => node(2, vec![(1, list(children))]),
            PyTree::List(children) => node(3, vec![(1, list(children))]),
            PyTree::Dict(children) => {
                let keys = children.iter().map(|(key, _)| Value::Text(key.clone()));
                let values = children.iter().map(|(_, child)| child.value());
                let (keys, values) = (keys.collect(), values.collect());
                node(4, vec![(1, Value::List(values)), (2, Value::List(keys))])
            }
            PyTree::Custom {
                name,
                data,
                children,
            } => {
                let (name, data) = (Value::Text(name.clone()), Value::Bytes(data.clone()));
                node(5, vec![(1, list(children)), (3, name), (4, data)])
            }
        }
    }
}

fn types(types: &[Option<TensorType>], what: &str) -> Result<Value> {
    let one = |(index, ty): (usize, &Option<TensorType>)| {
        let Some(ty) = ty else {
            return Err(unsupported(format!("{what} {index} has no type")));
        };
        let code = (ty.dtype().jax_number())
            .and_then(|code| u8::try_from(code).ok())
            .expect("the schema has every element type of arrays");
        let dims = ty.dims().iter().map(|dim| Value::Text(dim.to_string()));
        let fields = [(1, Value::List(dims.collect())), (2, Value::U8(code))];
        Ok(Value::Table(fields.to_vec()))
    };
    let tables = types.iter().enumerate().map(one);
    Ok(Value::List(tables.collect::<Result<_>>()?))
}

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, "jax.export artifact", message)
}
