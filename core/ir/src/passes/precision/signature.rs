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
    let old_inputs = graph.inputs.clone();
    let (mut rewriter, nodes, old_outputs) = Rewriter::of(graph);
    let new_inputs: Vec<Value> = zip(&old_inputs, inputs)
        .map(|(&old, &dtype)| {
            let ty = rewriter.new.ty(old);
            if ty.dtype() == dtype {
                return old;
            }
            let ty = ty.with_dtype(dtype);
            rewriter.new.value(ty)
        })
        .collect();
    rewriter.new.inputs = new_inputs;
    for (at, &old) in old_inputs.iter().enumerate() {
        let dtype = rewriter.new.ty(old).dtype();
        let input = rewriter.new.inputs[at];
        let value = convert(&mut rewriter.new, input, dtype);
        rewriter.replace(old, value);
    }
    for mut node in nodes {
        rewriter.map_operands(&mut node);
        rewriter.keep(node);
    }
    let mut graph = rewriter.finish(old_outputs);
    for (at, &dtype) in outputs.iter().enumerate() {
        let output = graph.outputs[at];
        graph.outputs[at] = convert(&mut graph, output, dtype);
    }
    graph
}

pub(super) fn convert(graph: &mut Graph, value: Value, dtype: DType) -> Value {
    let ty = graph.ty(value).clone();
    if ty.dtype() == dtype {
        return value;
    }
    let ty = ty.with_dtype(dtype);
    graph.push_typed(Op::Convert(dtype), vec![value], vec![ty], None)[0]
}
