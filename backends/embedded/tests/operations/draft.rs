//! Cases: programs of one operation, or few, with their inputs.

use std::{
    collections::HashSet,
    fmt::{Display, Write},
};

use halite_core::TensorType;
use halite_stablehlo::{ElementClass, ElementType, RankedType};

use crate::operations::random::Random;
use crate::operations::{
    compare::{Tolerance, shown},
    numbers::{self, Range, carrier},
};

/// An operation on values of one element type.
#[derive(Debug)]
pub(crate) struct Case {
    /// Name of the operation, the row of the table.
    pub(crate) operation: &'static str,
    /// What tells it from other cases of the operation, such as the target of a conversion.
    pub(crate) variant: String,
    /// Element type that the case is about, the column of the table.
    pub(crate) element: ElementType,
    /// Operations of a function, with its `return`.
    body: String,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<RankedType>,
    pub(crate) tolerance: Tolerance,
    /// The reason why results of XLA can differ.
    pub(crate) incomparable: Option<&'static str>,
}

/// An argument of a case.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) ty: RankedType,
    pub(crate) bytes: Vec<u8>,
}

impl Case {
    /// Operation, element type and variant: `convert i8 to f32`.
    pub(crate) fn name(&self) -> String {
        let name = format!("{} {} {}", self.operation, self.element, self.variant);
        name.trim_end().to_owned()
    }

    /// The elements at a position of inputs of the dimensions of a result, of which it may be the
    /// result.
    pub(crate) fn elements_at(&self, result: &RankedType, at: usize) -> String {
        let alike = self
            .inputs
            .iter()
            .filter(|input| input.ty.dims == result.dims);
        let element = |Input { ty, bytes }: &Input| {
            let size = ty.element.size();
            shown(ty.element, &bytes[at * size..(at + 1) * size])
        };
        let elements: Vec<_> = alike.map(element).collect();
        if elements.is_empty() {
            String::new()
        } else {
            format!(" (of {})", elements.join(", "))
        }
    }

    /// The case as a function.
    pub(crate) fn function(&self, visibility: &str, name: &str) -> String {
        let inputs =
            (self.inputs.iter().enumerate()).map(|(at, input)| format!("%a{at}: {}", input.ty));
        let inputs: Vec<_> = inputs.collect();
        let outputs = join(&self.outputs);
        format!(
            "func.func {visibility} @{name}({}) -> ({outputs}) {{\n{}}}\n",
            inputs.join(", "),
            self.body
        )
    }
}

/// The type that clients have arrays of.
pub(crate) fn tensor_type(ty: &RankedType) -> TensorType {
    ty.tensor_type().expect("drafts convert other types")
}

pub(crate) fn join(items: &[impl Display]) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// A value of the function.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) ty: RankedType,
}

impl Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// A case that is written.
pub(crate) struct Draft<'r> {
    pub(crate) random: &'r mut Random,
    body: String,
    values: usize,
    inputs: Vec<Input>,
    outputs: Vec<Value>,
    pub(crate) incomparable: Option<&'static str>,
}

impl<'r> Draft<'r> {
    pub(crate) fn new(random: &'r mut Random) -> Self {
        let (body, inputs, outputs) = Default::default();
        Draft {
            random,
            body,
            values: 0,
            inputs,
            outputs,
            incomparable: None,
        }
    }

    /// Drops everything that was written.
    pub(crate) fn reset(&mut self) {
        self.body.clear();
        self.inputs.clear();
    }

