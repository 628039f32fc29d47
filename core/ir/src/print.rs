//! Prints a graph as StableHLO text, for tests and for a look at a graph.
//!
//! Programs of backends are lowered by [`legalize`](crate::legalize()), whose module has the same
//! text: the tests compare each with the other. One pass writes into one string.

mod attributes;
mod collectives;
mod constant;
mod ops;
mod reduce;
mod regions;
mod scan;
mod writer;

use std::sync::Arc;

use halite_core::{MeshShape, Result, TensorType};

use crate::{Graph, Interface, Node, Port, Value, interface::check, legalize::located};
use writer::{Name, Writer};

/// Prints the graph as StableHLO text.
///
/// # Errors
/// If the interface does not fit the graph: another number of inputs or outputs, a spec that names
/// no axis of the mesh, an alias of two tensors that differ. If the graph has an operation that
/// does not fit the interface: a collective whose groups name replicas that are not there.
pub fn text(graph: &Graph, interface: &Interface) -> Result<String> {
    check(graph, interface)?;
    let mut writer = Writer::new(graph.nodes().len(), interface.locations);
    let mut printer = Printer {
        w: &mut writer,
        mesh: interface.mesh.as_ref(),
        replicas: interface.replicas,
        full_products: interface.full_products,
        manual: None,
        channels: 0,
    };
    printer.module(graph, interface)?;
    Ok(writer.finish())
}

struct Printer<'a> {
    w: &'a mut Writer,
    /// Mesh of the interface, which may be of one device.
    mesh: Option<&'a MeshShape>,
    replicas: usize,
    /// [`Interface::full_products`].
    full_products: bool,
    /// Inside a `shard_map` over several devices: its manual axes, and whether these are all axes.
    manual: Option<(Vec<Arc<str>>, bool)>,
    /// Number of collectives between partitions so far.
    channels: usize,
}

impl<'a> Printer<'a> {
    fn module(&mut self, graph: &Graph, interface: &Interface) -> Result<()> {
        let mesh = self.partitioned_mesh();
        self.w.text("module @").symbol(&interface.name);
        self.w.text(" attributes {mhlo.num_partitions = ");
        self.w.number(mesh.map_or(1, MeshShape::size));
        self.w.text(" : i32, mhlo.num_replicas = ");
        self.w.number(interface.replicas).text(" : i32} {");
        self.w.indent();
        if let Some(mesh) = mesh {
            self.w.line().text("sdy.mesh @mesh = <[");
            for (i, (axis, size)) in mesh.axes().enumerate() {
                self.w.comma(i).string(axis).text("=").number(size);
            }
            self.w.text("]>");
        }
        let inputs = self.main_signature(graph, interface);
        if interface.one_function {
            self.call_of_function(graph, &inputs);
        }
        self.w.indent();
        let mut outputs = self.nodes(graph, &inputs)?;
        let mut values = graph.outputs().to_vec();
        if interface.one_function {
            outputs.extend(inputs);
            values.extend(graph.inputs());
        }
        self.terminator("return", graph, &values, &outputs);
        self.w.outdent();
        self.w.line().text("}");
        self.w.outdent();
        self.w.line().text("}\n");
        Ok(())
    }

    /// Writes `func.func public @main(%arg0: t) -> (t) {`. Returns the names of the inputs.
    fn main_signature(&mut self, graph: &Graph, interface: &Interface) -> Vec<Name> {
        let mut inputs = Vec::with_capacity(graph.inputs().len());
        self.w.line().text("func.func public @main(");
        for (i, &input) in graph.inputs().iter().enumerate() {
            let (name, ty) = (Name::Argument(i as u32), graph.ty(input));
            let port = interface.inputs.get(i);
            let mut aliases = interface.aliases.iter();
            let alias = aliases.find(|&&(input, _)| input == i);
            self.w.comma(i).name(name).text(": ").ty(ty);
            self.port_attributes(ty, port, alias.map(|&(_, output)| output));
            let label = port.and_then(|port| port.name.as_deref());
            if let Some(label) = label.filter(|_| interface.locations) {
                self.w.text(" loc(").string(label).text(")");
            }
            inputs.push(name);
        }
        self.w.text(") -> (");
        for (i, &output) in graph.outputs().iter().enumerate() {
            self.w.comma(i).ty(graph.ty(output));
            self.port_attributes(graph.ty(output), interface.outputs.get(i), None);
        }
        self.w.text(") {");
        inputs
    }

