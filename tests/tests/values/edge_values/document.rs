//! The table of differences in `docs/edge-values.md`.

use std::{fmt::Write as _, path::Path};

use halite_core::DType;

use crate::edge_values::{
    differences::{Allow, Difference, EVERYWHERE, Of, STAY},
    job::Executor,
    table::{ALL, FLOATS, INTEGERS},
};

const START: &str = "<!-- differences: written by `HALITE_EDGE_VALUES_WRITE=1` -->\n";
const END: &str = "<!-- end of differences -->\n";

/// Environment variable that makes the test write the table.
const WRITE: &str = "HALITE_EDGE_VALUES_WRITE";

#[test]
fn table_of_differences_is_in_the_documentation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/edge-values.md");
    let text = std::fs::read_to_string(&path).expect("docs/edge-values.md");
    let parts = text.split_once(START).zip(text.split_once(END));
    let ((before, _), (_, after)) = parts.expect("the marks of the table");
    let expected = format!("{before}{START}{}{END}{after}", table());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &expected).expect("docs/edge-values.md is written");
    } else {
        assert!(
            text == expected,
            "docs/edge-values.md has another table; write it with {WRITE}=1:\n{}",
            table()
        );
    }
}

fn table() -> String {
    let mut text = String::new();
    for difference in STAY {
        let line = line(difference);
        writeln!(text, "{line}").expect("writing to a string");
    }
    text
}

/// An item of a list, in lines of at most 100 columns.
fn line(difference: &Difference) -> String {
    let names: Vec<String> = difference
        .rows
        .iter()
        .map(|row| format!("`{row}`"))
        .collect();
    let of = match difference.of {
        Of::Function => "",
        Of::Gradient => ", gradient",
        Of::Both => ", with gradient",
    };
    let text = format!(
        "- {}{of} ({}; {}): {}. {}.",
        names.join(", "),
        dtypes(difference.dtypes),
        executors(difference.on),
        allowed(difference.allow),
        capitalized(difference.why),
    );
    wrapped(&text)
}

fn dtypes(dtypes: &[DType]) -> String {
    match dtypes {
        _ if dtypes == ALL => "all types".to_owned(),
        _ if dtypes == FLOATS => "floats".to_owned(),
        _ if dtypes == INTEGERS => "integers".to_owned(),
        _ => {
            let names: Vec<String> = dtypes.iter().map(|dtype| format!("`{dtype}`")).collect();
            names.join(", ")
        }
    }
}

fn executors(executors: &[Executor]) -> String {
    if executors == EVERYWHERE {
        return "all executors".to_owned();
    }
    let names: Vec<String> = executors
        .iter()
        .map(|executor| format!("`{executor}`"))
        .collect();
    names.join(", ")
}

fn allowed(allow: Allow) -> String {
    match allow {
        Allow::Ulps(most) => format!("up to {most} units in the last place"),
        Allow::Epsilons(most) => {
            format!("absolute error up to {most} machine epsilons")
        }
        Allow::SignOfZero => "the sign of a zero".to_owned(),
        Allow::DividedByItself => "1 for 0 by 0".to_owned(),
        Allow::SignOfInfinity => "the sign of an infinity".to_owned(),
        Allow::Subnormal => "any result where an input is subnormal or among the smallest normal \
                             numbers, or the result is subnormal"
            .to_owned(),
        Allow::Largest => {
            "any result where an input has at least half the size of the largest number".to_owned()
        }
        Allow::Infinite => "any result where an input is infinite".to_owned(),
    }
}

fn capitalized(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("at least one line");
        if !last.trim().is_empty() && last.chars().count() + 1 + word.chars().count() > 100 {
            lines.push(format!("  {word}"));
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.join("\n")
}
