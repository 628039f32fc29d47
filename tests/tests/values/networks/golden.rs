//! Random networks beside JAX: `tests/golden/random_networks.json`, which `random_networks.py`
//! completes.

use std::{collections::BTreeSet, path::PathBuf};

use halite_core::DType;
use halite_tests::parallel;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::networks::{description::Network, run::Compiled};

/// Number of stored networks.
const COUNT: usize = 32;

/// Difference from JAX in `f64`, relative to the norm of the gradient by one input.
const TOLERANCE: f64 = 1e-7;

#[derive(Deserialize)]
struct Stored {
    networks: Vec<Case>,
}

#[derive(Clone, Deserialize)]
struct Case {
    network: Network,
    jax: Expected,
}

/// What JAX found: the loss, and for each differentiated input the norm of its gradient and its
/// derivative along the direction of the network's seed.
#[derive(Clone, Deserialize)]
struct Expected {
    loss: f64,
    gradients: Vec<(f64, f64)>,
}

#[derive(Serialize)]
struct Described {
    networks: Vec<Description>,
}

#[derive(Serialize)]
struct Description {
    network: Network,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/random_networks.json")
}

fn stored() -> Vec<Case> {
    let text = std::fs::read_to_string(path()).expect("the stored networks");
    serde_json::from_str::<Stored>(&text)
        .expect("what random_networks.py writes")
        .networks
}

/// Small networks that have every block between them.
fn describe() {
    let mut seen = BTreeSet::new();
    let small = (10_001..20_000)
        .map(Network::draw)
        .filter(|network| blocks(network).len() <= 7);
    let (mut chosen, mut others) = (Vec::new(), Vec::new());
    for network in small {
        let of_network = blocks(&network);
        let new = of_network.iter().any(|name| !seen.contains(name));
        if new {
            seen.extend(of_network);
        }
        if new { &mut chosen } else { &mut others }.push(Description { network });
    }
    let missing = COUNT.saturating_sub(chosen.len());
    chosen.extend(others.into_iter().take(missing));
    let text = serde_json::to_string(&Described { networks: chosen }).expect("plain data");
    std::fs::write(path(), text).expect("the stored networks can be written");
}

/// Names of all blocks, with repetitions.
fn blocks(network: &Network) -> Vec<String> {
    fn collect(value: &Value, names: &mut Vec<String>) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
            Value::Object(fields) => {
                names.extend(
                    fields
                        .get("block")
                        .and_then(Value::as_str)
                        .map(str::to_owned),
                );
                fields.values().for_each(|value| collect(value, names));
            }
            _ => {}
        }
    }
    let mut names = Vec::new();
    collect(
        &serde_json::to_value(network).expect("plain data"),
        &mut names,
    );
    names
}

/// Compares the loss, and the norm and a projection of each gradient, with JAX.
fn compare(case: &Case) -> Result<(), String> {
    let seed = case.network.seed;
    let program = Compiled::of(&case.network, DType::F64).map_err(|error| error.to_string())?;
    let found = program
        .run(&program.point(seed))
        .map_err(|error| error.to_string())?;
    let same = |what: String, found: f64, expected: f64, size: f64| match (found - expected).abs()
        <= TOLERANCE * size
    {
        true => Ok(()),
        false => Err(format!("{what} is {found:e}, JAX has {expected:e}")),
    };
    let loss = case.jax.loss;
    same("the loss".into(), found.loss, loss, loss.abs().max(1e-3))?;
    let directions = program.direction(seed);
    let directions: Vec<&Vec<f64>> = directions
        .iter()
        .filter(|along| !along.is_empty())
        .collect();
    if (found.gradients.len(), directions.len())
        != (case.jax.gradients.len(), case.jax.gradients.len())
    {
        return Err(format!(
            "{} gradients, JAX has {}",
            found.gradients.len(),
            case.jax.gradients.len()
        ));
    }
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let whole = norm(&mut case.jax.gradients.iter().map(|(norm, _)| *norm));
    for (index, ((gradient, along), &(expected_norm, projection))) in found
        .gradients
        .iter()
        .zip(directions)
        .zip(&case.jax.gradients)
        .enumerate()
    {
        let size = expected_norm.max(1e-3 * whole);
        let found = norm(&mut gradient.iter().copied());
        let what = format!("the norm of gradient {index}");
        same(what, found, expected_norm, size)?;
        let found = gradient.iter().zip(along).map(|(g, along)| g * along).sum();
        let what = format!("the projection of gradient {index}");
        same(what, found, projection, size)?;
    }
    Ok(())
}

#[test]
fn stored_networks_agree_with_jax() {
    if std::env::var_os("HALITE_NETWORKS_WRITE").is_some() {
        return describe();
    }
    let cases = stored();
    assert!(cases.len() >= 30, "{} networks are stored", cases.len());
    let outcomes = parallel::map(2, 0..cases.len() as u64, |index| {
        compare(&cases[index as usize])
    });
    let wrong: Vec<String> = (cases.iter().zip(outcomes))
        .filter_map(|(case, outcome)| {
            Some(format!("seed {}: {}", case.network.seed, outcome.err()?))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn stored_networks_have_every_block() {
    let names: BTreeSet<String> = stored()
        .iter()
        .flat_map(|case| blocks(&case.network))
        .collect();
    let drawn: BTreeSet<String> = (1..2000)
        .flat_map(|seed| blocks(&Network::draw(seed)))
        .collect();
    assert_eq!(names, drawn);
    assert_eq!(drawn.len(), 26);
}
