//! The module that a graph is lowered to is that of its text, and is written as this text.

mod operations;

use halite_ir::{Graph, Interface, legalize, text};
use halite_stablehlo::{Module, Position, Region};

/// Checks that lowering the graph and reading its text give the same module, which is written as
/// the same text, or the same error.
#[track_caller]
pub(crate) fn same(graph: &Graph, interface: &Interface) {
    let lowered = legalize(graph, interface);
    let text = match text(graph, interface) {
        Ok(text) => text,
        Err(error) => {
            let expected = (error.kind(), error.to_string());
            let found = lowered.expect_err(&expected.1);
            assert_eq!((found.kind(), found.to_string()), expected);
            return;
        }
    };
    let mut read = Module::parse(&text).unwrap();
    for function in &mut read.functions {
        forget_positions(&mut function.body);
    }
    let lowered = lowered.unwrap();
    assert!(
        lowered == read,
        "lowered:\n{lowered}\n{lowered:?}\n\nread:\n{read}\n{read:?}"
    );
    same_text(graph, interface, &lowered);
}

/// Checks that the module is written as the graph, and is read from its text.
#[track_caller]
fn same_text(graph: &Graph, interface: &Interface, module: &Module) {
    let expected = text(graph, interface).unwrap();
    let written = module.to_text();
    assert!(written == expected, "{written}\nexpected:\n{expected}");
    let mut read = Module::parse(&written).unwrap();
    for function in &mut read.functions {
        forget_positions(&mut function.body);
    }
    assert!(read == *module, "{written}\n{read:?}\n\n{module:?}");

    let without_locations = Interface {
        locations: false,
        ..interface.clone()
    };
    let mut key = String::new();
    module.write_without_locations(&mut key).unwrap();
    assert_eq!(key, text(graph, &without_locations).unwrap());
}

/// Removes the places in the text.
fn forget_positions(region: &mut Region) {
    for operation in &mut region.operations {
        operation.position = Position::Unknown;
        operation.regions.iter_mut().for_each(forget_positions);
    }
}
