//! Patterns of parameter paths.

use std::{fmt, str::FromStr};

use halite_core::{Error, Result, edit_distance};

/// A pattern of parameter paths.
///
/// A pattern has segments between dots, as paths do. In a segment `*` matches any text and `a|b`
/// either alternative; `**` matches any number of segments, including none. `<index>` matches a
/// number, `<even>` and `<odd>` an even or odd one, and `<name>` anything that is not a number.
///
/// ```
/// use halite_nn::Pattern;
///
/// let pattern: Pattern = "**.attention.query|key.weight".parse()?;
/// assert!(pattern.matches("blocks.3.attention.key.weight"));
/// assert!(pattern.matches("attention.query.weight"));
/// assert!(!pattern.matches("blocks.3.attention.key.bias"));
/// assert!("hidden.<odd>.*".parse::<Pattern>()?.matches("hidden.1.bias"));
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Pattern(Vec<Part>);

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Part {
    /// `**`
    Many,
    /// One segment: any of these.
    One(Vec<Choice>),
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Choice {
    /// Text, in which `*` matches any text.
    Text(String),
    Index,
    Even,
    Odd,
    Name,
}

impl Pattern {
    /// True if it matches this path.
    pub fn matches(&self, path: &str) -> bool {
        let segments: Vec<&str> = if path.is_empty() {
            Vec::new()
        } else {
            path.split('.').collect()
        };
        matches_parts(&self.0, &segments)
    }

    /// The path that is most like this pattern, which matches none of them: for a message. Behind a
    /// leading `**` only as many segments are compared as the pattern has.
    ///
    /// ```
    /// use halite_nn::Pattern;
    ///
    /// let pattern: Pattern = "**.wieght".parse()?;
    /// assert_eq!(pattern.nearest(["out.bias", "out.weight"]), Some("out.weight"));
    /// # Ok::<(), halite_core::Error>(())
    /// ```
    pub fn nearest<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let text = self.to_string();
        let end = text.strip_prefix("**.");
        let distance = |path: &str| match end {
            None => edit_distance(&text, path),
            Some(end) => {
                let dots = end.matches('.').count();
                let start = path.rmatch_indices('.').nth(dots);
                edit_distance(end, start.map_or(path, |(dot, _)| &path[dot + 1..]))
            }
        };
        paths.into_iter().min_by_key(|path| distance(path))
    }
}

/// On a mismatch, only the last `**` before it takes one more segment: whatever an earlier one could
/// take, the last one can take as well. The time is therefore at most the product of both lengths.
fn matches_parts(parts: &[Part], segments: &[&str]) -> bool {
    let (mut part, mut segment) = (0, 0);
    // The part behind the last `**`, and the segment that it was tried on.
    let mut retry = None;
    while segment < segments.len() {
        match parts.get(part) {
            Some(Part::Many) => {
                part += 1;
                retry = Some((part, segment));
            }
            Some(Part::One(choices))
                if choices
                    .iter()
                    .any(|choice| choice.matches(segments[segment])) =>
            {
                part += 1;
                segment += 1;
            }
            _ => match &mut retry {
                None => return false,
                Some((after_many, tried)) => {
                    *tried += 1;
                    (part, segment) = (*after_many, *tried);
                }
            },
        }
    }
    parts[part..].iter().all(|part| matches!(part, Part::Many))
}

impl Choice {
    fn matches(&self, segment: &str) -> bool {
        let index = || segment.parse::<usize>().ok();
        match self {
            Choice::Text(text) => matches_text(text, segment),
            Choice::Index => index().is_some(),
            Choice::Even => index().is_some_and(|index| index.is_multiple_of(2)),
            Choice::Odd => index().is_some_and(|index| !index.is_multiple_of(2)),
            Choice::Name => index().is_none(),
        }
    }
}

