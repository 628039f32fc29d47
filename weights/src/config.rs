//! Typed access to the fields of a configuration that another program wrote, which collects what is
//! wrong with them. A field that no reader asks for, and that is not known to be harmless
//! ([`KeyTable`]), is an error: it may change the results.

use std::{cell::RefCell, collections::BTreeSet};

use halite_core::{Error, Result};
use serde_json::Value;

use crate::{
    KeyTable,
    problems::{SHOWN, printable, short},
};

/// The fields of a configuration. Each access notes a field that is missing or of another type and
/// returns a placeholder; [`finish`](Self::finish) returns all of these as one error.
///
/// A name with dots is that of a nested field, `rope_scaling.factor`. A field that is `null` counts
/// as missing.
#[derive(Debug)]
pub struct Config<'a> {
    origin: &'a str,
    fields: &'a Value,
    operation: &'static str,
    /// Fields that nobody reads are checked against this.
    known: Option<&'static KeyTable>,
    ignored: &'a [String],
    /// Names of the fields that were asked for.
    read: RefCell<BTreeSet<String>>,
    problems: Vec<String>,
}

impl<'a> Config<'a> {
    /// The fields of `fields`, an object of JSON; `origin` names it in messages.
    pub fn new(origin: &'a str, fields: &'a Value) -> Self {
        Config {
            origin,
            fields,
            operation: "open model",
            known: None,
            ignored: &[],
            read: RefCell::default(),
            problems: Vec::new(),
        }
    }

    /// Lets [`finish`](Self::finish) refuse the fields that were not asked for and that `known` does
    /// not list as harmless. Fields of the names `ignored` count as missing.
    pub fn known(mut self, known: &'static KeyTable, ignored: &'a [String]) -> Self {
        (self.known, self.ignored) = (Some(known), ignored);
        self
    }

    /// Names the operation in errors: `open model` by default.
    pub fn operation(mut self, operation: &'static str) -> Self {
        self.operation = operation;
        self
    }

    /// Where the fields are from, for messages.
    pub fn origin(&self) -> &'a str {
        self.origin
    }

    /// A field, if it is there and is not `null`.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(name.to_owned());
        self.find(name)
    }

    /// Whether a field is there and is not `null`. This does not count as reading it, so that the
    /// fields inside of it are checked one by one.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Whether a field is left out; one that is `null` is not.
    pub fn is_absent(&self, name: &str) -> bool {
        self.fields.get(name).is_none() || self.ignores(name)
    }

    fn find(&self, name: &str) -> Option<&'a Value> {
        // Keys of GGUF have dots themselves.
        let nested = || {
            let mut segments = name.split('.');
            segments.try_fold(self.fields, |value, segment| value.get(segment))
        };
        let value = self.fields.get(name).or_else(nested);
        value.filter(|value| !value.is_null() && !self.ignores(name))
    }

    /// Whether the field, or one that it is in, counts as missing.
    fn ignores(&self, name: &str) -> bool {
        let is_at = |key: &String| {
            let rest = name.strip_prefix(key.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.ignored.iter().any(is_at)
    }

    /// A positive integer.
    pub fn size(&mut self, name: &str) -> usize {
        self.required(name, 1, SIZE, as_size)
    }

    /// A positive integer, or this value if it is missing.
    pub fn size_or(&mut self, name: &str, default: usize) -> usize {
        self.optional(name, default, SIZE, as_size)
    }

    /// An integer that is not negative, or this value if it is missing.
    pub fn count_or(&mut self, name: &str, default: usize) -> usize {
        let count = |value: &Value| usize::try_from(value.as_u64()?).ok();
        self.optional(name, default, "an integer that is not negative", count)
    }

    /// A finite number.
    pub fn number(&mut self, name: &str) -> f64 {
        self.required(name, 1.0, "a number", as_number)
    }

    /// A finite number, or this value if it is missing.
    pub fn number_or(&mut self, name: &str, default: f64) -> f64 {
        self.optional(name, default, "a number", as_number)
    }

    /// A list of finite numbers. Empty if it is missing.
    pub fn numbers(&mut self, name: &str) -> Vec<f64> {
        let numbers = |value: &Value| value.as_array()?.iter().map(as_number).collect();
        self.optional(name, vec![], "a list of numbers", numbers)
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

    /// Checks that nothing was wrong, and that no field is left that may change the results.
    ///
    /// # Errors
    /// All problems that were noted, and all fields that nobody read and that are not known to be
    /// harmless.
    pub fn finish(mut self) -> Result<()> {
        let mut unread = Vec::new();
        if let Some(known) = self.known {
            self.check_unread("", self.fields, known, &mut unread);
        }
        let (lost, more) = (!unread.is_empty(), unread.len().saturating_sub(SHOWN));
        unread.truncate(SHOWN);
        self.problems.append(&mut unread);
        if more > 0 {
            self.problem(format!("and {more} more keys"));
        }
        if self.problems.is_empty() {
            return Ok(());
        }
        let advice = if lost {
            "; `--ignore-key NAME` (in Rust, `ignore_keys`) treats a key as missing"
        } else {
            ""
        };
        let problems = printable(&self.problems.join("; "));
        let message = format!("`{}`: {problems}{advice}", self.origin);
        Err(Error::invalid(self.operation, message))
    }

    /// Checks that nothing was wrong with the fields that were read, for a reader of a part of a
    /// file whose other fields another reader checks.
    ///
    /// # Errors
    /// All problems that were noted.
    pub fn finish_part(mut self) -> Result<()> {
        self.known = None;
        self.finish()
    }

    /// Adds a problem for each field of `value`, the object at `path`, that is neither read nor
    /// harmless.
    fn check_unread(
        &self,
        path: &str,
        value: &Value,
        known: &KeyTable,
        problems: &mut Vec<String>,
    ) {
        let read = self.read.borrow();
        for (name, value) in value.as_object().into_iter().flatten() {
            let name = format!("{path}{name}");
            if read.contains(&name) || self.ignores(&name) {
                continue;
            }
            let inside = format!("{name}.");
            if value.is_object() && read.iter().any(|read| read.starts_with(&inside)) {
                self.check_unread(&inside, value, known, problems);
            } else if let Some(problem) = known.problem(&name, value) {
                problems.push(problem);
            }
        }
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

/// What [`as_size`] reads.
const SIZE: &str = "an integer of 1 to 2147483647";

fn as_size(value: &Value) -> Option<usize> {
    // Larger ones are of no model, and their products would overflow.
    let size = i32::try_from(value.as_u64()?).ok()?;
    usize::try_from(size).ok().filter(|size| *size > 0)
}

fn as_number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_error_has_every_problem_of_the_fields() {
        let fields = json!({
            "layers": 0, "heads": "8", "width": 1u64 << 31, "eps": null, "activation": "relu",
            "rope_scaling": { "factor": 8.0 }, "eos_token_id": [2, 3],
        });
        let mut config = Config::new("config.json", &fields);
        config.size("layers");
        config.size("heads");
        config.size("width");
        config.size("depth");
        config.expect_text("activation", &["silu"]);
        assert_eq!(config.number_or("eps", 1e-5), 1e-5);
        assert_eq!(config.number("rope_scaling.factor"), 8.0);
        assert_eq!(config.tokens("eos_token_id"), [2, 3]);
        let error = config.finish().unwrap_err().to_string();
        for part in [
            "`layers` is 0; expected an integer of 1 to 2147483647",
            "`heads` is \"8\"; expected an integer of 1 to 2147483647",
            "`width` is 2147483648; expected an integer of 1 to 2147483647",
            "`depth` is missing",
            "`activation` is `relu`; supported: `silu`",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
