//! Plans: units in order, and the last use of each value.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex},
};

use halite_core::{Interpreted, Result};
use halite_kernels::{Program, Reduction};
use halite_stablehlo::{Module, RankedType};

use super::{
    arena::{Arena, Sizes},
    collective::Collective,
    contract::Product,
    direct::Direct,
    elementwise::Elementwise,
    graph::{Branch, Form, Graph, Kind, Links, Loop, Manual, Numbered, OracleCall},
    group::{self, Group, levels},
    place::Base,
    shape::{Shape, Shapes},
};
use crate::{oracle::Tensor, storage::Storage};

/// A program that is ready to run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) inputs: Vec<Base>,
    pub(super) outputs: Vec<Base>,
    /// Types of all values.
    pub(super) types: Vec<RankedType>,
    pub(super) constants: Vec<(Base, Arc<Storage>)>,
    pub(super) units: Vec<Unit>,
    /// Values that nothing reads after each unit.
    pub(super) last_uses: Vec<Vec<Base>>,
    pub(super) sizes: Sizes,
    /// An estimate of the time of a launch; `None` if it has loops or operations of the oracle.
    pub(crate) nanoseconds: Option<usize>,
    /// Operations that the oracle computes, and the time of launches in them.
    pub(crate) interpreted: Vec<Interpreted>,
    /// How its processes depend on each other.
    pub(crate) links: Links,
    /// Memory of earlier launches, one of each that runs at the same time.
    pub(super) arenas: Mutex<Vec<Arena>>,
}

/// A step of a plan.
#[derive(Debug)]
pub(super) enum Unit {
    Group(Group),
    Product {
        product: Box<Product>,
        left: Base,
        right: Base,
        out: Base,
    },
    Reduce {
        sizes: Reduction,
        initial: u64,
        x: Base,
        out: Base,
    },
    Direct {
        kernel: Box<dyn Direct>,
        operands: Vec<Base>,
        results: Vec<Base>,
        /// Whether results may be parts of the first operand's memory: nothing updates it.
        can_share: bool,
    },
    Loop {
        regions: Box<Loop>,
        operands: Vec<Base>,
        results: Vec<Base>,
    },
    Branch {
        branch: Box<Branch>,
        operands: Vec<Base>,
        results: Vec<Base>,
    },
    /// The number of the process.
    Number {
        of: Numbered,
        out: Base,
    },
    Manual {
        manual: Box<Manual>,
        operands: Vec<Base>,
        results: Vec<Base>,
    },
    Collective {
        collective: Box<Collective>,
        operands: Vec<Base>,
        results: Vec<Base>,
    },
    Oracle {
        call: Box<OracleCall>,
        operands: Vec<Base>,
        results: Vec<Base>,
    },
}

impl Unit {
    pub(super) fn reads(&self) -> Vec<Base> {
        match self {
            Unit::Group(group) => group.sources.clone(),
            Unit::Product { left, right, .. } => vec![*left, *right],
            Unit::Reduce { x, .. } => vec![*x],
            Unit::Loop { operands, .. }
            | Unit::Branch { operands, .. }
            | Unit::Direct { operands, .. }
            | Unit::Manual { operands, .. }
            | Unit::Collective { operands, .. }
            | Unit::Oracle { operands, .. } => operands.clone(),
            Unit::Number { .. } => Vec::new(),
        }
    }

    pub(super) fn writes(&self) -> Vec<Base> {
        match self {
            Unit::Group(group) => group.targets.clone(),
            Unit::Product { out, .. } | Unit::Reduce { out, .. } | Unit::Number { out, .. } => {
                vec![*out]
            }
            Unit::Loop { results, .. }
            | Unit::Branch { results, .. }
            | Unit::Direct { results, .. }
            | Unit::Manual { results, .. }
            | Unit::Collective { results, .. }
            | Unit::Oracle { results, .. } => results.clone(),
        }
    }
}

impl Unit {
    /// Returns whether its results depend on its operands alone, and nothing else observes it.
    pub(super) fn is_pure(&self) -> bool {
        match self {
            Unit::Number { .. } => false,
            Unit::Oracle { call, .. } => call.is_pure(),
            _ => true,
        }
    }

