//! Differences between optimizers, from their pretty `Debug` text.

/// Whether `saved` is the text of a halite that wrote schedules as structs, of an optimizer of the
/// type of `given`. Such texts cannot be compared.
pub(super) fn is_of_earlier_halite(saved: &str, given: &str) -> bool {
    let ty = |text: &str| {
        let end = text
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(text.len());
        text[..end].to_string()
    };
    saved.contains("Schedule(\n") && !given.contains("Schedule(\n") && ty(saved) == ty(given)
}

/// The settings that differ, each with the names of the groups that it is in; whole texts if their
/// structures differ.
pub(super) fn differing(saved: &str, given: &str) -> (String, String) {
    let [then, now] = [saved, given].map(settings);
    let names = |settings: &[Setting]| -> Vec<String> {
        settings
            .iter()
            .map(|setting| setting.name.clone())
            .collect()
    };
    if names(&then) != names(&now) {
        return (on_one_line(saved), on_one_line(given));
    }
    let differ = then.into_iter().zip(now).filter(|(then, now)| then != now);
    let (then, now): (Vec<String>, Vec<String>) =
        differ.map(|(then, now)| (then.text(), now.text())).unzip();
    (then.join(", "), now.join(", "))
}

/// Whether only whole numbers differ: the lengths of schedules, as rates have a decimal point or an
/// exponent.
pub(super) fn only_lengths_differ(saved: &str, given: &str) -> bool {
    without_whole_numbers(saved) == without_whole_numbers(given)
}

/// A line of the text that opens nothing.
#[derive(PartialEq)]
struct Setting {
    /// Those of the structs and maps that it is in, and its own.
    name: String,
    value: String,
}

impl Setting {
    fn text(&self) -> String {
        match &*self.name {
            "" => self.value.clone(),
            name => format!("{name}: {}", self.value),
        }
    }
}

fn settings(text: &str) -> Vec<Setting> {
    let mut open: Vec<&str> = Vec::new();
    let mut settings = Vec::new();
    for line in text.lines().map(|line| line.trim().trim_end_matches(',')) {
        if line.ends_with(['{', '(', '[']) {
            // That of the optimizer itself has no name.
            open.push(line.rsplit_once(": ").map_or("", |(name, _)| name));
        } else if ["}", ")", "]"].contains(&line) {
            open.pop();
        } else {
            let (name, value) = line.split_once(": ").unwrap_or(("", line));
            let names = open.iter().copied().chain([name]);
            let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
            settings.push(Setting {
                name: names.join(": "),
                value: value.to_string(),
            });
        }
    }
    settings
}

fn on_one_line(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim().trim_end_matches(','));
    lines.collect::<Vec<_>>().join(" ")
}

/// `text` with a mark in place of each whole number.
fn without_whole_numbers(text: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || "._+-".contains(c);
    let mut marked = String::new();
    for piece in text.split_inclusive(|c: char| !is_part(c)) {
        let word = piece.trim_end_matches(|c: char| !is_part(c));
        if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) {
            marked.push('#')
        } else {
            marked.push_str(word)
        }
        marked.push_str(&piece[word.len()..]);
    }
    marked
}

#[cfg(test)]
mod tests {
    use halite_nn::{AdamW, Optimizer, Schedule, Sgd};

    use super::*;

    fn text(optimizer: impl Optimizer) -> String {
        format!("{optimizer:#?}")
    }

    fn adamw(rate: f64, steps: u64) -> AdamW {
        AdamW::new(Schedule::warmup(rate, 10).then(Schedule::cosine(rate, steps)))
    }

    #[test]
    fn differences_have_the_words_of_the_code() {
        assert_eq!(
            differing(
                &text(adamw(0.002, 90)),
                &text(adamw(0.001, 90).weight_decay(0.1))
            ),
            (
                "learning_rate: warmup(0.002, 10).then(cosine(0.002, 90)), weight_decay: 0.01"
                    .into(),
                "learning_rate: warmup(0.001, 10).then(cosine(0.001, 90)), weight_decay: 0.1"
                    .into()
            )
        );
        let group = |decay: f64| {
            let sgd = Sgd::new(0.1).group("**.bias", |group| group.weight_decay(decay));
            text(sgd.unwrap())
        };
        assert_eq!(
            differing(&group(0.0), &group(0.5)),
            (
                "**.bias: weight_decay: 0.0".into(),
                "**.bias: weight_decay: 0.5".into()
            )
        );
        let (saved, given) = differing(&text(Sgd::new(0.1)), &text(adamw(0.1, 2)));
        assert!(
            saved.starts_with("Sgd { learning_rate: 0.1 momentum"),
            "{saved}"
        );
        assert!(given.starts_with("AdamW { learning_rate"), "{given}");
    }

    #[test]
    fn lengths_are_whole_numbers() {
        let same = |a: AdamW, b: AdamW| only_lengths_differ(&text(a), &text(b));
        assert!(same(adamw(0.1, 90), adamw(0.1, 180)));
        assert!(!same(adamw(0.1, 90), adamw(0.2, 90)));
        assert!(!same(adamw(1e-5, 90), adamw(1e-6, 90)));
        assert!(!same(adamw(0.1, 90), AdamW::new(0.1)));
    }

    #[test]
    fn texts_of_earlier_halite_are_known() {
        let saved = "Adam(\n    Rule {\n        rate: Schedule(\n            Constant(\n";
        assert!(is_of_earlier_halite(
            saved,
            "Adam {\n    learning_rate: 0.1,\n"
        ));
        assert!(!is_of_earlier_halite(
            saved,
            "AdamW {\n    learning_rate: 0.1,\n"
        ));
        assert!(!is_of_earlier_halite("Adam {\n", "Adam {\n"));
    }
}
