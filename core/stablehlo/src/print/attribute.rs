//! Attributes as text.

use super::text::Text;
use crate::{Attribute, Attributes, ElementType};

impl Text<'_> {
    /// Writes ` {name = value, ..}`, if there are attributes.
    pub(super) fn optional_dictionary(&mut self, attributes: &Attributes) -> &mut Self {
        match attributes.0.is_empty() {
            true => self,
            false => self.char(' ').dictionary(attributes),
        }
    }

    /// Writes `{name = value, ..}`.
    pub(super) fn dictionary(&mut self, attributes: &Attributes) -> &mut Self {
        self.char('{').entries(attributes).char('}')
    }

    /// Writes `name = value, ..`.
    pub(super) fn entries(&mut self, attributes: &Attributes) -> &mut Self {
        self.each(&attributes.0, |text, (name, value)| {
            text.word(name).entry_value(name, value);
        })
    }

    /// Writes ` = value` after a name, or nothing.
    pub(super) fn entry_value(&mut self, name: &str, value: &Attribute) -> &mut Self {
        match value {
            Attribute::Unit => self,
            // It is a structure wherever it occurs.
            Attribute::Dict(fields) if name == "result_accuracy" => {
                self.text(" = #stablehlo.result_accuracy<");
                self.each(&fields.0, |text, (name, value)| {
                    text.text(name).text(" = ");
                    match value {
                        Attribute::Str(mode) => {
                            text.text("#stablehlo.result_accuracy_mode<");
                            text.text(mode).char('>')
                        }
                        value => text.plain_attribute(value),
                    };
                });
                self.char('>')
            }
            value => self.text(" = ").attribute(value),
        }
    }

    /// Writes the value of an attribute, with its type.
    pub(super) fn attribute(&mut self, value: &Attribute) -> &mut Self {
        match value {
            Attribute::Unit => self.text("unit"),
            Attribute::Bool(value) => self.boolean(*value),
            Attribute::Int(value, ElementType::Bool) => self.boolean(*value != 0),
            Attribute::Int(value, ty) => self.int(*value, *ty).text(" : ").text(ty.name()),
            Attribute::Float(value, ty) => self.real(*value, *ty).text(" : ").text(ty.name()),
            Attribute::Str(text) => self.string(text),
            Attribute::Bytes(bytes) => self.string(bytes),
            Attribute::Symbol(name) => self.symbol(name),
            Attribute::Type(ty) => self.ty(ty),
            Attribute::Array(items) => self.list(items, |text, item| {
                text.attribute(item);
            }),
            Attribute::Dict(attributes) => self.dictionary(attributes),
            Attribute::Dense(dense) => self.dense(dense),
            Attribute::Sharding(sharding) => self.text("#sdy.sharding").sharding(sharding),
            Attribute::Shardings(shardings) => {
                let start = self.text("#sdy.sharding_per_value<");
                start.shardings(shardings).char('>')
            }
            Attribute::Axes(axes) => self.text("#sdy<manual_axes").axes(axes).char('>'),
        }
    }

    /// Writes the value of an attribute where its type is known: in a structure.
    pub(super) fn plain_attribute(&mut self, value: &Attribute) -> &mut Self {
        match value {
            Attribute::Int(value, ty) if *ty != ElementType::Bool => self.int(*value, *ty),
            Attribute::Float(value, ty) => self.real(*value, *ty),
            Attribute::Str(word) => self.text(word),
            Attribute::Array(items) => self.list(items, |text, item| {
                text.plain_attribute(item);
            }),
            value => self.attribute(value),
        }
    }

    fn int(&mut self, value: i64, ty: ElementType) -> &mut Self {
        match ty {
            ElementType::U64 => self.number(value as u64),
            _ => self.integer(value),
        }
    }

    fn real(&mut self, value: f64, ty: ElementType) -> &mut Self {
        match ty {
            ElementType::F32 => self.float(ty, (value as f32).to_bits().into()),
            _ => self.float(ElementType::F64, value.to_bits()),
        }
    }
}
