//! The program of a group: instructions, and registers by the lives of values.

use std::collections::HashMap;

use halite_kernels::{Extent, Instruction, Output, Program, Register, View};
use halite_stablehlo::RankedType;

use super::{
    super::{
        elementwise::{Elementwise, is_word},
        graph::{Graph, Kind, Node},
        place::{Base, Place},
        shape::{Shape, Shapes, Words},
    },
    Group,
};

/// Writes a program with an unlimited number of registers, each written once.
pub(super) struct Writer<'g> {
    graph: &'g Graph,
    shapes: &'g Shapes,
    is_stored: &'g [bool],
    sources: Vec<Base>,
    targets: Vec<Base>,
    outputs: Vec<Output>,
    views: Vec<(usize, View)>,
    code: Vec<Step>,
    extents: Vec<Extent>,
    results: HashMap<Base, usize>,
    loads: HashMap<(Base, View, Extent), usize>,
    /// Words of rows, as words of elements.
    repeated: HashMap<usize, usize>,
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
    pub(super) fn new(graph: &'g Graph, shapes: &'g Shapes, is_stored: &'g [bool]) -> Self {
        Writer {
            graph,
            shapes,
            is_stored,
            sources: Vec::new(),
            targets: Vec::new(),
            outputs: Vec::new(),
            views: Vec::new(),
            code: Vec::new(),
            extents: Vec::new(),
            results: HashMap::new(),
            loads: HashMap::new(),
            repeated: HashMap::new(),
            constants: HashMap::new(),
            uniform: HashMap::new(),
        }
    }

    pub(super) fn write(&mut self, node: &Node) {
        let Some((_, words)) = self.shapes.of(self.graph, node) else {
            return;
        };
        let result = node.results[0];
        match (&node.kind, words) {
            (&Kind::Elementwise(op), Words::Of(extent)) => {
                let operands = node.operands.iter();
                let operands: Vec<_> = operands.map(|it| self.read(node, it, extent)).collect();
                let register = self.compute(op, &operands, extent);
                self.finish(result, register, extent);
            }
            (&Kind::Reduce { sizes, initial }, words) => {
                let (op, into) = (sizes.op, 0);
                let x = self.read(node, &node.operands[0], Extent::Elements);
                match words {
                    Words::Of(extent) => {
                        let reduce = Instruction::Reduce {
                            op,
                            initial,
                            into,
                            x: 0,
                        };
                        let register = self.step(reduce, &[x], extent);
                        self.finish(result, register, extent);
                    }
                    Words::Columns => self.store(result, x, Output::Columns { op, initial }),
                }
            }
            _ => {}
        }
    }

    /// Notes the register of a result, and stores it if something reads it from memory.
    fn finish(&mut self, result: Base, register: usize, extent: Extent) {
        self.results.insert(result, register);
        if self.is_stored[result] {
            self.store(result, register, Output::Of(extent));
        }
    }

    fn store(&mut self, result: Base, register: usize, output: Output) {
        let target = self.targets.len();
        self.targets.push(result);
        self.outputs.push(output);
        self.code.push(Step {
            instruction: Instruction::Store { x: 0, target },
            into: None,
            reads: [Some(register), None, None],
        });
    }

    /// Adds an instruction that writes a register.
    fn step(&mut self, instruction: Instruction, operands: &[usize], extent: Extent) -> usize {
        let register = self.register(extent);
        let mut reads = [None; 3];
        reads
            .iter_mut()
            .zip(operands)
            .for_each(|(read, &operand)| *read = Some(operand));
        self.code.push(Step {
            instruction,
            into: Some(register),
            reads,
        });
        register
    }

    fn register(&mut self, extent: Extent) -> usize {
        self.extents.push(extent);
        self.extents.len() - 1
    }

    fn source(&mut self, base: Base) -> usize {
        let known = self.sources.iter().position(|&source| source == base);
        known.unwrap_or_else(|| {
            self.sources.push(base);
            self.sources.len() - 1
        })
    }

    /// The register that has an operand of a node.
    fn read(&mut self, node: &Node, place: &Place, extent: Extent) -> usize {
        if let Some(&register) = self.results.get(&place.base)
            && self.shapes.shares_registers(self.graph, node, place)
        {
            return match (self.extents[register], extent) {
                (Extent::Rows, Extent::Elements) => self.repeat(register),
                _ => register,
            };
        }
        if place.view.is_uniform() {
            // Registers of one value serve both extents.
            let next = self.extents.len();
            let register = if let Some(bits) = self.graph.bases[place.base].scalar() {
                Some(*self.constants.entry(bits).or_insert(next))
            } else if place.elements() > 0 {
                let at = place.view.offset as usize;
                Some(*self.uniform.entry((place.base, at)).or_insert(next))
            } else {
                None
            };
            if register == Some(next) {
                return self.register(Extent::Elements);
            }
            if let Some(register) = register {
                return register;
            }
        }
        let key = (place.base, place.view.collapsed(), extent);
        if let Some(&register) = self.loads.get(&key) {
            return register;
        }
        let source = self.source(place.base);
        let view = self.views.len();
        self.views.push((source, key.1.clone()));
        let register = self.step(Instruction::Load { into: 0, view }, &[], extent);
        self.loads.insert(key, register);
        register
    }

    /// The register whose elements have the words of their rows.
    fn repeat(&mut self, of_rows: usize) -> usize {
        if let Some(&register) = self.repeated.get(&of_rows) {
            return register;
        }
        let broadcast = Instruction::Broadcast { into: 0, x: 0 };
        let register = self.step(broadcast, &[of_rows], Extent::Elements);
        self.repeated.insert(of_rows, register);
        register
    }

    fn compute(&mut self, op: Elementwise, operands: &[usize], extent: Extent) -> usize {
        let (into, x, y) = (0, 0, 0);
        let instruction = match op {
            Elementwise::Copy => return operands[0],
            Elementwise::Unary(op) => Instruction::Unary { op, into, x },
            Elementwise::Binary(op) => Instruction::Binary { op, into, x, y },
            Elementwise::Swapped(op) => {
                let swapped = [operands[1], operands[0]];
                return self.step(Instruction::Binary { op, into, x, y }, &swapped, extent);
            }
            Elementwise::Select | Elementwise::Clamp(..) => Instruction::Select {
                into,
                condition: 0,
                x,
                y,
            },
        };
        self.step(instruction, operands, extent)
    }

    /// Assigns registers, each free again after its last use.
    pub(super) fn assign(mut self, shape: Shape) -> Group {
        let count = self.extents.len();
        let mut last_use = vec![0; count];
        for (at, step) in self.code.iter().enumerate() {
            step.into
                .iter()
                .for_each(|&register| last_use[register] = at);
            step.reads
                .iter()
                .flatten()
                .for_each(|&register| last_use[register] = at);
        }
        let mut assigned: Vec<Option<Register>> = vec![None; count];
        let mut registers = Vec::new();
        let mut fresh = |extent| {
            registers.push(extent);
            (registers.len() - 1) as Register
        };
        let mut constants = Vec::new();
        for (&bits, &register) in &self.constants {
            let number = fresh(Extent::Elements);
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
            let number = fresh(Extent::Elements);
            assigned[register] = Some(number);
            uniform.push((number, self.source(base), at));
        }
        let held = |register| {
            self.constants
                .values()
                .chain(self.uniform.values())
                .any(|&it| it == register)
        };
        let is_held: Vec<bool> = (0..count).map(held).collect();
        let mut free: HashMap<Extent, Vec<Register>> = HashMap::new();
        let mut code = Vec::with_capacity(self.code.len());
        for (at, step) in self.code.iter().enumerate() {
            // A result never shares the register of an operand.
            if let Some(into) = step.into {
                let extent = self.extents[into];
                let free = free.entry(extent).or_default();
                assigned[into] = Some(free.pop().unwrap_or_else(|| fresh(extent)));
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
            for register in done {
                free.entry(self.extents[register])
                    .or_default()
                    .extend(assigned[register]);
            }
        }
        let program = Program {
            rows: shape.rows,
            columns: shape.columns,
            registers,
            outputs: std::mem::take(&mut self.outputs),
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
        let is_zero = |instruction: &Instruction| match *instruction {
            Instruction::Store { x, target } => {
                program.constants.contains(&(x, 0))
                    && matches!(program.outputs[target], Output::Of(_))
            }
            _ => false,
        };
        Group {
            is_zero: program.code.iter().all(is_zero),
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
        let elements = program.rows * program.columns;
        let has_words = |ty: &RankedType| is_word(ty.element) && ty.elements() == elements;
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
            && program.outputs[target] == Output::Of(Extent::Elements)
            && loaded.is_some()
            && loaded < stored
            && views.all(|(_, view)| view.is_contiguous() && view.elements() == elements)
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
        Instruction::Broadcast { .. } => Instruction::Broadcast { into, x: a },
        Instruction::Reduce { op, initial, .. } => Instruction::Reduce {
            op,
            initial,
            into,
            x: a,
        },
        Instruction::Store { target, .. } => Instruction::Store { x: a, target },
    }
}
