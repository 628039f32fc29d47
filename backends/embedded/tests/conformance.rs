//! The conformance suite of the backend contract on the embedded executor.

use halite_conformance::{Outcome, Subject, cases};
use halite_core::Client;
use halite_embedded::{Embedded, Mode, Options};

fn check(group: &str, devices: u32, mode: Mode) {
    let options = Options {
        devices,
        mode,
        ..Options::default()
    };
    let open = move || Ok(Client::new(Embedded::new(&options)?));
    let outcome: Outcome = halite_conformance::run(&Subject::opened_by(open).unwrap(), group);
    println!("{outcome}");
    assert!(
        outcome.failed.is_empty() && !outcome.passed.is_empty(),
        "{outcome}"
    );
}

macro_rules! groups {
    ($($group:ident)*) => {
        $(#[test]
        fn $group() {
            check(concat!(stringify!($group), "::"), 8, Mode::Fast);
        })*

        #[test]
        fn one_device_conforms() {
            check("", 1, Mode::Fast);
        }

        #[test]
        fn oracle_conforms() {
            check("", 8, Mode::Oracle);
        }

        #[test]
        fn every_group_is_a_test() {
            let tests = [$(stringify!($group)),*];
            for case in cases() {
                assert!(tests.contains(&case.group()), "{} runs in no test", case.name);
            }
        }
    };
}

groups!(transfers programs donation events errors threads devices custom_calls);
