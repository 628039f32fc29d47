//! Casts at the inputs and outputs of a graph.

use std::iter::zip;

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
    let mut rewriter = Rewriter::new(graph.types, [].into_iter());
    let new_inputs: Vec<Value> = zip(&graph.inputs, inputs)
        .map(|(old, &dtype)| {
            let ty = rewriter.types[old.index()].with_dtype(dtype);
            rewriter.new.input(ty)
        })
        .collect();
    for (&old, value) in zip(&graph.inputs, new_inputs) {
        let dtype = rewriter.types[old.index()].dtype();
        let value = convert(&mut rewriter.new, value, dtype);
        rewriter.replace(old, value);
    }
    for mut node in graph.nodes {
        rewriter.map_operands(&mut node);
        rewriter.keep(node);
    }
    let mut results = Vec::with_capacity(outputs.len());
    for (&old, &dtype) in zip(&graph.outputs, outputs) {
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
