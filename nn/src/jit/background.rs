//! Compiling in threads, before a program is called for.

use std::{
    sync::PoisonError,
    thread::{self, JoinHandle},
    time::Duration,
};

use halite_core::{Loaded, Result, Stages, tree::Family};

use super::{ArraySpec, Jit, cache::Border};

/// A program that a thread is compiling.
pub(super) struct Begun<O: Family> {
    pub(super) border: Border<O>,
    pub(super) stages: Stages,
    pub(super) thread: Joined,
}

/// A compiled program, and how long compiling it took.
pub(super) type Timed = (Loaded, Duration);

/// A thread that compiles. A process that ends while a compiler is at work may end badly, so it is
/// waited for also where nobody wants the program any more.
pub(super) struct Joined(Option<JoinHandle<Result<Timed>>>);

impl Joined {
    pub(super) fn join(mut self) -> Result<Timed> {
        let thread = self.0.take().expect("it is waited for once");
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        _ = self.0.take().map(JoinHandle::join);
    }
}

impl<S: Family, I: Family, O: Family> Jit<S, I, O> {
    /// As [`prepare`](Self::prepare), but only traces now. A thread compiles, and who wants the
    /// program first waits for it.
    ///
    /// # Errors
    /// All mistakes of the traced code at once. What the compiler says comes with the first call,
    /// or with `prepare`.
    #[track_caller]
    pub fn prepare_in_background(
        &self,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<()> {
        let _compiling = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let begun = || self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = self
            .programs()
            .iter()
            .any(|compiled| compiled.border.is(state, inputs));
        if compiled || begun().iter().any(|begun| begun.border.is(state, inputs)) {
            return Ok(());
        }
        let (border, stages, compile) = self.uncompiled(state, inputs)?;
        // Beyond the limit, or if no thread can be started, it is compiled at its first use.
        if begun().len() >= self.limit {
            return Ok(());
        }
        if let Ok(thread) = thread::Builder::new().name("compile".into()).spawn(compile) {
            begun().push(Begun {
                border,
                stages,
                thread: Joined(Some(thread)),
            });
        }
        Ok(())
    }

    /// Whether a thread of [`prepare_in_background`](Self::prepare_in_background) is still
    /// compiling.
    pub fn is_compiling(&self) -> bool {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.iter().any(|begun| !begun.thread.is_finished())
    }

    /// Leaves the threads of [`prepare_in_background`](Self::prepare_in_background) to themselves:
    /// nobody waits for them any more, also when this is dropped. A process that ends while one of
    /// them is in a compiler may end badly, unless it ends without running destructors (`_exit`).
    pub fn abandon_background(&self) {
        let abandoned =
            std::mem::take(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner));
        for mut begun in abandoned {
            drop(begun.thread.0.take());
        }
    }

    /// The program for these inputs out of the background, if it is there: waits until it is
    /// compiled.
    pub(super) fn take_begun(
        &self,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Option<(Border<O>, Stages, Result<Timed>)> {
        let mut all = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let index = all
            .iter()
            .position(|begun| begun.border.is(state, inputs))?;
        let Begun {
            border,
            stages,
            thread,
        } = all.swap_remove(index);
        drop(all);
        Some((border, stages, thread.join()))
    }
}
