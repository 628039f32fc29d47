//! What a client says and writes when the environment asks for it.

use std::{
    env, fs,
    io::{self, Write},
    panic::Location,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::{
    CompileRecord, Error, ErrorKind, LargeBuffer, Metrics, Program, ProgramMemory, Signature,
    erased::AnyExecutable,
    metrics::{
        Function,
        report::{bytes, count, time},
    },
};

/// What the environment asks for.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// `HALITE_DEBUG`: 1 tells of compiles and, at the end, of what is worth changing; 2 also of
    /// launches.
    pub(crate) level: u8,
    /// `HALITE_DUMP_DIR`: where every program is written to.
    pub(crate) dump: Option<PathBuf>,
    /// `HALITE_METRICS_FILE`: where a line of metrics is added to, with the steps and at the end.
    pub(crate) metrics_file: Option<PathBuf>,
    /// Whether the last line of metrics could not be added.
    pub(crate) metrics_failed: AtomicBool,
    /// `HALITE_SYNC`: wait for each launch, so that its error comes from the call that made it.
    pub(crate) sync: bool,
}

/// Largest size of the file of metrics, in bytes; some hours of a run.
const METRICS_LIMIT: u64 = 16 << 20;

impl Settings {
    pub(crate) fn of_environment() -> Self {
        let number = |name: &str| match env::var(name).as_deref().map(str::trim) {
            Err(_) | Ok("" | "0") => 0,
            Ok("1") => 1,
            Ok("2") => 2,
            Ok(other) => {
                halite_core::warning!("{name} is `{other}`, which means nothing; 0, 1 and 2 do");
                0
            }
        };
        let path = |name: &str| {
            env::var_os(name)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        };
        Settings {
            level: number("HALITE_DEBUG"),
            dump: path("HALITE_DUMP_DIR"),
            metrics_file: path("HALITE_METRICS_FILE"),
            metrics_failed: AtomicBool::new(false),
            sync: number("HALITE_SYNC") > 0,
        }
    }

    /// Whether launches are told of, or waited for.
    pub(crate) fn watches_launches(&self) -> bool {
        self.sync || self.level >= 2
    }

    /// A program was compiled.
    pub(crate) fn compiled(
        &self,
        record: &CompileRecord,
        program: &Program,
        graph: Option<&str>,
        executable: &dyn AnyExecutable,
    ) {
        if self.level >= 1 {
            say(&describe_compile(record));
        }
        let Some(dir) = &self.dump else { return };
        if let Err(error) = dump(dir, record, program, graph, executable) {
            halite_core::warning!(
                "`{}` cannot be written to {}: {error}",
                program.name,
                dir.display()
            );
        }
    }

    /// A program was launched, after so many launches of it.
    pub(crate) fn launched(
        &self,
        function: &Function,
        before: u64,
        at: &Location<'_>,
        signature: &Signature,
        queued: Duration,
    ) {
        if self.level >= 2 {
            let (inputs, outputs) = (
                signature.inputs.len() as u64,
                signature.outputs.len() as u64,
            );
            say(&format!(
                "launch {} of `{}`{}, called at {at}: {}, {}, queued in {}\n",
                before + 1,
                function.name,
                parenthesised(function.origin),
                count(inputs, "input"),
                count(outputs, "output"),
                time(queued)
            ));
        }
    }

    /// Writes the program that could not be compiled to a file of `HALITE_DUMP_DIR`, which the
    /// error then names.
    #[cold]
    pub(crate) fn keep_refused(&self, program: &Program, error: Error) -> Error {
        static REFUSED: AtomicU64 = AtomicU64::new(0);
        let Some(dir) = &self.dump else {
            return error.with_note("HALITE_DUMP_DIR=DIR writes the program to a file of DIR");
        };
        let number = REFUSED.fetch_add(1, Relaxed);
        let name = format!(
            "{}-refused-{number:04}-{}.mlir",
            std::process::id(),
            file_name(&program.name)
        );
        let path = dir.join(name);
        let written = fs::create_dir_all(dir)
            .and_then(|()| fs::File::create_new(&path)?.write_all(&program.code));
        match written {
            Ok(()) => error.with_note(&format!("the program is in {}", path.display())),
            Err(reason) => error.with_note(&format!(
                "the program cannot be written to {}: {reason}",
                path.display()
            )),
        }
    }

    /// Adds a line to the file of metrics. What keeps it from being written is said once.
    pub(crate) fn append(&self, metrics: &Metrics) {
        let Some(path) = &self.metrics_file else {
            return;
        };
        match append_bounded(path, &format!("{}\n", metrics.json_line()), METRICS_LIMIT) {
            Ok(()) => self.metrics_failed.store(false, Relaxed),
            Err(error) if !self.metrics_failed.swap(true, Relaxed) => {
                halite_core::warning!(
                    "metrics cannot be added to {}: {error}; tried again with each line",
                    path.display()
                );
            }
            Err(_) => {}
        }
    }

