//! Programs as graphs: nodes in an order of evaluation.

use std::{fmt, panic::Location};

use halite_core::{Result, TensorType};

use crate::{Op, infer::infer};

/// A value of a [`Graph`]: an input, or a result of a node.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Value(pub(crate) u32);

/// One operation on values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Its operands.
    pub operands: Vec<Value>,
    /// The results, whose types are those of [`infer`].
    pub results: Vec<Value>,
    /// The user's line that recorded it.
    pub origin: Option<&'static Location<'static>>,
}

/// A function from input values to output values.
///
/// A node uses only values made before it, so the order of nodes is an order of evaluation, and
/// there are no cycles.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_ir::{BinaryOp, Graph, Op};
///
/// let mut graph = Graph::new();
/// let x = graph.input(TensorType::new(DType::F32, [2]));
/// let twice = graph.push(Op::Binary(BinaryOp::Add), &[x, x], None).unwrap()[0];
/// graph.set_outputs(vec![twice]);
/// assert_eq!(graph.ty(twice).to_string(), "f32[2]");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// By value.
    pub(crate) types: Vec<TensorType>,
    pub(crate) inputs: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) outputs: Vec<Value>,
}

impl Graph {
    /// Creates an empty graph.
    pub fn new() -> Self {
        Graph::default()
    }

    /// Adds an input.
    pub fn input(&mut self, ty: TensorType) -> Value {
        let value = self.value(ty);
        self.inputs.push(value);
        value
    }

    /// Adds a node, and returns its results.
    ///
    /// # Errors
    /// The error of [`infer`] for these operands.
    ///
    /// # Panics
    /// If an operand is not a value of this graph.
    pub fn push(
        &mut self,
        op: Op,
        operands: &[Value],
        origin: Option<&'static Location<'static>>,
    ) -> Result<&[Value]> {
        let types: Vec<&TensorType> = operands.iter().map(|&operand| self.ty(operand)).collect();
        let results = infer(&op, &types)?;
        Ok(self.push_typed(op, operands.to_vec(), results, origin))
    }

    /// Adds a node whose result types are known to be those of [`infer`], and returns its results.
    ///
    /// # Panics
    /// If an operand is not a value of this graph; in debug builds, if the types are others.
    pub fn push_typed(
        &mut self,
        op: Op,
        operands: Vec<Value>,
        results: Vec<TensorType>,
        origin: Option<&'static Location<'static>>,
    ) -> &[Value] {
        debug_assert!({
            let types: Vec<&TensorType> = operands.iter().map(|&value| self.ty(value)).collect();
            infer(&op, &types).is_ok_and(|inferred| inferred == results)
        });
        let results = results.into_iter().map(|ty| self.value(ty)).collect();
        self.nodes.push(Node {
            op,
            operands,
            results,
            origin,
        });
        &self.nodes.last().expect("pushed just above").results
    }

    /// Sets the outputs.
    pub fn set_outputs(&mut self, outputs: Vec<Value>) {
        self.outputs = outputs;
    }

    /// Type of a value of this graph.
    ///
    /// # Panics
    /// If it is a value of another graph.
    pub fn ty(&self, value: Value) -> &TensorType {
        &self.types[value.0 as usize]
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> &[Value] {
        &self.inputs
    }

    /// The nodes, in an order of evaluation.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The outputs, in order. A value may appear twice, or be an input.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// Number of values: inputs and results. Values are numbered below this.
    pub fn value_count(&self) -> usize {
        self.types.len()
    }

    /// Types of the inputs.
    pub fn input_types(&self) -> Vec<TensorType> {
        self.inputs
            .iter()
            .map(|&value| self.ty(value).clone())
            .collect()
    }

    /// Types of the outputs.
    pub fn output_types(&self) -> Vec<TensorType> {
        self.outputs
            .iter()
            .map(|&value| self.ty(value).clone())
            .collect()
    }

    /// Adds a value without a node.
    pub(crate) fn value(&mut self, ty: TensorType) -> Value {
        let value = Value(u32::try_from(self.types.len()).expect("fewer than 2^32 values"));
        self.types.push(ty);
        value
    }
}

impl Value {
    /// Number of the value in its graph.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Prints a line for each node, in the order of evaluation: its results with types, operation,
/// operands, and the user's line. Bodies of loops and branches are indented below their node.
///
/// ```
/// # use halite_core::{DType, TensorType};
/// # use halite_ir::{BinaryOp, Graph, Op};
/// let mut graph = Graph::new();
/// let x = graph.input(TensorType::new(DType::F32, [2]));
/// let twice = graph.push(Op::Binary(BinaryOp::Add), &[x, x], None).unwrap()[0];
/// graph.set_outputs(vec![twice]);
/// assert_eq!(graph.to_string(), "%0: f32[2] = input\n%1: f32[2] = Binary(Add)(%0, %0)\nreturn %1\n");
/// ```
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl Graph {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        let list = |values: &[Value]| {
            values
                .iter()
                .map(|value| format!("%{}", value.0))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let typed = |values: &[Value]| {
            values
                .iter()
                .map(|&value| format!("%{}: {}", value.0, self.ty(value)))
                .collect::<Vec<_>>()
                .join(", ")
        };
        for &input in &self.inputs {
            writeln!(f, "{indent}{} = input", typed(&[input]))?;
        }
        for Node {
            op,
            operands,
            results,
            origin,
        } in &self.nodes
        {
            let regions = op.regions();
            // Bodies are printed below, not on the line of the operation.
            let what = if regions.is_empty() {
                format!("{op:?}")
            } else {
                op.name().to_string()
            };
            write!(f, "{indent}{} = {what}({})", typed(results), list(operands))?;
            match origin {
                Some(line) => writeln!(f, "  // {line}")?,
                None => writeln!(f)?,
            }
            for region in regions {
                writeln!(f, "{indent}  body")?;
                region.write(f, depth + 2)?;
            }
        }
        writeln!(f, "{indent}return {}", list(&self.outputs))
    }
}
