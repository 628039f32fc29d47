//! `report.html`: a run on one page that needs nothing else, neither files nor a network.

use std::fmt::Write as _;

use halite_core::Result;

use super::{Report, confusion, predictions::table};
use crate::{
    format::{format_metric, format_seconds},
    loggers::{Row, Split, render_metrics},
};

/// Most rows of the table of validations; of more, the last ones are shown.
const SHOWN: usize = 50;

const STYLE: &str = "\
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1160px; margin: 2rem auto; \
padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .2rem 1rem .2rem 0; \
vertical-align: top; border-bottom: 1px solid #e3e3e3; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { white-space: pre-wrap; background: #f6f6f6; padding: .8rem; }
.wide { overflow-x: auto; } .wide svg { max-width: 100%; height: auto; }
.bar { display: flex; height: 1.6rem; } .bar div { min-width: 1px; }
.wrong { background: #fdecea; } td img { width: 5rem; image-rendering: pixelated; }
.key { display: inline-block; width: .8rem; height: .8rem; margin: 0 .4rem 0 1rem; }";

impl Report {
    /// The run as a page of HTML: results, curves, where the time went, suggestions, configuration.
    ///
    /// `rows` are those of `metrics.csv`.
    ///
    /// # Errors
    /// None is known; drawing into text does not fail.
    pub fn to_html(&self, title: &str, rows: &[Row]) -> Result<String> {
        let mut page = String::new();
        let title_text = escaped(title);
        let head = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title_text}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n\
             <h1>{title_text}</h1>\n"
        );
        page.push_str(&head);
        let results = self.lines().into_iter().filter(|(name, _)| name != "note");
        push_section(&mut page, "Results", &pairs(results));
        push_section(&mut page, "Curves", &curves(rows)?);
        push_section(&mut page, "Time", &self.timeline());
        push_section(&mut page, "Validations", &validations(rows));
        for table in &self.confusion {
            let title = format!("Confusion matrix `{}`", escaped(&table.name));
            push_section(&mut page, &title, &confusion::table(table, escaped));
        }
        let findings = self.findings.iter();
        let findings: String = findings
            .map(|text| format!("<li>{}</li>\n", escaped(text)))
            .collect();
        if !findings.is_empty() {
            push_section(
                &mut page,
                "Suggestions",
                &format!("<ul>\n{findings}</ul>\n"),
            );
        }
        for (name, text) in &self.samples {
            let text = format!("<pre>{}</pre>\n", escaped(text));
            push_section(&mut page, &escaped(name), &text);
        }
        if !self.predictions.is_empty() {
            push_section(&mut page, "Predictions", &table(&self.predictions, escaped));
        }
        let configuration = pairs(self.configuration.iter().cloned());
        push_section(&mut page, "Configuration", &configuration);
        page.push_str("</body>\n</html>\n");
        Ok(page)
    }

    /// Where the time of the process went, as a bar.
    fn timeline(&self) -> String {
        let waiting = self.input_wait_seconds.min(self.training_seconds);
        let known = self.seconds_to_first_step + self.training_seconds;
        let parts = [
            (
                "until the first step",
                self.seconds_to_first_step,
                "#8da0cb",
            ),
            ("training", self.training_seconds - waiting, "#66c2a5"),
            ("waiting for data", waiting, "#fc8d62"),
            (
                "validation, checkpoints, earlier starts",
                self.seconds - known,
                "#cccccc",
            ),
        ];
        let (mut bar, mut key) = (String::new(), String::new());
        for (name, seconds, color) in parts {
            // Times of two clocks: a rest may be a little below 0.
            let seconds = seconds.max(0.0);
            let share = 100.0 * seconds / self.seconds.max(f64::MIN_POSITIVE);
            let time = format_seconds(seconds);
            _ = write!(
                bar,
                "<div style=\"width:{share:.2}%;background:{color}\" title=\"{name}: {time}\"></div>"
            );
            _ = write!(
                key,
                "<span class=\"key\" style=\"background:{color}\"></span>{name} {time}"
            );
        }
        format!("<div class=\"bar\">{bar}</div>\n<p>{key}</p>\n")
    }
}

/// The plot, without the declaration of a file.
fn curves(rows: &[Row]) -> Result<String> {
    let svg = render_metrics("", rows)?;
    let start = svg.find("<svg").unwrap_or_default();
    Ok(format!("<div class=\"wide\">\n{}\n</div>\n", &svg[start..]))
}

/// A table of the validations.
fn validations(rows: &[Row]) -> String {
    let all = rows.iter().filter(|row| row.split == Split::Validation);
    let all: Vec<&Row> = all.collect();
    let shown = &all[all.len().saturating_sub(SHOWN)..];
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in shown.iter().flat_map(|row| &row.metrics) {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    let cell =
        |kind: &str, text: &str| format!("<{kind} class=\"number\">{}</{kind}>", escaped(text));
    let head = ["epoch", "step", "time"]
        .into_iter()
        .chain(names.iter().copied());
    let head: String = head.map(|name| cell("th", name)).collect();
    let mut table = format!("<div class=\"wide\"><table>\n<tr>{head}</tr>\n");
    for row in shown {
        let place = [
            (row.epoch + 1).to_string(),
            row.step.to_string(),
            format_seconds(row.seconds),
        ];
        let values = names.iter().map(|name| {
            let value = row.get(name);
            value.map_or_else(String::new, |value| format_metric(name, value))
        });
        let cells = place.into_iter().chain(values);
        let cells: String = cells.map(|text| cell("td", &text)).collect();
        _ = writeln!(table, "<tr>{cells}</tr>");
    }
    table.push_str("</table></div>\n");
    if all.len() > shown.len() {
        _ = writeln!(table, "<p>The last {} of {}.</p>", shown.len(), all.len());
    }
    table
}

/// A table of names and values.
fn pairs(pairs: impl Iterator<Item = (String, String)>) -> String {
    let row = |(name, value): (String, String)| {
        let value = if value.contains('\n') {
            format!("<pre>{}</pre>", escaped(&value))
        } else {
            escaped(&value)
        };
        format!("<tr><th>{}</th><td>{value}</td></tr>\n", escaped(&name))
    };
    format!("<table>\n{}</table>\n", pairs.map(row).collect::<String>())
}

fn push_section(page: &mut String, title: &str, content: &str) {
    _ = write!(page, "<h2>{title}</h2>\n{content}");
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Prediction, Shown},
        *,
    };

    #[test]
    fn text_of_the_user_is_no_markup() {
        let report = Report {
            findings: vec!["a < b".into()],
            samples: vec![("<sample>".into(), "<script>alert(1)</script>".into())],
            predictions: vec![Prediction {
                input: Shown::Picture("\"<b>".into()),
                target: None,
                prediction: Shown::Text("<b>".into()),
            }],
            configuration: vec![("--name".into(), "x & <y>".into())],
            ..Report::default()
        };
        let rows = [Row {
            step: 4,
            epoch: 0,
            seconds: 1.0,
            split: Split::Validation,
            metrics: vec![("<b>".into(), 0.5)],
        }];
        let page = report.to_html("<run>", &rows).unwrap();
        for text in [
            "<title>&lt;run&gt;</title>",
            "a &lt; b",
            "x &amp; &lt;y&gt;",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        for markup in ["<script", "<b>", "<sample>", "<?xml", "http://", "https://"] {
            let known = "http://www.w3.org/2000/svg";
            assert!(
                !page.replace(known, "").contains(markup),
                "{markup}: {page}"
            );
        }
    }
}
