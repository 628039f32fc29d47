//! Compilation on background threads, before a program is first called.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use halite_core::{Loaded, Result, Stages, tree::Family};

use super::{
    ArraySpec, Jit,
    cache::{Arguments, Signature},
    compile::Uncompiled,
};
use crate::Lowered;

/// Programs that background threads are compiling.
pub(super) struct Background<O: Family>(Mutex<Vec<InProgress<O>>>);

/// A program that a background thread is compiling.
struct InProgress<O: Family> {
    shape: O::Of<()>,
    signature: Signature,
    /// Durations of tracing and printing.
    stages: Stages,
    thread: CompileThread,
}

/// A compiled program, and the duration of compiling it.
pub(super) type Timed = (Loaded, Duration);

/// Compiles a program, or waits for the thread that does.
pub(super) type Compile = Box<dyn FnOnce() -> Result<Timed> + Send>;

/// A compiling thread, joined when dropped: a process that exits while one of its threads is inside
/// a compiler may crash.
struct CompileThread(Option<JoinHandle<Result<Timed>>>);

impl CompileThread {
    /// Waits for the compiler.
    fn join(mut self) -> Result<Timed> {
        let joined = self.0.take().expect("a thread is joined once").join();
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for CompileThread {
    fn drop(&mut self) {
        _ = self.0.take().map(JoinHandle::join);
    }
}

impl<O: Family> Default for Background<O> {
    fn default() -> Self {
        Background(Mutex::default())
    }
}

impl<O: Family> Background<O> {
    /// Removes and returns the program for these arguments, whose compilation its function waits
    /// for.
    pub(super) fn take(&self, arguments: &Arguments) -> Option<Uncompiled<O>> {
        let mut all = self.lock();
        let index = (all.iter()).position(|one| one.signature.arguments == *arguments)?;
        let InProgress {
            shape,
            signature,
            stages,
            thread,
        } = all.swap_remove(index);
        Some(Uncompiled {
            shape,
            signature,
            stages,
            compile: Box::new(move || thread.join()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<InProgress<O>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Family, I: Family, O: Family> Jit<S, I, O> {
    /// Like [`prepare`](Self::prepare), but only traces now, and compiles on a background thread.
    /// The first call that needs the program waits for it.
    ///
    /// # Errors
    /// All mistakes of the traced code at once. Errors of the compiler are returned by the first
    /// call, or by `prepare`.
    #[track_caller]
    pub fn prepare_in_background(
        &self,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<()> {
        self.compile_in_background(Arguments::new(state, inputs), || self.lower(state, inputs))
    }

    /// [`prepare_in_background`](Self::prepare_in_background), for a function that is
    /// [lowered](Self::lower) for these specs already.
    ///
    /// # Errors
    /// As [`prepare_in_background`](Self::prepare_in_background).
    #[track_caller]
    pub fn prepare_lowered(
        &self,
        lowered: Lowered<O::Of<()>>,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<()> {
        self.compile_in_background(Arguments::new(state, inputs), || Ok(lowered))
    }

    #[track_caller]
    fn compile_in_background(
        &self,
        arguments: Arguments,
        lowered: impl FnOnce() -> Result<Lowered<O::Of<()>>>,
    ) -> Result<()> {
        let _compiling = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let in_progress = |one: &InProgress<O>| one.signature.arguments == arguments;
        if self.cache.find(&arguments).is_some() || self.background.lock().iter().any(in_progress) {
            return Ok(());
        }
        let Uncompiled {
            shape,
            signature,
            stages,
            compile,
        } = self.uncompiled(lowered()?, arguments)?;
        // Lowered for its mistakes in any case. Beyond the limit, or if no thread can be started, it
        // is compiled at its first use.
        if self.background.lock().len() >= self.cache.limit() {
            return Ok(());
        }
        if let Ok(thread) = thread::Builder::new().name("compile".into()).spawn(compile) {
            self.background.lock().push(InProgress {
                shape,
                signature,
                stages,
                thread: CompileThread(Some(thread)),
            });
        }
        Ok(())
    }

    /// True while a thread of [`prepare_in_background`](Self::prepare_in_background) is compiling.
    pub fn is_compiling(&self) -> bool {
        let is_running = |thread: &JoinHandle<_>| !thread.is_finished();
        self.background
            .lock()
            .iter()
            .any(|one| one.thread.0.as_ref().is_some_and(is_running))
    }

    /// Detaches the threads of [`prepare_in_background`](Self::prepare_in_background): nothing waits
    /// for them any more, not even dropping this. A process that exits while one of them is in a
    /// compiler may crash, unless it exits without running destructors (`_exit`).
    pub fn abandon_background(&self) {
        let abandoned = std::mem::take(&mut *self.background.lock());
        for mut one in abandoned {
            drop(one.thread.0.take());
        }
    }
}