    pub(crate) fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.random.below(items.len())]
    }

    /// Random dimensions, at most `rank` of them.
    pub(crate) fn dims(&mut self, rank: usize) -> Vec<usize> {
        let rank = self.random.below(rank + 1);
        self.dims_of_rank(rank)
    }

    /// Random dimensions; some are 0 or 1.
    pub(crate) fn dims_of_rank(&mut self, rank: usize) -> Vec<usize> {
        let sizes = [1, 1, 2, 2, 3, 3, 4, 5, 7];
        let mut dims: Vec<_> = (0..rank).map(|_| self.choose(&sizes)).collect();
        if rank > 0 && self.random.percent(12) {
            let at = self.random.below(rank);
            dims[at] = self.choose(&[0, 13, 37]);
        }
        dims
    }

    /// An argument. Types that clients have no arrays of are converted from wider ones.
    pub(crate) fn input(&mut self, element: ElementType, dims: &[usize], range: Range) -> Value {
        let with_denormals = range == Range::Any && self.random.percent(10);
        if with_denormals && numbers::has_flushed(element) {
            self.incomparable = Some("the plugin flushes denormals to 0");
        }
        let range = if with_denormals {
            Range::WithDenormals
        } else {
            range
        };
        let carrier = carrier(element);
        let ty = RankedType::new(carrier, dims);
        let mut bytes = Vec::new();
        for _ in 0..ty.elements() {
            if element.class() == ElementClass::Float && carrier != element {
                // Numbers of all types of less than a byte: XLA may drop the conversion to these.
                let magnitude = self.choose(&[0.0f32, 0.5, 1.0, 1.5, 2.0, 3.0]);
                let sign = self.choose(&[1.0, -1.0]);
                bytes.extend((sign * magnitude).to_le_bytes());
            } else {
                bytes.extend(numbers::draw(self.random, element, range));
            }
        }
        self.input_of(element, dims, bytes)
    }

    /// An argument with these elements, of the client's type for `element`.
    pub(crate) fn input_of(
        &mut self,
        element: ElementType,
        dims: &[usize],
        bytes: Vec<u8>,
    ) -> Value {
        let ty = RankedType::new(carrier(element), dims);
        let name = format!("%a{}", self.inputs.len());
        self.inputs.push(Input {
            ty: ty.clone(),
            bytes,
        });
        self.convert(Value { name, ty }, element)
    }

    /// Whether the last argument has equal elements.
    pub(crate) fn has_equal_elements(&self) -> bool {
        let Some(Input { ty, bytes }) = self.inputs.last() else {
            return false;
        };
        let mut seen = HashSet::new();
        let mut elements = bytes.chunks_exact(ty.element.size());
        elements.any(|element| {
            // Both zeros are equal.
            let is_zero = numbers::is_zero(ty.element, element);
            !seen.insert(if is_zero { &[] } else { element })
        })
    }

    /// A random scalar, as [`scalar_of`](Self::scalar_of).
    pub(crate) fn scalar(&mut self, element: ElementType, range: Range) -> Value {
        if carrier(element) != element {
            return self.input(element, &[], range);
        }
        let bytes = numbers::draw(self.random, element, range);
        self.scalar_of(element, bytes)
    }

    /// A scalar with these bytes in the client's type: an argument, or a constant of the program.
    pub(crate) fn scalar_of(&mut self, element: ElementType, bytes: Vec<u8>) -> Value {
        let is_plain = matches!(
            element.class(),
            ElementClass::Float | ElementClass::Signed | ElementClass::Unsigned
        );
        if !is_plain || carrier(element) != element || self.random.percent(40) {
            return self.input_of(element, &[], bytes);
        }
        let bits = bytes
            .iter()
            .rev()
            .fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        let ty = RankedType::new(element, []);
        let digits = 2 * element.size();
        let text = format!("constant {{value = dense<0x{bits:0digits$X}> : {ty}}}");
        self.op(text, &[], ty)
    }

    /// An argument of integers.
    pub(crate) fn integers(
        &mut self,
        element: ElementType,
        dims: &[usize],
        values: &[i64],
    ) -> Value {
        let size = element.size();
        let bytes = values
            .iter()
            .flat_map(|value| value.to_le_bytes()[..size].to_vec());
        let bytes = bytes.collect();
        self.input_of(element, dims, bytes)
    }

    /// Writes an operation with one result: its text up to the types, those of its operands, and
    /// that of its result.
    pub(crate) fn op(&mut self, text: impl Display, operands: &[&Value], ty: RankedType) -> Value {
        self.ops(text, operands, &[ty]).remove(0)
    }

    /// Writes an operation in the generic form, with `text` between operands and types: attributes
    /// and regions.
    pub(crate) fn ops(
        &mut self,
        text: impl Display,
        operands: &[&Value],
        types: &[RankedType],
    ) -> Vec<Value> {
        let text = text.to_string();
        let (name, attributes) = text.split_once(' ').unwrap_or((&text, ""));
        let dialect = if name.contains('.') { "" } else { "stablehlo." };
        let names: Vec<_> = operands.iter().map(|value| &value.name).collect();
        let of: Vec<_> = operands.iter().map(|value| &value.ty).collect();
        let result = format!("%v{}", self.values);
        self.values += 1;
        writeln!(
            self.body,
            "  {result}:{} = \"{dialect}{name}\"({}) {attributes} : ({}) -> ({})",
            types.len(),
            join(&names),
            join(&of),
            join(types),
        )
        .expect("strings grow");
        let name = |at| format!("{result}#{at}");
        let types = types.iter().cloned().enumerate();
        types.map(|(at, ty)| Value { name: name(at), ty }).collect()
    }

    /// Packs values in a tuple, and returns one of its elements.
    pub(crate) fn element_of_tuple(&mut self, values: [&Value; 2], index: usize) -> Value {
        let name = format!("%v{}", self.values);
        self.values += 1;
        let [x, y] = values;
        let ty = format!("tuple<{}, {}>", x.ty, y.ty);
        let (line, types) = (&mut self.body, format!("({}, {}) -> {ty}", x.ty, y.ty));
        writeln!(line, "  {name} = \"stablehlo.tuple\"({x}, {y}) : {types}").expect("strings grow");
        let result = Value {
            name: format!("%v{}", self.values),
            ty: values[index].ty.clone(),
        };
        self.values += 1;
        writeln!(
            self.body,
            "  {result} = \"stablehlo.get_tuple_element\"({name}) {{index = {index} : i32}} : \
             ({ty}) -> {}",
            result.ty
        )
        .expect("strings grow");
        result
    }

    pub(crate) fn convert(&mut self, value: Value, element: ElementType) -> Value {
        if value.ty.element == element {
            return value;
        }
        let ty = RankedType::new(element, &*value.ty.dims);
        self.op("convert", &[&value], ty)
    }

    /// Adds a result of the function.
    pub(crate) fn output(&mut self, value: Value) {
        let element = carrier(value.ty.element);
        let value = self.convert(value, element);
        self.outputs.push(value);
    }

    pub(crate) fn finish(
        mut self,
        operation: &'static str,
        element: ElementType,
        variant: String,
        tolerance: Tolerance,
    ) -> Case {
        let types: Vec<_> = self.outputs.iter().map(|value| value.ty.clone()).collect();
        let names = join(&self.outputs);
        writeln!(self.body, "  func.return {names} : {}", join(&types)).expect("strings grow");
        Case {
            operation,
            variant,
            element,
            body: self.body,
            inputs: self.inputs,
            outputs: types,
            tolerance,
            incomparable: self.incomparable.filter(|_| tolerance != Tolerance::Bits),
        }
    }
}
