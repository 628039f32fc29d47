//! Whether a graph is what it says it is.

use halite_core::{Error, Result, TensorType};

use crate::{Graph, Node, Value, infer, print::located};

/// Every value is made before it is used and made once, types are those that [`infer()`] gives, outputs and the graphs
/// of regions likewise.
///
/// A graph made by [`Graph::push`] from its own values is always valid; one whose values come from elsewhere may not be.
///
/// # Errors
/// For the first node that is wrong: its number, operation and origin, and what is wrong.
pub fn verify(graph: &Graph) -> Result<()> {
    let mut made = vec![false; graph.value_count()];
    for (i, &input) in graph.inputs().iter().enumerate() {
        make(&mut made, input).map_err(|problem| Error::invalid("verify", format!("input {i}: {problem}")))?;
    }
    for (i, node) in graph.nodes().iter().enumerate() {
        check(graph, node, &mut made).map_err(|problem| {
            located(Error::invalid("verify", format!("node {i}, {}: {problem}", node.op.name())), node.origin)
        })?;
    }
    for (i, output) in graph.outputs().iter().enumerate() {
        if !made.get(output.index()).copied().unwrap_or(false) {
            return Err(Error::invalid("verify", format!("output {i} is value {}, which nothing makes", output.index())));
        }
    }
    Ok(())
}

fn check(graph: &Graph, node: &Node, made: &mut [bool]) -> Result<(), String> {
    for (i, operand) in node.operands.iter().enumerate() {
        match made.get(operand.index()) {
            Some(true) => {}
            Some(false) => return Err(format!("operand {i} is value {}, which is not made before", operand.index())),
            None => return Err(format!("operand {i} is value {}; the graph has {}", operand.index(), graph.value_count())),
        }
    }
    for (i, region) in node.op.regions().into_iter().enumerate() {
        verify(region).map_err(|error| format!("in region {i}: {}", error.message()))?;
    }
    let operands: Vec<&TensorType> = node.operands.iter().map(|&operand| graph.ty(operand)).collect();
    let wanted = infer(&node.op, &operands).map_err(|error| error.message().to_string())?;
    for (i, &result) in node.results.iter().enumerate() {
        make(made, result).map_err(|problem| format!("result {i}: {problem}"))?;
    }
    if !node.results.iter().map(|&result| graph.ty(result)).eq(&wanted) {
        let results: Vec<&TensorType> = node.results.iter().map(|&result| graph.ty(result)).collect();
        return Err(format!("the results are said to be {results:?}, they are {wanted:?}"));
    }
    Ok(())
}

fn make(made: &mut [bool], value: Value) -> Result<(), String> {
    let count = made.len();
    match made.get_mut(value.index()) {
        Some(made) if *made => Err(format!("value {} is made twice", value.index())),
        Some(made) => {
            *made = true;
            Ok(())
        }
        None => Err(format!("value {}; the graph has {count}", value.index())),
    }
}
