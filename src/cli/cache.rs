//! `halite cache`: compiled programs that are kept for the next process.

use std::{path::PathBuf, process::ExitCode, time::SystemTime};

use clap::{Args, Subcommand};
use halite::{
    Error, Result,
    backends::{Access, CompileCache, CompileCacheOptions, KeptEntry},
    fetch::Bytes,
};
use serde_json::json;

/// List or remove compiled programs
///
/// Every program that an accelerator compiles is kept, and the next process that wants the same one loads it. What was not
/// used for longest makes room. HALITE_COMPILE_CACHE says where: `on`, `off`, PATH, `readonly` or `readonly:PATH`.
#[derive(Args, Debug)]
pub(crate) struct Cache {
    #[command(subcommand)]
    command: CacheCommand,
    /// Where packages are kept [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum CacheCommand {
    /// The programs that are kept, the last used first
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Remove them all; a process that runs is not disturbed
    Clear,
}

impl Cache {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let options = CompileCacheOptions::from_environment()?;
        let off = options.access == Access::Off;
        // What was kept before it was turned off is still there.
        let shown = CompileCacheOptions { access: if off { Access::ReadWrite } else { options.access }, ..options };
        let Some(cache) = CompileCache::open(&shown, self.cache_dir.as_deref())? else {
            return Err(Error::invalid("cache", "there is no cache directory; name one with --cache-dir"));
        };
        let state = match options.access {
            Access::Off => ", turned off",
            Access::ReadOnly => ", read only",
            Access::ReadWrite => "",
        };
        match self.command {
            CacheCommand::List { json } => list(&cache, state, json)?,
            CacheCommand::Clear if options.access == Access::ReadOnly => {
                let message = format!("{} is read only, as HALITE_COMPILE_CACHE says", cache.directory().display());
                return Err(Error::invalid("cache", message));
            }
            CacheCommand::Clear => {
                let (count, bytes) = cache.clear()?;
                say!("{count} programs removed, {}", Bytes(bytes));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(cache: &CompileCache, state: &str, json: bool) -> Result<()> {
    let entries = cache.entries()?;
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let age = |entry: &KeptEntry| SystemTime::now().duration_since(entry.used).unwrap_or_default().as_secs();
    if json {
        let one = |entry: &KeptEntry| {
            json!({
                "key": entry.key.to_string(),
                "name": entry.name,
                "platform": entry.platform,
                "bytes": entry.bytes,
                "compile_seconds": entry.compile_time.as_secs_f64(),
                "used_seconds_ago": age(entry),
            })
        };
        let programs: Vec<_> = entries.iter().map(one).collect();
        say!("{:#}", json!({"directory": cache.directory(), "bytes": bytes, "limit": cache.limit(), "programs": programs}));
        return Ok(());
    }
    say!("{:<8} {:<32} {:>10} {:>10} {:>10}  key", "platform", "name", "size", "compiled", "used");
    for entry in &entries {
        let (size, compiled) = (Bytes(entry.bytes).to_string(), format!("{:.2} s", entry.compile_time.as_secs_f64()));
        let key = entry.key.to_string();
        say!("{:<8} {:<32} {size:>10} {compiled:>10} {:>10}  {}", entry.platform, entry.name, ago(age(entry)), &key[..12]);
    }
    let (used, limit, place) = (Bytes(bytes), Bytes(cache.limit()), cache.directory().display());
    say!("{} programs, {used} of at most {limit}, in {place}{state}", entries.len());
    Ok(())
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}
