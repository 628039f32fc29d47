//! Typed access to the fields of a model's configuration, which collects what is wrong with them.

use std::collections::BTreeMap;

use halite_core::{Error, Result};
use halite_weights::MetadataValue;
use serde_json::{Map, Number, Value};

/// The fields of a configuration. Each access notes a field that is missing or of another type and
/// returns a placeholder; [`finish`](Self::finish) returns all of these as one error.
///
/// A name with dots is that of a nested field, `rope_scaling.factor`. A field that is `null` counts
/// as missing.
#[derive(Debug)]
pub struct Config<'a> {
    origin: &'a str,
    fields: &'a Value,
    problems: Vec<String>,
}

impl<'a> Config<'a> {
    /// The fields of `fields`, an object of JSON; `origin` names it in messages.
    pub fn new(origin: &'a str, fields: &'a Value) -> Self {
        Config {
            origin,
            fields,
            problems: Vec::new(),
        }
    }

    /// Where the fields are from, for messages.
    pub fn origin(&self) -> &'a str {
        self.origin
    }

    /// A field, if it is there and is not `null`.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        // Keys of GGUF have dots themselves.
        let nested = || {
            let mut segments = name.split('.');
            segments.try_fold(self.fields, |value, segment| value.get(segment))
        };
        let value = self.fields.get(name).or_else(nested);
        value.filter(|value| !value.is_null())
    }

    /// A positive integer.
    pub fn size(&mut self, name: &str) -> usize {
        self.required(name, 1, "a positive integer", as_size)
    }

    /// A positive integer, or this value if it is missing.
    pub fn size_or(&mut self, name: &str, default: usize) -> usize {
        self.optional(name, default, "a positive integer", as_size)
    }

    /// A finite number.
    pub fn number(&mut self, name: &str) -> f64 {
        self.required(name, 1.0, "a number", as_number)
    }

    /// A finite number, or this value if it is missing.
    pub fn number_or(&mut self, name: &str, default: f64) -> f64 {
        self.optional(name, default, "a number", as_number)
    }

    /// A truth value, or this value if it is missing.
    pub fn flag_or(&mut self, name: &str, default: bool) -> bool {
        self.optional(name, default, "true or false", Value::as_bool)
    }

    /// Text, if it is there.
    pub fn text(&mut self, name: &str) -> Option<&'a str> {
        self.optional(name, None, "text", |value| value.as_str().map(Some))
    }

    /// Notes a text field that is there and is none of `supported`.
    pub fn expect_text(&mut self, name: &str, supported: &[&str]) {
        if let Some(text) = self.text(name).filter(|text| !supported.contains(text)) {
            let supported = supported.join("`, `");
            self.problem(format!(
                "`{name}` is `{}`; supported: `{supported}`",
                text.escape_debug()
            ));
        }
    }

    /// Notes a text field that is missing, or is none of `supported`.
    pub fn require_text(&mut self, name: &str, supported: &[&str]) {
        if self.value(name).is_none() {
            let supported = supported.join("`, `");
            self.problem(format!("`{name}` is missing; supported: `{supported}`"));
        }
        self.expect_text(name, supported);
    }

    /// An integer that is not negative, or a list of such: token ids. Empty if it is missing.
    pub fn tokens(&mut self, name: &str) -> Vec<u32> {
        let token = |value: &Value| value.as_u64().and_then(|token| u32::try_from(token).ok());
        let tokens = |value: &'a Value| match value {
            Value::Array(values) => values.iter().map(token).collect(),
            value => Some(vec![token(value)?]),
        };
        self.optional(name, vec![], "a token id or a list of them", tokens)
    }

    /// Notes a problem of the configuration.
    pub fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// Checks that nothing was wrong.
    ///
    /// # Errors
    /// All problems that were noted.
    pub fn finish(self) -> Result<()> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let message = format!("`{}`: {}", self.origin, self.problems.join("; "));
        Err(Error::invalid("open model", message))
    }

    fn required<T: Clone>(
        &mut self,
        name: &str,
        placeholder: T,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> T {
        if self.value(name).is_none() {
            self.problem(format!("`{name}` is missing; expected {expected}"));
        }
        self.optional(name, placeholder, expected, read)
    }

    fn optional<T>(
        &mut self,
        name: &str,
        default: T,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> T {
        let Some(value) = self.value(name) else {
            return default;
        };
        read(value).unwrap_or_else(|| {
            self.problem(format!("`{name}` is {}; expected {expected}", short(value)));
            default
        })
    }
}

fn as_size(value: &Value) -> Option<usize> {
    let size = usize::try_from(value.as_u64()?).ok()?;
    (size > 0).then_some(size)
}

fn as_number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// The start of a value's text.
fn short(value: &Value) -> String {
    const LONGEST: usize = 40;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// The scalars of a GGUF file's metadata as an object of JSON. Lists, such as the vocabulary, are
/// left out.
pub(super) fn of_metadata(metadata: &BTreeMap<String, MetadataValue>) -> Value {
    let value = |value: &MetadataValue| match value {
        MetadataValue::Unsigned(number) => Some(Value::from(*number)),
        MetadataValue::Signed(number) => Some(Value::from(*number)),
        MetadataValue::Float(number) => Number::from_f64(*number).map(Value::Number),
        MetadataValue::Bool(flag) => Some(Value::from(*flag)),
        MetadataValue::String(text) => Some(Value::from(text.as_str())),
        _ => None,
    };
    let fields = (metadata.iter()).filter_map(|(name, field)| Some((name.clone(), value(field)?)));
    Value::Object(fields.collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_error_has_every_problem_of_the_fields() {
        let fields = json!({
            "layers": 0, "heads": "8", "eps": null, "activation": "relu",
            "rope_scaling": { "factor": 8.0 }, "eos_token_id": [2, 3],
        });
        let mut config = Config::new("config.json", &fields);
        config.size("layers");
        config.size("heads");
        config.size("width");
        config.expect_text("activation", &["silu"]);
        assert_eq!(config.number_or("eps", 1e-5), 1e-5);
        assert_eq!(config.number("rope_scaling.factor"), 8.0);
        assert_eq!(config.tokens("eos_token_id"), [2, 3]);
        let error = config.finish().unwrap_err().to_string();
        for part in [
            "`layers` is 0; expected a positive integer",
            "`heads` is \"8\"; expected a positive integer",
            "`width` is missing",
            "`activation` is `relu`; supported: `silu`",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
