//! The program of a group: instructions, and registers by the lives of values.

use std::collections::HashMap;

use halite_kernels::{
    Extent, Instruction, Kind as RegisterKind, Operation, Output, Program, Register, View,
};
use halite_stablehlo::ElementType;

use super::{
    super::{
        elementwise::{Elementwise, format},
        graph::{Graph, Kind, Node},
        place::{Base, Place},
        shape::{Shape, Shapes, Words},
    },
    Group,
};

/// Most sources whose memory is considered for a target: the ones that are loaded last. An
/// optimizer with hundreds of parameters of one size has thousands.
const CANDIDATES: usize = 16;

/// Writes a program with an unlimited number of registers, each written once.
pub(super) struct Writer<'g> {
    graph: &'g Graph,
    shapes: &'g Shapes,
    is_stored: &'g [bool],
    sources: Vec<Base>,
    source_numbers: HashMap<Base, usize>,
    targets: Vec<Base>,
    outputs: Vec<Output>,
    views: Vec<(usize, View)>,
    code: Vec<Step>,
    kinds: Vec<RegisterKind>,
    results: HashMap<Base, usize>,
    loads: HashMap<(Base, View, Extent), usize>,
    /// Words of rows, as words of elements.
    repeated: HashMap<usize, usize>,
    /// By the word, and whether the register is wide.
    constants: HashMap<(u64, bool), usize>,
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
            source_numbers: HashMap::new(),
            targets: Vec::new(),
            outputs: Vec::new(),
            views: Vec::new(),
            code: Vec::new(),
            kinds: Vec::new(),
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
                let register = self.compute(op, &operands, self.kind(result, extent));
                self.finish(result, register, extent);
            }
            (&Kind::Reduce { sizes, initial }, words) => {
                let op = sizes.op;
                let x = self.read(node, &node.operands[0], Extent::Elements);
                match words {
                    Words::Of(extent) => {
                        let reduce = Operation::Reduce { op, initial };
                        let register = self.apply(reduce, &[x], self.kind(result, extent));
                        self.finish(result, register, extent);
                    }
                    Words::Columns => self.store(result, x, Output::Columns { op, initial }),
                }
            }
            _ => {}
        }
    }

    /// The kind of register that has a value.
    fn kind(&self, base: Base, extent: Extent) -> RegisterKind {
        RegisterKind {
            extent,
            is_wide: is_wide(self.graph.bases[base].ty.element),
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
    fn step(&mut self, instruction: Instruction, operands: &[usize], kind: RegisterKind) -> usize {
        let register = self.register(kind);
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

    fn apply(&mut self, op: Operation, operands: &[usize], kind: RegisterKind) -> usize {
        let instruction = Instruction::Apply {
            op,
            into: 0,
            operands: [0; 3],
        };
        self.step(instruction, operands, kind)
    }

    fn register(&mut self, kind: RegisterKind) -> usize {
        self.kinds.push(kind);
        self.kinds.len() - 1
    }

    fn source(&mut self, base: Base) -> usize {
        let next = self.sources.len();
        let number = *self.source_numbers.entry(base).or_insert(next);
        if number == next {
            self.sources.push(base);
        }
        number
    }

    /// The register that has an operand of a node.
    fn read(&mut self, node: &Node, place: &Place, extent: Extent) -> usize {
        if let Some(&register) = self.results.get(&place.base)
            && self.shapes.shares_registers(self.graph, node, place)
        {
            return match (self.kinds[register].extent, extent) {
                (Extent::Rows, Extent::Elements) => self.repeat(register),
                _ => register,
            };
        }
        let kind = self.kind(place.base, extent);
        if place.view.is_uniform() {
            // Registers of one value serve both extents.
            let next = self.kinds.len();
            let register = if let Some(bits) = self.graph.bases[place.base].scalar() {
                Some(*self.constants.entry((bits, kind.is_wide)).or_insert(next))
            } else if place.elements() > 0 {
                let at = place.view.offset as usize;
                Some(*self.uniform.entry((place.base, at)).or_insert(next))
            } else {
                None
            };
            if register == Some(next) {
                return self.register(RegisterKind {
                    extent: Extent::Elements,
                    ..kind
                });
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
        let register = self.step(Instruction::Load { into: 0, view }, &[], kind);
        self.loads.insert(key, register);
        register
    }

    /// The register whose elements have the words of their rows.
    fn repeat(&mut self, of_rows: usize) -> usize {
        if let Some(&register) = self.repeated.get(&of_rows) {
            return register;
        }
        let kind = RegisterKind {
            extent: Extent::Elements,
            ..self.kinds[of_rows]
        };
        let register = self.apply(Operation::Broadcast, &[of_rows], kind);
        self.repeated.insert(of_rows, register);
        register
    }

    fn compute(&mut self, op: Elementwise, operands: &[usize], kind: RegisterKind) -> usize {
        match op {
            Elementwise::Copy => operands[0],
            Elementwise::Apply(op) => self.apply(op, operands, kind),
            Elementwise::Swapped(op) => self.apply(op, &[operands[1], operands[0]], kind),
        }
    }

    /// Assigns registers, each free again after its last use.
    pub(super) fn assign(mut self, shape: Shape) -> Group {
        let count = self.kinds.len();
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
        let mut fresh = |kind| {
            registers.push(kind);
            (registers.len() - 1) as Register
        };
        let mut constants = Vec::new();
        for (&(word, _), &register) in &self.constants {
            let number = fresh(self.kinds[register]);
            assigned[register] = Some(number);
            constants.push((number, word));
        }
        let mut uniform = Vec::new();
        let uniforms: Vec<_> = self
            .uniform
            .iter()
            .map(|(&key, &register)| (key, register))
            .collect();
        for ((base, at), register) in uniforms {
            let number = fresh(self.kinds[register]);
            assigned[register] = Some(number);
            uniform.push((number, self.source(base), at));
        }
        let mut is_held = vec![false; count];
        for &register in self.constants.values().chain(self.uniform.values()) {
            is_held[register] = true;
        }
        let mut free: HashMap<RegisterKind, Vec<Register>> = HashMap::new();
        let mut code = Vec::with_capacity(self.code.len());
        for (at, step) in self.code.iter().enumerate() {
            // A result never shares the register of an operand.
            if let Some(into) = step.into {
                let kind = self.kinds[into];
                let free = free.entry(kind).or_default();
                assigned[into] = Some(free.pop().unwrap_or_else(|| fresh(kind)));
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
                free.entry(self.kinds[register])
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
        let in_place = self.in_place(&program);
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

    /// For each target the sources whose memory it can have, at most [`CANDIDATES`].
    fn in_place(&self, program: &Program) -> Vec<Vec<usize>> {
        let elements = program.rows * program.columns;
        let of = |base: Base| &self.graph.bases[base].ty;
        let has_all = |base: &Base| of(*base).elements() == elements;
        let mut fits: Vec<bool> = self.sources.iter().map(has_all).collect();
        for (source, view) in &program.views {
            fits[*source] &= view.is_contiguous() && view.elements() == elements;
        }
        for &(_, source, _) in &program.uniform {
            fits[source] = false;
        }
        let mut last_load = vec![None; self.sources.len()];
        for (at, instruction) in program.code.iter().enumerate() {
            if let Instruction::Load { view, .. } = *instruction {
                last_load[program.views[view].0] = Some(at);
            }
        }
        let mut in_place = vec![Vec::new(); self.targets.len()];
        let mut loaded = Vec::new();
        for (at, instruction) in program.code.iter().enumerate() {
            match *instruction {
                Instruction::Load { view, .. } => {
                    let source = program.views[view].0;
                    if fits[source] && last_load[source] == Some(at) {
                        loaded.push(source);
                    }
                }
                Instruction::Store { target, .. }
                    if program.outputs[target] == Output::Of(Extent::Elements) =>
                {
                    let size = of(self.targets[target]).element.size();
                    let has_size =
                        |&source: &usize| of(self.sources[source]).element.size() == size;
                    let loaded = loaded.iter().rev().copied().filter(has_size);
                    in_place[target] = loaded.take(CANDIDATES).collect();
                }
                _ => {}
            }
        }
        in_place
    }
}

fn is_wide(element: ElementType) -> bool {
    format(element).is_some_and(|format| format.is_wide())
}

fn place_registers(
    instruction: Instruction,
    into: Register,
    operands: [Register; 3],
) -> Instruction {
    match instruction {
        Instruction::Load { view, .. } => Instruction::Load { into, view },
        Instruction::Apply { op, .. } => Instruction::Apply { op, into, operands },
        Instruction::Store { target, .. } => Instruction::Store {
            x: operands[0],
            target,
        },
    }
}
