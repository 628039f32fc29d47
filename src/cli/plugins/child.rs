//! The child process of `halite plugins check`, which loads the plugin. A plugin can end it.
//!
//! It writes one JSON object per line to stdout, and flushes each line, so that the last one names
//! the case that ended the process.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use halite::{
    Error, ErrorKind, Result,
    backends::{
        Accelerator, Access, CompileCacheOptions, OpenOptions, Opened, PLUGINS,
        cuda::{self, CudaOptions},
        pjrt::{OptionValue, Plugin},
    },
    conformance::{Subject, Verdict, cases},
    fetch,
};
use serde_json::{Value, json};

use crate::cli::{Session, open_options};

/// Name of the executor that is part of halite.
pub(super) const EMBEDDED: &str = "embedded";

/// Returns whether a plugin is opened by the name of its accelerator, with what its platform needs,
/// instead of by its path. The CPU's is not: it has as many devices as are asked for.
pub(super) fn opens_by_name(name: &str) -> bool {
    let mut known = PLUGINS.iter();
    name != "cpu" && known.any(|plugin| plugin.name == name && plugin.platform == name)
}

/// Loads a plugin, by the name of an accelerator in this `cache` or the path of a library, describes
/// it, and runs the cases whose name contains `only` except the first `skip`. `deadline` limits the time of each
/// case.
pub(super) fn run(
    target: &Path,
    cache: &Path,
    devices: Option<u32>,
    only: &str,
    deadline: Option<Duration>,
    skip: usize,
) -> Result<()> {
    let accelerator = match target.to_str() {
        Some(EMBEDDED) => Accelerator::Embedded { devices },
        Some(name) if opens_by_name(name) => name.parse()?,
        _ => Accelerator::Plugin(target.to_path_buf()),
    };
    let virtual_devices = match accelerator {
        Accelerator::Embedded { .. } => None,
        _ => devices,
    };
    // Cases open clients on threads of their own, which are in no session.
    let common = open_options(Some(cache.to_path_buf()));
    let open = move || {
        let virtual_devices = virtual_devices
            .map(|devices| ("cpu_device_count".to_owned(), i64::from(devices).into()));
        // Several clients at once: none may take a GPU's memory for itself.
        let shared = matches!(&accelerator, Accelerator::Plugin(path) if cuda::is_plugin(path));
        let shared = shared.then(|| ("preallocate".to_owned(), false.into()));
        let client = virtual_devices.into_iter().chain(shared).collect();
        let options = uncached(client, common.clone());
        accelerator.open_with(&options, &mut fetch::Quiet)
    };
    let opened = match open() {
        Ok(opened) => opened,
        Err(error) => return say(&json!({"event": "unavailable", "message": error.to_string()})),
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
        let (verdict, message) = match case.run(&subject) {
            Verdict::Passed => ("passed", None),
            Verdict::Failed(message) => ("failed", Some(message)),
            Verdict::Skipped(reason) => ("skipped", Some(reason)),
        };
        let took = started.elapsed();
        let hung = verdict == "failed" && took >= case.deadline;
        let seconds = took.as_secs_f64();
        say(
            &json!({"event": "end", "verdict": verdict, "message": message, "seconds": seconds, "hung": hung}),
        )?;
    }
    say(&json!({"event": "done"}))
}

/// Options of a client whose programs are compiled: the check is of the plugin's compiler, not of
/// programs that an earlier check cached.
fn uncached(client: Vec<(String, OptionValue)>, common: OpenOptions) -> OpenOptions {
    OpenOptions {
        client,
        cuda: CudaOptions {
            preallocate: Some(false),
            ..CudaOptions::default()
        },
        compile_cache: Some(CompileCacheOptions {
            access: Access::Off,
            ..CompileCacheOptions::default()
        }),
        ..common
    }
}

fn say(line: &Value) -> Result<()> {
    let written = (Session::current().terminal.stdout).print(&format!("{line}\n"));
    written.map_err(|error| {
        Error::new(ErrorKind::Io, "plugins check", "cannot write").caused_by(error)
    })
}

fn describe(opened: &Opened) -> Value {
    let client = &opened.client;
    let devices: Vec<_> = (client.devices().iter())
        .map(|device| {
            let memories: Vec<_> = device.memories().iter().map(|memory| format!("{memory:?}")).collect();
            json!({"id": device.id().0, "kind": device.kind(), "local": device.is_local(), "memories": memories})
        })
        .collect();
    let mut described = json!({
        "path": opened.driver.to_string(),
        "platform": &*client.platform().name,
        "version": client.platform().version,
        "devices": devices,
    });
    if let Some(plugin) = opened.driver.plugin() {
        describe_plugin(plugin, &mut described);
    }
    described
}

fn describe_plugin(plugin: &Plugin, described: &mut Value) {
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
    described["path"] = json!(plugin.path());
    described["api"] = json!(format!("{major}.{minor}"));
    described["stablehlo"] = json!(stablehlo);
    described["extensions"] = json!(extensions);
    described["missing_functions"] = json!(plugin.missing_functions());
}
