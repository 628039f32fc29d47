//! A program as nodes over buffers: calls inlined, moves of elements as views.

mod arithmetic;
mod build;
mod capture;
mod control;
mod convolution;
mod fold;
mod known;
mod processes;
mod regions;
mod sort;
mod unfused;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use halite_core::{Interpreted, custom_call};
use halite_kernels::Reduction;
use halite_stablehlo::{ElementType, OpKind, Operation, RankedType, ValueId};

pub(crate) use self::build::why_interpreted;
pub(super) use self::known::operator;
use super::{
    collective::Collective,
    contract::Product,
    direct::Direct,
    elementwise::{Elementwise, format},
    lockstep::{Launch, Process},
    place::{Base, Place},
    plan::Plan,
};
use crate::oracle::{Shards, Single, Tensor};

/// A program.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) bases: Vec<BaseInfo>,
    /// In an order of evaluation.
    pub(super) nodes: Vec<Node>,
    pub(super) inputs: Vec<Base>,
    /// Each is all of a buffer.
    pub(super) outputs: Vec<Base>,
    pub(super) links: Links,
}

/// How the processes of a program run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// In lockstep, on one thread: see [`lockstep`](super::lockstep).
    Lockstep,
    /// Each replica on a thread. The oracle runs collectives and manual computations.
    Threads,
}

/// How the processes of a program depend on each other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    /// The oracle runs an operation in which processes wait for each other.
    pub(crate) needs_threads: bool,
    /// A collective is between replicas.
    pub(crate) joins_replicas: bool,
}

/// The processes that run a graph.
#[derive(Clone, Debug)]
pub(super) struct Running {
    form: Form,
    /// Numbers of replicas and partitions of the program.
    counts: [usize; 2],
    /// The partitions of each replica that run it.
    partitions: Arc<[usize]>,
    is_manual: bool,
}

/// A buffer.
#[derive(Debug)]
pub(super) struct BaseInfo {
    pub(super) ty: RankedType,
    /// The value, if it is a constant.
    pub(super) constant: Option<Tensor>,
    /// The node that computes it.
    pub(super) node: Option<usize>,
}

impl BaseInfo {
    /// The only element of a constant, as a word of a register.
    pub(super) fn scalar(&self) -> Option<u64> {
        let tensor = self.constant.as_ref().filter(|_| self.ty.elements() == 1)?;
        Some(format(self.ty.element)?.word(&tensor.bytes))
    }
}

/// An operation, or some.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) operands: Vec<Place>,
    pub(super) results: Vec<Base>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Elementwise(Elementwise),
    Product(Box<Product>),
    Reduce {
        sizes: Reduction,
        initial: u64,
    },
    /// `while`: the operands are the state, and then the captures of both plans.
    Loop(Box<Loop>),
    /// `if` and `case`: the operands are what decides, and then the captures of all plans.
    Branch(Box<Branch>),
    /// What is never fused. The operands are all of buffers.
    Direct(Box<dyn Direct>),
    /// The number of the process.
    Number(Numbered),
    /// `sdy.manual_computation`.
    Manual(Box<Manual>),
    Collective(Box<Collective>),
    Oracle(Box<OracleCall>),
}

/// What the number of a process counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbered {
    Replica,
    Partition,
}

/// The region of a manual computation, as a function of shards.
#[derive(Debug)]
pub(super) struct Manual {
    pub(super) plan: Plan,
    pub(super) shards: Shards,
}

/// The regions of a loop, as functions of the state and the captures.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) condition: Plan,
    pub(super) body: Plan,
    /// What the condition counts, if that is all it does: it is not run then.
    pub(super) counter: Option<Counter>,
}

/// A loop as long as an integer of the state, which each iteration makes larger by one, is less
/// than a bound.
#[derive(Debug)]
pub(super) struct Counter {
    /// The number among the inputs of the regions.
    pub(super) input: usize,
    pub(super) element: ElementType,
    pub(super) bound: Bound,
}

/// What a counter is compared with.
#[derive(Debug)]
pub(super) enum Bound {
    Constant(Tensor),
    /// An input of the regions that stays the same.
    Input(usize),
}

impl Counter {
    /// The number of iterations, given the inputs before the first one.
    pub(super) fn trips<'s>(&self, input: impl Fn(usize) -> &'s [u8]) -> u64 {
        let number = |bytes: &[u8]| -> i128 {
            let bits = bytes
                .iter()
                .rev()
                .fold(0u64, |all, &byte| all << 8 | u64::from(byte));
            match self.element {
                ElementType::S32 => (bits as i32).into(),
                ElementType::S64 => (bits as i64).into(),
                _ => bits.into(),
            }
        };
        let bound = match &self.bound {
            Bound::Constant(tensor) => number(&tensor.bytes),
            &Bound::Input(of) => number(input(of)),
        };
        u64::try_from(bound - number(input(self.input))).unwrap_or(0)
    }
}

/// The regions of a branch, as functions of the captures.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) regions: Vec<Plan>,
    /// Whether the first region is that of `true`; else regions are numbered.
    pub(super) is_if: bool,
}

impl Branch {
    /// The region that the bytes of a predicate or a number decide for: the last one, if the number
    /// is none.
    pub(super) fn decide(&self, bytes: &[u8]) -> usize {
        let last = self.regions.len() - 1;
        let number = bytes
            .iter()
            .rev()
            .fold(0, |all, &byte| all << 8 | usize::from(byte));
        match self.is_if {
            true => usize::from(number == 0),
            false => number.min(last),
        }
    }
}