    /// The client is gone.
    pub(crate) fn ended(&self, metrics: &Metrics) {
        if self.level == 0 && self.metrics_file.is_none() {
            return;
        }
        let activity = metrics.activity();
        if activity.counters.compiles + activity.counters.launches == 0 {
            return;
        }
        self.append(metrics);
        if self.level == 0 {
            return;
        }
        if self.level >= 2 {
            say(&format!("metrics\n{}", metrics.report()));
        }
        let findings = activity.findings();
        if findings.is_empty() {
            say("analysis: nothing to change\n");
        }
        for finding in findings {
            say(&format!("analysis: {finding}\n"));
        }
    }
}

/// Adds a line to a file. One that would grow beyond `limit` bytes is first renamed to `PATH.1`, in
/// place of the one before it, so that at most twice `limit` is on the disk.
fn append_bounded(path: &Path, line: &str, limit: u64) -> io::Result<()> {
    let mut file = open_for_lines(path)?;
    let metadata = file.metadata()?;
    // Another process may be renaming it: this line is then in the old file.
    if metadata.is_file()
        && metadata.len() + line.len() as u64 > limit
        && file.try_lock().is_ok()
        && is_at(&metadata, path)
    {
        let mut older = path.as_os_str().to_owned();
        older.push(".1");
        fs::rename(path, older)?;
        file = open_for_lines(path)?;
    }
    // One write, so that the lines of several processes do not mix.
    file.write_all(line.as_bytes())
}

fn open_for_lines(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.create(true).append(true);
    // A pipe that nobody reads is an error then, and not a wait.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits() as i32,
    );
    options.open(path)
}

/// Whether `path` is still the name of an open file.
fn is_at(open: &fs::Metadata, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino()))
    }
    #[cfg(not(unix))]
    {
        _ = (open, path);
        true
    }
}

/// Adds to an out-of-memory error which tensors of the program are the largest, and what would
/// help.
#[cold]
pub(crate) fn explain_memory(error: Error, program: &str, largest: &[LargeBuffer]) -> Error {
    if error.kind() != ErrorKind::OutOfMemory {
        return error;
    }
    let describe = |large: &LargeBuffer| {
        let line = parenthesised(large.line);
        format!(
            "{} {}, {}{line}",
            large.what,
            large.ty,
            bytes(large.ty.checked_bytes().unwrap_or(usize::MAX) as u64)
        )
    };
    let size = |large: &LargeBuffer| large.ty.checked_bytes().unwrap_or(usize::MAX);
    let most = largest.iter().map(size).max().unwrap_or(0);
    // What is a hundredth of the largest is no reason.
    let largest: Vec<String> = largest
        .iter()
        .filter(|large| size(large) > most / 100)
        .map(describe)
        .collect();
    let largest = if largest.is_empty() {
        String::new()
    } else {
        format!("its largest tensors: {}; ", largest.join("; "))
    };
    error.with_note(&format!(
        "`{program}` needs more memory than there is; {largest}what helps: a smaller batch, more devices to share the model or the \
         batch, `checkpoint` around layers, bf16"
    ))
}

/// Why a program was compiled, how long it took, how big it is.
fn describe_compile(record: &CompileRecord) -> String {
    let CompileRecord {
        number,
        cached,
        function,
        origin,
        called_at,
        reason,
        inputs,
        outputs,
        stages,
        memory,
        ..
    } = record;
    let called = called_at.map_or(String::new(), |line| format!(", called at {line}"));
    let mut text = format!(
        "compile {} of `{function}`{}{called}\n  reason  {reason}\n",
        number + 1,
        parenthesised(*origin)
    );
    text += &format!(
        "  program {}, {}\n",
        count(*inputs as u64, "input"),
        count(*outputs as u64, "output")
    );
    let compile = if *cached {
        "taken out of the cache in"
    } else {
        "compile"
    };
    let [traced, printed, compiled] = [stages.trace, stages.print, stages.compile].map(time);
    text += &format!("  time    trace {traced}, print {printed}, {compile} {compiled}\n");
    if let Some(ProgramMemory {
        arguments,
        outputs,
        aliased,
        temporary,
        code,
        ..
    }) = memory
    {
        let [arguments, outputs, aliased, temporary, code] =
            [arguments, outputs, aliased, temporary, code].map(|size| bytes(*size));
        text += &format!(
            "  memory  input {arguments}, output {outputs}, of it aliased {aliased}, temporary {temporary}, code {code}\n"
        );
    }
    text
}

