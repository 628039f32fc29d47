//! Templates of names: `layer{s+1}.{b}.conv1`.

use halite_core::{Error, Result};

/// A name with placeholders. In a pattern `{s}` stands for one or more characters of a segment; in
/// a result for what it stood for, and `{s+1}` for the number after it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Template {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Token {
    Text(String),
    Placeholder { name: String, plus: i64 },
}

/// What placeholders stand for.
pub(crate) type Captures = Vec<(String, String)>;

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(
                "name map",
                format!("`{text}`: a placeholder is `{{name}}` or `{{name+1}}`"),
            )
        };
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                tokens.push(Token::Text(before.to_owned()));
            }
            let (inside, after) = after.split_once('}').ok_or_else(bad)?;
            let sign = inside.find(['+', '-']);
            let (name, plus) = inside.split_at(sign.unwrap_or(inside.len()));
            let plus = if plus.is_empty() {
                0
            } else {
                plus.parse().map_err(|_| bad())?
            };
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_name) {
                return Err(bad());
            }
            tokens.push(Token::Placeholder {
                name: name.to_owned(),
                plus,
            });
            rest = after;
        }
        if rest.contains('}') {
            return Err(bad());
        }
        if !rest.is_empty() {
            tokens.push(Token::Text(rest.to_owned()));
        }
        Ok(Template {
            text: text.to_owned(),
            tokens,
        })
    }

    /// Parses a template that paths are compared with: each placeholder once, without a number.
    pub(crate) fn parse_pattern(text: &str) -> Result<Self> {
        let template = Self::parse(text)?;
        let mut names = Vec::new();
        for token in &template.tokens {
            let Token::Placeholder { name, plus } = token else {
                continue;
            };
            if *plus != 0 || names.contains(&name) {
                let message = format!(
                    "`{text}`: a pattern has `{{{name}}}` once, and `{{{name}+1}}` belongs to the result"
                );
                return Err(Error::invalid("name map", message));
            }
            names.push(name);
        }
        Ok(template)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a result has the placeholder `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        let is_it =
            |token: &Token| matches!(token, Token::Placeholder { name: has, .. } if has == name);
        self.tokens.iter().any(is_it)
    }

    /// Matches the first segments of `path`, and returns what follows them.
    pub(crate) fn match_start<'p>(&self, path: &'p str) -> Option<(Captures, &'p str)> {
        let mut captures = Captures::new();
        if self.tokens.is_empty() {
            return Some((captures, path));
        }
        let rest = match_tokens(&self.tokens, path, &mut captures)?;
        Some((captures, rest.strip_prefix('.').unwrap_or(rest)))
    }

    /// The name for these captures.
    pub(crate) fn fill(&self, captures: &Captures) -> Result<String> {
        let mut filled = String::new();
        for token in &self.tokens {
            match token {
                Token::Text(text) => filled.push_str(text),
                Token::Placeholder { name, plus } => {
                    let found = captures.iter().find(|(known, _)| known == name);
                    let bad = |what: &str| {
                        Error::invalid(
                            "name map",
                            format!("`{{{name}}}` in `{}` {what}", self.text),
                        )
                    };
                    let (_, value) =
                        found.ok_or_else(|| bad("is not in the pattern of its rule"))?;
                    if *plus == 0 {
                        filled.push_str(value);
                        continue;
                    }
                    let number = value
                        .parse::<i64>()
                        .ok()
                        .and_then(|number| number.checked_add(*plus));
                    let number = number.filter(|&number| number >= 0);
                    let number = number.ok_or_else(|| bad(&format!("stands for `{value}`")))?;
                    filled.push_str(&number.to_string());
                }
            }
        }
        Ok(filled)
    }
}

/// Matches `tokens` with the start of `text` up to the end of a segment; returns what follows.
fn match_tokens<'p>(tokens: &[Token], text: &'p str, captures: &mut Captures) -> Option<&'p str> {
    match tokens.split_first() {
        None => (text.is_empty() || text.starts_with('.')).then_some(text),
        Some((Token::Text(start), tokens)) => {
            match_tokens(tokens, text.strip_prefix(start.as_str())?, captures)
        }
        Some((Token::Placeholder { name, .. }, tokens)) => {
            let segment = text.find('.').unwrap_or(text.len());
            let ends = text[..segment]
                .char_indices()
                .map(|(at, c)| at + c.len_utf8());
            for end in ends.rev() {
                let before = captures.len();
                captures.push((name.clone(), text[..end].to_owned()));
                if let Some(rest) = match_tokens(tokens, &text[end..], captures) {
                    return Some(rest);
                }
                captures.truncate(before);
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, result: &str, path: &str, expected: Option<(&str, &str)>) {
        let [pattern, result] = [pattern, result].map(|text| Template::parse(text).unwrap());
        let found = pattern.match_start(path);
        let found = found.map(|(captures, rest)| (result.fill(&captures).unwrap(), rest));
        let found = found.as_ref().map(|(name, rest)| (name.as_str(), *rest));
        assert_eq!(found, expected);
    }

    #[test]
    fn placeholders_stand_for_parts_of_a_segment() {
        check(
            "stages.{s}",
            "layer{s+1}",
            "stages.2.0.conv1",
            Some(("layer3", "0.conv1")),
        );
        check("head", "fc", "head", Some(("fc", "")));
        check("head", "fc", "header.weight", None);
        check(
            "conv{i}.x",
            "c.{i}",
            "conv12.x.weight",
            Some(("c.12", "weight")),
        );
        check("{a}.{b}", "{b}.{a}", "one", None);
        check("", "model", "a.b", Some(("model", "a.b")));
    }

    #[test]
    fn wrong_templates_are_errors() {
        for text in ["{", "{}", "{a", "a}", "{a+}", "{a+b}", "{a.b}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        for text in ["stages.{s+1}", "{a}.{a}"] {
            assert!(Template::parse_pattern(text).is_err(), "{text}");
        }
        let result = Template::parse("layer{s-1}").unwrap();
        let error = result.fill(&vec![("s".into(), "0".into())]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "name map: `{s}` in `layer{s-1}` stands for `0`"
        );
    }
}
