//! The compiler: straight-line programs of elementwise operations on `f32`, as StableHLO text.

use std::collections::HashMap;

use halite_core::{Error, ErrorKind, Result};

/// A compiled program.
#[derive(Debug)]
pub(crate) struct Code {
    /// In order of evaluation. The result of operation `i` is value `i`; arguments come first.
    operations: Vec<Operation>,
    /// The values that are returned.
    results: Vec<usize>,
}

#[derive(Debug)]
enum Operation {
    /// The argument of this index.
    Argument(usize),
    /// The same number in every element.
    Constant(f32),
    Unary(fn(f32) -> f32, usize),
    Binary(fn(f32, f32) -> f32, usize, usize),
}

fn unary(name: &str) -> Option<fn(f32) -> f32> {
    Some(match name {
        "negate" => |x| -x,
        "exponential" => f32::exp,
        "log" => f32::ln,
        "tanh" => f32::tanh,
        "sqrt" => f32::sqrt,
        _ => return None,
    })
}

fn binary(name: &str) -> Option<fn(f32, f32) -> f32> {
    Some(match name {
        "add" => |x, y| x + y,
        "subtract" => |x, y| x - y,
        "multiply" => |x, y| x * y,
        "divide" => |x, y| x / y,
        _ => return None,
    })
}

fn invalid(message: String) -> Error {
    Error::invalid("compile", message)
}

impl Code {
    /// Compiles the text of a program with this number of results.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an operation that the accelerator does not have.
    pub(crate) fn parse(code: &[u8], results: usize) -> Result<Self> {
        let text = std::str::from_utf8(code).map_err(|_| invalid("not a text".to_owned()))?;
        let main = text
            .split_once("@main(")
            .ok_or_else(|| invalid("no @main".to_owned()))?
            .1;
        let (arguments, body) = main.split_once(')').unwrap_or((main, ""));
        let mut parsed = Code {
            operations: Vec::new(),
            results: Vec::new(),
        };
        let mut names = HashMap::new();
        for argument in arguments
            .split(", ")
            .filter(|argument| !argument.is_empty())
        {
            let name = argument.split(':').next().unwrap_or_default().trim();
            names.insert(name, parsed.operations.len());
            parsed.operations.push(Operation::Argument(names.len() - 1));
        }
        for statement in body.lines().flat_map(|line| line.split(['{', '}'])) {
            let statement = statement.split(" : ").next().unwrap_or_default().trim();
            let value = |name: &str| match names.get(name.trim()) {
                Some(value) => Ok(*value),
                None => Err(invalid(format!(
                    "`{statement}` uses the unknown value {name}"
                ))),
            };
            if let Some(values) = statement.strip_prefix("return") {
                let values = values.split(',').filter(|name| !name.trim().is_empty());
                parsed.results = values.map(value).collect::<Result<_>>()?;
            } else if let Some((name, operation)) = statement.split_once(" = stablehlo.") {
                let operation = Operation::parse(operation, value)?;
                names.insert(name, parsed.operations.len());
                parsed.operations.push(operation);
            }
        }
        if parsed.results.len() != results {
            let message = format!("{} results, expected {results}", parsed.results.len());
            return Err(invalid(message));
        }
        Ok(parsed)
    }

    /// Computes the elements of one result.
    pub(crate) fn run(&self, result: usize, arguments: &[Vec<f32>], elements: usize) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.operations.len());
        let element = |at| {
            values.clear();
            for operation in &self.operations {
                values.push(match operation {
                    // An argument of another shape is of another result.
                    Operation::Argument(index) => *arguments[*index].get(at).unwrap_or(&f32::NAN),
                    Operation::Constant(number) => *number,
                    Operation::Unary(run, x) => run(values[*x]),
                    Operation::Binary(run, x, y) => run(values[*x], values[*y]),
                });
            }
            values[self.results[result]]
        };
        (0..elements).map(element).collect()
    }
}

impl Operation {
    /// Parses `add %a, %b`; `value` finds a value by its name.
    fn parse<'a>(text: &'a str, value: impl Fn(&'a str) -> Result<usize>) -> Result<Self> {
        let (name, operands) = text.split_once(' ').unwrap_or((text, ""));
        let unsupported = || {
            let message = format!("the operation `stablehlo.{text}` is not supported");
            Error::new(ErrorKind::Unsupported, "compile", message)
        };
        if name == "constant" {
            let number = operands
                .strip_prefix("dense<")
                .and_then(|it| it.strip_suffix('>'));
            let number = number.and_then(|number| number.parse().ok());
            return number.map(Operation::Constant).ok_or_else(unsupported);
        }
        let (unary, binary) = (unary(name), binary(name));
        if unary.is_none() && binary.is_none() {
            return Err(unsupported());
        }
        let operands = operands.split(',').map(value).collect::<Result<Vec<_>>>()?;
        match (&operands[..], unary, binary) {
            (&[x], Some(run), _) => Ok(Operation::Unary(run, x)),
            (&[x, y], _, Some(run)) => Ok(Operation::Binary(run, x, y)),
            _ => Err(unsupported()),
        }
    }
}
