//! The module that a graph is lowered to is read from its text.

mod operations;

use halite_core::Result;
use halite_ir::{Graph, Interface, legalize};
use halite_stablehlo::{Module, Position, Region};

/// Text of the module that the graph is lowered to. Checks that it is read as this module, which
/// verifies its types, and that without places it is what is lowered without them.
#[track_caller]
pub(crate) fn read_back(graph: &Graph, interface: &Interface) -> String {
    try_read_back(graph, interface).unwrap()
}

/// As [`read_back`], unless the interface does not fit the graph.
#[track_caller]
fn try_read_back(graph: &Graph, interface: &Interface) -> Result<String> {
    let module = legalize(graph, interface)?;
    let text = module.to_text();
    let mut read = Module::parse(&text).unwrap();
    for function in &mut read.functions {
        forget_positions(&mut function.body);
    }
    assert!(read == module, "{text}\n{read:?}\n\n{module:?}");

    let without_locations = Interface {
        locations: false,
        ..interface.clone()
    };
    let mut key = String::new();
    module.write_without_locations(&mut key).unwrap();
    let without_locations = legalize(graph, &without_locations).unwrap();
    assert_eq!(key, without_locations.to_text());
    Ok(text)
}

/// Removes the places in the text.
fn forget_positions(region: &mut Region) {
    for operation in &mut region.operations {
        operation.position = Position::Unknown;
        operation.regions.iter_mut().for_each(forget_positions);
    }
}
