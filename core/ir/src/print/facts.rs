//! Facts of a program that backends need beside its text.

use halite_core::{DType, ProgramFacts};

use crate::{Graph, Op};

/// The facts of a printed graph. `None` for one with a custom call, whose attributes are not
/// understood here, or a type that drivers may be unable to count: backends search its text.
pub(super) fn facts(graph: &Graph, partitions: usize, one_function: bool) -> Option<ProgramFacts> {
    let partitioned = partitions > 1;
    let mut facts = ProgramFacts {
        shardy: partitioned,
        mesh_sizes: if partitioned {
            vec![partitions]
        } else {
            vec![]
        },
        one_function,
        ..ProgramFacts::default()
    };
    collect(graph, &mut facts).then_some(facts)
}

/// Adds what `graph` has, regions included. Returns false if it has something unknown.
fn collect(graph: &Graph, facts: &mut ProgramFacts) -> bool {
    let results = graph.nodes().iter().flat_map(|node| &node.results);
    for &value in graph.inputs().iter().chain(results) {
        let ty = graph.ty(value);
        // As drivers count: a dimension of 0 does not hide that others are too large.
        let bytes = (ty.dims().iter()).try_fold(ty.dtype().size(), |bytes, &dim| {
            bytes.checked_mul(dim.max(1))
        });
        if bytes.is_none_or(|bytes| bytes > ProgramFacts::LARGEST_TYPE) {
            return false;
        }
        facts.bf16 |= ty.dtype() == DType::Bf16;
    }
    graph.nodes().iter().all(|node| {
        facts.convolutions |= matches!(node.op, Op::Convolution(..));
        !matches!(&node.op, Op::CustomCall(call) if call.decomposition.is_none())
            && (node.op.regions().into_iter()).all(|region| collect(region, facts))
    })
}
