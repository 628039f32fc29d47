//! `halite cache`: the compile cache and the installed packages.

mod list;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use halite::{
    Error, ErrorKind, Result,
    backends::{Access, CompileCache, CompileCacheOptions, DamagedFile, FileCount, PLUGINS, cuda},
    cluster,
    data::images::IMAGENET_CLASSES,
    fetch::{self, Bytes, Check, State, Stored, StoredKind},
    models::LITE0_WEIGHTS,
};

use self::list::list;
use super::data;

/// List, verify or remove cached programs and packages
///
/// The compile cache stores every compiled program, and later processes load it from there. The
/// least recently used programs are removed when the cache is full. HALITE_COMPILE_CACHE configures
/// it: `on`, `off`, PATH, `readonly` or `readonly:PATH`. Plugins and data sets are installed once,
/// and stay until they are removed here.
#[derive(Args, Debug)]
pub(crate) struct Cache {
    #[command(subcommand)]
    command: CacheCommand,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum CacheCommand {
    /// List compiled programs (most recently used first), packages, and leftovers of killed processes
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Verify the digests of all packages and programs; fails if one is damaged
    Verify,
    /// Remove compiled programs, or what the options name; running processes are not affected
    Clear(Clear),
}

/// Options of `cache clear`.
#[derive(Args, Debug)]
struct Clear {
    /// Compiled programs (the default)
    #[arg(long)]
    programs: bool,
    /// Packages that this version of halite does not use
    #[arg(long)]
    old: bool,
    /// Incomplete downloads and programs of killed processes
    #[arg(long)]
    partial: bool,
    /// All packages: plugins and data sets, which are downloaded again when they are needed
    #[arg(long)]
    packages: bool,
    /// Everything
    #[arg(long)]
    all: bool,
}

/// The package cache and the compile cache.
struct Caches {
    programs: CompileCache,
    packages: fetch::Cache,
    /// True if programs cannot be removed.
    read_only: bool,
    /// Note on the access mode of the compile cache.
    state: &'static str,
}

impl Cache {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let caches = self.open()?;
        match self.command {
            CacheCommand::List { json } => list(&caches, json)?,
            CacheCommand::Verify => verify(&caches)?,
            CacheCommand::Clear(clear) => clear.run(&caches)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn open(&self) -> Result<Caches> {
        let options = CompileCacheOptions::from_environment()?;
        let off = options.access == Access::Off;
        // A cache that is turned off may still have programs.
        let shown = CompileCacheOptions {
            access: if off {
                Access::ReadWrite
            } else {
                options.access
            },
            ..options
        };
        let Some(programs) = CompileCache::open(&shown, self.cache_dir.as_deref())? else {
            return Err(Error::invalid(
                "cache",
                "no cache directory; set one with --cache-dir",
            ));
        };
        let state = match options.access {
            Access::Off => ", turned off",
            Access::ReadOnly => ", read only",
            Access::ReadWrite => "",
        };
        let packages = fetch::Cache::open(self.cache_dir.as_deref())?;
        Ok(Caches {
            programs,
            packages,
            read_only: options.access == Access::ReadOnly,
            state,
        })
    }
}

/// A package that this version installs, with the command that does it.
struct Known {
    package: &'static fetch::Package,
    install: String,
}

/// All packages that this version installs.
fn known() -> Vec<Known> {
    let plugin = |plugin: &'static halite::backends::KnownPlugin| Known {
        package: &plugin.package,
        install: format!("halite plugins install {}", plugin.name),
    };
    let data = data::sets().into_iter().map(|set| Known {
        install: format!("halite data get {}", set.name),
        package: set.package,
    });
    let others = [
        (&cluster::MPICH, "halite launch -n 1 -- halite job"),
        (&cuda::PACKAGE, "halite plugins install cuda-libraries"),
        (&LITE0_WEIGHTS, "halite classify IMAGE"),
        (&IMAGENET_CLASSES, "halite classify IMAGE"),
    ];
    let others = others.map(|(package, install)| Known {
        package,
        install: install.to_owned(),
    });
    PLUGINS
        .iter()
        .map(plugin)
        .chain(data)
        .chain(others)
        .collect()
}

/// Contents of the package cache.
struct Contents {
    packages: Vec<Kept>,
    partial: Vec<Stored>,
}

/// An installed package.
struct Kept {
    stored: Stored,
    /// True if this version of halite uses it.
    is_used: bool,
}

impl Caches {
    fn contents(&self) -> Result<Contents> {
        let used: Vec<PathBuf> = known()
            .iter()
            .map(|known| self.packages.directory(known.package))
            .collect();
        let is_package = |stored: &Stored| matches!(stored.kind, StoredKind::Package(_));
        let (packages, partial): (Vec<_>, Vec<_>) =
            self.packages.stored()?.into_iter().partition(is_package);
        let packages = packages.into_iter().map(|stored| {
            let is_used = used.contains(&stored.path);
            Kept { stored, is_used }
        });
        Ok(Contents {
            packages: packages.collect(),
            partial,
        })
    }
}

impl Clear {
    fn run(self, caches: &Caches) -> Result<()> {
        let Clear {
            programs,
            old,
            partial,
            packages,
            all,
        } = self;
        let programs = programs || all || !(old || partial || packages);
        if programs && caches.read_only {
            let message = format!(
                "{} is read-only: HALITE_COMPILE_CACHE",
                caches.programs.directory().display()
            );
            return Err(Error::invalid("cache", message));
        }
        if programs {
            let (count, bytes) = caches.programs.clear()?;
            say!("{count} programs removed, {}", Bytes(bytes));
        }
        let contents = caches.contents()?;
        if old || packages || all {
            let chosen = contents
                .packages
                .iter()
                .filter(|kept| packages || all || !kept.is_used);
            let removed = remove(caches, chosen.map(|kept| &kept.stored))?;
            say!(
                "{} packages removed, {}",
                removed.files,
                Bytes(removed.bytes)
            );
        }
        if partial || all {
            let removed = remove(caches, contents.partial.iter())?;
            let abandoned = if caches.read_only {
                FileCount::default()
            } else {
                caches.programs.remove_abandoned()?
            };
            say!(
                "{} partial files removed, {}",
                removed.files + abandoned.files,
                Bytes(removed.bytes + abandoned.bytes)
            );
        }
        Ok(())
    }
}

/// Removes entries, except for those in use, which it reports.
fn remove<'a>(caches: &Caches, chosen: impl Iterator<Item = &'a Stored>) -> Result<FileCount> {
    let mut removed = FileCount::default();
    for stored in chosen {
        if caches.packages.remove(stored)? {
            removed.files += 1;
            removed.bytes += stored.bytes;
        } else {
            say!("{} stays: another process is installing it", stored.name);
        }
    }
    Ok(removed)
}

