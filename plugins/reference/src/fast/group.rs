//! Groups of elementwise nodes, which run as one pass.
//!
//! The *level* of a node is one more than those of the nodes whose results it reads from memory;
//! operands that can stay in registers do not raise it. Elementwise nodes of one level and size
//! form a group. Every path that leaves a group through memory ends at a higher level, so that
//! levels are an order of evaluation.

use std::collections::HashMap;

use halite_kernels::{Instruction, Program, Register, View};
use halite_stablehlo::RankedType;

use super::{
    elementwise::{Elementwise, is_word},
    graph::{Graph, Kind, Node},
    place::{Base, Place},
};

/// The levels of all nodes.
pub(super) fn levels(graph: &Graph) -> Vec<usize> {
    let mut levels = vec![0; graph.nodes.len()];
    for (number, node) in graph.nodes.iter().enumerate() {
        let level = |place: &Place| {
            let source = graph.bases[place.base].node?;
            Some(levels[source] + usize::from(!shares_registers(graph, node, place)))
        };
        levels[number] = node.operands.iter().filter_map(level).max().unwrap_or(0);
    }
    delay(graph, &mut levels);
    levels
}

/// Returns whether `node` can read the operand from a register.
fn shares_registers(graph: &Graph, node: &Node, operand: &Place) -> bool {
    matches!(node.kind, Kind::Elementwise(_))
        && graph.is_register(operand)
        && operand.elements() == graph.bases[node.results[0]].ty.elements()
}

/// Moves elementwise nodes to the first level that uses them, if all users can be in their group:
/// their results are never written to memory then.
fn delay(graph: &Graph, levels: &mut [usize]) {
    /// The lowest level of the users seen so far; `None` if one reads from memory.
    type Users = Option<usize>;
    let mut users: Vec<Users> = vec![Some(usize::MAX); graph.bases.len()];
    graph.outputs.iter().for_each(|&base| users[base] = None);
    for (number, node) in graph.nodes.iter().enumerate().rev() {
        if let (Kind::Elementwise(_), &[result]) = (&node.kind, &node.results[..])
            && let Some(first) = users[result]
            && first != usize::MAX
        {
            levels[number] = first;
        }
        for place in &node.operands {
            users[place.base] = match users[place.base] {
                Some(first) if shares_registers(graph, node, place) => {
                    Some(first.min(levels[number]))
                }
                _ => None,
            };
        }
    }
}

/// A group as a program, with the buffers that it reads and writes.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) program: Program,
    pub(super) sources: Vec<Base>,
    pub(super) targets: Vec<Base>,
    /// For each target the sources whose memory it can have: of as many words, each loaded in order
    /// before the target is stored.
    pub(super) in_place: Vec<Vec<usize>>,
}

/// The program of elementwise nodes, which are of one level and size. `is_stored` are the results
/// that something reads from memory.
pub(super) fn group(graph: &Graph, nodes: &[usize], is_stored: &[bool]) -> Group {
    Writer::new(graph, is_stored).write(nodes)
}

/// Writes a program with an unlimited number of registers, each written once.
struct Writer<'g> {
    graph: &'g Graph,
    is_stored: &'g [bool],
    sources: Vec<Base>,
    targets: Vec<Base>,
    views: Vec<(usize, View)>,
    code: Vec<Step>,
    count: usize,
    results: HashMap<Base, usize>,
    loads: HashMap<(Base, View), usize>,
    constants: HashMap<u32, usize>,
    uniform: HashMap<(Base, usize), usize>,
}

/// An instruction, with registers before they are assigned.
#[derive(Clone, Copy, Debug)]
struct Step {
    instruction: Instruction,
    into: Option<usize>,
    reads: [Option<usize>; 3],
}

impl<'g> Writer<'g> {
    fn new(graph: &'g Graph, is_stored: &'g [bool]) -> Self {
        Writer {
            graph,
            is_stored,
            sources: Vec::new(),
            targets: Vec::new(),
            views: Vec::new(),
            code: Vec::new(),
            count: 0,
            results: HashMap::new(),
            loads: HashMap::new(),
            constants: HashMap::new(),
            uniform: HashMap::new(),
        }
    }

