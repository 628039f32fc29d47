//! Facts about a compile for reports: why it happened, and the largest buffers of the program.

use std::{cmp::Reverse, panic::Location};

use halite_core::{InputChange, LargeBuffer, Reason, TensorType};
use halite_ir::Graph;

use super::{ArraySpec, cache::Arguments};

/// Number of tensors that a report names.
const NAMED: usize = 6;

/// The reason for compiling a function again: the arguments that changed since its last program.
pub(super) fn changes(old: &Arguments, new: &Arguments) -> Reason {
    let (from, to) = (old.iter().count(), new.iter().count());
    if from != to {
        return Reason::Arranged { from, to };
    }
    let changes: Vec<InputChange> = (old.iter().zip(new.iter()))
        .filter(|((_, old), (_, new))| old != new)
        .map(|((_, old), (path, new))| InputChange {
            path: path.to_string(),
            from: (on_device(old), old.sharding.clone()),
            to: (on_device(new), new.sharding.clone()),
        })
        .collect();
    if changes.is_empty() {
        Reason::Arranged { from, to }
    } else {
        Reason::InputChanged(changes)
    }
}

/// The type of an array as its device stores it.
fn on_device(spec: &ArraySpec) -> TensorType {
    spec.ty.with_dtype(spec.stored)
}

/// The largest tensors of a program, largest first: its inputs, as one device sees them, and the
/// results of its operations, whole.
pub(super) fn largest<'a>(
    graph: &Graph,
    inputs: impl Iterator<Item = (String, &'a TensorType)>,
) -> Vec<LargeBuffer> {
    struct Candidate<'a> {
        ty: &'a TensorType,
        what: What<'a>,
        line: Option<&'static Location<'static>>,
    }
    enum What<'a> {
        Input(String),
        Result(&'a str),
    }
    let inputs = inputs.map(|(path, ty)| Candidate {
        ty,
        what: What::Input(path),
        line: None,
    });
    let results = graph.nodes().iter().flat_map(|node| {
        node.results.iter().map(|&value| Candidate {
            ty: graph.ty(value),
            what: What::Result(node.op.name()),
            line: node.origin,
        })
    });
    let mut all: Vec<_> = inputs.chain(results).collect();
    // A size that overflows counts as the largest.
    all.sort_by_key(|one| Reverse(one.ty.checked_bytes().unwrap_or(usize::MAX)));
    let buffer = |Candidate { ty, what, line }: Candidate<'_>| LargeBuffer {
        what: match what {
            What::Input(path) if path.is_empty() => "the input".to_string(),
            What::Input(path) => format!("`{path}`"),
            What::Result(op) => op.to_string(),
        },
        ty: ty.clone(),
        line,
    };
    all.into_iter().take(NAMED).map(buffer).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use halite_core::{
        DType, DeviceId, Sharding,
        tree::{Empty, Leaf},
    };

    use super::*;

    #[test]
    fn change_of_the_stored_dtype_is_named() {
        let sharding = Arc::new(Sharding::single(DeviceId(0)));
        let full = ArraySpec::new(TensorType::new(DType::F32, [4]), &sharding);
        let half = ArraySpec {
            stored: DType::Bf16,
            ..full.clone()
        };
        let arguments = |spec| Arguments::new(&Empty::new(), &Leaf(spec));
        let reason = changes(&arguments(full), &arguments(half)).to_string();
        assert!(
            reason.contains("f32[4]") && reason.contains("bf16[4]"),
            "{reason}"
        );
    }
}
