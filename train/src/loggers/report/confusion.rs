//! Confusion matrices in a report.

use std::fmt::{self, Write as _};

use crate::{
    format::format_metric,
    metrics::{ClassCounts, ConfusionTable},
};

/// A count as text, without decimals if it has none.
fn count(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format_metric("", value)
    }
}

/// Lines without a line end after the last.
impl fmt::Display for ConfusionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self))
    }
}

fn text(table: &ConfusionTable) -> String {
    let ConfusionTable {
        name,
        classes,
        counts,
    } = table;
    let width = |texts: &mut dyn Iterator<Item = String>| {
        let widths = texts.map(|text| text.chars().count());
        widths.max().unwrap_or(0)
    };
    let first = width(&mut classes.iter().cloned());
    let cells = counts.iter().flatten().map(|value| count(*value));
    let cell = width(&mut cells.chain(classes.iter().cloned()));
    let mut text = format!("{name}: true classes in rows, predicted classes in columns\n");
    text += &" ".repeat(first);
    for class in classes {
        _ = write!(text, "  {class:>cell$}");
    }
    for (class, counts) in classes.iter().zip(counts) {
        _ = write!(text, "\n{class:first$}");
        for value in counts {
            _ = write!(text, "  {:>cell$}", count(*value));
        }
    }
    text
}

/// The matrix as a table of a page, with recall of each row and precision of each column.
pub(super) fn table(table: &ConfusionTable, escaped: impl Fn(&str) -> String) -> String {
    let ConfusionTable {
        classes, counts, ..
    } = table;
    let cell =
        |kind: &str, text: &str| format!("<{kind} class=\"number\">{}</{kind}>", escaped(text));
    let head: String = classes.iter().map(|class| cell("th", class)).collect();
    let mut page = format!(
        "<p>True classes in rows, predicted classes in columns.</p>\n<div class=\"wide\"><table>\n\
         <tr><th></th>{head}{}</tr>\n",
        cell("th", "recall")
    );
    let by_class = table
        .matrix()
        .map_or_else(|_| Vec::new(), |matrix| matrix.by_class());
    let fraction = |value: f64| cell("td", &format_metric("recall", value));
    for (index, (class, counts)) in classes.iter().zip(counts).enumerate() {
        let cells = counts.iter().map(|value| cell("td", &count(*value)));
        let recall = by_class.get(index).map(|counts| fraction(counts.recall()));
        let cells: String = cells.chain(recall).collect();
        _ = writeln!(page, "<tr><th>{}</th>{cells}</tr>", escaped(class));
    }
    let precision = by_class.into_iter().map(ClassCounts::precision);
    let precision: String = precision.map(fraction).collect();
    _ = writeln!(page, "<tr><th>precision</th>{precision}<td></td></tr>");
    page + "</table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> ConfusionTable {
        ConfusionTable {
            name: "confusion".into(),
            classes: vec!["cat".into(), "<dog>".into()],
            counts: vec![vec![12.0, 3.0], vec![0.0, 5.5]],
        }
    }

    #[test]
    fn matrix_is_aligned_text() {
        let expected = "confusion: true classes in rows, predicted classes in columns\n     \
                        \u{20}   cat  <dog>\ncat       12      3\n<dog>      0  5.500";
        assert_eq!(text(&example()), expected);
    }

    #[test]
    fn page_has_counts_beside_recall() {
        let page = table(&example(), |text| text.replace('<', "&lt;"));
        assert!(page.contains("<td class=\"number\">80.00 %</td>"), "{page}");
        assert!(page.contains("<th>&lt;dog></th>"), "{page}");
    }
}
