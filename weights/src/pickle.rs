//! Python's pickle format, as far as files of tensors need it: a closed set of opcodes and globals,
//! a subset of those that `torch.load(weights_only=True)` allows. Nothing is executed: what a
//! pickle asks for beyond the set is an error that names it.

mod machine;
mod reduce;

use std::{
    collections::{BTreeSet, HashMap},
    io::BufRead,
    sync::Arc,
};

use halite_core::{DType, Error, ErrorKind, Result};

use self::machine::Machine;

/// Most values of a pickle.
const MOST_VALUES: usize = 1 << 20;
/// Most elements of all lists, tuples and dicts together, and of the stack and the memo.
const MOST_ELEMENTS: usize = 4 << 20;
/// Bytes of the longest module, or name, of a global.
const LONGEST_NAME: usize = 1024;
/// Globals outside of the set that an error names.
const SHOWN: usize = 10;

/// A value, by its index in [`Pickle`]: values refer to each other, also in circles.
pub(crate) type Id = u32;

/// A value of a pickle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer that does not fit, little-endian.
    Long(Vec<u8>),
    Float,
    Text(String),
    Bytes,
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(String),
    Storage(Storage),
    Tensor(Tensor),
    /// What a global outside of the set would make.
    Refused,
}

/// Memory that tensors are parts of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Storage {
    pub(crate) key: Arc<str>,
    /// `None` for bytes without a type.
    pub(crate) dtype: Option<DType>,
    /// Number of elements, or of bytes.
    pub(crate) count: u64,
    /// Elements before it in the storage of this key.
    pub(crate) start: u64,
}

/// A tensor as part of a storage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) storage: Storage,
    pub(crate) dtype: DType,
    pub(crate) offset: u64,
    pub(crate) dims: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

/// A pickle that was read.
#[derive(Debug, Default)]
pub(crate) struct Pickle {
    values: Vec<Value>,
    root: Id,
}

impl Pickle {
    pub(crate) fn root(&self) -> Id {
        self.root
    }

    pub(crate) fn value(&self, id: Id) -> &Value {
        &self.values[id as usize]
    }

    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    /// Reads one pickle from the start of `input`, and nothing behind it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not one; [`ErrorKind::Unsupported`] for opcodes and globals
    /// outside of the set, all globals at once.
    pub(crate) fn read(input: &mut impl BufRead) -> Result<Self> {
        let mut machine = Machine {
            input,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            refused: BTreeSet::new(),
            elements: 0,
        };
        while machine.step()? {}
        let root = machine.pop()?;
        if !machine.refused.is_empty() {
            let names: Vec<String> = (machine.refused.iter())
                .map(|name| format!("`{}`", name.escape_debug()))
                .collect();
            let names = names.join(", ");
            // Storages and functions for quantized, sparse and other tensors.
            let is_of_tensors = |name: &String| {
                let rest = name.strip_prefix("torch.");
                rest.is_some_and(|rest| !rest.trim_start_matches("_utils.").contains('.'))
            };
            let message = if machine.refused.iter().all(is_of_tensors) {
                format!(
                    "the pickle has tensors of {names}, which are not supported; save dense tensors \
                     of floats, integers or booleans"
                )
            } else {
                format!(
                    "the pickle asks for {names}, which could run code; save tensors alone in Python: \
                     torch.save(model.state_dict(), path)"
                )
            };
            return Err(Error::new(ErrorKind::Unsupported, "pickle", message));
        }
        Ok(Pickle {
            values: machine.values,
            root,
        })
    }
}

fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, "pickle", message)
}
