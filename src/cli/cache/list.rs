//! `halite cache list`.

use std::{path::Path, time::SystemTime};

use halite::{
    Result,
    backends::{CacheEntry, FileCount, OtherFiles},
    fetch::{Bytes, Stored, StoredKind},
};
use serde_json::{Value, json};

use super::{Caches, Contents, Kept};

/// Prints the cached programs and packages.
pub(super) fn list(caches: &Caches, json: bool) -> Result<()> {
    let entries = caches.programs.entries()?;
    let other = caches.programs.other_files()?;
    let contents = caches.contents()?;
    if json {
        list_as_json(caches, &entries, other, &contents);
        return Ok(());
    }
    list_programs(caches, &entries, other);
    say!("");
    list_packages(caches, &contents);
    Ok(())
}

fn list_packages(caches: &Caches, contents: &Contents) {
    let Contents { packages, partial } = contents;
    say!("{:>10} {:>10}  {:<5} package", "size", "installed", "used");
    for Kept { stored, is_used } in packages {
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
            "{} unused by this version, {}; `halite cache clear --old` removes them",
            old.len(),
            Bytes(bytes)
        );
    }
    for stored in partial {
        let state = match stored.kind {
            StoredKind::Partial { in_use: true } => "is being installed",
            _ => "is a leftover of a killed process; `halite cache clear --partial` removes it",
        };
        say!("{} {state}, {}", stored.name, Bytes(stored.bytes));
    }
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

fn age(of: SystemTime) -> u64 {
    SystemTime::now()
        .duration_since(of)
        .unwrap_or_default()
        .as_secs()
}
