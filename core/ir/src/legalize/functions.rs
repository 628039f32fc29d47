//! The module, its functions, and the attributes of inputs and outputs.

use halite_core::{MeshShape, Result};
use halite_stablehlo::{
    Attribute, Attributes, ElementType, Function, Module, OpKind, RankedType, ValueIds,
};

use super::{Builder, sharding};
use crate::{Graph, Port, Value};

/// The function that `main` calls in a program of one function.
const FUNCTION: &str = "function";

impl Builder<'_> {
    pub(super) fn module(mut self, graph: &Graph) -> Result<Module> {
        let interface = self.interface;
        let mesh = self.partitioned_mesh();
        let mut functions = Vec::new();
        if interface.one_function {
            functions.push(self.caller(graph));
        }
        let inputs = self.open(types(graph, graph.inputs()));
        let mut outputs = self.nodes(graph, &inputs)?;
        if interface.one_function {
            outputs.extend(inputs);
            functions.push(self.function(FUNCTION, outputs));
        } else {
            functions.push(self.function("main", outputs));
        }
        functions[0].input_names = self.input_names(graph);
        functions[0].input_attributes = self.input_attributes(graph);
        functions[0].output_attributes = self.output_attributes(graph);
        let partitions = mesh.map_or(1, MeshShape::size);
        let counts = [
            ("mhlo.num_partitions", partitions),
            ("mhlo.num_replicas", interface.replicas),
        ];
        let counts = counts.map(|(name, count)| (name.to_owned(), s32(count)));
        Ok(Module {
            name: symbol(&interface.name),
            functions,
            meshes: mesh.map(sharding::mesh).into_iter().collect(),
            attributes: Attributes(counts.into()),
        })
    }

    /// `main`, which calls `function`.
    ///
    /// The attributes of the call are XLA's: the function's operations do not take the place of the
    /// call, and are compiled to one function of the processor. The function also returns its
    /// arguments, because XLA aborts the process when one is not used, be it after optimization.
    fn caller(&mut self, graph: &Graph) -> Function {
        let arguments = self.open(types(graph, graph.inputs()));
        let returned = types(graph, graph.outputs());
        let all = returned.chain(types(graph, graph.inputs()));
        let call = OpKind::Call {
            function: FUNCTION.to_owned(),
        };
        let mut results = self.add(call, &arguments, all, Vec::new());
        results.truncate(graph.outputs().len());
        let mut main = self.function("main", results);
        let hints = [("inlineable", "false"), ("xla_cpu_small_call", "true")];
        let hint = |(name, value): (&str, &str)| (name.to_owned(), Attribute::Str(value.into()));
        let hints = Attribute::Dict(Attributes(hints.map(hint).into()));
        let attributes = &mut main.body.operations[0].attributes;
        attributes.push("mhlo.frontend_attributes", hints);
        main
    }

    /// Completes the function whose region was begun last.
    fn function(&mut self, name: &str, results: ValueIds) -> Function {
        let body = self.close(&results);
        Function {
            name: name.to_owned(),
            types: std::mem::take(&mut self.types),
            input_names: vec![None; body.arguments.len()],
            input_attributes: vec![Attributes::default(); body.arguments.len()],
            output_attributes: vec![Attributes::default(); body.results.len()],
            body,
        }
    }

    fn input_names(&self, graph: &Graph) -> Vec<Option<String>> {
        let ports = &self.interface.inputs;
        let name = |input: usize| ports.get(input)?.name.clone();
        let inputs = 0..graph.inputs().len();
        inputs
            .map(|input| name(input).filter(|_| self.interface.locations))
            .collect()
    }

    fn input_attributes(&self, graph: &Graph) -> Vec<Attributes> {
        let mut attributes = self.port_attributes(graph, graph.inputs(), &self.interface.inputs);
        for &(input, output) in &self.interface.aliases {
            attributes[input].push("tf.aliasing_output", s32(output));
        }
        attributes
    }

    fn output_attributes(&self, graph: &Graph) -> Vec<Attributes> {
        self.port_attributes(graph, graph.outputs(), &self.interface.outputs)
    }

    /// The shardings of inputs or outputs, in a partitioned program.
    fn port_attributes(&self, graph: &Graph, values: &[Value], ports: &[Port]) -> Vec<Attributes> {
        let mut all = vec![Attributes::default(); values.len()];
        if self.partitioned_mesh().is_none() {
            return all;
        }
        for (attributes, (&value, port)) in all.iter_mut().zip(values.iter().zip(ports)) {
            if let Some(spec) = &port.spec {
                let sharding = sharding::sharding(spec, graph.ty(value).rank(), false);
                attributes.push("sdy.sharding", Attribute::Sharding(sharding));
            }
        }
        all
    }
}

fn types<'g>(graph: &'g Graph, values: &'g [Value]) -> impl Iterator<Item = RankedType> + 'g {
    values.iter().map(|&value| graph.ty(value).into())
}

fn s32(number: usize) -> Attribute {
    Attribute::Int(number as i64, ElementType::S32)
}

/// The symbol of a program with this name. Compilers derive file names from it.
fn symbol(name: &str) -> String {
    let letter = |first: char| first.is_ascii_alphabetic() || first == '_';
    let prefix = if name.starts_with(letter) { "" } else { "_" };
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    prefix.chars().chain(name.chars().map(word)).collect()
}
