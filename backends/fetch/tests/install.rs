//! Real packages through the real clients, and real failures: no client, no network, no space,
//! killed processes.
//!
//! Needs Python 3 with pip, npm, and a registry for each. Tests that change a process's
//! environment, or kill it, run this same test binary again as a child:
//! [`child_installs_a_package`].

mod damage;
mod failing_clients;
mod packages;
mod parts;
mod processes;
mod refusals;
mod support;

use std::{io::Write, time::Duration};

use halite_fetch::{Cache, Limits, Package, Quiet};

use crate::install::support::{COWSAY, IS_NUMBER, SIX};

/// The child process of other tests, which may kill it or limit it. Without the variable that names
/// a package it does nothing.
#[test]
fn child_installs_a_package() {
    let Ok(what) = std::env::var("HALITE_FETCH_TEST_INSTALL") else {
        return;
    };
    let reply = |line: String| {
        println!("\nreply: {}", line.replace('\n', "\\n"));
        std::io::stdout().flush().unwrap();
    };
    let mut cache = match Cache::open(None) {
        Ok(cache) => cache,
        Err(error) => return reply(error.to_string()),
    };
    if let Some(milliseconds) = std::env::var("HALITE_FETCH_TEST_STALL_MS")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        cache = cache.with_limits(Limits {
            stall: Duration::from_millis(milliseconds),
            ..Limits::default()
        });
    }
    let package = match what.as_str() {
        "place" => return reply(cache.root().display().to_string()),
        "six" => SIX,
        "six unpinned" => Package {
            archive_sha256: None,
            ..SIX
        },
        "is-number" => IS_NUMBER,
        "cowsay" => COWSAY,
        other => panic!("no package {other}"),
    };
    match cache.ensure(&package, &mut Quiet) {
        Ok(it) => reply(format!(
            "{} {}",
            if it.fresh { "installed" } else { "found" },
            it.directory.display()
        )),
        Err(error) => {
            let debug = format!("{error:?}");
            reply(format!(
                "failed {} {error}",
                debug.split([' ', '(']).next().unwrap()
            ));
        }
    }
}
