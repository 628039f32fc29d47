//! `halite devices --report`: what a report of a fault needs, in one file. It has no secrets: of
//! the environment, only variables that halite, plugins and loaders read, without those whose names
//! are of credentials, and without users and passwords of URLs.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use halite::{
    Error, Result,
    backends::{Accelerator, Opened, PLUGINS},
    cluster::launch::is_credential,
    core::files,
    fetch::{Cache, Check, State, sha256_of_file},
};
use serde_json::{Value, json};

use crate::cli::{Session, io_error};

/// Beginnings of the names of variables that determine what runs.
const VARIABLES: [&str; 17] = [
    "HALITE_",
    "PJRT_",
    "XLA_",
    "JAX_",
    "TF_CPP_",
    "TPU_",
    "LIBTPU_",
    "CUDA_",
    "NVIDIA_",
    "LD_",
    "GLIBC_TUNABLES",
    "MALLOC_",
    "MIMALLOC_",
    "RAYON_",
    "RUST_",
    "OMP_",
    "LC_",
];

/// Writes the report of an accelerator, or of the error of opening it.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(
    path: &Path,
    accelerator: &Accelerator,
    opened: Result<&Opened, &Error>,
    cache: Option<&Path>,
) -> Result<()> {
    let session = Session::current();
    let words = session.arguments.iter();
    let command: Vec<String> = words
        .map(|word| without_users(&word.to_string_lossy()))
        .collect();
    let report = json!({
        "halite": {
            "version": env!("CARGO_PKG_VERSION"),
            "optimized": !cfg!(debug_assertions),
            "target": format!("{}-{}", env::consts::ARCH, env::consts::OS),
        },
        "command": command,
        "system": system(),
        "environment": environment(env::vars_os().map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        })),
        "accelerator": match opened {
            Ok(opened) => described(accelerator, opened),
            Err(error) => json!({"requested": accelerator.to_string(), "error": error.to_string()}),
        },
        "plugins": installed(cache),
        "last_run": last_run(Path::new("runs")),
    });
    files::write_output(path, format!("{report:#}\n").as_bytes())
        .map_err(io_error("devices", "write", path))
}

/// The system, as far as Linux describes it in files.
fn system() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once([':', '=']));
        value.map(|(_, value)| value.trim().trim_matches('"').to_owned())
    };
    let (processor, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    json!({
        "name": field(&read("/etc/os-release"), "PRETTY_NAME"),
        "kernel": read("/proc/version").trim(),
        "processor": field(&processor, "model name"),
        "features": field(&processor, "flags").or_else(|| field(&processor, "Features")),
        "cores": std::thread::available_parallelism().map(usize::from).ok(),
        "memory": field(&memory, "MemTotal"),
        "available_memory": field(&memory, "MemAvailable"),
    })
}

/// The variables of a report, by name.
fn environment(all: impl Iterator<Item = (String, String)>) -> Value {
    let is_wanted = |(name, _): &(String, String)| {
        VARIABLES.iter().any(|start| name.starts_with(start)) && !is_credential(name)
    };
    let wanted = all.filter(is_wanted);
    wanted
        .map(|(name, value)| (name, json!(without_users(&value))))
        .collect()
}

/// The text without users and passwords of URLs: `https://***@host`.
fn without_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(['/', ' ', ',', ';']).unwrap_or(part.len());
        let (host, rest) = part.split_at(end);
        let host = match host.rsplit_once('@') {
            Some((_, host)) => format!("***@{host}"),
            None => host.to_owned(),
        };
        clean = format!("{clean}://{host}{rest}");
    }
    clean
}

/// An open accelerator.
fn described(accelerator: &Accelerator, opened: &Opened) -> Value {
    let platform = opened.client.platform();
    let devices = opened.client.devices();
    let devices = devices.iter().map(|device| {
        let memory = device.memory().ok();
        let spec = device.spec().map(|spec| {
            json!({
                "bf16_flops": spec.bf16_flops,
                "f16_flops": spec.f16_flops,
                "tf32_flops": spec.f32_flops,
                "f32_flops": spec.f32_highest_flops,
                "memory": spec.memory,
                "memory_bandwidth": spec.memory_bandwidth,
                "source": spec.source,
            })
        });
        json!({
            "id": device.id().0,
            "process": device.process(),
            "kind": device.kind(),
            "memory_in_use": memory.as_ref().map(|memory| memory.in_use),
            "memory_limit": memory.as_ref().and_then(|memory| memory.limit),
            "published": spec,
        })
    });
    let plugin = opened.driver.plugin().map(|plugin| {
        let (major, minor) = plugin.api_version();
        json!({
            "path": plugin.path(),
            "sha256": sha256_of_file(plugin.path()).ok().map(|(digest, _)| digest),
            "api": format!("{major}.{minor}"),
            "stablehlo": plugin.stablehlo().map(|versions| versions.current),
            "missing_functions": plugin.missing_functions(),
        })
    });
    json!({
        "requested": accelerator.to_string(),
        "platform": platform.name.to_string(),
        "version": platform.version,
        "driver": opened.driver.to_string(),
        "refused": opened.refused,
        "devices": devices.collect::<Vec<_>>(),
        "plugin": plugin,
    })
}

/// The known plugins that are in the cache, each file digested.
fn installed(cache: Option<&Path>) -> Value {
    let cache = match Cache::open(cache) {
        Ok(cache) => cache,
        Err(error) => return json!({"error": error.to_string()}),
    };
    let state = |plugin: &halite::backends::KnownPlugin| {
        let state = match cache.state(&plugin.package, Check::Full) {
            Ok(State::Absent) => return None,
            Ok(State::Installed(_)) => "installed".to_owned(),
            Ok(State::Damaged(reason)) => format!("damaged: {reason}"),
            Err(error) => error.to_string(),
        };
        let package = plugin.package.to_string();
        let value = json!({"package": package, "sha256": plugin.library.sha256, "state": state});
        Some((plugin.name.to_owned(), value))
    };
    PLUGINS.iter().filter_map(state).collect()
}

/// The newest report of a run below this directory, with its path.
fn last_run(runs: &Path) -> Value {
    let reports = fs::read_dir(runs).into_iter().flatten().flatten();
    let reports = reports.filter_map(|entry| {
        let path: PathBuf = entry.path().join("report.json");
        Some((fs::metadata(&path).ok()?.modified().ok()?, path))
    });
    let Some((_, path)) = reports.max() else {
        return Value::Null;
    };
    let text = files::read_input(&path).unwrap_or_default();
    let report = serde_json::from_slice::<Value>(&text);
    json!({"path": path, "report": report.map_err(|error| error.to_string()).ok()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_left_out() {
        let variables = [
            ("HALITE_LOG", "debug"),
            ("HALITE_API_TOKEN", "s3cret"),
            ("XLA_FLAGS", "--a=http://me:s3cret@host/x --b=1"),
            ("AWS_SECRET_ACCESS_KEY", "s3cret"),
            ("HOME", "/home/s3cret"),
        ];
        let all = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let found = environment(all.into_iter());
        assert_eq!(
            found,
            json!({"HALITE_LOG": "debug", "XLA_FLAGS": "--a=http://***@host/x --b=1"})
        );
    }

    #[test]
    fn urls_without_users_stay() {
        for text in ["", "a=b", "http://host/a@b", "see https://host, and c"] {
            assert_eq!(without_users(text), text);
        }
        assert_eq!(without_users("x://u:p@w@h"), "x://***@h");
    }
}
