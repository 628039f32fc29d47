//! Prints a graph as StableHLO text, which every backend compiles.
//!
//! One pass writes into one string. The graph decides which values are computed, and their types;
//! printing decides the form alone.

mod attributes;
mod collectives;
mod constant;
mod facts;
mod ops;
mod regions;
mod writer;

use std::{panic::Location, sync::Arc};

use halite_core::{Error, MeshShape, PartitionSpec, Program, Result, Signature, TensorType};

use crate::{Graph, Node};
use writer::{Name, Writer};

/// Name of a program, and names, shardings and donation of its inputs and outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Name in dumps, reports and errors.
    pub name: String,
    /// Mesh of the devices that share the work of one run. `None` or a mesh of one device is for a
    /// program without partitions.
    pub mesh: Option<MeshShape>,
    /// One per input of the graph; empty if none has a name or sharding.
    pub inputs: Vec<Port>,
    /// One per output of the graph; empty if none has a name or sharding.
    pub outputs: Vec<Port>,
    /// Donated inputs, as `(input, output)`: the output reuses the input's memory.
    pub aliases: Vec<(usize, usize)>,
    /// Number of replicas, each with tensors of its own. At least 1.
    pub replicas: usize,
    /// Writes the user's source line of each operation, for errors of the compiler and profiles.
    pub locations: bool,
}

/// An input or output of a program.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Port {
    /// Name for messages: `model.hidden.weight`.
    pub name: Option<String>,
    /// Its sharding over the mesh; `None` leaves it to the compiler.
    pub spec: Option<PartitionSpec>,
}

impl Interface {
    /// One device, nothing donated, with locations.
    pub fn new(name: impl Into<String>) -> Self {
        Interface {
            name: name.into(),
            ..Interface::default()
        }
    }
}

impl Default for Interface {
    fn default() -> Self {
        Interface {
            name: "program".to_string(),
            mesh: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            aliases: Vec::new(),
            replicas: 1,
            locations: true,
        }
    }
}

/// Prints the graph as a program for a backend: its text, and the types of one device's shards.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_ir::{Graph, Interface, Op, Unary, program};
///
/// let mut graph = Graph::new();
/// let x = graph.input(TensorType::new(DType::F32, [2]));
/// let y = graph.push(Op::Unary(Unary::Tanh), &[x], None).unwrap()[0];
/// graph.set_outputs(vec![y]);
/// let program = program(&graph, &Interface { aliases: vec![(0, 0)], ..Interface::new("activation") }).unwrap();
/// assert_eq!(program.signature.donated, [0]);
/// ```
///
/// # Errors
/// The errors of [`text`]; also if the program is for several devices and an input or output has no
/// [`Port::spec`], or one that does not divide it.
pub fn program(graph: &Graph, interface: &Interface) -> Result<Program> {
    let code = text(graph, interface)?;
    let shards = |values: &[crate::Value], ports: &[Port], what: &str| -> Result<Vec<TensorType>> {
        let shard = |(i, &value): (usize, &crate::Value)| {
            shard(interface, graph.ty(value), ports.get(i), what, i)
        };
        values.iter().enumerate().map(shard).collect()
    };
    let mut donated: Vec<usize> = interface.aliases.iter().map(|&(input, _)| input).collect();
    donated.sort_unstable();
    let partitions = interface.mesh.as_ref().map_or(1, MeshShape::size);
    Ok(Program {
        name: Arc::from(interface.name.as_str()),
        code: Arc::from(code.into_bytes()),
        signature: Signature {
            inputs: shards(graph.inputs(), &interface.inputs, "input")?,
            outputs: shards(graph.outputs(), &interface.outputs, "output")?,
            donated,
        },
        partitions,
        replicas: interface.replicas,
        facts: facts::facts(graph, partitions),
    })
}