/// Writes the graph, the program, what the compiler made of it, and its sizes.
fn dump(
    dir: &Path,
    record: &CompileRecord,
    program: &Program,
    graph: Option<&str>,
    executable: &dyn AnyExecutable,
) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let stem = format!(
        "{}-{:04}-{}",
        std::process::id(),
        record.number,
        file_name(&program.name)
    );
    let write = |what: &str, bytes: &[u8]| fs::write(dir.join(format!("{stem}.{what}")), bytes);
    if let Some(graph) = graph {
        write("graph.txt", graph.as_bytes())?;
    }
    let is_text = program.code.starts_with(b"module")
        || program.code.starts_with(b"#")
        || std::str::from_utf8(&program.code).is_ok();
    write(
        if is_text {
            "stablehlo.mlir"
        } else {
            "stablehlo.mlirbc"
        },
        &program.code,
    )?;
    if let Ok((form, code)) = executable.optimized() {
        write(
            if form == "mlir" {
                "optimized.mlir"
            } else {
                "optimized.hlo.pb"
            },
            &code,
        )?;
    }
    write("json", describe_sizes(record).as_bytes())
}

/// Reason, times in seconds, and sizes in bytes as JSON.
fn describe_sizes(record: &CompileRecord) -> String {
    let CompileRecord {
        cached,
        function,
        origin,
        called_at,
        reason,
        inputs,
        outputs,
        stages,
        memory,
        ..
    } = record;
    let line = |line: &Option<&'static Location<'static>>| {
        line.map_or("null".to_string(), |line| json(&line.to_string()))
    };
    let memory = memory.map_or("null".to_string(), |memory| {
        let ProgramMemory { arguments, outputs, aliased, temporary, code, peak } = memory;
        let peak = peak.map_or("null".to_string(), |peak| peak.to_string());
        format!(
            "{{\"input\": {arguments}, \"output\": {outputs}, \"aliased\": {aliased}, \"temporary\": {temporary}, \"code\": {code}, \
             \"peak\": {peak}}}"
        )
    });
    format!(
        "{{\n  \"function\": {},\n  \"origin\": {},\n  \"called_at\": {},\n  \"reason\": {},\n  \"cached\": {cached},\n  \"inputs\": {inputs},\n  \"outputs\": {outputs},\n  \
         \"seconds\": {{\"trace\": {}, \"print\": {}, \"compile\": {}}},\n  \"bytes\": {memory}\n}}\n",
        json(function),
        line(origin),
        line(called_at),
        json(&reason.to_string()),
        stages.trace.as_secs_f64(),
        stages.print.as_secs_f64(),
        stages.compile.as_secs_f64(),
    )
}

/// A text as JSON.
pub(crate) fn json(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => quoted += &format!("\\u{:04x}", c as u32),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A program's name as part of a file's.
fn file_name(name: &str) -> String {
    name.chars()
        .take(80)
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect()
}

fn parenthesised(line: Option<&'static Location<'static>>) -> String {
    line.map_or(String::new(), |line| format!(" ({line})"))
}

/// On stderr, each line with who says it. Nobody who closed it is to be disturbed by a panic.
fn say(text: &str) {
    let lines: String = text
        .lines()
        .map(|line| format!("halite: {line}\n"))
        .collect();
    let _ = io::stderr().lock().write_all(lines.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_file_of_metrics_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let (path, older) = (
            directory.path().join("m.jsonl"),
            directory.path().join("m.jsonl.1"),
        );
        for number in 0..25 {
            append_bounded(&path, &format!("line {number:04}\n"), 100).unwrap();
        }
        assert_eq!(text(&path).lines().next(), Some("line 0020"));
        assert_eq!(
            (text(&older).lines().count(), text(&older).lines().next()),
            (10, Some("line 0010"))
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_another_renames_is_not_renamed_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.jsonl");
        fs::write(&path, "0123456789").unwrap();
        let other = fs::File::open(&path).unwrap();
        other.lock().unwrap();
        append_bounded(&path, "line\n", 10).unwrap();
        assert_eq!(text(&path), "0123456789line\n");
        assert!(!directory.path().join("m.jsonl.1").exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_that_nobody_reads_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.jsonl");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let (send, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(append_bounded(&path, "line\n", 100)));
        done.recv_timeout(Duration::from_secs(60))
            .expect("it hangs")
            .unwrap_err();
    }

    #[test]
    fn refused_programs_are_written_only_when_asked() {
        let program = Program {
            name: "odd one".into(),
            code: b"module {"[..].into(),
            signature: Signature::default(),
            partitions: 1,
            replicas: 1,
            facts: None,
        };
        let refuse = |settings: Settings| {
            settings
                .keep_refused(&program, Error::invalid("compile", "no"))
                .to_string()
        };
        let error = refuse(Settings::default());
        assert!(
            error.contains("HALITE_DUMP_DIR=DIR writes the program") && !error.contains(".mlir"),
            "{error}"
        );
        let directory = tempfile::tempdir().unwrap();
        let settings = || Settings {
            dump: Some(directory.path().into()),
            ..Settings::default()
        };
        for _ in 0..2 {
            let error = refuse(settings());
            let path = error
                .split("the program is in ")
                .nth(1)
                .unwrap_or_else(|| panic!("{error}"));
            assert_eq!(text(Path::new(path)), "module {");
        }
    }
}
