//! Fields of spans and events, as the inside of a JSON object.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};

/// The fields of a span or event.
#[derive(Default)]
pub(super) struct Fields {
    /// All fields except `message` and `nanos`: the content of a JSON object.
    pub(super) json: String,
    /// The text of an event.
    pub(super) message: Option<String>,
    /// Duration of finished work.
    pub(super) nanos: u64,
    /// The device that did the work.
    pub(super) device: u64,
    /// The number of a training step.
    pub(super) step: Option<u64>,
    /// True if a field names a program.
    pub(super) is_program: bool,
}

impl Fields {
    /// Adds a field whose value is JSON already.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.is_program |= name == "program";
        let comma = if self.json.is_empty() { "" } else { "," };
        // Writing to a `String` does not fail.
        let _ = write!(self.json, "{comma}{}:{value}", quoted(name));
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "nanos" => return self.nanos = value,
            "device" => self.device = value,
            "step" => self.step = Some(value),
            _ => {}
        }
        self.add(field.name(), &value.to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        // Integer literals are `i32` in a caller's span.
        match u64::try_from(value) {
            Ok(value) => self.record_u64(field, value),
            Err(_) => self.add(field.name(), &value.to_string()),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), &value.to_string());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), &quoted(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = Some(value),
            name => self.add(name, &quoted(&value)),
        }
    }
}

/// A text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
