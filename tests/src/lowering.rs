//! Lowered modules: read from their text, and as digests of what they say.

use std::{collections::HashMap, fmt::Write as _};

use halite_core::Result;
use halite_ir::{Graph, Interface, legalize};
use halite_stablehlo::{Attributes, Function, Module, Position, Region, ValueId};

/// [`legalize`], whose module is compared with what is read from its text.
///
/// # Errors
/// As [`legalize`].
///
/// # Panics
/// If the modules differ.
pub fn lowered(graph: &Graph, interface: &Interface) -> Result<Module> {
    let lowered = legalize(graph, interface)?;
    let text = lowered.to_text();
    let mut read = Module::parse(&text)?;
    for function in &mut read.functions {
        forget_positions(&mut function.body);
    }
    let name = &interface.name;
    assert!(
        lowered == read,
        "`{name}`, lowered:\n{lowered:?}\nread:\n{read:?}\n{text}"
    );
    Ok(lowered)
}

/// Removes the places in the text.
fn forget_positions(region: &mut Region) {
    for operation in &mut region.operations {
        operation.position = Position::Unknown;
        operation.regions.iter_mut().for_each(forget_positions);
    }
}

/// Digest of what a module says, under whatever numbers of values and in whatever order of
/// attributes. Names of the program and places in it and in source files do not count.
pub fn digest(module: &Module) -> String {
    let mut text = String::new();
    write(&mut text, format_args!("{:?}", module.meshes));
    attributes(&mut text, &module.attributes);
    for function in &module.functions {
        let mut canonical = Canonical {
            function,
            text,
            numbers: HashMap::new(),
        };
        canonical.function();
        text = canonical.text;
    }
    // FNV-1a.
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, hash))
}

fn write(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string can be written to");
    text.push('\n');
}

fn attributes(text: &mut String, attributes: &Attributes) {
    let mut sorted: Vec<_> = attributes.0.iter().collect();
    sorted.sort_by_key(|(name, _)| name);
    write(text, format_args!("{sorted:?}"));
}

/// A function in a form that two modules share if they say the same.
struct Canonical<'m> {
    function: &'m Function,
    text: String,
    /// Values in the order in which they are defined.
    numbers: HashMap<ValueId, usize>,
}

impl Canonical<'_> {
    fn function(&mut self) {
        let function = self.function;
        write(&mut self.text, format_args!("@{}", function.name));
        for of_value in [&function.input_attributes, &function.output_attributes] {
            of_value
                .iter()
                .for_each(|of_value| attributes(&mut self.text, of_value));
        }
        self.region(&function.body);
    }

    fn region(&mut self, region: &Region) {
        self.define(&region.arguments);
        for operation in &region.operations {
            let (name, of_kind) = operation.kind.to_attributes();
            write(&mut self.text, format_args!("{name}"));
            attributes(&mut self.text, &of_kind);
            attributes(&mut self.text, &operation.attributes);
            self.use_values(&operation.operands);
            operation
                .regions
                .iter()
                .for_each(|inner| self.region(inner));
            self.define(&operation.results);
        }
        self.use_values(&region.results);
    }

    fn define(&mut self, values: &[ValueId]) {
        for &value in values {
            let number = self.numbers.len();
            self.numbers.insert(value, number);
            let ty = self.function.ty(value);
            write(&mut self.text, format_args!("{number}: {ty}"));
        }
    }

    fn use_values(&mut self, values: &[ValueId]) {
        let numbers: Vec<usize> = values.iter().map(|value| self.numbers[value]).collect();
        write(&mut self.text, format_args!("{numbers:?}"));
    }
}