    fn write(mut self, nodes: &[usize]) -> Group {
        let mut elements = 0;
        for &number in nodes {
            let node = &self.graph.nodes[number];
            let &[result] = &node.results[..] else {
                continue;
            };
            let Kind::Elementwise(op) = node.kind else {
                continue;
            };
            elements = self.graph.bases[result].ty.elements();
            let operands: Vec<_> = node.operands.iter().map(|place| self.read(place)).collect();
            let register = self.compute(op, &operands);
            self.results.insert(result, register);
            if self.is_stored[result] {
                self.targets.push(result);
                let instruction = Instruction::Store {
                    x: 0,
                    target: self.targets.len() - 1,
                };
                self.code.push(Step {
                    instruction,
                    into: None,
                    reads: [Some(register), None, None],
                });
            }
        }
        self.assign(elements)
    }

    fn register(&mut self) -> usize {
        self.count += 1;
        self.count - 1
    }

    fn source(&mut self, base: Base) -> usize {
        let known = self.sources.iter().position(|&source| source == base);
        known.unwrap_or_else(|| {
            self.sources.push(base);
            self.sources.len() - 1
        })
    }

    /// The register that has an operand.
    fn read(&mut self, place: &Place) -> usize {
        let info = &self.graph.bases[place.base];
        if let Some(&register) = self.results.get(&place.base)
            && self.graph.is_register(place)
        {
            return register;
        }
        if place.view.is_uniform() {
            if let Some(bits) = info.scalar() {
                let next = self.count;
                let register = *self.constants.entry(bits).or_insert(next);
                self.count += usize::from(register == next);
                return register;
            }
            if place.elements() > 0 {
                let at = place.view.offset as usize;
                let next = self.count;
                let register = *self.uniform.entry((place.base, at)).or_insert(next);
                self.count += usize::from(register == next);
                return register;
            }
        }
        let view = place.view.collapsed();
        if let Some(&register) = self.loads.get(&(place.base, view.clone())) {
            return register;
        }
        let (register, source) = (self.register(), self.source(place.base));
        self.views.push((source, view.clone()));
        let instruction = Instruction::Load {
            into: 0,
            view: self.views.len() - 1,
        };
        self.code.push(Step {
            instruction,
            into: Some(register),
            reads: [None; 3],
        });
        self.loads.insert((place.base, view), register);
        register
    }

    fn compute(&mut self, op: Elementwise, operands: &[usize]) -> usize {
        let (into, x, y) = (0, 0, 0);
        let instruction = match op {
            Elementwise::Copy => return operands[0],
            Elementwise::Unary(op) => Instruction::Unary { op, into, x },
            Elementwise::Binary(op) | Elementwise::Swapped(op) => {
                Instruction::Binary { op, into, x, y }
            }
            Elementwise::Select | Elementwise::Clamp(..) => Instruction::Select {
                into,
                condition: 0,
                x,
                y,
            },
        };
        let mut reads = [None; 3];
        reads
            .iter_mut()
            .zip(operands)
            .for_each(|(read, &operand)| *read = Some(operand));
        if let Elementwise::Swapped(_) = op {
            reads.swap(0, 1);
        }
        let register = self.register();
        self.code.push(Step {
            instruction,
            into: Some(register),
            reads,
        });
        register
    }