/// Prints the graph as StableHLO text.
///
/// # Errors
/// If the interface does not fit the graph: another number of inputs or outputs, a spec that names
/// no axis of the mesh, an alias of two tensors that differ. If the graph has an operation that
/// does not fit the interface: a collective whose groups name replicas that are not there.
pub fn text(graph: &Graph, interface: &Interface) -> Result<String> {
    check(graph, interface)?;
    let mesh = interface.mesh.as_ref().filter(|mesh| mesh.size() > 1);
    let mut writer = Writer::new(graph.nodes().len(), interface.locations);
    let mut printer = Printer {
        w: &mut writer,
        mesh: interface.mesh.as_ref(),
        replicas: interface.replicas,
        manual: None,
        channels: 0,
    };

    printer.w.text("module @").symbol(&interface.name);
    printer
        .w
        .text(" attributes {mhlo.num_partitions = ")
        .number(mesh.map_or(1, MeshShape::size));
    printer
        .w
        .text(" : i32, mhlo.num_replicas = ")
        .number(interface.replicas)
        .text(" : i32} {");
    printer.w.indent();
    if let Some(mesh) = mesh {
        printer.w.line().text("sdy.mesh @mesh = <[");
        for (i, (axis, size)) in mesh.axes().enumerate() {
            printer.w.comma(i).string(axis).text("=").number(size);
        }
        printer.w.text("]>");
    }
    printer.w.line().text("func.func public @main(");
    let mut inputs = Vec::with_capacity(graph.inputs().len());
    for (i, &input) in graph.inputs().iter().enumerate() {
        let ty = graph.ty(input);
        let name = Name::Argument(i as u32);
        let port = interface.inputs.get(i);
        printer.w.comma(i).name(name).text(": ").ty(ty);
        let alias = interface
            .aliases
            .iter()
            .find(|&&(input, _)| input == i)
            .map(|&(_, output)| output);
        printer.port_attributes(ty, port, alias);
        if let Some(label) = port
            .and_then(|port| port.name.as_deref())
            .filter(|_| interface.locations)
        {
            printer.w.text(" loc(").string(label).text(")");
        }
        inputs.push(name);
    }
    printer.w.text(") -> (");
    for (i, &output) in graph.outputs().iter().enumerate() {
        printer.w.comma(i).ty(graph.ty(output));
        printer.port_attributes(graph.ty(output), interface.outputs.get(i), None);
    }
    printer.w.text(") {");
    printer.w.indent();
    let outputs = printer.nodes(graph, inputs)?;
    printer.terminator("return", graph, &outputs);
    printer.w.outdent();
    printer.w.line().text("}");
    printer.w.outdent();
    printer.w.line().text("}\n");
    Ok(writer.finish())
}

struct Printer<'a> {
    w: &'a mut Writer,
    mesh: Option<&'a MeshShape>,
    replicas: usize,
    /// Inside a `shard_map` over several devices: its manual axes, and whether these are all axes.
    manual: Option<(Vec<Arc<str>>, bool)>,
    /// Number of collectives between partitions so far.
    channels: usize,
}

