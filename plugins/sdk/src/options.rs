//! Options of a client, and attributes of plugins and devices.

use std::{ffi::c_char, sync::Arc};

use halite_core::{Error, KeyValueStore, Result};
use halite_pjrt_sys::base::{PJRT_NamedValue, PJRT_NamedValue_Type, PJRT_NamedValue_Value};

use crate::{
    HostMemory,
    abi::{CallerStore, Shared},
    value::Value,
};

/// The options with which a caller creates a client, by name.
///
/// The constructor of a backend takes those that it knows. If any are left, the client is not
/// created, and the error lists the names that were asked for.
///
/// ```
/// use halite_plugin::Options;
///
/// let mut options = Options::new([("devices".to_owned(), 4i64.into())]);
/// assert_eq!(options.int("devices")?, Some(4));
/// assert_eq!(options.bool("trace")?, None);
/// # halite_core::Result::<()>::Ok(())
/// ```
#[derive(Debug, Default)]
pub struct Options {
    given: Vec<(String, Value)>,
    known: Vec<&'static str>,
    /// The callbacks of the caller, which are set in jobs of several processes only.
    store: Option<CallerStore>,
    host_memory: Option<Arc<dyn HostMemory>>,
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $variant:ident => $type:ty, $words:literal;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// If its value has another type.
            pub fn $name(&mut self, name: &'static str) -> Result<Option<$type>> {
                match self.take(name) {
                    None => Ok(None),
                    Some(Value::$variant(value)) => Ok(Some(value)),
                    Some(other) => Err(Error::invalid(
                        OP,
                        format!("option `{name}` is {}, got {other}", $words),
                    )),
                }
            }
        )*
    };
}

const OP: &str = "create client";

impl Options {
    /// Options for a test of a constructor.
    pub fn new(given: impl IntoIterator<Item = (String, Value)>) -> Self {
        Options {
            given: given.into_iter().collect(),
            known: Vec::new(),
            store: None,
            host_memory: None,
        }
    }

    /// With the callbacks of a caller.
    pub(crate) fn with_store(self, store: CallerStore) -> Self {
        Options {
            store: Some(store),
            ..self
        }
    }

    /// The key-value store of the processes of a job, through which they exchange the topology of
    /// their devices. It may be used on any thread, also after the client is destroyed.
    ///
    /// To be called only where an option says that there are several processes: other callers leave
    /// their callbacks uninitialized.
    ///
    /// # Errors
    /// If the caller has no store.
    pub fn key_value_store(&self) -> Result<Arc<dyn KeyValueStore>> {
        let store = self.store.filter(CallerStore::is_complete);
        let store = store.ok_or_else(|| {
            let message = "a client of several processes needs the key-value callbacks, and the \
                           caller gave none";
            Error::invalid(OP, message)
        })?;
        Ok(Arc::new(store))
    }

    /// Lets callers register host memory for direct transfers (`PJRT_Client_DmaMap`). Without it, the
    /// plugin answers that it has no such function.
    pub fn set_host_memory(&mut self, memory: impl HostMemory) {
        self.host_memory = Some(Arc::new(memory));
    }

    /// The registration of host memory, if the backend has set it.
    pub(crate) fn host_memory(&self) -> Option<Arc<dyn HostMemory>> {
        self.host_memory.clone()
    }

    getters! {
        /// Takes the string of this name.
        text: Text => String, "a string";
        /// Takes the integer of this name.
        int: Int => i64, "an integer";
        /// Takes the list of integers of this name.
        ints: Ints => Vec<i64>, "a list of integers";
        /// Takes the float of this name.
        float: Float => f32, "a float";
        /// Takes the boolean of this name.
        bool: Bool => bool, "true or false";
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        let at = self.given.iter().position(|(given, _)| given == name)?;
        Some(self.given.remove(at).1)
    }

    /// Checks that every option was taken.
    ///
    /// # Errors
    /// The first option that nobody asked for, with the names that were.
    pub fn check_all_taken(&self) -> Result<()> {
        let Some((name, value)) = self.given.first() else {
            return Ok(());
        };
        let known = if self.known.is_empty() {
            "this plugin has none".to_owned()
        } else {
            format!("this plugin has {}", self.known.join(", "))
        };
        let message = format!("unknown option `{name}` = {value}; {known}");
        Err(Error::invalid(OP, message))
    }
}

/// Named values for callers, which stay in place as long as the list.
#[derive(Debug)]
pub(crate) struct NamedValues {
    named: Shared<Box<[PJRT_NamedValue]>>,
    /// What `named` points at.
    _values: Box<[(String, Value)]>,
}

impl NamedValues {
    pub(crate) fn new(values: impl IntoIterator<Item = (String, Value)>) -> Self {
        let values: Box<[_]> = values.into_iter().collect();
        let named = values
            .iter()
            .map(|(name, value)| named(name, value))
            .collect();
        NamedValues {
            named: Shared(named),
            _values: values,
        }
    }

    /// The pointer and the number of values.
    pub(crate) fn raw(&self) -> (*const PJRT_NamedValue, usize) {
        (self.named.0.as_ptr(), self.named.0.len())
    }
}

fn named(name: &str, value: &Value) -> PJRT_NamedValue {
    use PJRT_NamedValue_Type as Type;
    let (r#type, value, value_size) = match value {
        Value::Text(text) => {
            let string_value = text.as_ptr().cast::<c_char>();
            (
                Type::kString,
                PJRT_NamedValue_Value { string_value },
                text.len(),
            )
        }
        Value::Int(int64_value) => {
            let int64_value = *int64_value;
            (Type::kInt64, PJRT_NamedValue_Value { int64_value }, 1)
        }
        Value::Ints(numbers) => {
            let int64_array_value = numbers.as_ptr();
            (
                Type::kInt64List,
                PJRT_NamedValue_Value { int64_array_value },
                numbers.len(),
            )
        }
        Value::Float(float_value) => {
            let float_value = *float_value;
            (Type::kFloat, PJRT_NamedValue_Value { float_value }, 1)
        }
        Value::Bool(bool_value) => {
            let bool_value = *bool_value;
            (Type::kBool, PJRT_NamedValue_Value { bool_value }, 1)
        }
    };
    PJRT_NamedValue {
        name: name.as_ptr().cast(),
        name_size: name.len(),
        r#type,
        value,
        value_size,
        ..PJRT_NamedValue::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_option_lists_the_known_ones() {
        let given = [("devises".to_owned(), Value::Int(2))];
        let mut options = Options::new(given);
        assert_eq!(options.int("devices").unwrap(), None);
        assert_eq!(options.bool("trace").unwrap(), None);
        assert_eq!(
            options.check_all_taken().unwrap_err().to_string(),
            "create client: unknown option `devises` = 2; this plugin has devices, trace"
        );
    }

    #[test]
    fn option_of_another_type_is_an_error() {
        let mut options = Options::new([("devices".to_owned(), Value::Text("two".into()))]);
        assert_eq!(
            options.int("devices").unwrap_err().to_string(),
            "create client: option `devices` is an integer, got \"two\""
        );
    }
}