    /// Writes the body of `@main`, which calls `@function`, and the beginning of that function.
    ///
    /// The attributes are XLA's: the function's operations do not take the place of the call, and
    /// are compiled to one function of the processor. The function also returns its arguments,
    /// because XLA aborts the process when one is not used, be it after optimization.
    fn call_of_function(&mut self, graph: &Graph, inputs: &[Name]) {
        let types = |values: &[Value]| -> Vec<&TensorType> {
            values.iter().map(|&value| graph.ty(value)).collect()
        };
        let (given, returned) = (types(graph.inputs()), types(graph.outputs()));
        let all = [&*returned, &*given].concat();
        let number = self.w.fresh();
        let results: Vec<Name> = match all.len() {
            1 => vec![Name::Single(number)],
            _ => (0..returned.len() as u32)
                .map(|part| Name::Part(number, part))
                .collect(),
        };

        self.w.indent();
        self.w.line().results(number, all.len());
        self.w.text("func.call @function(").names(inputs);
        self.w
            .text(") {mhlo.frontend_attributes = {inlineable = \"false\", ");
        self.w
            .text("xla_cpu_small_call = \"true\"}} : (")
            .types(&given);
        self.w.text(") -> (").types(&all).text(")");
        self.w.line().text("return ").names(&results);
        self.w.text(" : ").types(&returned);
        self.w.outdent();
        self.w.line().text("}");

        let parameters: Vec<_> = inputs.iter().copied().zip(given).collect();
        self.w.line().text("func.func private @function(");
        self.w.parameters(&parameters).text(") -> (").types(&all);
        self.w.text(") {");
    }

    /// Prints the nodes of `graph`, whose inputs have the names `inputs`. Returns the names of its
    /// outputs.
    fn nodes(&mut self, graph: &Graph, inputs: &[Name]) -> Result<Vec<Name>> {
        let mut names = vec![Name::Argument(u32::MAX); graph.value_count()];
        for (&input, &name) in graph.inputs().iter().zip(inputs) {
            names[input.index()] = name;
        }
        let mut operands = Vec::new();
        let mut types = Vec::new();
        for node in graph.nodes() {
            operands.clear();
            operands.extend(node.operands.iter().map(|operand| names[operand.index()]));
            types.clear();
            types.extend(node.operands.iter().map(|&operand| graph.ty(operand)));
            let outcome = self.node(graph, node, &operands, &types, &mut names);
            outcome.map_err(|error| located(error, node.origin))?;
        }
        Ok(graph
            .outputs()
            .iter()
            .map(|output| names[output.index()])
            .collect())
    }

    /// `return %1, %2 : t, t`
    fn terminator(&mut self, keyword: &str, graph: &Graph, values: &[Value], names: &[Name]) {
        self.w.line().text(keyword);
        for (i, &name) in names.iter().enumerate() {
            self.w.text(if i == 0 { " " } else { ", " }).name(name);
        }
        for (i, &value) in values.iter().enumerate() {
            self.w
                .text(if i == 0 { " : " } else { ", " })
                .ty(graph.ty(value));
        }
    }

    /// Writes `{sdy.sharding = .., tf.aliasing_output = 0 : i32}`, if there is any attribute.
    fn port_attributes(&mut self, ty: &TensorType, port: Option<&Port>, alias: Option<usize>) {
        let spec = port
            .and_then(|port| port.spec.as_ref())
            .filter(|_| self.partitioned());
        if spec.is_none() && alias.is_none() {
            return;
        }
        self.w.text(" {");
        if let Some(spec) = spec {
            self.w
                .text("sdy.sharding = #sdy.sharding")
                .sharding(spec, ty.rank());
        }
        if let Some(output) = alias {
            self.w
                .comma(usize::from(spec.is_some()))
                .text("tf.aliasing_output = ")
                .number(output)
                .text(" : i32");
        }
        self.w.text("}");
    }

    /// The mesh if it has more than one device.
    fn partitioned_mesh(&self) -> Option<&'a MeshShape> {
        self.mesh.filter(|mesh| mesh.size() > 1)
    }

    /// The mesh of a program that the compiler partitions, where an axis is left that is not
    /// manual.
    fn constrained_mesh(&self) -> Option<&'a MeshShape> {
        let all_manual = matches!(self.manual, Some((_, true)));
        self.partitioned_mesh().filter(|_| !all_manual)
    }

    fn partitioned(&self) -> bool {
        self.partitioned_mesh().is_some()
    }

    fn node(
        &mut self,
        graph: &Graph,
        node: &Node,
        operands: &[Name],
        types: &[&TensorType],
        names: &mut [Name],
    ) -> Result<()> {
        let cx = ops::Cx {
            graph,
            node,
            operands,
            types,
        };
        match self.op(cx)? {
            ops::Printed::Group(group) => {
                let single = node.results.len() == 1;
                for (i, result) in node.results.iter().enumerate() {
                    names[result.index()] = if single {
                        Name::Single(group)
                    } else {
                        Name::Part(group, i as u32)
                    };
                }
            }
            ops::Printed::Same(operand) => names[node.results[0].index()] = operand,
            ops::Printed::Each(others) => {
                for (result, other) in node.results.iter().zip(others) {
                    names[result.index()] = other;
                }
            }
        }
        Ok(())
    }
}
