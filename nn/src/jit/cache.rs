//! Cache of compiled programs, each with the argument types it was compiled for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use halite_core::{
    Array, DType, HostArray, Loaded, Stages, TensorType,
    tree::{Family, Path, Tree},
};

use super::{ArraySpec, agreement::SharedProgram};

/// Default maximum number of programs.
const DEFAULT_LIMIT: usize = 64;

/// The compiled programs of one function, at most a limit, the least recently used dropped first.
pub(super) struct Cache<O: Family> {
    /// Locked only to look and to add, never while compiling.
    programs: Mutex<Programs<O>>,
    limit: usize,
    compiles: AtomicU64,
    evictions: AtomicU64,
    /// Duration of all compiles, also of programs that have been dropped.
    total: Mutex<Stages>,
}

/// Programs by the [`TypesHash`] of their arguments. Those that differ in paths or shardings alone
/// share one.
struct Programs<O: Family> {
    by_hash: HashMap<u64, Vec<Used<O>>>,
    /// The most recently used one.
    last: Option<Arc<Compiled<O>>>,
    /// Number of uses of any program but the last one.
    uses: u64,
}

/// A program, with the number of uses before its last one.
struct Used<O: Family> {
    compiled: Arc<Compiled<O>>,
    at: u64,
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
    /// The program, as processes that exchange buffers in it agree on it.
    pub(super) shared: Option<SharedProgram>,
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

    fn hash(&self) -> u64 {
        let mut hash = TypesHash::default();
        for (_, spec) in self.state.iter().chain(&self.inputs) {
            hash.add(&spec.ty, spec.stored);
        }
        hash.0
    }
}

/// Hash of the types of a call's arguments, much cheaper than a launch.
#[derive(Default)]
struct TypesHash(u64);

impl TypesHash {
    fn add(&mut self, ty: &TensorType, stored: DType) {
        let kind = (ty.dtype() as u64) << 32 | (stored as u64) << 16 | ty.rank() as u64;
        for word in ty.dims().iter().map(|&size| size as u64).chain([kind]) {
            // As rustc's hash of its own tables.
            self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }
}

/// True if the leaves of `tree` have the paths of `arguments`, and `is` holds for each pair.
fn leaves_match<T: Tree>(
    arguments: &[Argument],
    tree: &T,
    is: impl Fn(&ArraySpec, &T::Leaf) -> bool,
) -> bool {
    #[cfg(test)]
    tests::COMPARED.with(|compared| compared.set(compared.get() + 1));
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
            programs: Mutex::new(Programs {
                by_hash: HashMap::new(),
                last: None,
                uses: 0,
            }),
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
        let hash = || {
            let mut hash = TypesHash::default();
            state.for_each(|_, array| hash.add(array.ty(), array.stored()));
            inputs.for_each(|_, array| hash.add(array.ty(), array.stored()));
            hash.0
        };
        self.programs().find(hash, |signature| {
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
        let hash = || {
            let mut hash = TypesHash::default();
            state.for_each(|_, spec| hash.add(&spec.ty, spec.stored));
            inputs.for_each(|_, spec| hash.add(&spec.ty, spec.stored));
            hash.0
        };
        self.programs()
            .find(hash, |signature| signature.accepts(state, inputs))
    }

    /// The most recently used program.
    pub(super) fn last(&self) -> Option<Arc<Compiled<O>>> {
        self.programs().last.clone()
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
        programs.add(compiled);
        let evicted = (programs.len() > self.limit).then(|| programs.remove_oldest());
        drop(programs);
        evicted.is_some() && self.evictions.fetch_add(1, Relaxed) == 0
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

    fn programs(&self) -> MutexGuard<'_, Programs<O>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Family> Programs<O> {
    /// The program whose signature `accepts` the arguments of this hash. Loops call one program: the
    /// last one is tried before anything is hashed.
    fn find(
        &mut self,
        hash: impl FnOnce() -> u64,
        accepts: impl Fn(&CallSignature<O>) -> bool,
    ) -> Option<Arc<Compiled<O>>> {
        if let Some(last) = &self.last
            && accepts(&last.signature)
        {
            return Some(last.clone());
        }
        let alike = self.by_hash.get_mut(&hash())?;
        let found = (alike.iter_mut()).find(|used| accepts(&used.compiled.signature))?;
        self.uses += 1;
        found.at = self.uses;
        self.last = Some(found.compiled.clone());
        Some(found.compiled.clone())
    }

    fn add(&mut self, compiled: Arc<Compiled<O>>) {
        self.uses += 1;
        self.last = Some(compiled.clone());
        let hash = compiled.signature.hash();
        let at = self.uses;
        (self.by_hash.entry(hash).or_default()).push(Used { compiled, at });
    }

    fn len(&self) -> usize {
        self.by_hash.values().map(Vec::len).sum()
    }

    /// Removes the least recently used program, to be dropped without the lock.
    fn remove_oldest(&mut self) -> Option<Used<O>> {
        let all = self.by_hash.iter();
        let uses = all.flat_map(|(&hash, alike)| alike.iter().map(move |used| (used.at, hash)));
        let (oldest, hash) = uses.min()?;
        let alike = self.by_hash.get_mut(&hash)?;
        let index = alike.iter().position(|used| used.at == oldest)?;
        let removed = alike.swap_remove(index);
        if alike.is_empty() {
            self.by_hash.remove(&hash);
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use halite_core::{
        Client, Null,
        tree::{Empty, Leaf},
    };

    use super::*;
    use crate::Jit;

    thread_local! {
        /// Trees of arguments that this thread has compared with those of a program.
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn one_of_many_programs_is_found_by_its_hash() {
        let client = Client::new(Null::new(1));
        let jit =
            Jit::<Empty<()>, Leaf<()>, Leaf<()>>::function(&client, |_, Leaf(x)| Leaf(x + 1.0));
        let of_size = |size: usize| Array::from_slice(&client, &vec![0f32; size], [size]).unwrap();
        let arrays: Vec<Array> = (1..=40).map(of_size).collect();
        for array in &arrays {
            jit.run(array).unwrap();
        }
        assert_eq!(jit.compiles(), 40);
        for array in &arrays {
            let before = COMPARED.get();
            jit.run(array).unwrap();
            // State and inputs of the last program and of the one that is found.
            let compared = COMPARED.get() - before;
            assert!(compared <= 4, "{compared} comparisons");
        }
        assert_eq!((jit.compiles(), jit.evictions()), (40, 0));
    }
}
