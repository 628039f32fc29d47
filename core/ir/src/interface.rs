//! Interface of a program, and the checks that it fits the graph.

use std::collections::HashSet;

use halite_core::{Error, MeshShape, PartitionSpec, Result, TensorType};

use crate::{Graph, Value};

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
    /// Asks XLA's CPU compiler to compile the program as one function, without calls of libraries.
    /// It must be of one device; [`one_function`](crate::one_function) returns graphs that the
    /// compiler can compile so.
    pub one_function: bool,
    /// Asks for full precision in contractions of `f32`, `HIGHEST` of StableHLO, for devices that
    /// round their operands otherwise.
    pub full_products: bool,
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
            one_function: false,
            full_products: false,
        }
    }
}

/// Checks that the interface fits the graph.
pub(crate) fn check(graph: &Graph, interface: &Interface) -> Result<()> {
    interface.check_ports(graph, "input", graph.inputs(), &interface.inputs)?;
    interface.check_ports(graph, "output", graph.outputs(), &interface.outputs)?;
    if interface.replicas == 0 || i32::try_from(interface.replicas).is_err() {
        return interface.fail(format!(
            "{} replicas; expected at least 1",
            interface.replicas
        ));
    }
    let (mut inputs, mut outputs) = (HashSet::new(), HashSet::new());
    for &(input, output) in &interface.aliases {
        if !inputs.insert(input) {
            return interface.fail(format!("input {input} is aliased twice"));
        }
        if !outputs.insert(output) {
            return interface.fail(format!("output {output} is aliased twice"));
        }
        interface.check_alias(graph, input, output)?;
    }
    Ok(())
}

impl Interface {
    fn fail(&self, message: String) -> Result<()> {
        let message = format!("program `{}`: {message}", self.name);
        Err(Error::invalid("lower", message))
    }

    fn check_ports(
        &self,
        graph: &Graph,
        what: &str,
        values: &[Value],
        ports: &[Port],
    ) -> Result<()> {
        if !ports.is_empty() && ports.len() != values.len() {
            return self.fail(format!(
                "{} {what} ports for {} {what}s of the graph",
                ports.len(),
                values.len()
            ));
        }
        for (i, (&value, port)) in values.iter().zip(ports).enumerate() {
            let (ty, Some(spec)) = (graph.ty(value), &port.spec) else {
                continue;
            };
            let outcome = match &self.mesh {
                Some(mesh) => spec.shard_type(mesh, ty).map(|_| ()),
                None if spec.is_replicated() && spec.rank() <= ty.rank() => Ok(()),
                None => Err(Error::invalid(
                    "sharding",
                    format!("{spec} of {ty}, and no mesh"),
                )),
            };
            outcome.map_err(|error| error_of_port(self, what, i, Some(port), error))?;
        }
        Ok(())
    }

    /// Checks that the tensors of an alias exist and are alike.
    fn check_alias(&self, graph: &Graph, input: usize, output: usize) -> Result<()> {
        let (Some(&from), Some(&to)) = (graph.inputs().get(input), graph.outputs().get(output))
        else {
            let (inputs, outputs) = (graph.inputs().len(), graph.outputs().len());
            return self.fail(format!(
                "alias of input {input} and output {output}; there are {inputs} inputs and \
                 {outputs} outputs"
            ));
        };
        let (from, to) = (graph.ty(from), graph.ty(to));
        if from != to {
            return self.fail(format!(
                "input {input} is {from} and output {output} is {to}; \
                 aliases must have equal types"
            ));
        }
        let partitioned = self.mesh.as_ref().is_some_and(|mesh| mesh.size() > 1);
        let (from_spec, to_spec) = (spec(&self.inputs, input), spec(&self.outputs, output));
        if partitioned && !sharded_alike(from_spec, to_spec, from.rank()) {
            let name = |spec: Option<&PartitionSpec>| {
                spec.map_or("unspecified".to_string(), PartitionSpec::to_string)
            };
            return self.fail(format!(
                "input {input} is sharded as {} and output {output} as {}; \
                 aliases must be sharded alike",
                name(from_spec),
                name(to_spec)
            ));
        }
        Ok(())
    }
}

fn spec(ports: &[Port], i: usize) -> Option<&PartitionSpec> {
    ports.get(i).and_then(|port| port.spec.as_ref())
}

fn sharded_alike(a: Option<&PartitionSpec>, b: Option<&PartitionSpec>, rank: usize) -> bool {
    (0..rank).all(|dim| a.map(|spec| spec.axes(dim)) == b.map(|spec| spec.axes(dim)))
}

/// The type of one device's shard of an input or output.
pub(crate) fn shard(
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
        "lower",
        format!(
            "program `{}`: {what} {i}{name}: {}",
            interface.name,
            error.message()
        ),
    )
}
