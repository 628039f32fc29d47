//! Counts of the runs of the harness, and their table. Nothing here starts a process.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::faults::{Fault, Record};

/// Results of all runs.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    seed: u64,
    configurations: BTreeMap<&'static str, Counts>,
    /// Failures, each with the seed and number that reproduce it.
    pub failures: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    runs: u64,
    faults: BTreeMap<Fault, u64>,
    places: BTreeMap<&'static str, u64>,
    in_resume: u64,
    wrong: BTreeMap<&'static str, u64>,
}

impl Summary {
    pub(super) fn new(seed: u64) -> Self {
        Summary {
            seed,
            ..Summary::default()
        }
    }

    /// Number of injected faults.
    pub fn faults(&self) -> u64 {
        self.configurations
            .values()
            .flat_map(|counts| counts.faults.values())
            .sum()
    }

    /// Number of faults that hit a resumed run.
    pub fn in_resume(&self) -> u64 {
        self.configurations
            .values()
            .map(|counts| counts.in_resume)
            .sum()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = Fault::ALL.map(Fault::name);
        writeln!(
            f,
            "{:<14} {:>5} {:>5} {:>5} {:>5} {:>5} {:>10}  wrong",
            "configuration", "runs", faults[0], faults[1], faults[2], faults[3], "in resume"
        )?;
        let mut wrong: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, counts) in &self.configurations {
            let [kill, terminate, hang_up, stop] =
                Fault::ALL.map(|fault| counts.faults.get(&fault).copied().unwrap_or(0));
            writeln!(
                f,
                "{name:<14} {:>5} {kill:>5} {terminate:>5} {hang_up:>5} {stop:>5} {:>10}  {}",
                counts.runs,
                counts.in_resume,
                list(counts.wrong.iter())
            )?;
            for (what, count) in &counts.wrong {
                *wrong.entry(what).or_default() += count;
            }
        }
        let mut places: BTreeMap<&str, u64> = BTreeMap::new();
        for (place, count) in self
            .configurations
            .values()
            .flat_map(|counts| &counts.places)
        {
            *places.entry(place).or_default() += count;
        }
        if !places.is_empty() {
            writeln!(f, "{}", list(places.iter()))?;
        }
        let runs: u64 = self.configurations.values().map(|counts| counts.runs).sum();
        write!(
            f,
            "seed {}: {runs} runs, {} faults, {} of them in a resume; wrong: {}",
            self.seed,
            self.faults(),
            self.in_resume(),
            list(wrong.iter())
        )
    }
}

fn list<'a, K: fmt::Display + 'a>(counts: impl Iterator<Item = (K, &'a u64)>) -> String {
    let words: Vec<String> = counts
        .map(|(what, count)| format!("{what} {count}"))
        .collect();
    if words.is_empty() {
        "nothing".to_owned()
    } else {
        words.join(", ")
    }
}

/// Result of one disturbed run.
pub(super) struct Done {
    pub(super) configuration: &'static str,
    pub(super) record: Record,
    pub(super) wrong: Vec<(&'static str, String)>,
}

impl Done {
    pub(super) fn add_to(self, summary: &mut Summary) {
        let counts = summary
            .configurations
            .entry(self.configuration)
            .or_default();
        counts.runs += 1;
        counts.in_resume += self.record.in_resume;
        for fault in self.record.faults {
            *counts.faults.entry(fault).or_default() += 1;
        }
        for (place, count) in self.record.places {
            *counts.places.entry(place).or_default() += count;
        }
        for (what, how) in self.wrong {
            *counts.wrong.entry(what).or_default() += 1;
            summary.failures.push(how);
        }
    }
}
