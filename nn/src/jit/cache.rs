//! Cache of compiled programs, each with the argument types it was compiled for.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
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

struct Programs<O: Family> {
    all: Vec<Used<O>>,
    /// The most recently used one.
    last: Option<Arc<Compiled<O>>>,
    /// Number of uses of any program but the last one.
    uses: u64,
}

/// A program, with the number of uses before its last one.
struct Used<O: Family> {
    compiled: Arc<Compiled<O>>,
    at: u64,
    /// Of its arguments.
    hash: TypesHash,
}

/// A compiled program, with the tree of its outputs.
pub(super) struct Compiled<O: Family> {
    pub(super) shape: O::Of<()>,
    pub(super) program: CompiledProgram,
}

/// A compiled program, whatever its trees.
pub(super) struct CompiledProgram {
    pub(super) signature: Signature,
    /// Arguments of every launch after state and inputs.
    pub(super) hyperparameters: Vec<Array>,
    pub(super) loaded: Loaded,
    pub(super) stages: Stages,
}

/// Arguments and results of a program: their types and shardings.
pub(super) struct Signature {
    pub(super) arguments: Arguments,
    /// Outputs, without the state.
    pub(super) outputs: Vec<ArraySpec>,
    pub(super) hyperparameters: Vec<(ArraySpec, HostArray)>,
    /// The program, as processes that exchange buffers in it agree on it.
    pub(super) shared: Option<SharedProgram>,
}

/// The leaves of state and inputs.
#[derive(Clone, PartialEq)]
pub(super) struct Arguments {
    pub(super) state: Vec<Argument>,
    pub(super) inputs: Vec<Argument>,
}

/// A leaf of the state or the inputs: its place in its tree, and its spec.
pub(super) type Argument = (Path, ArraySpec);

impl Arguments {
    /// The leaves of these trees.
    pub(super) fn new(
        state: &impl Tree<Leaf = ArraySpec>,
        inputs: &impl Tree<Leaf = ArraySpec>,
    ) -> Self {
        let mut arguments = Arguments {
            state: Vec::with_capacity(state.leaf_count()),
            inputs: Vec::with_capacity(inputs.leaf_count()),
        };
        state.for_each(|path, spec| arguments.state.push((path.clone(), spec.clone())));
        inputs.for_each(|path, spec| arguments.inputs.push((path.clone(), spec.clone())));
        arguments
    }

    /// All of them, the state first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Argument> + Clone {
        self.state.iter().chain(&self.inputs)
    }

    fn hash(&self) -> TypesHash {
        let mut hash = TypesHash::default();
        for (_, spec) in self.iter() {
            hash.add(&spec.ty, spec.stored);
        }
        hash
    }
}

/// Hash of the types of a call's arguments, much cheaper than a launch.
#[derive(Clone, Copy, Default, PartialEq)]
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
                all: Vec::new(),
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
            hash
        };
        self.programs().find(hash, &|arguments| {
            leaves_match(&arguments.state, state, ArraySpec::is)
                && leaves_match(&arguments.inputs, inputs, |spec, array| spec.is(array))
        })
    }

    /// The program for these arguments, which becomes the most recently used one.
    pub(super) fn find(&self, arguments: &Arguments) -> Option<Arc<Compiled<O>>> {
        let hash = || arguments.hash();
        self.programs().find(hash, &|other| other == arguments)
    }

    /// The most recently used program.
    pub(super) fn last(&self) -> Option<Arc<Compiled<O>>> {
        self.programs().last.clone()
    }

    /// Adds a program, and drops the least recently used one if there are too many. Returns true at
    /// the first time that one is dropped.
    pub(super) fn add(&self, compiled: Arc<Compiled<O>>) -> bool {
        let stages = &compiled.program.stages;
        let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        total.trace += stages.trace;
        total.print += stages.print;
        total.compile += stages.compile;
        drop(total);
        let mut programs = self.programs();
        programs.add(compiled);
        let evicted = (programs.all.len() > self.limit).then(|| programs.remove_oldest());
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
    /// The program whose arguments are those of this hash. Loops call one program: the last one is
    /// tried before anything is hashed.
    fn find(
        &mut self,
        hash: impl FnOnce() -> TypesHash,
        is: &dyn Fn(&Arguments) -> bool,
    ) -> Option<Arc<Compiled<O>>> {
        let is = |compiled: &Compiled<O>| is(&compiled.program.signature.arguments);
        if let Some(last) = &self.last
            && is(last)
        {
            return Some(last.clone());
        }
        let hash = hash();
        let mut all = self.all.iter_mut();
        let found = all.find(|used| used.hash == hash && is(&used.compiled))?;
        self.uses += 1;
        found.at = self.uses;
        self.last = Some(found.compiled.clone());
        self.last.clone()
    }

    fn add(&mut self, compiled: Arc<Compiled<O>>) {
        self.uses += 1;
        self.last = Some(compiled.clone());
        let hash = compiled.program.signature.arguments.hash();
        let at = self.uses;
        self.all.push(Used { compiled, at, hash });
    }

    /// Removes the least recently used program, to be dropped without the lock.
    fn remove_oldest(&mut self) -> Option<Used<O>> {
        let uses = self.all.iter().map(|used| used.at).enumerate();
        let (index, _) = uses.min_by_key(|&(_, at)| at)?;
        Some(self.all.swap_remove(index))
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
