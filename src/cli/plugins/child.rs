//! The half of `halite plugins check` that loads the plugin: a process of its own, because a plugin
//! can end it.
//!
//! It writes one JSON object a line to stdout, and flushes each: the last line tells what it was
//! doing when it died.

use std::{
    io::{self, Write},
    path::Path,
    time::{Duration, Instant},
};

use halite::{
    Error, ErrorKind, Result,
    backends::{
        Accelerator, Access, CompileCacheOptions, OpenOptions, Opened,
        conformance::{Subject, Verdict, cases},
    },
    fetch,
};
use serde_json::{Value, json};

/// Loads the plugin, of an accelerator by name or a library by path, says what it is, and runs the
/// cases whose name contains `only`, without the first `skip` of them. No case may take longer than
/// `deadline`.
pub(super) fn run(
    target: &Path,
    devices: Option<u32>,
    only: &str,
    deadline: Option<Duration>,
    skip: usize,
) -> Result<()> {
    let accelerator = match target.to_str() {
        Some(name @ ("cuda" | "tpu")) => name.parse()?,
        _ => Accelerator::Plugin(target.to_path_buf()),
    };
    let open = move || {
        let client =
            devices.map(|devices| ("cpu_device_count".to_owned(), i64::from(devices).into()));
        // What is checked is the plugin's compiler, not what is left of an earlier check.
        let compile_cache = Some(CompileCacheOptions {
            access: Access::Off,
            ..CompileCacheOptions::default()
        });
        let options = OpenOptions {
            client: client.into_iter().collect(),
            compile_cache,
            ..OpenOptions::default()
        };
        accelerator.open_with(&options, &mut fetch::Quiet)
    };
    let opened = match open() {
        Ok(opened) => opened,
        Err(error) => return say(&json!({"event": "refused", "message": error.to_string()})),
    };
    say(&json!({"event": "opened", "plugin": describe(&opened)}))?;
    drop(opened);
    let subject = Subject::opened_by(move || Ok(open()?.client))?;
    for mut case in cases()
        .into_iter()
        .filter(|case| case.name.contains(only))
        .skip(skip)
    {
        case.deadline = deadline.unwrap_or(case.deadline);
        say(
            &json!({"event": "begin", "case": case.name, "sentence": case.sentence(), "seconds": case.deadline.as_secs()}),
        )?;
        let started = Instant::now();
        let (verdict, words) = match case.run(&subject) {
            Verdict::Passed => ("passed", None),
            Verdict::Failed(message) => ("failed", Some(message)),
            Verdict::Skipped(reason) => ("skipped", Some(reason)),
        };
        let took = started.elapsed();
        let hung = verdict == "failed" && took >= case.deadline;
        let seconds = took.as_secs_f64();
        say(
            &json!({"event": "end", "verdict": verdict, "words": words, "seconds": seconds, "hung": hung}),
        )?;
    }
    say(&json!({"event": "done"}))
}

fn say(line: &Value) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|error| {
            Error::new(ErrorKind::Io, "plugins check", "cannot write").caused_by(error)
        })
}

fn describe(opened: &Opened) -> Value {
    let Opened { client, plugin, .. } = opened;
    let (major, minor) = plugin.api_version();
    let version = |numbers: [i64; 3]| numbers.map(|number| number.to_string()).join(".");
    let stablehlo = plugin
        .stablehlo()
        .map(|range| json!({"oldest": version(range.minimum), "newest": version(range.current)}));
    let extensions = plugin.extensions();
    let extensions: Vec<_> = (extensions.iter())
        .map(|extension| {
            extension
                .name()
                .map_or_else(|| format!("number {}", extension.number), str::to_owned)
        })
        .collect();
    let devices: Vec<_> = (client.devices().iter())
        .map(|device| {
            let memories: Vec<_> = device.memories().iter().map(|memory| format!("{memory:?}")).collect();
            json!({"id": device.id().0, "kind": device.kind(), "local": device.is_local(), "memories": memories})
        })
        .collect();
    json!({
        "path": plugin.path(),
        "api": format!("{major}.{minor}"),
        "stablehlo": stablehlo,
        "extensions": extensions,
        "missing_functions": plugin.missing_functions(),
        "platform": &*client.platform().name,
        "version": client.platform().version,
        "devices": devices,
    })
}
