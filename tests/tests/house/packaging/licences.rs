//! Licences of the packages that users compile, compared with `deny.toml`.

use std::path::Path;

use super::cargo;

/// The licences that `deny.toml` allows.
fn allowed() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, list) = text.split_once("allow = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    let name = |line: &str| Some(line.trim().strip_prefix('"')?.split('"').next()?.to_owned());
    list.lines().filter_map(name).collect()
}

/// The parts of an SPDX expression between `operator`s that are not in parentheses.
fn parts<'e>(expression: &'e str, operator: &str) -> Vec<&'e str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, byte) in expression.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ if depth == 0 && expression[at..].starts_with(operator) => {
                parts.push(&expression[start..at]);
                start = at + operator.len();
            }
            _ => {}
        }
    }
    parts.push(&expression[start..]);
    parts
}

/// True if a package with this SPDX expression may be used under licences of `allowed` alone.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.trim();
    for (operator, all) in [(" OR ", false), (" AND ", true)] {
        let parts = parts(expression, operator);
        if parts.len() > 1 {
            let mut results = parts.iter().map(|part| is_allowed(part, allowed));
            return if all {
                results.all(|it| it)
            } else {
                results.any(|it| it)
            };
        }
    }
    match expression
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
    {
        Some(inside) => is_allowed(inside, allowed),
        None => allowed.iter().any(|name| name == expression),
    }
}

#[test]
fn licences_of_dependencies_are_allowed() {
    let allowed = allowed();
    let tree = cargo("tree --workspace --all-features -e normal,build --prefix none -f {p}|{l}");
    let lines: Vec<_> = (tree.lines().filter_map(|line| line.split_once('|'))).collect();
    assert!(lines.len() > 200);
    for (package, licence) in lines {
        // Older manifests write `/` for `OR`; repeated packages end with ` (*)`.
        let licence = licence.trim_end_matches(" (*)").replace('/', " OR ");
        assert!(is_allowed(&licence, &allowed), "{package}: {licence}");
    }
}

#[test]
fn licence_that_is_not_listed_is_refused() {
    let allowed = allowed();
    for (expression, expected) in [
        ("MIT OR GPL-3.0-only", true),
        ("(MIT OR Apache-2.0) AND IJG", true),
        ("MIT AND GPL-3.0-only", false),
        ("(MIT OR Apache-2.0) AND OpenSSL", false),
        ("GPL-3.0-only", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}
