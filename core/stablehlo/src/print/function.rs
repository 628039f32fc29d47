//! Modules, functions, and the names of their values.

use std::ops::Range;

use super::{locations::Locations, text::Text};
use crate::{Attributes, Function, Module, Region, Type, ValueId};

/// Name of a value in the text.
#[derive(Clone, Copy)]
pub(super) enum Name {
    /// The value is not defined before.
    Undefined,
    /// `%arg3`, an argument of a function.
    Argument(u32),
    /// `%3`
    Single(u32),
    /// `%3#1`, one of several results.
    Part(u32, u32),
    /// `%i3`, an argument of a region.
    Region(u32),
}

/// Writes a module.
pub(super) struct Printer<'m, 's> {
    pub(super) out: Text<'s>,
    /// `None` if locations are not written.
    pub(super) locations: Option<Locations<'m>>,
    /// Number of regions around the operation being written, the module's included.
    pub(super) depth: usize,
    /// Types of the values of the function.
    types: &'m [Type],
    /// Their names, by number.
    names: Vec<Name>,
    /// The next number that is not a name; unique in the module.
    next: u32,
    /// The type that was written last, and where: most types are that of the value before.
    last_type: Option<(&'m Type, Range<usize>)>,
}

impl<'m, 's> Printer<'m, 's> {
    pub(super) fn new(out: Text<'s>, locations: bool) -> Self {
        Printer {
            out,
            locations: locations.then(Locations::default),
            depth: 0,
            types: &[],
            names: Vec::new(),
            next: 0,
            last_type: None,
        }
    }

    /// The text that was kept, and the error of the sink.
    pub(super) fn finish(self) -> (String, std::fmt::Result) {
        self.out.finish()
    }

    pub(super) fn module(&mut self, module: &'m Module) {
        let values: usize = module.functions.iter().map(|it| it.types.len()).sum();
        self.out.reserve(4096 + 128 * values);
        self.out.text("module");
        if !module.name.is_empty() {
            self.out.char(' ').symbol(&module.name);
        }
        if !module.attributes.0.is_empty() {
            self.out.text(" attributes ").dictionary(&module.attributes);
        }
        self.out.text(" {");
        for mesh in &module.meshes {
            self.out.line(1).mesh(mesh);
        }
        for function in &module.functions {
            self.function(function);
        }
        self.out.text("\n}\n");
        if let Some(locations) = &self.locations {
            locations.table(&mut self.out);
        }
    }

    fn function(&mut self, function: &'m Function) {
        let Function { name, body, .. } = function;
        self.types = &function.types;
        self.names.clear();
        self.names.resize(function.types.len(), Name::Undefined);
        self.depth = 1;
        let visibility = if name == "main" {
            "public "
        } else {
            "private "
        };
        self.out.line(1).text("func.func ").text(visibility);
        self.out.symbol(name).char('(');
        for (index, &value) in body.arguments.iter().enumerate() {
            self.out.comma(index);
            self.parameter(value, Name::Argument(index as u32));
            self.dictionary(function.input_attributes.get(index));
            let name = function.input_names.get(index).and_then(Option::as_ref);
            if let Some(name) = name.filter(|_| self.locations.is_some()) {
                self.out.text(" loc(").string(name).char(')');
            }
        }
        self.out.text(") -> (");
        for (index, &value) in body.results.iter().enumerate() {
            self.out.comma(index);
            self.ty(value);
            self.dictionary(function.output_attributes.get(index));
        }
        self.out.text(") {");
        self.operations(body, "return");
        self.out.line(1).char('}');
    }

    /// Writes the operations of a region and its terminator, each on a line.
    pub(super) fn operations(&mut self, region: &'m Region, terminator: &str) {
        self.depth += 1;
        for operation in &region.operations {
            self.operation(operation);
        }
        self.out.line(self.depth).text(terminator);
        if !region.results.is_empty() {
            self.out.char(' ');
            self.values(&region.results);
            self.out.text(" : ");
            self.types(&region.results);
        }
        self.depth -= 1;
    }

    /// Writes ` {name = value, ..}`, if there are attributes.
    fn dictionary(&mut self, attributes: Option<&Attributes>) {
        if let Some(attributes) = attributes {
            self.out.optional_dictionary(attributes);
        }
    }

    /// A number that is not a name yet, with the `count - 1` after it.
    pub(super) fn fresh(&mut self, count: usize) -> u32 {
        let first = self.next;
        self.next += count as u32;
        first
    }

    /// Names a value.
    pub(super) fn define(&mut self, value: ValueId, name: Name) {
        if let Some(slot) = self.names.get_mut(value.0 as usize) {
            *slot = name;
        }
    }

    /// Names an argument and writes `%i1: t`.
    pub(super) fn parameter(&mut self, value: ValueId, name: Name) {
        self.define(value, name);
        self.name(name);
        self.out.text(": ");
        self.ty(value);
    }

    /// Writes `%3 = ` or `%3:2 = ` and names the results.
    pub(super) fn results(&mut self, results: &[ValueId]) {
        let number = self.fresh(1);
        match results {
            [] => return,
            &[result] => {
                self.define(result, Name::Single(number));
                self.out.char('%').number(number);
            }
            _ => {
                for (part, &result) in results.iter().enumerate() {
                    self.define(result, Name::Part(number, part as u32));
                }
                self.out.char('%').number(number);
                self.out.char(':').number(results.len() as u64);
            }
        }
        self.out.text(" = ");
    }

    pub(super) fn name(&mut self, name: Name) {
        match name {
            Name::Undefined => self.out.text("%undefined"),
            Name::Argument(number) => self.out.text("%arg").number(number),
            Name::Single(number) => self.out.char('%').number(number),
            Name::Part(number, part) => {
                self.out.char('%').number(number);
                self.out.char('#').number(part)
            }
            Name::Region(number) => self.out.text("%i").number(number),
        };
    }

    pub(super) fn value(&mut self, value: ValueId) {
        let name = self.names.get(value.0 as usize);
        self.name(name.copied().unwrap_or(Name::Undefined));
    }

    /// Writes `%1, %2`.
    pub(super) fn values(&mut self, values: &[ValueId]) {
        for (index, &value) in values.iter().enumerate() {
            self.out.comma(index);
            self.value(value);
        }
    }

    /// The type of a value; `None` if the function does not have the value.
    pub(super) fn type_of(&self, value: ValueId) -> Option<&'m Type> {
        self.types.get(value.0 as usize)
    }

    pub(super) fn ty(&mut self, value: ValueId) {
        let Some(ty) = self.type_of(value) else {
            self.out.text("none");
            return;
        };
        if let Some((last, place)) = &self.last_type
            && *last == ty
            && self.out.repeat(place)
        {
            return;
        }
        let start = self.out.place();
        let end = self.out.ty(ty).place();
        self.last_type = Some((ty, start..end));
    }

    /// Writes `t, t`.
    pub(super) fn types(&mut self, values: &[ValueId]) {
        for (index, &value) in values.iter().enumerate() {
            self.out.comma(index);
            self.ty(value);
        }
    }

    /// Writes `(t, t) -> t`.
    pub(super) fn function_type(&mut self, operands: &[ValueId], results: &[ValueId]) {
        self.out.char('(');
        self.types(operands);
        self.out.text(") -> ");
        match results {
            &[result] => self.ty(result),
            _ => {
                self.out.char('(');
                self.types(results);
                self.out.char(')');
            }
        }
    }
}
