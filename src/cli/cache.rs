//! `halite cache`: the compile cache and the installed packages.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use clap::{Args, Subcommand};
use halite::{
    Error, ErrorKind, Result,
    backends::{
        Access, CacheEntry, CompileCache, CompileCacheOptions, DamagedFile, FileCount, OtherFiles,
        PLUGINS,
    },
    fetch::{self, Bytes, Check, State, Stored, StoredKind},
};
use serde_json::{Value, json};

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
    /// Whether programs may be removed.
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

/// A package of this version's tables, by the command that installs it.
struct Known {
    package: &'static fetch::Package,
    install: String,
}

fn known() -> Vec<Known> {
    let plugin = |plugin: &'static halite::backends::KnownPlugin| Known {
        package: &plugin.package,
        install: format!("halite plugins install {}", plugin.name),
    };
    let data = data::sets().into_iter().map(|set| Known {
        install: format!("halite data get {}", set.name),
        package: set.package,
    });
    PLUGINS.iter().map(plugin).chain(data).collect()
}

/// Contents of the package cache.
struct Contents {
    packages: Vec<Kept>,
    partial: Vec<Stored>,
}

/// An installed package.
struct Kept {
    stored: Stored,
    /// Whether this version of halite uses it.
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

fn age(of: SystemTime) -> u64 {
    SystemTime::now()
        .duration_since(of)
        .unwrap_or_default()
        .as_secs()
}

fn list(caches: &Caches, json: bool) -> Result<()> {
    let entries = caches.programs.entries()?;
    let other = caches.programs.other_files()?;
    let contents = caches.contents()?;
    if json {
        list_as_json(caches, &entries, other, &contents);
        return Ok(());
    }
    list_programs(caches, &entries, other);
    say!("");
    say!("{:>10} {:>10}  {:<5} package", "size", "installed", "used");
    let Contents { packages, partial } = contents;
    for Kept { stored, is_used } in &packages {
        let StoredKind::Package(package) = &stored.kind else {
            continue;
        };
        let (size, used) = (
            Bytes(stored.bytes).to_string(),
            if *is_used { "yes" } else { "no" },
        );
        say!(
            "{size:>10} {:>10}  {used:<5} {package}",
            ago(age(stored.changed))
        );
    }
    let bytes: u64 = packages.iter().map(|kept| kept.stored.bytes).sum();
    say!(
        "{} packages, {}, in {}",
        packages.len(),
        Bytes(bytes),
        caches.packages.root().display()
    );
    let old: Vec<&Stored> = packages
        .iter()
        .filter(|kept| !kept.is_used)
        .map(|kept| &kept.stored)
        .collect();
    if !old.is_empty() {
        let bytes = old.iter().map(|stored| stored.bytes).sum();
        say!(
            "{} of them are not used by this version, {}; `halite cache clear --old` removes them",
            old.len(),
            Bytes(bytes)
        );
    }
    for stored in &partial {
        let state = match stored.kind {
            StoredKind::Partial { in_use: true } => "is being installed",
            _ => "is a leftover of a killed process; `halite cache clear --partial` removes it",
        };
        say!("{} {state}, {}", stored.name, Bytes(stored.bytes));
    }
    Ok(())
}

fn list_programs(caches: &Caches, entries: &[CacheEntry], other: OtherFiles) {
    say!(
        "{:<8} {:<32} {:>10} {:>10} {:>10}  key",
        "platform",
        "name",
        "size",
        "compiled",
        "used"
    );
    for entry in entries {
        let (size, compiled) = (
            Bytes(entry.bytes).to_string(),
            format!("{:.2} s", entry.compile_time.as_secs_f64()),
        );
        let key = entry.key.to_string();
        let used = ago(age(entry.used));
        say!(
            "{:<8} {:<32} {size:>10} {compiled:>10} {used:>10}  {}",
            entry.platform,
            entry.name,
            &key[..12]
        );
    }
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let (used, limit, place) = (
        Bytes(bytes),
        Bytes(caches.programs.limit()),
        caches.programs.directory().display(),
    );
    say!(
        "{} programs, {used} of at most {limit}, in {place}{}",
        entries.len(),
        caches.state
    );
    let OtherFiles {
        digests,
        partial,
        markers,
    } = other;
    for (what, count) in [
        ("digests of plugins", digests),
        ("partial programs", partial),
        ("markers of loads", markers),
    ] {
        if count.files > 0 {
            say!("{} {what}, {}", count.files, Bytes(count.bytes));
        }
    }
}

fn list_as_json(caches: &Caches, entries: &[CacheEntry], other: OtherFiles, contents: &Contents) {
    let Contents { packages, partial } = contents;
    let program = |entry: &CacheEntry| {
        json!({
            "key": entry.key.to_string(),
            "name": entry.name,
            "platform": entry.platform,
            "bytes": entry.bytes,
            "compile_seconds": entry.compile_time.as_secs_f64(),
            "used_seconds_ago": age(entry.used),
        })
    };
    let stored = |stored: &Stored, more: (&str, Value)| {
        json!({
            "name": stored.name,
            "bytes": stored.bytes,
            "changed_seconds_ago": age(stored.changed),
            more.0: more.1,
        })
    };
    let count = |count: FileCount| json!({"files": count.files, "bytes": count.bytes});
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let in_use = |one: &Stored| one.kind == StoredKind::Partial { in_use: true };
    let directory: &Path = caches.programs.directory();
    say!(
        "{:#}",
        json!({
            "directory": directory,
            "bytes": bytes,
            "limit": caches.programs.limit(),
            "programs": entries.iter().map(program).collect::<Vec<_>>(),
            "digests": count(other.digests),
            "partial_programs": count(other.partial),
            "markers": count(other.markers),
            "package_directory": caches.packages.root(),
            "packages": packages.iter().map(|kept| stored(&kept.stored, ("used", json!(kept.is_used)))).collect::<Vec<_>>(),
            "partial": partial.iter().map(|one| stored(one, ("in_use", json!(in_use(one))))).collect::<Vec<_>>(),
        })
    );
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}
