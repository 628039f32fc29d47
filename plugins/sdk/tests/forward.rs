//! The conformance suite on XLA's CPU plugin through the SDK: contract, C table, contract, C table.

use std::path::{Path, PathBuf};

use halite_backends::Search;
use halite_conformance::Subject;
use halite_core::{Client, Result};
use halite_fetch::{Cache, Quiet};
use halite_pjrt::Plugin;

/// The example `forward`, which cargo builds for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let target = test
        .parent()
        .and_then(Path::parent)
        .expect("the test is in target/debug/deps");
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    target
        .join("examples")
        .join(format!("{prefix}forward{suffix}"))
}

fn open(xla: &Path) -> Result<Client> {
    let options = vec![
        ("library".into(), xla.display().to_string().into()),
        ("devices".into(), 2i64.into()),
    ];
    Ok(Client::new(Plugin::load(library())?.client(options)?))
}

#[test]
fn forwarded_plugin_conforms() {
    let cache = Cache::open(None).unwrap();
    let xla = Search::cpu(&cache).ensure(&mut Quiet).unwrap().path;
    let subject = Subject::opened_by(move || open(&xla)).unwrap();
    let outcome = halite_conformance::run(&subject, "");
    assert!(outcome.failed.is_empty(), "{outcome}");
    println!("{outcome}");
}
