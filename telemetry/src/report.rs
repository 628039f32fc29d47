//! Metrics as a table and as a line of JSON.

use std::fmt::Write;

use halite_core::format_count;
use serde_json::json;

use crate::{Metric, Metrics, PERCENTILES, Timing, text::time};

impl Metrics {
    /// All metrics and counters as tables: count, sum, mean, rate and percentiles of timers; then
    /// counters.
    pub fn report(&self) -> String {
        self.tables(&|_| true)
    }

    /// The rows of [`report`](Self::report) with these names. Unknown names are ignored.
    pub fn short_report(&self, names: &[&str]) -> String {
        self.tables(&|name| names.contains(&name))
    }

    /// The names of all timers.
    pub fn timer_names(&self) -> Vec<String> {
        self.timings().into_iter().map(|(name, _)| name).collect()
    }

    /// The names of all counters.
    pub fn counter_names(&self) -> Vec<String> {
        self.counts().into_iter().map(|(name, _)| name).collect()
    }

    /// The timer of this name.
    pub fn timing(&self, name: &str) -> Option<Timing> {
        self.timings()
            .into_iter()
            .find(|(known, _)| known == name)
            .map(|(_, timing)| timing)
    }

    /// The counter of this name.
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
        let custom = self.custom_timers().into_iter();
        let custom = custom.map(|(name, timer)| (name.to_string(), timer.timing()));
        own.chain(custom).collect()
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

    fn tables(&self, wanted: &dyn Fn(&str) -> bool) -> String {
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
                format_count(timing.count),
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
                .map(|(name, count)| vec![name, format_count(count)]),
        );
        let tables = [timed, counted]
            .into_iter()
            .filter(|rows| rows.len() > 1)
            .map(|rows| table(&rows));
        tables.collect::<Vec<_>>().join("\n")
    }

    /// All counters and timers as one line of JSON, for files that grow while a program runs.
    pub fn json_line(&self) -> String {
        let mut line = serde_json::Map::new();
        // Milliseconds are enough.
        let seconds = (self.activity().time.as_secs_f64() * 1e3).round() / 1e3;
        line.insert("seconds".into(), seconds.into());
        for (name, count) in self.counts() {
            line.insert(name, count.into());
        }
        let timings = self.timings().into_iter();
        for (name, timing) in timings.filter(|(_, timing)| timing.count > 0) {
            let median = timing.percentile(50).unwrap_or_default();
            let summary = json!({
                "count": timing.count,
                "total": timing.total.as_secs_f64(),
                "median": median.as_secs_f64(),
            });
            line.insert(name, summary);
        }
        serde_json::Value::Object(line).to_string()
    }
}

/// Aligns columns: the first to the left, the others to the right.
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
