//! Validation of graphs.

use halite_core::{Error, Result, TensorType};

use crate::{Graph, Node, Value, infer, legalize::located};

/// Checks that every value is computed once, before it is used, with the type that [`infer()`]
/// returns; also in regions.
///
/// A graph built by [`Graph::push`] from its own values is always valid; one with values of another
/// graph may not be.
///
/// # Errors
/// The first invalid node: its number, operation and origin, and the problem.
pub fn verify(graph: &Graph) -> Result<()> {
    let mut made = vec![false; graph.value_count()];
    for (i, &input) in graph.inputs().iter().enumerate() {
        define(&mut made, input)
            .map_err(|problem| Error::invalid("verify", format!("input {i}: {problem}")))?;
    }
    for (i, node) in graph.nodes().iter().enumerate() {
        check(graph, node, &mut made).map_err(|problem| {
            located(
                Error::invalid("verify", format!("node {i}, {}: {problem}", node.op.name())),
                node.origin,
            )
        })?;
    }
    for (i, output) in graph.outputs().iter().enumerate() {
        if !made.get(output.index()).copied().unwrap_or(false) {
            return Err(Error::invalid(
                "verify",
                format!(
                    "output {i} is value {}, which no node computes",
                    output.index()
                ),
            ));
        }
    }
    Ok(())
}

fn check(graph: &Graph, node: &Node, made: &mut [bool]) -> Result<(), String> {
    for (i, operand) in node.operands.iter().enumerate() {
        match made.get(operand.index()) {
            Some(true) => {}
            Some(false) => {
                return Err(format!(
                    "operand {i} is value {}, which is not computed before",
                    operand.index()
                ));
            }
            None => {
                return Err(format!(
                    "operand {i} is value {}; the graph has {}",
                    operand.index(),
                    graph.value_count()
                ));
            }
        }
    }
    for (i, region) in node.op.regions().into_iter().enumerate() {
        verify(region).map_err(|error| format!("in region {i}: {}", error.message()))?;
    }
    let operands: Vec<&TensorType> = node
        .operands
        .iter()
        .map(|&operand| graph.ty(operand))
        .collect();
    let inferred = infer(&node.op, &operands).map_err(|error| error.message().to_string())?;
    for (i, &result) in node.results.iter().enumerate() {
        define(made, result).map_err(|problem| format!("result {i}: {problem}"))?;
    }
    if !node
        .results
        .iter()
        .map(|&result| graph.ty(result))
        .eq(&inferred)
    {
        let results: Vec<&TensorType> = node
            .results
            .iter()
            .map(|&result| graph.ty(result))
            .collect();
        return Err(format!(
            "the results are declared as {results:?} and inferred as {inferred:?}"
        ));
    }
    Ok(())
}

fn define(defined: &mut [bool], value: Value) -> Result<(), String> {
    let count = defined.len();
    match defined.get_mut(value.index()) {
        Some(defined) if *defined => Err(format!("value {} is computed twice", value.index())),
        Some(defined) => {
            *defined = true;
            Ok(())
        }
        None => Err(format!("value {}; the graph has {count}", value.index())),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use halite_core::{DType, TensorType};

    use super::verify;
    use crate::{Graph, Node, Op, UnaryOp, Value};

    /// Adds a node that `Graph::push` refuses.
    fn push(
        graph: &mut Graph,
        operand: Value,
        result: TensorType,
        origin: Option<&'static Location<'static>>,
    ) {
        let results = vec![graph.value(result)];
        graph.nodes.push(Node {
            op: Op::Unary(UnaryOp::Tanh),
            operands: vec![operand],
            results,
            origin,
        });
    }

    #[test]
    fn error_names_node_with_line() {
        let ty = TensorType::new(DType::F32, [2]);
        let here = Location::caller();
        let with = |operand: u32, result: TensorType| {
            let mut graph = Graph::new();
            graph.input(ty.clone());
            push(&mut graph, Value(operand), result, Some(here));
            verify(&graph).map_err(|error| error.to_string())
        };
        let error = |problem: &str| Err(format!("verify: node 0, tanh: {problem} (at {here})"));
        assert_eq!(with(0, ty.clone()), Ok(()));
        assert_eq!(
            with(1, ty.clone()),
            error("operand 0 is value 1, which is not computed before")
        );
        assert_eq!(
            with(9, ty.clone()),
            error("operand 0 is value 9; the graph has 2")
        );
        let other = ty.with_dtype(DType::S32);
        assert_eq!(
            with(0, other),
            error("the results are declared as [s32[2]] and inferred as [f32[2]]")
        );
    }

    #[test]
    fn error_names_node_inside_region() {
        let mut branch = Graph::new();
        let x = branch.input(TensorType::scalar(DType::S32));
        push(&mut branch, x, TensorType::scalar(DType::S32), None);
        branch.set_outputs(vec![x]);
        let mut graph = Graph::new();
        let index = graph.input(TensorType::scalar(DType::S32));
        graph
            .push(
                Op::Case {
                    branches: vec![branch],
                },
                &[index, index],
                None,
            )
            .unwrap();
        let error = verify(&graph).unwrap_err().to_string();
        let inside = "in region 0: node 0, tanh: takes floats, not s32[] (convert first)";
        assert_eq!(error, format!("verify: node 0, case: {inside}"));
    }
}
