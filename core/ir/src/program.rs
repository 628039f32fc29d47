//! Graphs as programs for a backend.

use std::sync::Arc;

use halite_core::{Code, MeshShape, Program, Result, Signature, TensorType};
use halite_stablehlo::{Attribute, Module, OpKind, ProgramModule, Region};

use crate::{Graph, Interface, Port, Value, interface::shard, legalize};

/// Lowers the graph to a program for a backend: its module, and the types of one device's shards.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_ir::{Graph, Interface, Op, UnaryOp, program};
///
/// let mut graph = Graph::new();
/// let x = graph.input(TensorType::new(DType::F32, [2]));
/// let y = graph.push(Op::Unary(UnaryOp::Tanh), &[x], None).unwrap()[0];
/// graph.set_outputs(vec![y]);
/// let program = program(&graph, &Interface { aliases: vec![(0, 0)], ..Interface::new("activation") }).unwrap();
/// assert_eq!(program.signature.donated, [0]);
/// ```
///
/// # Errors
/// The errors of [`legalize`]; also if the program is for several devices and an input or output has
/// no [`Port::spec`], or one that does not divide it.
pub fn program(graph: &Graph, interface: &Interface) -> Result<Program> {
    let module = legalize(graph, interface)?;
    let shards = |values: &[Value], ports: &[Port], what: &str| -> Result<Vec<TensorType>> {
        let shard =
            |(i, &value): (usize, &Value)| shard(interface, graph.ty(value), ports.get(i), what, i);
        values.iter().enumerate().map(shard).collect()
    };
    let mut donated: Vec<usize> = interface.aliases.iter().map(|&(input, _)| input).collect();
    donated.sort_unstable();
    Ok(Program {
        name: Arc::from(interface.name.as_str()),
        code: Code::from(module),
        signature: Signature {
            inputs: shards(graph.inputs(), &interface.inputs, "input")?,
            outputs: shards(graph.outputs(), &interface.outputs, "output")?,
            donated,
        },
        partitions: interface.mesh.as_ref().map_or(1, MeshShape::size),
        replicas: interface.replicas,
    })
}

/// The code of a program that [`program`] made, where this attribute of custom calls is left out.
pub fn without_attribute(code: &Code, name: &str) -> Code {
    let Some(code) = code.module::<ProgramModule>() else {
        return code.clone();
    };
    let mut module: Module = code.module().clone();
    for function in &mut module.functions {
        leave_out(&mut function.body, name);
    }
    Code::from(module)
}

fn leave_out(region: &mut Region, name: &str) {
    for operation in &mut region.operations {
        if let OpKind::CustomCall(call) = &mut operation.kind
            && let Some(Attribute::Dict(config)) = &mut call.config
        {
            config.take(name);
        }
        (operation.regions.iter_mut()).for_each(|region| leave_out(region, name));
    }
}
