//! Counter of what suites run: operations with the element types of their results, by executor.
//! Suites may change as long as the set does not shrink; `docs/long-campaigns.md` shows how to
//! compare two sets.

use std::{collections::BTreeSet, fs::OpenOptions, io::Write, sync::Mutex};

use halite_core::{Client, Compilation, LaunchObserver, Observer, QueuedLaunch};
use halite_stablehlo::{Function, Module, Region};

/// Environment variable with the path of a file, to which a line `OPERATION TYPE EXECUTOR` is
/// appended for each combination that is run. Processes append combinations that others have
/// appended, too.
pub const VARIABLE: &str = "HALITE_TEST_COMBINATIONS";

/// The client, whose programs are recorded under the name `executor` if [`VARIABLE`] is set.
#[must_use]
pub fn recorded(client: Client, executor: &str) -> Client {
    match std::env::var(VARIABLE) {
        Ok(path) => client.with_observer(Recorder {
            path,
            executor: executor.to_owned(),
        }),
        Err(_) => client,
    }
}

/// Records programs that are launched.
#[derive(Debug)]
struct Recorder {
    path: String,
    executor: String,
}

impl Observer for Recorder {
    fn compiled(&self, compilation: &Compilation<'_>) -> Option<Box<dyn LaunchObserver>> {
        let module = Module::read(compilation.program?.code.bytes()).ok()?;
        let mut found = BTreeSet::new();
        for function in &module.functions {
            collect(function, &function.body, &mut found);
        }
        let line = |pair: String| format!("{pair} {}\n", self.executor);
        Some(Box::new(Found {
            path: self.path.clone(),
            lines: Mutex::new(found.into_iter().map(line).collect()),
        }))
    }
}

/// Pairs of an operation and an element type.
fn collect(function: &Function, region: &Region, found: &mut BTreeSet<String>) {
    for operation in &region.operations {
        let (name, _) = operation.kind.to_attributes();
        for &result in &operation.results {
            if let Some(ty) = function.ty(result).as_tensor() {
                found.insert(format!("{name} {}", ty.element.name()));
            }
        }
        for inner in &operation.regions {
            collect(function, inner, found);
        }
    }
}

/// Lines of a program, until it is launched.
struct Found {
    path: String,
    lines: Mutex<Vec<String>>,
}

impl LaunchObserver for Found {
    fn launched(&self, _: &QueuedLaunch<'_>) {
        static WRITTEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let lines = std::mem::take(&mut *self.lines.lock().expect("no panic above"));
        let mut written = WRITTEN.lock().expect("no panic above");
        let new: String = lines
            .into_iter()
            .filter(|line| written.insert(line.clone()))
            .collect();
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path);
        let result = file.and_then(|mut file| file.write_all(new.as_bytes()));
        result.unwrap_or_else(|error| panic!("{VARIABLE}={}: {error}", self.path));
    }
}