impl Printer<'_> {
    /// Prints the nodes of `graph`, whose inputs have the names `inputs`. Returns the names of its
    /// outputs.
    fn nodes(&mut self, graph: &Graph, inputs: Vec<Name>) -> Result<Vec<Name>> {
        let mut names = vec![Name::Argument(u32::MAX); graph.value_count()];
        for (&input, name) in graph.inputs().iter().zip(inputs) {
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
    fn terminator(&mut self, keyword: &str, graph: &Graph, outputs: &[Name]) {
        self.w.line().text(keyword);
        for (i, &output) in outputs.iter().enumerate() {
            self.w.text(if i == 0 { " " } else { ", " }).name(output);
        }
        for (i, &output) in graph.outputs().iter().enumerate() {
            self.w
                .text(if i == 0 { " : " } else { ", " })
                .ty(graph.ty(output));
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

    fn partitioned(&self) -> bool {
        self.mesh.is_some_and(|mesh| mesh.size() > 1)
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

/// Checks that the interface fits the graph.
fn check(graph: &Graph, interface: &Interface) -> Result<()> {
    let fail = |message: String| {
        Err(Error::invalid(
            "print",
            format!("program `{}`: {message}", interface.name),
        ))
    };
    let sides = [
        ("input", graph.inputs(), &interface.inputs),
        ("output", graph.outputs(), &interface.outputs),
    ];
    for (what, values, ports) in sides {
        if !ports.is_empty() && ports.len() != values.len() {
            return fail(format!(
                "{} {what} ports for {} {what}s of the graph",
                ports.len(),
                values.len()
            ));
        }
        for (i, (&value, port)) in values.iter().zip(ports).enumerate() {
            let (ty, Some(spec)) = (graph.ty(value), &port.spec) else {
                continue;
            };
            let outcome = match &interface.mesh {
                Some(mesh) => spec.shard_type(mesh, ty).map(|_| ()),
                None if spec.is_replicated() && spec.rank() <= ty.rank() => Ok(()),
                None => Err(Error::invalid(
                    "sharding",
                    format!("{spec} of {ty}, and no mesh"),
                )),
            };
            outcome.map_err(|error| error_of_port(interface, what, i, Some(port), error))?;
        }
    }
    if interface.replicas == 0 || i32::try_from(interface.replicas).is_err() {
        return fail(format!(
            "{} replicas; expected at least 1",
            interface.replicas
        ));
    }
    for (i, &(input, output)) in interface.aliases.iter().enumerate() {
        let (Some(&from), Some(&to)) = (graph.inputs().get(input), graph.outputs().get(output))
        else {
            let (inputs, outputs) = (graph.inputs().len(), graph.outputs().len());
            return fail(format!(
                "alias of input {input} and output {output}; there are {inputs} inputs and {outputs} outputs"
            ));
        };
        if interface.aliases[..i]
            .iter()
            .any(|&(other, _)| other == input)
        {
            return fail(format!("input {input} is aliased twice"));
        }
        if interface.aliases[..i]
            .iter()
            .any(|&(_, other)| other == output)
        {
            return fail(format!("output {output} is aliased twice"));
        }
        let (from, to) = (graph.ty(from), graph.ty(to));
        if from != to {
            return fail(format!(
                "input {input} is {from} and output {output} is {to}; aliases must have equal types"
            ));
        }
        let spec = |ports: &[Port], i: usize| ports.get(i).and_then(|port| port.spec.clone());
        let (input_spec, output_spec) = (
            spec(&interface.inputs, input),
            spec(&interface.outputs, output),
        );
        let axes =
            |spec: &Option<PartitionSpec>, dim| spec.as_ref().map(|spec| spec.axes(dim).to_vec());
        let partitioned = interface.mesh.as_ref().is_some_and(|mesh| mesh.size() > 1);
        if partitioned
            && (0..from.rank()).any(|dim| axes(&input_spec, dim) != axes(&output_spec, dim))
        {
            let say = |spec: &Option<PartitionSpec>| {
                spec.as_ref()
                    .map_or("unspecified".to_string(), |spec| spec.to_string())
            };
            return fail(format!(
                "input {input} is sharded as {} and output {output} as {}; aliases must be sharded alike",
                say(&input_spec),
                say(&output_spec)
            ));
        }
    }
    Ok(())
}

/// The type of one device's shard of an input or output.
fn shard(
    interface: &Interface,
    ty: &TensorType,
    port: Option<&Port>,
    what: &str,
    i: usize,
) -> Result<TensorType> {
    let Some(mesh) = interface.mesh.as_ref().filter(|mesh| mesh.size() > 1) else {
        return Ok(ty.clone());
    };
    let Some(spec) = port.and_then(|port| port.spec.as_ref()) else {
        let error = Error::invalid(
            "sharding",
            format!("{ty} on {mesh:#} has no spec; set one, such as PartitionSpec::replicated()"),
        );
        return Err(error_of_port(interface, what, i, port, error));
    };
    spec.shard_type(mesh, ty)
        .map_err(|error| error_of_port(interface, what, i, port, error))
}

fn error_of_port(
    interface: &Interface,
    what: &str,
    i: usize,
    port: Option<&Port>,
    error: Error,
) -> Error {
    let name = port
        .and_then(|port| port.name.as_ref())
        .map(|name| format!(" (`{name}`)"))
        .unwrap_or_default();
    Error::invalid(
        "print",
        format!(
            "program `{}`: {what} {i}{name}: {}",
            interface.name,
            error.message()
        ),
    )
}

/// Adds the user's source line of the operation to an error.
pub(crate) fn located(error: Error, origin: Option<&'static Location<'static>>) -> Error {
    match origin {
        Some(origin) => Error::new(
            error.kind(),
            error.op().to_string(),
            format!("{} (at {origin})", error.message()),
        ),
        None => error,
    }
}
