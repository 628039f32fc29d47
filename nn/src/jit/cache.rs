//! Cache of compiled programs, each with the argument types it was compiled for.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use halite_core::{
    Array, HostArray, Loaded, Stages,
    tree::{Family, Path, Tree},
};

use super::ArraySpec;

/// Default maximum number of programs.
const DEFAULT_LIMIT: usize = 64;

/// The compiled programs of one function, at most a limit, the least recently used dropped first.
pub(super) struct Cache<O: Family> {
    /// Least recently used first. Locked only to look and to add, never while compiling.
    programs: Mutex<Vec<Arc<Compiled<O>>>>,
    limit: usize,
    compiles: AtomicU64,
    evictions: AtomicU64,
    /// Duration of all compiles, also of programs that have been dropped.
    total: Mutex<Stages>,
}

/// A compiled program.
pub(super) struct Compiled<O: Family> {
    pub(super) signature: CallSignature<O>,
    /// Arguments of every launch after state and inputs.
    pub(super) hyperparameters: Vec<Array>,
    pub(super) loaded: Loaded,
    pub(super) stages: Stages,
}

/// Arguments and results of a program: their places in their trees, types and shardings.
pub(super) struct CallSignature<O: Family> {
    pub(super) state: Vec<Argument>,
    pub(super) inputs: Vec<Argument>,
    /// Outputs, without the state.
    pub(super) outputs: Vec<ArraySpec>,
    /// The tree of the outputs.
    pub(super) shape: O::Of<()>,
    pub(super) hyperparameters: Vec<(ArraySpec, HostArray)>,
}

/// A leaf of the state or the inputs: its place in its tree, and its spec.
pub(super) type Argument = (Path, ArraySpec);

/// The arguments in a tree of specs.
pub(super) fn arguments(tree: &impl Tree<Leaf = ArraySpec>) -> Vec<Argument> {
    let mut arguments = Vec::new();
    tree.for_each(|path, spec| arguments.push((path.clone(), spec.clone())));
    arguments
}

impl<O: Family> CallSignature<O> {
    /// True if this is the signature of calls with arguments of these specs.
    pub(super) fn accepts<S: Tree<Leaf = ArraySpec>, I: Tree<Leaf = ArraySpec>>(
        &self,
        state: &S,
        inputs: &I,
    ) -> bool {
        leaves_match(&self.state, state, |known, spec| known == spec)
            && leaves_match(&self.inputs, inputs, |known, spec| known == spec)
    }
}

/// True if the leaves of `tree` have the paths of `arguments`, and `is` holds for each pair.
fn leaves_match<T: Tree>(
    arguments: &[Argument],
    tree: &T,
    is: impl Fn(&ArraySpec, &T::Leaf) -> bool,
) -> bool {
    let mut rest = arguments.iter();
    let mut all = true;
    tree.for_each(|path, leaf| {
        all = all
            && rest
                .next()
                .is_some_and(|(at, spec)| at == path && is(spec, leaf))
    });
    all && rest.next().is_none()
}

impl<O: Family> Default for Cache<O> {
    fn default() -> Self {
        Cache {
            programs: Mutex::default(),
            limit: DEFAULT_LIMIT,
            compiles: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            total: Mutex::default(),
        }
    }
}

impl<O: Family> Cache<O> {
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn set_limit(&mut self, most: usize) {
        self.limit = most.max(1);
    }

    /// The program for these arrays, which becomes the most recently used one.
    pub(super) fn find_arrays<S: Family, I: Family>(
        &self,
        state: &S::Of<Array>,
        inputs: &I::Of<&Array>,
    ) -> Option<Arc<Compiled<O>>> {
        self.find_where(|signature| {
            leaves_match(&signature.state, state, ArraySpec::is)
                && leaves_match(&signature.inputs, inputs, |spec, array| spec.is(array))
        })
    }

    /// The program for arrays of these specs, which becomes the most recently used one.
    pub(super) fn find<S: Tree<Leaf = ArraySpec>, I: Tree<Leaf = ArraySpec>>(
        &self,
        state: &S,
        inputs: &I,
    ) -> Option<Arc<Compiled<O>>> {
        self.find_where(|signature| signature.accepts(state, inputs))
    }

    fn find_where(&self, accepts: impl Fn(&CallSignature<O>) -> bool) -> Option<Arc<Compiled<O>>> {
        let mut programs = self.programs();
        let index = programs
            .iter()
            .rposition(|compiled| accepts(&compiled.signature))?;
        programs[index..].rotate_left(1);
        programs.last().cloned()
    }

    /// The most recently used program.
    pub(super) fn last(&self) -> Option<Arc<Compiled<O>>> {
        self.programs().last().cloned()
    }

    /// Adds a program, and drops the least recently used one if there are too many. Returns true at
    /// the first time that one is dropped.
    pub(super) fn add(&self, compiled: Arc<Compiled<O>>) -> bool {
        let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        total.trace += compiled.stages.trace;
        total.print += compiled.stages.print;
        total.compile += compiled.stages.compile;
        drop(total);
        let mut programs = self.programs();
        programs.push(compiled);
        let surplus = programs.len().saturating_sub(self.limit);
        let evicted: Vec<_> = programs.drain(..surplus).collect();
        drop(programs);
        !evicted.is_empty() && self.evictions.fetch_add(evicted.len() as u64, Relaxed) == 0
    }

    pub(super) fn count_compile(&self) {
        self.compiles.fetch_add(1, Relaxed);
    }

    pub(super) fn compiles(&self) -> u64 {
        self.compiles.load(Relaxed)
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    pub(super) fn total(&self) -> Stages {
        *self.total.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn programs(&self) -> MutexGuard<'_, Vec<Arc<Compiled<O>>>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