/// An operation that the oracle computes.
#[derive(Debug)]
pub(super) struct OracleCall {
    /// Number of the function that has the operation.
    pub(super) function: usize,
    pub(super) operation: Operation,
    /// Values of enclosing regions that its regions use: the operands after its own.
    pub(super) captures: Vec<ValueId>,
    /// The partitions that run the manual computation around it; `None` outside of any.
    pub(super) shards: Option<Arc<[usize]>>,
    /// What reports say of it.
    pub(super) slow: Interpreted,
}

impl OracleCall {
    /// Calls `run`, whose time counts as that of the interpreter.
    pub(super) fn timed<T>(&self, launch: &Launch<'_>, run: impl FnOnce() -> T) -> T {
        launch.world.interpret(Some(self.slow.clone()));
        let started = Instant::now();
        let result = run();
        let took = started.elapsed().as_nanos() as u64;
        self.slow.nanoseconds.fetch_add(took, Relaxed);
        launch.world.interpret(None);
        result
    }

    pub(super) fn single<'c>(&'c self, launch: &'c Launch<'_>, process: Process) -> Single<'c> {
        Single {
            module: launch.module,
            world: launch.world,
            process: [process.replica, process.partition],
            shards: self.shards.as_deref(),
            function: &launch.module.functions[self.function],
            operation: &self.operation,
            captures: &self.captures,
        }
    }

    /// Returns whether it calls a Rust function that the user has registered.
    pub(super) fn is_of_user(&self) -> bool {
        match &self.operation.kind {
            OpKind::CustomCall(call) => custom_call::target(&call.target).is_some(),
            _ => false,
        }
    }

    /// Returns whether its results depend on its operands alone, and nothing else observes it.
    pub(super) fn is_pure(&self) -> bool {
        fn depends_on_process(operation: &Operation) -> bool {
            let mut inner = (operation.regions.iter()).flat_map(|region| &region.operations);
            matches!(
                operation.kind,
                OpKind::Rng { .. } | OpKind::PartitionId | OpKind::ReplicaId
            ) || inner.any(depends_on_process)
        }
        !has_effects(&self.operation) && !depends_on_process(&self.operation)
    }
}

impl Graph {
    /// Tells nodes how much of their results is read.
    fn limit(&mut self) {
        let mut read: Vec<Vec<usize>> = (self.bases.iter())
            .map(|info| vec![0; info.ty.rank()])
            .collect();
        for &base in &self.outputs {
            read[base] = self.bases[base].ty.dims.to_vec();
        }
        for place in self.nodes.iter().flat_map(|node| &node.operands) {
            let dims = &self.bases[place.base].ty.dims;
            let extents = place.extents(dims);
            for (read, extent) in read[place.base].iter_mut().zip(extents) {
                *read = extent.max(*read);
            }
        }
        for node in &mut self.nodes {
            if let Kind::Direct(kernel) = &mut node.kind {
                let mut all = read[node.results[0]].clone();
                for &other in &node.results[1..] {
                    let each = all.iter_mut().zip(&read[other]);
                    each.for_each(|(all, &of_other)| *all = of_other.max(*all));
                }
                kernel.limit(&all);
            }
        }
    }

    /// Removes nodes whose results nothing uses.
    fn drop_unused(&mut self) {
        let mut is_used = vec![false; self.bases.len()];
        self.outputs.iter().for_each(|&base| is_used[base] = true);
        let mut keeps = vec![false; self.nodes.len()];
        for (node, keep) in self.nodes.iter().zip(&mut keeps).rev() {
            let has_effects = match &node.kind {
                Kind::Oracle(call) => has_effects(&call.operation),
                // They may never end, or have effects.
                Kind::Loop(_) | Kind::Branch(_) | Kind::Manual(_) => true,
                _ => false,
            };
            *keep = has_effects || node.results.iter().any(|&base| is_used[base]);
            if *keep {
                node.operands
                    .iter()
                    .for_each(|place| is_used[place.base] = true);
            }
        }
        let mut keeps = keeps.into_iter();
        self.nodes
            .retain(|_| keeps.next().expect("a flag for each node"));
        self.bases.iter_mut().for_each(|base| base.node = None);
        for (number, node) in self.nodes.iter().enumerate() {
            node.results
                .iter()
                .for_each(|&base| self.bases[base].node = Some(number));
        }
        self.limit();
    }
}

/// Operations that other processes, or the oracle's state, observe.
fn has_effects(operation: &Operation) -> bool {
    let inner = || {
        operation
            .regions
            .iter()
            .flat_map(|region| &region.operations)
    };
    match operation.kind {
        OpKind::CustomCall(_)
        | OpKind::AllReduce(_)
        | OpKind::AllGather { .. }
        | OpKind::AllToAll { .. }
        | OpKind::ReduceScatter { .. }
        | OpKind::CollectivePermute { .. }
        | OpKind::CollectiveBroadcast(_)
        | OpKind::ManualComputation(_)
        // Outside of manual computations it is an error.
        | OpKind::PartitionId
        | OpKind::While
        | OpKind::Call { .. } => true,
        _ => inner().any(has_effects),
    }
}
