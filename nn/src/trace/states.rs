//! What other modules keep in a trace.

use std::{any::Any, cell::OnceCell};

use super::Trace;

/// One value of each type, in the order in which they were first asked for.
#[derive(Default)]
pub(super) struct States(OnceCell<Box<State>>);

struct State {
    value: Box<dyn Any + Send>,
    next: States,
}

impl Trace {
    /// The state of type `S` that a module keeps in this trace; a default one, the first time.
    pub(crate) fn state<S: Default + Any + Send>(&self) -> &S {
        let mut states = &self.states;
        loop {
            let state = states.0.get_or_init(|| {
                Box::new(State {
                    value: Box::new(S::default()),
                    next: States::default(),
                })
            });
            match state.value.downcast_ref() {
                Some(value) => return value,
                None => states = &state.next,
            }
        }
    }
}
