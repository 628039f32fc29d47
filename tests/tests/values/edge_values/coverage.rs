//! Every public function has a row, and every row accepts the element types that it names. The
//! functions are found by a scan of the source text.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use halite_core::DType;
use halite_nn::{Tensor, Trace};

use crate::edge_values::table::{Row, all};

/// Functions without a row, and why.
const EXEMPT: &[(&[&str], &str)] = &[
    (
        &[
            "trace", "ty", "dtype", "dims", "rank", "is_error", "origin", "name",
        ],
        "facts of a tensor that is traced: nothing runs",
    ),
    (
        &[
            "slots",
            "Adam::betas",
            "Adam::eps",
            "Adam::decay",
            "Adam::learning_rate",
            "AdamW::betas",
            "AdamW::eps",
            "AdamW::learning_rate",
            "Sgd::learning_rate",
        ],
        "options and types: what is computed is that of `update`",
    ),
    (
        &[
            "AdamW::decay",
            "Sgd::decay",
            "Decay::rule",
            "Decay::applies",
        ],
        "which parameters decay: nothing runs",
    ),
    (
        &[
            "all_reduce",
            "all_reduce_mean",
            "reduce_scatter_mean",
            "all_gather",
            "reduce_scatter",
            "all_to_all",
            "collective_permute",
            "sharding_constraint",
            "role_constraint",
        ],
        "of several devices: the suite `split` and tests/shard_map",
    ),
    (
        &["process_broadcast", "GlobalNorm::over_processes"],
        "of several processes: train/tests/processes",
    ),
];

/// Files of operations of `Tensor` and `Trace`, of losses, metrics and optimizers. All methods of
/// `Tensor` count, in whatever file; of others only those in these files.
const FILES: [&str; 13] = [
    "ops.rs",
    "reduce.rs",
    "special.rs",
    "index.rs",
    "shape.rs",
    "shape/part.rs",
    "conv.rs",
    "product.rs",
    "tensor.rs",
    "losses.rs",
    "losses/nll.rs",
    "metrics.rs",
    "mean.rs",
];

/// Files whose functions are no operations: the tree of slots, and parts of optimizers. Rows of
/// `Adam`, `AdamW` and `Sgd` stand for all optimizers, which are made of operations that have rows;
/// the suite `layers` has the values of each, and large parameters of those with norms.
const OTHER: [&str; 13] = [
    "optim/adafactor.rs",
    "optim/adagrad.rs",
    "optim/average.rs",
    "optim/chain.rs",
    "optim/gradient.rs",
    "optim/groups.rs",
    "optim/lars.rs",
    "optim/lion.rs",
    "optim/muon.rs",
    "optim/partition.rs",
    "optim/rms_prop.rs",
    "optim/slots.rs",
    "optim/unfreeze.rs",
];