/// Matches `text` against `pattern`, in which `*` matches any text. The first occurrence of each
/// piece between two stars is as good as a later one.
fn matches_text(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(inner) = text
        .strip_prefix(start)
        .and_then(|text| text.strip_suffix(end))
    else {
        return false;
    };
    let after = |text: &str, piece: &str| text.find(piece).map(|at| at + piece.len());
    let mut pieces = middle.split('*');
    pieces
        .try_fold(inner, |text, piece| {
            after(text, piece).map(|at| &text[at..])
        })
        .is_some()
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |reason: String| Error::invalid("pattern", format!("`{text}`: {reason}"));
        let choice = |choice: &str| match choice {
            "" => Err(refused("a segment, or one of its choices, is empty".into())),
            "<index>" => Ok(Choice::Index),
            "<even>" => Ok(Choice::Even),
            "<odd>" => Ok(Choice::Odd),
            "<name>" => Ok(Choice::Name),
            _ if choice.contains(['<', '>']) => Err(refused(format!(
                "unknown segment kind `{choice}`; expected one of <index>, <even>, <odd>, <name>"
            ))),
            _ => Ok(Choice::Text(choice.to_string())),
        };
        let part = |segment: &str| match segment {
            "**" => Ok(Part::Many),
            _ => Ok(Part::One(
                segment.split('|').map(choice).collect::<Result<_>>()?,
            )),
        };
        Ok(Pattern(text.split('.').map(part).collect::<Result<_>>()?))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, part) in self.0.iter().enumerate() {
            f.write_str(if position == 0 { "" } else { "." })?;
            match part {
                Part::Many => f.write_str("**")?,
                Part::One(choices) => {
                    for (position, choice) in choices.iter().enumerate() {
                        f.write_str(if position == 0 { "" } else { "|" })?;
                        f.write_str(match choice {
                            Choice::Text(text) => text,
                            Choice::Index => "<index>",
                            Choice::Even => "<even>",
                            Choice::Odd => "<odd>",
                            Choice::Name => "<name>",
                        })?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_paths() {
        let cases = [
            ("out.weight", "out.weight", true),
            ("out.weight", "net.out.weight", false),
            ("out", "out.weight", false),
            ("**.weight", "weight", true),
            ("**.weight", "a.b.weight", true),
            ("a.**", "a", true),
            ("a.**.c", "a.b.b.c", true),
            ("a.**.c", "a.b.b", false),
            ("*.weight", "weight", false),
            ("conv*.weight", "conv12.weight", true),
            ("c*v*.w", "conv1.w", true),
            ("*é*.w", "né1.w", true),
            ("up|gate.weight", "gate.weight", true),
            ("up|gate.weight", "upgate.weight", false),
            ("h.<even>.w", "h.10.w", true),
            ("h.<even>.w", "h.11.w", false),
            ("h.<odd>.w", "h.11.w", true),
            ("h.<index>.w", "h.x.w", false),
            ("h.<name>.w", "h.x.w", true),
            ("h.<name>.w", "h.3.w", false),
            ("<name>|0.w", "0.w", true),
            ("**", "", true),
        ];
        for (pattern, path, expected) in cases {
            let parsed: Pattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(path), expected, "{pattern} on {path}");
            assert_eq!(parsed.to_string(), pattern);
        }
    }

    /// Trying every length for every star takes 60^30 steps.
    #[test]
    fn many_stars_are_matched_in_linear_time() {
        let segment = "a".repeat(60);
        let path = "a.".repeat(60) + &segment;
        for (pattern, expected) in [
            ("**.".repeat(30) + "b", false),
            ("**.".repeat(30) + "a*", true),
        ] {
            assert_eq!(
                pattern.parse::<Pattern>().unwrap().matches(&path),
                expected,
                "{pattern}"
            );
        }
        for (pattern, expected) in [
            ("*a".repeat(30) + "b", false),
            ("*a".repeat(30) + "*", true),
        ] {
            assert_eq!(
                pattern.parse::<Pattern>().unwrap().matches(&segment),
                expected,
                "{pattern}"
            );
        }
    }

    /// Every pattern over a small alphabet on every path, against the definition.
    #[test]
    fn matching_agrees_with_its_definition() {
        fn defined(parts: &[Part], segments: &[&str]) -> bool {
            match (parts, segments) {
                ([], _) => segments.is_empty(),
                ([Part::Many, rest @ ..], _) => {
                    (0..=segments.len()).any(|skip| defined(rest, &segments[skip..]))
                }
                ([Part::One(choices), rest @ ..], [segment, after @ ..]) => {
                    let text = |choice: &Choice| matches!(choice, Choice::Text(text) if defined_text(text, segment));
                    choices.iter().any(text) && defined(rest, after)
                }
                _ => false,
            }
        }
        fn defined_text(pattern: &str, text: &str) -> bool {
            match pattern.split_once('*') {
                None => pattern == text,
                Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
                    (0..=text.len()).any(|skip| defined_text(rest, &text[skip..]))
                }),
            }
        }
        let words = |letters: &[&str], joined: &str, longest: u32| -> Vec<String> {
            let word = |length: u32, number: usize| {
                let letter = |at: u32| letters[number / letters.len().pow(at) % letters.len()];
                (0..length).map(letter).collect::<Vec<_>>().join(joined)
            };
            (1..=longest)
                .flat_map(|length| {
                    (0..letters.len().pow(length)).map(move |number| (length, number))
                })
                .map(|(length, number)| word(length, number))
                .collect()
        };
        let cases = [
            (words(&["**", "a", "b"], ".", 5), words(&["a", "b"], ".", 5)),
            (words(&["*", "a", "b"], "", 5), words(&["a", "b"], "", 5)),
        ];
        for (patterns, paths) in cases {
            for pattern in patterns.iter().filter(|pattern| !pattern.contains("***")) {
                let parsed: Pattern = pattern.parse().unwrap();
                for path in &paths {
                    let segments: Vec<&str> = path.split('.').collect();
                    assert_eq!(
                        parsed.matches(path),
                        defined(&parsed.0, &segments),
                        "{pattern} on {path}"
                    );
                }
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<Pattern>().unwrap_err().to_string();
        assert_eq!(
            error("a..b"),
            "pattern: `a..b`: a segment, or one of its choices, is empty"
        );
        assert!(error("a|.b").contains("is empty"));
        assert!(error("").contains("is empty"));
        assert!(error("a.<evn>").contains("unknown segment kind `<evn>`"));
    }
}
