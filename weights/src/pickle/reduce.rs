//! The globals of a pickle that are known, and what calling them makes.

use std::{io::BufRead, sync::Arc};

use halite_core::{DType, Error, ErrorKind, Result};

use super::{Id, Machine, SHOWN, Storage, Tensor, Value, corrupt};

/// Most dimensions of a tensor.
const MOST_DIMS: usize = 16;
/// Most arguments of a call.
const MOST_ARGUMENTS: usize = 16;

/// Bytes of the longest key of a storage: it is copied for each that a pickle names.
const LONGEST_KEY: usize = 64;

/// Globals that may be called.
const CALLABLE: &[&str] = &[
    "collections.OrderedDict",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch.Size",
    "torch.device",
    "_codecs.encode",
    "builtins.set",
    "__builtin__.set",
];

/// The element type of a storage class or of `torch.dtype`; an inner `None` for bytes.
fn dtype_of(name: &str) -> Option<Option<DType>> {
    let name = name.strip_prefix("torch.")?;
    match name {
        "storage.UntypedStorage" | "UntypedStorage" => Some(None),
        name => DType::from_torch_name(name)
            .or_else(|| DType::from_torch_storage_name(name))
            .map(Some),
    }
}

impl<R: BufRead> Machine<'_, R> {
    pub(super) fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let global = format!("{module}.{name}");
        if CALLABLE.contains(&&*global) || dtype_of(&global).is_some() {
            return self.push(Value::Global(global));
        }
        if self.refused.len() < SHOWN {
            self.refused.insert(global);
        }
        self.push(Value::Refused)
    }

    /// A storage, which a pickle names by a tuple.
    pub(super) fn persistent(&mut self) -> Result<()> {
        let id = self.pop()?;
        let bad = || corrupt("a persistent value is not a storage of PyTorch");
        let Value::Tuple(parts) = self.value(id) else {
            return Err(bad());
        };
        let parts: Vec<&Value> = parts.iter().map(|&id| self.value(id)).collect();
        let (kind, rest) = parts.split_first().ok_or_else(bad)?;
        let [
            Value::Global(class),
            key,
            _location,
            Value::Int(count),
            views @ ..,
        ] = rest
        else {
            return Err(bad());
        };
        let key = match key {
            Value::Text(key) if key.len() <= LONGEST_KEY => Arc::from(&**key),
            Value::Int(key) => Arc::from(key.to_string()),
            _ => return Err(bad()),
        };
        let is_storage = matches!(kind, Value::Text(kind) if kind == "storage");
        let (Some(dtype), true) = (dtype_of(class), is_storage) else {
            return Err(bad());
        };
        // Old files have views of storages: key, first element, number of elements.
        let view = match views {
            [] | [Value::None] => None,
            [Value::Tuple(view)] => match view.get(1).map(|&id| self.value(id)) {
                Some(Value::Int(start)) => Some(*start),
                _ => return Err(bad()),
            },
            _ => return Err(bad()),
        };
        let number = |number: i64| u64::try_from(number).map_err(|_| bad());
        let (count, start) = (number(*count)?, number(view.unwrap_or(0))?);
        self.push(Value::Storage(Storage {
            key,
            dtype,
            count,
            start,
        }))
    }

    /// Calls a known global.
    pub(super) fn reduce(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let arguments = match self.value(arguments) {
            Value::Tuple(arguments) if arguments.len() <= MOST_ARGUMENTS => arguments.clone(),
            _ => return Err(corrupt("the arguments of a call are not a short tuple")),
        };
        let function = match self.value(function) {
            Value::Global(function) => function.clone(),
            Value::Refused => return self.push(Value::Refused),
            _ => return Err(corrupt("the pickle calls something that is not a global")),
        };
        let value = match function.strip_prefix("torch._utils.").unwrap_or(&function) {
            "collections.OrderedDict" => self.dict(&arguments)?,
            "_rebuild_tensor" | "_rebuild_tensor_v2" => {
                self.check_plain(arguments.get(6))?;
                self.tensor(&arguments, None)?
            }
            "_rebuild_tensor_v3" => {
                let dtype = arguments.get(6).map(|&id| self.value(id));
                let dtype = match dtype {
                    Some(Value::Global(name)) => dtype_of(name).flatten(),
                    _ => None,
                };
                let known = dtype.ok_or_else(|| corrupt("a tensor has no element type"))?;
                self.check_plain(arguments.get(7))?;
                self.tensor(&arguments, Some(known))?
            }
            "_rebuild_parameter" | "_rebuild_parameter_with_state" => {
                match arguments.first().map(|&id| self.value(id)) {
                    Some(tensor @ Value::Tensor(_)) => tensor.clone(),
                    Some(Value::Refused) => Value::Refused,
                    _ => return Err(corrupt("a parameter has no tensor")),
                }
            }
            "torch.Size" | "builtins.set" | "__builtin__.set" => match arguments.first() {
                None => Value::Tuple(Vec::new()),
                Some(&elements) => Value::Tuple(self.list(elements)?),
            },
            "torch.device" => Value::None,
            "_codecs.encode" => Value::Bytes,
            _ => return Err(corrupt(format!("`{function}` is called"))),
        };
        self.push(value)
    }

    /// A copy of a list or tuple. All copies together are bounded: one list could be copied by each
    /// of a million calls.
    fn list(&mut self, id: Id) -> Result<Vec<Id>> {
        let (Value::Tuple(elements) | Value::List(elements)) = self.value(id) else {
            return Err(corrupt("a call takes something that is not a list"));
        };
        let elements = elements.clone();
        self.count(elements.len())?;
        Ok(elements)
    }

    /// An `OrderedDict` of pairs, or without any.
    fn dict(&mut self, arguments: &[Id]) -> Result<Value> {
        let pairs = match arguments {
            [] => Vec::new(),
            [pairs] => self.list(*pairs)?,
            _ => return Err(corrupt("a dict is made of several values")),
        };
        let pair = |&id: &Id| match self.value(id) {
            Value::List(pair) | Value::Tuple(pair) if pair.len() == 2 => Ok((pair[0], pair[1])),
            _ => Err(corrupt("a dict is made of something that is not a pair")),
        };
        Ok(Value::Dict(pairs.iter().map(pair).collect::<Result<_>>()?))
    }

    /// Refuses tensors whose metadata say that their elements are conjugated or negated when they are
    /// used.
    fn check_plain(&self, metadata: Option<&Id>) -> Result<()> {
        let is_plain = match metadata.map(|&id| self.value(id)) {
            None | Some(Value::None | Value::Refused) => true,
            Some(Value::Dict(bits)) => {
                (bits.iter()).all(|&(_, value)| *self.value(value) == Value::Bool(false))
            }
            Some(_) => false,
        };
        if is_plain {
            return Ok(());
        }
        let message = "a tensor is a lazy conjugate or negative; save \
                       `x.resolve_conj().resolve_neg()`";
        Err(Error::new(ErrorKind::Unsupported, "pickle", message))
    }

    /// A tensor of a storage, an offset, sizes and strides.
    fn tensor(&self, arguments: &[Id], dtype: Option<DType>) -> Result<Value> {
        let bad = || corrupt("a tensor is not made of a storage, an offset, sizes and strides");
        let parts: Vec<&Value> = arguments.iter().take(4).map(|&id| self.value(id)).collect();
        let [Value::Storage(storage), Value::Int(offset), dims, strides] = parts[..] else {
            return if parts.contains(&&Value::Refused) {
                Ok(Value::Refused)
            } else {
                Err(bad())
            };
        };
        let numbers = |value: &Value| match value {
            Value::Tuple(numbers) | Value::List(numbers) if numbers.len() <= MOST_DIMS => {
                let number = |&id: &Id| match self.value(id) {
                    Value::Int(number) => usize::try_from(*number).map_err(|_| bad()),
                    _ => Err(bad()),
                };
                numbers.iter().map(number).collect::<Result<Vec<_>>>()
            }
            _ => Err(bad()),
        };
        let (dims, strides) = (numbers(dims)?, numbers(strides)?);
        if dims.len() != strides.len() {
            return Err(bad());
        }
        Ok(Value::Tensor(Tensor {
            storage: storage.clone(),
            dtype: dtype
                .or(storage.dtype)
                .ok_or_else(|| corrupt("a tensor has no element type"))?,
            offset: u64::try_from(*offset).map_err(|_| bad())?,
            dims,
            strides,
        }))
    }

    /// Sets attributes of the value on the stack: those of a dict, such as the versions that
    /// `state_dict` notes, are not needed.
    pub(super) fn build(&mut self) -> Result<()> {
        self.pop()?;
        let top = self.top()?;
        match self.value(top) {
            Value::Dict(_) | Value::Refused => Ok(()),
            _ => Err(corrupt(
                "the pickle sets attributes of something that is not a dict",
            )),
        }
    }
}
