//! Single operations on every element type: the oracle of the embedded executor against XLA's CPU
//! plugin, and the fast mode against the oracle.
//!
//! Each operation has a random case for each element type, in each round: shapes, attributes and
//! values are drawn. `HALITE_OPERATIONS_ROUNDS` is the number of rounds,
//! `HALITE_OPERATIONS_SEED` the seed of the first, and `HALITE_OPERATIONS_ONLY` a part of the names
//! of cases (`add f32`). `HALITE_OPERATIONS_ALL` also runs what `deviations.rs` leaves out, and
//! `HALITE_OPERATIONS_TRACE` names the cases of each program before it runs, for a plugin that
//! aborts.

mod batch;
mod compare;
mod contract;
mod control;
mod deviations;
mod draft;
mod elementwise;
mod family;
mod generator;
mod index;
mod linalg;
mod moves;
mod numbers;
mod random;
mod reduce;

use std::{collections::BTreeMap, env};

use halite_backends::Accelerator;
use halite_core::{Client, Result};
use halite_embedded::{Embedded, Mode, Options};
use halite_stablehlo::ElementType;

use crate::{
    common::combinations::recorded,
    operations::{
        batch::Results,
        compare::{Tolerance, difference},
        draft::Case,
        family::Family,
        random::Random,
    },
};

/// Cases in one program.
const BATCH: usize = 200;

fn setting(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(value) => value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value}: expected a number")),
        Err(_) => default,
    }
}

fn families() -> Vec<Family> {
    let all = [
        elementwise::families(),
        moves::families(),
        index::families(),
        reduce::families(),
        contract::families(),
        linalg::families(),
        control::families(),
        generator::families(),
    ];
    all.into_iter().flatten().collect()
}

fn embedded(mode: Mode) -> Client {
    let options = Options {
        mode,
        ..Options::default()
    };
    let name = match mode {
        Mode::Oracle => "oracle",
        _ => "embedded",
    };
    let client = Client::new(Embedded::new(&options).expect("the executor starts"));
    recorded(client, name)
}

/// All cases of a round.
fn draw(seed: u64) -> Vec<Case> {
    let only = env::var("HALITE_OPERATIONS_ONLY").unwrap_or_default();
    let mut cases = Vec::new();
    for (number, family) in families().iter().enumerate() {
        for (at, element) in ElementType::ALL.into_iter().enumerate() {
            let mut random = Random::new(seed, (number * ElementType::ALL.len() + at) as u64);
            let case = family.draw(&mut random, element);
            cases.extend(case.filter(|case| case.name().contains(&only)));
        }
    }
    cases
}

/// Numbers of cases, by operation and element type.
type Counts = BTreeMap<&'static str, BTreeMap<&'static str, usize>>;

fn count(counts: &mut Counts, case: &Case) {
    let elements = counts.entry(case.operation).or_default();
    *elements.entry(case.element.name()).or_default() += 1;
}

fn print(what: &str, counts: &Counts) {
    println!("cases {what}, by operation and element type:");
    for (operation, elements) in counts {
        let each: Vec<_> = elements
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        println!("{operation:24} {}", each.join(", "));
    }
}

/// What is wrong with the results `found`.
fn wrong(
    case: &Case,
    names: [&str; 2],
    found: &Result<Results>,
    expected: &Result<Results>,
) -> Option<String> {
    let [name, measure] = names;
    // XLA converts 8-bit floats to wider ones also where they are only moved.
    let tolerance = match case.tolerance {
        Tolerance::Bits if measure == "XLA" => Tolerance::Exact,
        tolerance => tolerance,
    };
    let why = match (found, expected) {
        (Ok(found), Ok(expected)) => {
            let mut pairs = case
                .outputs
                .iter()
                .zip(found.iter().zip(expected))
                .enumerate();
            pairs.find_map(|(at, (ty, (found, expected)))| {
                let (element, difference) = difference(ty, [found, expected], tolerance)?;
                let inputs = case.elements_at(ty, element);
                Some(format!(
                    "result {at} of {name}, against {measure}: {difference}{inputs}"
                ))
            })?
        }
        (Err(error), _) => format!("{name}: {error}"),
        (_, Err(error)) => format!("{measure}: {error}"),
    };
    Some(format!(
        "{}: {why}\n{}",
        case.name(),
        case.function("public", "main")
    ))
}

#[test]
fn operations_agree_on_every_element_type() {
    let rounds = setting("HALITE_OPERATIONS_ROUNDS", 1);
    let first = setting("HALITE_OPERATIONS_SEED", 1);
    let all = env::var_os("HALITE_OPERATIONS_ALL").is_some();
    let (oracle, fast) = (embedded(Mode::Oracle), embedded(Mode::Fast));
    let xla = Accelerator::Cpu { devices: None }
        .open()
        .expect("XLA's plugin opens");
    let xla = recorded(xla, "cpu");
    let (mut compared, mut skipped, mut failures) = (Counts::new(), Counts::new(), Vec::new());
    for seed in first..first + rounds {
        let cases = draw(seed);
        for cases in cases.chunks(BATCH) {
            if env::var_os("HALITE_OPERATIONS_TRACE").is_some() {
                eprintln!("{} to {}", cases[0].name(), cases[cases.len() - 1].name());
            }
            let cases: Vec<_> = cases.iter().collect();
            let exact = batch::run(&oracle, &cases);
            for ((case, fast), exact) in cases.iter().zip(batch::run(&fast, &cases)).zip(&exact) {
                failures.extend(wrong(case, ["the fast mode", "the oracle"], &fast, exact));
            }
            let with_xla = cases.into_iter().zip(&exact).filter(|(case, _)| {
                let is_compared =
                    all && case.incomparable.is_none() || deviations::of(case).is_none();
                if !is_compared {
                    count(&mut skipped, case);
                }
                is_compared
            });
            let (cases, exact): (Vec<_>, Vec<_>) = with_xla.unzip();
            for ((case, xla), exact) in cases.iter().zip(batch::run(&xla, &cases)).zip(exact) {
                failures.extend(wrong(case, ["the oracle", "XLA"], exact, &xla));
                count(&mut compared, case);
            }
        }
    }
    print("compared with XLA", &compared);
    print("not compared with XLA", &skipped);
    println!("seeds {first} to {}", first + rounds - 1);
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
