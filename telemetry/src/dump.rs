//! Dumps of programs: files of `HALITE_DUMP_DIR`.

use std::{
    fs,
    io::{self, Write},
    panic::Location,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use halite_core::{Loaded, Program};
use serde_json::json;

use crate::CompileRecord;

/// Writes the graph, the program, the optimized program, and reason, times and sizes as JSON.
pub(crate) fn write_program(
    dir: &Path,
    record: &CompileRecord,
    program: &Program,
    graph: Option<&str>,
    loaded: &Loaded,
) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let stem = format!(
        "{}-{:04}-{}-{}",
        std::process::id(),
        record.number,
        record.digest,
        file_name(&program.name)
    );
    let write = |what: &str, bytes: &[u8]| fs::write(dir.join(format!("{stem}.{what}")), bytes);
    if let Some(graph) = graph {
        write("graph.txt", graph.as_bytes())?;
    }
    let code = program.code.bytes();
    let is_text = std::str::from_utf8(code).is_ok();
    let extension = if is_text {
        "stablehlo.mlir"
    } else {
        "stablehlo.mlirbc"
    };
    write(extension, code)?;
    if let Ok((format, code)) = loaded.optimized() {
        let extension = if format == "mlir" {
            "optimized.mlir"
        } else {
            "optimized.hlo.pb"
        };
        write(extension, &code)?;
    }
    write("json", summary(record).as_bytes())
}

/// Writes a program that the compiler rejected, and returns the note for the error.
#[cold]
pub(crate) fn write_rejected(dir: Option<&Path>, program: &Program) -> String {
    static REJECTED: AtomicU64 = AtomicU64::new(0);
    let Some(dir) = dir else {
        return "set HALITE_DUMP_DIR=DIR to write the program to a file in DIR".into();
    };
    let number = REJECTED.fetch_add(1, Relaxed);
    let name = format!(
        "{}-refused-{number:04}-{}.mlir",
        std::process::id(),
        file_name(&program.name)
    );
    let path = dir.join(name);
    let written = fs::create_dir_all(dir)
        .and_then(|()| fs::File::create_new(&path)?.write_all(program.code.bytes()));
    match written {
        Ok(()) => format!("the program is in {}", path.display()),
        Err(reason) => format!(
            "the program cannot be written to {}: {reason}",
            path.display()
        ),
    }
}

/// Reason, times in seconds, and sizes in bytes, as JSON.
fn summary(record: &CompileRecord) -> String {
    let line = |line: Option<&'static Location<'static>>| line.map(ToString::to_string);
    let memory = record.memory.map(|memory| {
        json!({
            "input": memory.arguments,
            "output": memory.outputs,
            "aliased": memory.aliased,
            "temporary": memory.temporary,
            "code": memory.code,
            "peak": memory.peak,
        })
    });
    let interpreted: Vec<_> = (record.interpreted.iter())
        .map(|it| json!({ "operation": it.to_string(), "count": it.count }))
        .collect();
    let summary = json!({
        "function": &*record.function,
        "digest": &*record.digest,
        "origin": line(record.origin),
        "called_at": line(record.called_at),
        "reason": record.reason.to_string(),
        "cached": record.cached,
        "inputs": record.inputs,
        "outputs": record.outputs,
        "seconds": {
            "trace": record.stages.trace.as_secs_f64(),
            "print": record.stages.print.as_secs_f64(),
            "compile": record.stages.compile.as_secs_f64(),
        },
        "bytes": memory,
        "interpreted": interpreted,
    });
    format!("{summary:#}\n")
}

/// A program's name as part of a file name.
fn file_name(name: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    name.chars()
        .take(80)
        .map(|c| if valid(c) { c } else { '_' })
        .collect()
}