    /// An estimate of the time that it takes; `None` if there is none.
    fn nanoseconds(&self, types: &[RankedType]) -> Option<usize> {
        match self {
            Unit::Loop { .. } | Unit::Oracle { .. } => None,
            Unit::Branch { branch, .. } => {
                let each = branch.regions.iter().map(|plan| plan.nanoseconds);
                each.collect::<Option<Vec<_>>>()?.into_iter().max()
            }
            Unit::Manual { manual, .. } => {
                let runs: usize = manual.shards.of.values().map(Vec::len).sum();
                Some(manual.plan.nanoseconds? * runs)
            }
            Unit::Group(group) => {
                let Program {
                    rows,
                    columns,
                    code,
                    ..
                } = &group.program;
                Some(rows * columns / 4 * code.len())
            }
            Unit::Product { product, .. } => Some(product.nanoseconds()),
            _ => {
                let values = self.reads().into_iter().chain(self.writes());
                Some(values.map(|base| types[base].bytes()).sum::<usize>() / 4)
            }
        }
    }
}

impl Plan {
    /// The plan of a module. `None` if the oracle has to run all of it.
    ///
    /// # Errors
    /// If a constant does not fit the memory.
    pub(crate) fn new(module: &Module) -> Result<Option<Self>> {
        let lockstep = Graph::new(module, Form::Lockstep)?;
        let graph = match lockstep {
            Some(graph) if graph.links.needs_threads => Graph::new(module, Form::Threads)?,
            graph => graph,
        };
        let mut plan = graph.map(Plan::of);
        if let Some(plan) = &mut plan {
            let mut all: Vec<Interpreted> = Vec::new();
            plan.for_each_interpreted(module, &mut |call| {
                let is_same = |known: &&mut Interpreted| {
                    known.operation == call.slow.operation && known.of == call.slow.of
                };
                match all.iter_mut().find(is_same) {
                    Some(known) => {
                        known.count += 1;
                        call.slow.nanoseconds = known.nanoseconds.clone();
                    }
                    None => all.push(call.slow.clone()),
                }
            });
            plan.interpreted = all;
        }
        Ok(plan)
    }

    /// Calls `visit` with each operation of the oracle, those of inner plans included.
    fn for_each_interpreted(&mut self, module: &Module, visit: &mut dyn FnMut(&mut OracleCall)) {
        for unit in &mut self.units {
            match unit {
                Unit::Oracle { call, .. } if !call.is_of_user() => visit(call),
                Unit::Collective { collective, .. } if !collective.has_kernel(module) => {
                    visit(&mut collective.call);
                }
                Unit::Loop { regions, .. } => {
                    regions.condition.for_each_interpreted(module, visit);
                    regions.body.for_each_interpreted(module, visit);
                }
                Unit::Branch { branch, .. } => (branch.regions.iter_mut())
                    .for_each(|plan| plan.for_each_interpreted(module, visit)),
                Unit::Manual { manual, .. } => manual.plan.for_each_interpreted(module, visit),
                _ => {}
            }
        }
    }

    /// The plan of a graph.
    pub(super) fn of(mut graph: Graph) -> Self {
        let units = units(&mut graph);
        // Only constants that a unit reads or the program returns: views of others, and scalars in
        // registers, have no buffer.
        let mut is_read = vec![false; graph.bases.len()];
        let read = units.iter().flat_map(Unit::reads);
        read.chain(graph.outputs.iter().copied())
            .for_each(|base| is_read[base] = true);
        let constant =
            |(base, tensor): (Base, Option<Tensor>)| Some((base, tensor?.bytes.aligned()));
        let tensors = graph.bases.iter_mut().map(|info| info.constant.take());
        let constants = tensors
            .enumerate()
            .filter(|&(base, _)| is_read[base])
            .filter_map(constant)
            .collect();
        let last_uses = last_uses(&graph, &units);
        let types: Vec<_> = graph.bases.into_iter().map(|info| info.ty).collect();
        Plan {
            sizes: Sizes::new(&types, &units),
            nanoseconds: units.iter().map(|unit| unit.nanoseconds(&types)).sum(),
            last_uses,
            links: graph.links,
            interpreted: Vec::new(),
            inputs: graph.inputs,
            outputs: graph.outputs,
            types,
            constants,
            units,
            arenas: Mutex::default(),
        }
    }
}

