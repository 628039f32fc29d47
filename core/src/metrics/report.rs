//! Metrics as text for people.

use std::{fmt::Write, sync::atomic::Ordering::Relaxed, time::Duration};

use crate::debug::json;

use super::{
    Metric, Metrics, lock,
    timer::{PERCENTILES, Timing},
};

impl Metrics {
    /// All metrics and counters as a table: count, sum, mean, rate and percentiles of what is
    /// timed; then what is counted.
    pub fn report(&self) -> String {
        self.report_of(&|_| true)
    }

    /// As [`report`](Self::report), of these names only. Names that there are not are left out.
    pub fn short_report(&self, names: &[&str]) -> String {
        self.report_of(&|name| names.contains(&name))
    }

    /// The names of what is timed.
    pub fn timer_names(&self) -> Vec<String> {
        self.timings().into_iter().map(|(name, _)| name).collect()
    }

    /// The names of what is counted.
    pub fn counter_names(&self) -> Vec<String> {
        self.counts().into_iter().map(|(name, _)| name).collect()
    }

    /// What is timed under this name; `None` if nothing is.
    pub fn timing(&self, name: &str) -> Option<Timing> {
        self.timings()
            .into_iter()
            .find(|(known, _)| known == name)
            .map(|(_, timing)| timing)
    }

    /// What is counted under this name; `None` if nothing is.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts()
            .into_iter()
            .find(|(known, _)| known == name)
            .map(|(_, count)| count)
    }

    fn timings(&self) -> Vec<(String, Timing)> {
        let own = Metric::ALL
            .into_iter()
            .map(|metric| (metric.name().to_string(), self.timer(metric).timing()));
        let named = lock(&self.named)
            .iter()
            .map(|(name, timer)| (name.to_string(), timer.timing()))
            .collect::<Vec<_>>();
        own.chain(named).collect()
    }

    fn counts(&self) -> Vec<(String, u64)> {
        let activity = self.activity();
        let own = activity
            .counters
            .named()
            .into_iter()
            .map(|(name, count)| (name.to_string(), count));
        own.chain(
            activity
                .counted
                .into_iter()
                .map(|(name, count)| (name.to_string(), count)),
        )
        .collect()
    }

    fn report_of(&self, wanted: &dyn Fn(&str) -> bool) -> String {
        let percentiles = PERCENTILES.map(|percent| format!("{percent} %"));
        let head = ["metric", "count", "total", "mean", "rate"]
            .map(str::to_string)
            .into_iter()
            .chain(percentiles)
            .collect();
        let mut timed: Vec<Vec<String>> = vec![head];
        for (name, timing) in self
            .timings()
            .into_iter()
            .filter(|(name, timing)| timing.count > 0 && wanted(name))
        {
            let rate = timing
                .rate()
                .map_or("-".to_string(), |rate| format!("{rate:.4}/s"));
            let own = [
                name,
                grouped(timing.count),
                time(timing.total),
                time(timing.mean()),
                rate,
            ];
            timed.push(
                own.into_iter()
                    .chain(
                        timing
                            .percentiles(PERCENTILES)
                            .unwrap_or_default()
                            .map(time),
                    )
                    .collect(),
            );
        }
        let mut counted: Vec<Vec<String>> = vec![vec!["counter".to_string(), "value".to_string()]];
        counted.extend(
            self.counts()
                .into_iter()
                .filter(|(name, _)| wanted(name))
                .map(|(name, count)| vec![name, grouped(count)]),
        );
        let tables = [timed, counted]
            .into_iter()
            .filter(|rows| rows.len() > 1)
            .map(|rows| table(&rows));
        tables.collect::<Vec<_>>().join("\n")
    }

    /// Every sample of every counter and timer now, as one line of JSON: for files that grow while
    /// a program runs.
    pub fn json_line(&self) -> String {
        let mut line = format!("{{\"seconds\":{:.3}", self.activity().time.as_secs_f64());
        for (name, count) in self.counts() {
            let _ = write!(line, ",{}:{count}", json(&name));
        }
        for (name, timing) in self
            .timings()
            .into_iter()
            .filter(|(_, timing)| timing.count > 0)
        {
            let median = timing.percentile(50).unwrap_or_default();
            let (total, median) = (timing.total.as_secs_f64(), median.as_secs_f64());
            let _ = write!(
                line,
                ",{}:{{\"count\":{},\"total\":{total:.9},\"median\":{median:.9}}}",
                json(&name),
                timing.count
            );
        }
        line.push('}');
        line
    }

    /// Steps told so far: see [`step`](Self::step).
    pub fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }
}

/// Columns as wide as they must be: the first flush left, the others flush right.
fn table(rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut cells = row.iter().zip(&widths);
        if let Some((name, width)) = cells.next() {
            let _ = write!(text, "{name:width$}");
        }
        for (cell, width) in cells {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// A time in the unit that suits it, in three digits: `12.3 µs`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s if s >= 1e-6 => (s * 1e6, "µs"),
        s => (s * 1e9, "ns"),
    };
    let digits = if value >= 100.0 || unit == "ns" {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// Bytes in the unit that suits them: `1.50 GB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let (value, unit) = match bytes as f64 {
        b if b >= 1e12 => (b / 1e12, "TB"),
        b if b >= 1e9 => (b / 1e9, "GB"),
        b if b >= 1e6 => (b / 1e6, "MB"),
        b if b >= 1e3 => (b / 1e3, "kB"),
        b => return format!("{b:.0} B"),
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// `1 step`, `1,000 steps`, `10 batches`.
pub(crate) fn count(count: u64, what: &str) -> String {
    let plural = if what.ends_with("ch") { "es" } else { "s" };
    format!(
        "{} {what}{}",
        grouped(count),
        if count == 1 { "" } else { plural }
    )
}

/// `1,234,567`.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
