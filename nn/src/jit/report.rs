//! What is said of a program that does not fit.

use std::panic::Location;

use halite_core::{LargeBuffer, TensorType};
use halite_ir::Graph;

/// The largest tensors of a program, largest first: its inputs, as one device sees them, and what
/// it computes, whole.
pub(super) fn largest<'a>(
    graph: &Graph,
    inputs: impl Iterator<Item = (String, &'a TensorType)>,
) -> Vec<LargeBuffer> {
    const NAMED: usize = 6;
    let named = inputs.map(|(path, ty)| (ty, None, Some(path), None));
    let computed = graph.nodes().iter().flat_map(|node| {
        node.results
            .iter()
            .map(|&value| (graph.ty(value), Some(node.op.name()), None, node.origin))
    });
    let mut all: Vec<_> = named.chain(computed).collect();
    // What has no size in this process's address space is the largest.
    all.sort_by_key(|(ty, ..)| std::cmp::Reverse(ty.checked_bytes().unwrap_or(usize::MAX)));
    let buffer = |(ty, op, path, line): (
        &TensorType,
        Option<&str>,
        Option<String>,
        Option<&'static Location<'static>>,
    )| {
        let what = match path {
            Some(path) if path.is_empty() => "the input".to_string(),
            Some(path) => format!("`{path}`"),
            None => op.expect("what is no input is computed").to_string(),
        };
        LargeBuffer {
            what,
            ty: ty.clone(),
            line,
        }
    };
    all.into_iter().take(NAMED).map(buffer).collect()
}