/// The units of a graph, in order.
fn units(graph: &mut Graph) -> Vec<Unit> {
    let shapes = Shapes::new(graph);
    let levels = levels(graph, &shapes);
    let mut is_stored = vec![false; graph.bases.len()];
    graph
        .outputs
        .iter()
        .for_each(|&base| is_stored[base] = true);
    for (number, node) in graph.nodes.iter().enumerate() {
        for place in &node.operands {
            let source = graph.bases[place.base].node;
            let is_near = source.is_some_and(|source| levels[source] == levels[number]);
            is_stored[place.base] |= !is_near;
        }
    }
    // By level; nodes without a group in their order.
    let mut groups: HashMap<(usize, Shape), Vec<usize>> = HashMap::new();
    let mut order: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (number, node) in graph.nodes.iter().enumerate() {
        if let Some((shape, _)) = shapes.of(graph, node) {
            let group = groups.entry((levels[number], shape)).or_default();
            group.push(number);
            if group.len() > 1 {
                continue;
            }
        }
        order.entry(levels[number]).or_default().push(number);
    }
    let updated = updated(graph);
    let mut units = Vec::new();
    for number in order.into_values().flatten() {
        if let Some((shape, _)) = shapes.of(graph, &graph.nodes[number]) {
            let members = &groups[&(levels[number], shape)];
            let group = group::group(graph, &shapes, shape, members, &is_stored);
            units.push(Unit::Group(group));
        } else {
            let node = &mut graph.nodes[number];
            let operands: Vec<Base> = node.operands.iter().map(|place| place.base).collect();
            let (results, out) = (node.results.clone(), node.results.first().copied());
            let kind = std::mem::replace(&mut node.kind, Kind::Elementwise(Elementwise::Copy));
            units.push(match (kind, &operands[..], out.unwrap_or_default()) {
                (Kind::Product(product), &[left, right], out) => Unit::Product {
                    product,
                    left,
                    right,
                    out,
                },
                (Kind::Reduce { sizes, initial }, &[x], out) => Unit::Reduce {
                    sizes,
                    initial,
                    x,
                    out,
                },
                (Kind::Direct(kernel), _, _) => Unit::Direct {
                    kernel,
                    can_share: operands.first().is_some_and(|base| !updated.contains(base)),
                    operands,
                    results,
                },
                (Kind::Branch(branch), _, _) => Unit::Branch {
                    branch,
                    operands,
                    results,
                },
                (Kind::Loop(regions), _, _) => Unit::Loop {
                    regions,
                    operands,
                    results,
                },
                (Kind::Number(of), [], out) => Unit::Number { of, out },
                (Kind::Manual(manual), _, _) => Unit::Manual {
                    manual,
                    operands,
                    results,
                },
                (Kind::Collective(collective), _, _) => Unit::Collective {
                    collective,
                    operands,
                    results,
                },
                (Kind::Oracle(call), _, _) => Unit::Oracle {
                    call,
                    operands,
                    results,
                },
                (kind, _, _) => unreachable!("{kind:?} has other operands"),
            });
        }
    }
    units
}

/// Values whose memory a unit may write to.
fn updated(graph: &Graph) -> HashSet<Base> {
    let mut updated = HashSet::new();
    for node in &graph.nodes {
        let written = match &node.kind {
            Kind::Direct(kernel) => kernel.overwrites(),
            Kind::Loop(_) | Kind::Branch(_) => node.operands.len(),
            _ => 0,
        };
        updated.extend(node.operands[..written].iter().map(|place| place.base));
    }
    updated
}

/// For each unit the values that neither a later unit reads nor the program returns.
fn last_uses(graph: &Graph, units: &[Unit]) -> Vec<Vec<Base>> {
    let mut is_used = vec![false; graph.bases.len()];
    graph.outputs.iter().for_each(|&base| is_used[base] = true);
    let mut last_uses: Vec<_> = units
        .iter()
        .rev()
        .map(|unit| {
            let mut values = unit.reads();
            values.extend(unit.writes());
            values.retain(|&base| !std::mem::replace(&mut is_used[base], true));
            values
        })
        .collect();
    last_uses.reverse();
    last_uses
}
