//! What is counted of one program: its launches, and their time on the device.

use std::{
    panic::Location,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use halite_core::Interpreted;

use crate::{FunctionActivity, InterpretedActivity};

/// Counts of a function, over all programs compiled from it.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Arc<str>,
    pub(crate) origin: Option<&'static Location<'static>>,
    pub(crate) compiles: AtomicU64,
    launches: AtomicU64,
    /// Devices of a launch, as last compiled.
    pub(crate) devices: AtomicU64,
    /// Launches that were timed on the device, and the sum of their times.
    timed: AtomicU64,
    execute_nanos: AtomicU64,
    /// Interpreted operations of all its programs.
    interpreted: Mutex<Vec<Interpreted>>,
}

impl Function {
    pub(crate) fn new(name: Arc<str>, origin: Option<&'static Location<'static>>) -> Self {
        Function {
            name,
            origin,
            compiles: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            devices: AtomicU64::new(1),
            timed: AtomicU64::new(0),
            execute_nanos: AtomicU64::new(0),
            interpreted: Mutex::default(),
        }
    }

    fn operations(&self) -> MutexGuard<'_, Vec<Interpreted>> {
        let operations = self.interpreted.lock();
        operations.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the operations of a program that an interpreter computes.
    pub(crate) fn add_interpreted(&self, operations: Vec<Interpreted>) {
        self.operations().extend(operations);
    }

    /// Counts a launch, and returns the number of launches before.
    pub(crate) fn count_launch(&self) -> u64 {
        self.launches.fetch_add(1, Relaxed)
    }

    /// Adds the time of a launch on the device.
    pub(crate) fn add_execution(&self, took: Duration) {
        self.timed.fetch_add(1, Relaxed);
        self.execute_nanos
            .fetch_add(took.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn activity(&self) -> FunctionActivity {
        FunctionActivity {
            name: self.name.clone(),
            origin: self.origin,
            compiles: self.compiles.load(Relaxed),
            launches: self.launches.load(Relaxed),
            devices: self.devices.load(Relaxed),
            timed: self.timed.load(Relaxed),
            executed: Duration::from_nanos(self.execute_nanos.load(Relaxed)),
            interpreted: self.interpreted(),
        }
    }

    pub(crate) fn interpreted(&self) -> Vec<InterpretedActivity> {
        let mut all: Vec<InterpretedActivity> = Vec::new();
        for one in &*self.operations() {
            let operation = one.to_string();
            let took = Duration::from_nanos(one.nanoseconds.load(Relaxed));
            match all.iter_mut().find(|known| known.operation == operation) {
                Some(known) => {
                    known.count += one.count;
                    known.took += took;
                }
                None => all.push(InterpretedActivity {
                    operation,
                    count: one.count,
                    took,
                }),
            }
        }
        all
    }
}