/// Verifies all digests.
fn verify(caches: &Caches) -> Result<()> {
    let (mut whole, mut damaged) = (0, Vec::new());
    let mut report = |what: String, reason: Option<String>| match reason {
        None => whole += 1,
        Some(reason) => damaged.push(format!("{what}: {reason}")),
    };
    for Known { package, install } in known() {
        match caches.packages.state(package, Check::Full)? {
            State::Absent => {}
            State::Installed(_) => report(package.to_string(), None),
            State::Damaged(reason) => report(
                package.to_string(),
                Some(format!("{reason}; `{install}` fetches it again")),
            ),
        }
    }
    for Kept { stored, .. } in caches
        .contents()?
        .packages
        .into_iter()
        .filter(|kept| !kept.is_used)
    {
        let reason = stored
            .verify()?
            .map(|reason| format!("{reason}; `halite cache clear --old` removes it"));
        report(stored.name, reason);
    }
    let programs = caches.programs.verify()?;
    whole += programs.files - programs.damaged.len();
    let describe =
        |file: &DamagedFile| format!("{}: {}; it is not used", file.path.display(), file.reason);
    damaged.extend(programs.damaged.iter().map(describe));
    for line in &damaged {
        say!("damaged: {line}");
    }
    say!(
        "{whole} packages and programs are whole, {} damaged",
        damaged.len()
    );
    match damaged.len() {
        0 => Ok(()),
        count => Err(Error::new(
            ErrorKind::Corrupt,
            "cache",
            format!("{count} damaged, as listed above"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Names of the packages that the sources below a folder describe, outside of tests.
    fn described(folder: &Path, names: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_left_out = ["target", "tests", "benches", "fuzz"].contains(&&*name);
            if path.is_dir() && !is_left_out && !name.starts_with('.') {
                described(&path, names);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let code = code.lines().filter(|line| !line.starts_with("//"));
                let code = code.collect::<Vec<_>>().join("\n");
                for part in code.split("client: Client::").skip(1) {
                    let name = part
                        .split("name: \"")
                        .nth(1)
                        .and_then(|rest| rest.split('"').next());
                    let is_here = part.find("name: \"").is_some_and(|at| at < 200);
                    names.extend(name.filter(|_| is_here).map(str::to_owned));
                }
            }
        }
    }

    /// A package that is missing in the table is listed as unused, and removed by `clear --old`.
    #[test]
    fn every_package_of_the_sources_is_known() {
        let mut names = Vec::new();
        described(Path::new(env!("CARGO_MANIFEST_DIR")), &mut names);
        let known: Vec<&fetch::Package> = known().into_iter().map(|known| known.package).collect();
        let parts = known.iter().flat_map(|package| package.parts);
        let all: Vec<&str> = (known.iter().map(|package| package.name))
            .chain(parts.map(|part| part.name))
            .collect();
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            assert!(all.contains(&&*name), "`{name}` is not in `known()`");
        }
    }
}
