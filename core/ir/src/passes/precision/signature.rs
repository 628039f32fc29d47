//! Casts at the inputs and outputs of a graph.

use halite_core::DType;

use super::super::Rewriter;
use crate::{Graph, Op, Value};

/// Returns the graph with the given dtypes, one for each input and output: inputs are converted to
/// the dtypes that the graph computes with, and results to those of the outputs.
///
/// # Panics
/// If the number of dtypes differs from that of the inputs or outputs.
pub fn with_signature(graph: Graph, inputs: &[DType], outputs: &[DType]) -> Graph {
    let have = |values: &[Value], dtypes: &[DType]| {
        assert_eq!(values.len(), dtypes.len(), "one dtype for each value");
        (values.iter().zip(dtypes)).all(|(&value, &dtype)| graph.ty(value).dtype() == dtype)
    };
    if have(graph.inputs(), inputs) && have(graph.outputs(), outputs) {
        return graph;
    }
    let mut rewriter = Rewriter::of_inputs(&graph, [].into_iter());
    let new_inputs: Vec<Value> = (graph.inputs().iter().zip(inputs))
        .map(|(&old, &dtype)| rewriter.new.input(graph.ty(old).with_dtype(dtype)))
        .collect();
    for (&old, value) in graph.inputs().iter().zip(new_inputs) {
        let value = convert(&mut rewriter.new, value, graph.ty(old).dtype());
        rewriter.replace(&[old], &[value]);
    }
    for node in graph.nodes() {
        let operands = rewriter.operands(node);
        rewriter.keep(node, node.op.clone(), operands);
    }
    let mut results = Vec::with_capacity(outputs.len());
    for (&old, &dtype) in graph.outputs().iter().zip(outputs) {
        let value = rewriter.value(old);
        results.push(convert(&mut rewriter.new, value, dtype));
    }
    rewriter.new.set_outputs(results);
    rewriter.new
}

/// The value in another dtype; itself if it already has it.
pub(super) fn convert(graph: &mut Graph, value: Value, dtype: DType) -> Value {
    let ty = graph.ty(value).clone();
    if ty.dtype() == dtype {
        return value;
    }
    let ty = ty.with_dtype(dtype);
    graph.push_typed(Op::Convert(dtype), vec![value], vec![ty], None)[0]
}