    /// Assigns registers, each free again after its last use.
    fn assign(mut self, elements: usize) -> Group {
        let mut last_use = vec![0; self.count];
        for (at, step) in self.code.iter().enumerate() {
            step.into
                .iter()
                .for_each(|&register| last_use[register] = at);
            step.reads
                .iter()
                .flatten()
                .for_each(|&register| last_use[register] = at);
        }
        let mut assigned: Vec<Option<Register>> = vec![None; self.count];
        let mut registers: Register = 0;
        let mut fresh = || {
            registers += 1;
            registers - 1
        };
        let mut constants = Vec::new();
        for (&bits, &register) in &self.constants {
            let number = fresh();
            assigned[register] = Some(number);
            constants.push((number, bits));
        }
        let mut uniform = Vec::new();
        let uniforms: Vec<_> = self
            .uniform
            .iter()
            .map(|(&key, &register)| (key, register))
            .collect();
        for ((base, at), register) in uniforms {
            let number = fresh();
            assigned[register] = Some(number);
            uniform.push((number, self.source(base), at));
        }
        let held = |register| {
            self.constants
                .values()
                .chain(self.uniform.values())
                .any(|&it| it == register)
        };
        let is_held: Vec<bool> = (0..self.count).map(held).collect();
        let mut free: Vec<Register> = Vec::new();
        let mut code = Vec::with_capacity(self.code.len());
        for (at, step) in self.code.iter().enumerate() {
            // A result never shares the register of an operand.
            if let Some(into) = step.into {
                assigned[into] = Some(free.pop().unwrap_or_else(&mut fresh));
            }
            let of = |register: Option<usize>| {
                register
                    .and_then(|register| assigned[register])
                    .unwrap_or_default()
            };
            code.push(place_registers(
                step.instruction,
                of(step.into),
                step.reads.map(of),
            ));
            let mut done: Vec<_> = step
                .reads
                .iter()
                .flatten()
                .chain(&step.into)
                .copied()
                .collect();
            done.sort_unstable();
            done.dedup();
            let done = done
                .into_iter()
                .filter(|&it| last_use[it] == at && !is_held[it]);
            free.extend(done.filter_map(|register| assigned[register]));
        }
        let program = Program {
            elements,
            registers: registers.into(),
            constants,
            uniform,
            views: std::mem::take(&mut self.views),
            code,
        };
        let in_place = (0..self.targets.len())
            .map(|target| {
                let sources = 0..self.sources.len();
                sources
                    .filter(|&source| self.can_replace(&program, source, target))
                    .collect()
            })
            .collect();
        Group {
            program,
            sources: self.sources,
            targets: self.targets,
            in_place,
        }
    }

    /// Returns whether a target can have the memory of a source.
    fn can_replace(&self, program: &Program, source: usize, target: usize) -> bool {
        let [from, to] =
            [self.sources[source], self.targets[target]].map(|base| &self.graph.bases[base].ty);
        let has_words = |ty: &RankedType| is_word(ty.element) && ty.elements() == program.elements;
        let position = |wanted: &dyn Fn(Instruction) -> bool| {
            program
                .code
                .iter()
                .rposition(|&instruction| wanted(instruction))
        };
        let stored =
            position(&|it| matches!(it, Instruction::Store { target: of, .. } if of == target));
        let is_of_source = |view: usize| program.views[view].0 == source;
        let loaded =
            position(&|it| matches!(it, Instruction::Load { view, .. } if is_of_source(view)));
        let mut views = program.views.iter().filter(|(of, _)| *of == source);
        has_words(from)
            && has_words(to)
            && loaded.is_some()
            && loaded < stored
            && views.all(|(_, view)| view.is_contiguous())
            && program.uniform.iter().all(|&(_, of, _)| of != source)
    }
}

fn place_registers(
    instruction: Instruction,
    into: Register,
    [a, b, c]: [Register; 3],
) -> Instruction {
    match instruction {
        Instruction::Load { view, .. } => Instruction::Load { into, view },
        Instruction::Unary { op, .. } => Instruction::Unary { op, into, x: a },
        Instruction::Binary { op, .. } => Instruction::Binary {
            op,
            into,
            x: a,
            y: b,
        },
        Instruction::Select { .. } => Instruction::Select {
            into,
            condition: a,
            x: b,
            y: c,
        },
        Instruction::Store { target, .. } => Instruction::Store { x: a, target },
    }
}
