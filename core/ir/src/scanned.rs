//! Several iterations of a program as one.

use halite_core::{Result, TensorType};

use crate::{Graph, Op, Value};

/// Returns the graph that runs `graph` `length` times: a single [`Op::Scan`] of it.
///
/// Inputs of `graph` are `(carried.., scanned.., invariant..)`, and its first `carried` outputs are
/// the next carried values. Inputs of the result are the same, except that each scanned one has a
/// new first dimension `length`; so has each output that is not carried.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_ir::{BinaryOp, Graph, Op, scanned};
///
/// let mut graph = Graph::new();
/// let [sum, x] = [0, 1].map(|_| graph.input(TensorType::new(DType::F32, [2])));
/// let next = graph.push(Op::Binary(BinaryOp::Add), &[sum, x], None)?[0];
/// graph.set_outputs(vec![next, next]);
/// let sums = scanned(graph, 1, 1, 10)?;
/// assert_eq!(sums.input_types()[1].to_string(), "f32[10, 2]");
/// assert_eq!(sums.output_types()[1].to_string(), "f32[10, 2]");
/// # Ok::<(), halite_core::Error>(())
/// ```
///
/// # Errors
/// If an output has another type than the carried value that it is next of; if there is no output.
///
/// # Panics
/// If `graph` has fewer than `carried + scanned` inputs.
pub fn scanned(mut graph: Graph, carried: usize, scanned: usize, length: usize) -> Result<Graph> {
    let mut new = Graph::new();
    let slices = carried..carried + scanned;
    let mut operands: Vec<Value> = (graph.input_types().into_iter().enumerate())
        .map(|(index, ty)| {
            new.input(match slices.contains(&index) {
                true => TensorType::new(ty.dtype(), [&[length], ty.dims()].concat()),
                false => ty,
            })
        })
        .collect();
    // A scan takes invariant values before scanned ones.
    operands[carried..].rotate_left(scanned);
    graph.inputs[carried..].rotate_left(scanned);
    let scan = Op::Scan {
        carried,
        scanned,
        length,
        reverse: false,
        residuals: 0,
        body: Box::new(graph),
    };
    let results = new.push(scan, &operands, None)?.to_vec();
    new.set_outputs(results);
    Ok(new)
}
