//! Output of `HALITE_DEBUG` on stderr.

use std::io::{self, Write};

use halite_core::{ProgramMemory, QueuedLaunch, format_bytes};

use crate::{
    CompileRecord, Finding,
    function::Function,
    text::{count, parenthesized, time},
};

/// Prints why a program was compiled, how long it took and how large it is.
pub(crate) fn print_compile(record: &CompileRecord) {
    print(&describe_compile(record));
}

/// Prints a launch. `before` is the number of earlier launches of the function.
pub(crate) fn print_launch(
    function: &Function,
    before: u64,
    signature: (u64, u64),
    launch: &QueuedLaunch<'_>,
) {
    let (inputs, outputs) = signature;
    print(&format!(
        "launch {} of `{}`{}, called at {}: {}, {}, queued in {}\n",
        before + 1,
        function.name,
        parenthesized(function.origin),
        launch.caller,
        count(inputs, "input"),
        count(outputs, "output"),
        time(launch.queued - launch.started)
    ));
}

/// Prints the report of all metrics.
pub(crate) fn print_metrics(report: &str) {
    print(&format!("metrics\n{report}"));
}

/// Prints what is worth changing.
pub(crate) fn print_findings(findings: &[Finding]) {
    if findings.is_empty() {
        print("analysis: nothing to change\n");
    }
    for finding in findings {
        print(&format!("analysis: {finding}\n"));
    }
}

fn describe_compile(record: &CompileRecord) -> String {
    let CompileRecord {
        number,
        cached,
        function,
        digest,
        origin,
        called_at,
        reason,
        inputs,
        outputs,
        stages,
        memory,
        interpreted,
        ..
    } = record;
    let called = called_at.map_or(String::new(), |line| format!(", called at {line}"));
    let mut text = format!(
        "compile {} of `{function}`{}{called}\n  reason  {reason}\n",
        number + 1,
        parenthesized(*origin)
    );
    text += &format!(
        "  program {digest}, {}, {}\n",
        count(*inputs as u64, "input"),
        count(*outputs as u64, "output")
    );
    let compile = if *cached {
        "loaded from the cache in"
    } else {
        "compile"
    };
    let [traced, printed, compiled] = [stages.trace, stages.print, stages.compile].map(time);
    text += &format!("  time    trace {traced}, print {printed}, {compile} {compiled}\n");
    if let Some(memory) = memory {
        text += &describe_memory(memory);
    }
    if !interpreted.is_empty() {
        let operations: Vec<_> = interpreted.iter().map(ToString::to_string).collect();
        let operations = operations.join(", ");
        text += &format!("  slow    no kernel for {operations}: in the interpreter\n");
    }
    text
}

fn describe_memory(memory: &ProgramMemory) -> String {
    let ProgramMemory {
        arguments,
        outputs,
        aliased,
        temporary,
        code,
        ..
    } = memory;
    let [arguments, outputs, aliased, temporary, code] =
        [arguments, outputs, aliased, temporary, code].map(|size| format_bytes(*size));
    format!(
        "  memory  input {arguments}, output {outputs}, of it aliased {aliased}, temporary \
         {temporary}, code {code}\n"
    )
}

/// Writes to stderr, with a prefix on each line. A closed stderr is ignored.
fn print(text: &str) {
    let lines: String = text
        .lines()
        .map(|line| format!("halite: {line}\n"))
        .collect();
    let _ = io::stderr().lock().write_all(lines.as_bytes());
}