/// Rows of functions that accept further types, which have no row, and why.
const ACCEPTS_MORE: &[(&[&str], &str)] = &[
    (&["clip"], "gradients are floats"),
    (&["numbers_integers"], "floats are in `numbers`"),
    (
        &["lower_triangle"],
        "the mask does not depend on the input, only on its size",
    ),
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/src")
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Names of public functions: of `Tensor` and free ones as they are, of others with the type.
fn functions() -> BTreeSet<String> {
    let (mut paths, mut found) = (Vec::new(), BTreeSet::new());
    files(&source(), &mut paths);
    for path in paths {
        let name = path.strip_prefix(source()).expect("below the folder");
        let name = name.to_str().expect("a name in ASCII");
        let text = std::fs::read_to_string(&path).expect("source text");
        let all = FILES.contains(&name) || (name.starts_with("optim") && !OTHER.contains(&name));
        scan(&text, all, &mut found);
    }
    found
}

/// What a line at the left margin opens, up to its closing brace.
enum Block {
    /// Inherent methods of types.
    Methods(Vec<String>),
    /// A table of a macro: `name Operation;`, or with a second name between them.
    Table,
    Other,
}

fn scan(text: &str, all: bool, found: &mut BTreeSet<String>) {
    let mut block = Block::Other;
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    for line in code {
        if let Some(opened) = opened(line) {
            block = opened;
        } else if line == "}" {
            block = Block::Other;
        }
        operators(line, found);
        let words: Vec<&str> = line.trim().trim_end_matches(';').split(' ').collect();
        let free = line.strip_prefix("pub fn ").filter(|_| all);
        match (&block, line.trim().strip_prefix("pub fn ").or(free)) {
            (Block::Table, _) if line.ends_with(';') && words.len() >= 2 => {
                let names = &words[..words.len() - 1];
                found.extend(
                    names
                        .iter()
                        .filter(|name| is_name(name))
                        .map(|&n| n.to_owned()),
                );
            }
            (Block::Methods(types), Some(rest)) => {
                for ty in types.iter().filter(|ty| all || *ty == "Tensor") {
                    let prefix = if ty == "Tensor" {
                        String::new()
                    } else {
                        format!("{ty}::")
                    };
                    found.extend(name_of(rest).map(|name| prefix + name));
                }
            }
            (Block::Other, Some(rest)) if free.is_some() => {
                found.extend(name_of(rest).map(str::to_owned));
            }
            _ => {}
        }
    }
}

fn opened(line: &str) -> Option<Block> {
    if line.starts_with("macro_rules! adam") {
        return Some(Block::Methods(vec!["Adam".to_owned(), "AdamW".to_owned()]));
    }
    if line.starts_with("macro_rules! settings") {
        return Some(Block::Methods(vec!["Sgd".to_owned()]));
    }
    if line == "thread_local! {" {
        return Some(Block::Other);
    }
    if line.ends_with("! {") && is_name(line.trim_end_matches("! {")) {
        return Some(Block::Table);
    }
    let rest = line.strip_prefix("impl")?.strip_suffix(" {")?;
    let rest = rest.strip_prefix("<'t>").unwrap_or(rest).trim();
    let ty = rest.split('<').next()?;
    let is_inherent = !rest.contains(" for ") && ty.chars().all(char::is_alphanumeric);
    Some(if is_inherent {
        Block::Methods(vec![ty.to_owned()])
    } else {
        Block::Other
    })
}

/// `operators!(Add add Add, ..)`: the second of three words.
fn operators(line: &str, found: &mut BTreeSet<String>) {
    let entries = match line.split_once("operators!(") {
        Some(("", entries)) => entries,
        _ if line.contains(" for Tensor<'t>, ") => line,
        _ => return,
    };
    for entry in entries.trim_end_matches(");").split(", ") {
        let words: Vec<&str> = entry.split_whitespace().collect();
        if words.len() >= 3 && is_name(words[1]) {
            found.insert(words[1].to_owned());
        }
    }
}

fn name_of(rest: &str) -> Option<&str> {
    let name = rest.split(['(', '<']).next()?;
    is_name(name).then_some(name)
}

fn is_name(word: &str) -> bool {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !word.is_empty() && word.chars().all(letters)
}

#[test]
fn every_public_function_has_a_row() {
    let functions = functions();
    assert!(functions.len() > 150, "the scan finds {}", functions.len());
    let covered: BTreeSet<&str> = all().flat_map(|row| row.covers).copied().collect();
    let exempt: BTreeSet<&str> = EXEMPT
        .iter()
        .flat_map(|(names, _)| *names)
        .copied()
        .collect();
    let without: Vec<&String> = functions
        .iter()
        .filter(|name| !covered.contains(&name[..]) && !exempt.contains(&name[..]))
        .collect();
    assert!(
        without.is_empty(),
        "public functions without a row in tests/tests/values/edge_values/rows (or a reason in EXEMPT): \
         {without:?}"
    );
    let unknown: Vec<&&str> = covered
        .iter()
        .chain(&exempt)
        .filter(|name| !functions.contains(**name))
        .collect();
    assert!(
        unknown.is_empty(),
        "rows or reasons of functions that do not exist: {unknown:?}"
    );
    let both: Vec<&&str> = covered.intersection(&exempt).collect();
    assert!(
        both.is_empty(),
        "reasons of functions that have a row: {both:?}"
    );
}

#[test]
fn rows_name_the_types_that_they_accept() {
    let accepts = |row: &Row, dtype: DType| {
        let cx = Trace::new();
        let types = row.form.types(dtype).into_iter();
        let inputs: Vec<Tensor<'_>> = types.map(|ty| cx.input(ty, "x")).collect();
        (row.build)(&inputs);
        cx.check().is_ok()
    };
    // Rows of the same functions share the types.
    let mut named = BTreeMap::<_, BTreeSet<DType>>::new();
    for row in all() {
        named
            .entry((row.form, row.covers))
            .or_default()
            .extend(row.dtypes);
    }
    let mut wrong = Vec::new();
    for row in all() {
        for dtype in DType::computed() {
            let (accepted, is_named) = (accepts(row, dtype), row.dtypes.contains(&dtype));
            if is_named && !accepted {
                wrong.push(format!("{} does not accept {dtype}", row.name));
            }
            let more = ACCEPTS_MORE
                .iter()
                .any(|(rows, _)| rows.contains(&row.name));
            if accepted && !more && !named[&(row.form, row.covers)].contains(&dtype) {
                wrong.push(format!("{} accepts {dtype}, which no row has", row.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
