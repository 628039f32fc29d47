//! Measurements of the processes of a job, and what they say about its speed.

use halite_core::format_bytes;
use serde::{Deserialize, Serialize};

/// Fraction of step time spent waiting for data above which a process is reported as a straggler.
const INPUT_SHARE: f64 = 0.1;
/// Step time, relative to the median over processes, above which a process is reported as slow.
const SLOWER: f64 = 1.2;
/// Shorter runs, in seconds, are not judged.
const LEAST_SECONDS: f64 = 1.0;
/// Most processes that have a line each.
const LINES: usize = 16;

/// Measurements of the steps of one process of a job, since its last start.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ProcessReport {
    /// Rank of the process.
    pub process: u64,
    /// Its host; empty where the system does not report it.
    pub host: String,
    /// Steps since the start of the process.
    pub steps: u64,
    /// Seconds of these steps.
    pub training_seconds: f64,
    /// Seconds of them in which the next step waited for its batch.
    pub input_wait_seconds: f64,
    /// Seconds of them in which a device communicated with other processes, or waited for them.
    /// `None` where one program runs on the devices of all: its communication is not measured.
    pub exchange_seconds: Option<f64>,
    /// Bytes that the programs of the process gave to collectives; `None` as above.
    pub bytes_sent: Option<u64>,
    /// Number of restarts of the job before this start.
    pub restarts: u64,
    /// Samples of its rows that were skipped because they cannot be read.
    #[serde(default)]
    pub skipped_samples: u64,
}

impl ProcessReport {
    /// Seconds of a step in which the process waits for nothing, if that is known.
    fn own_seconds(&self) -> Option<f64> {
        let own = self.training_seconds - self.input_wait_seconds - self.exchange_seconds?;
        Some(own.max(0.0) / self.steps.max(1) as f64)
    }

    fn share(&self, seconds: f64) -> f64 {
        if self.training_seconds > 0.0 {
            (seconds / self.training_seconds).min(1.0)
        } else {
            0.0
        }
    }

    fn name(&self) -> String {
        match &*self.host {
            "" => format!("process {}", self.process),
            host => format!("process {} on {host}", self.process),
        }
    }

    fn line(&self) -> String {
        let step = 1e3 * self.training_seconds / self.steps.max(1) as f64;
        let percent = |seconds: f64| format!("{:.0} %", 100.0 * self.share(seconds));
        let mut line = format!(
            "{step:.2} ms a step, input wait {}",
            percent(self.input_wait_seconds)
        );
        if let Some(seconds) = self.exchange_seconds {
            line += &format!(", communication {}", percent(seconds));
        }
        if let Some(bytes) = self.bytes_sent {
            line += &format!(", {} sent", format_bytes(bytes));
        }
        if self.restarts > 0 {
            line += &format!(", restarts {}", self.restarts);
        }
        if self.skipped_samples > 0 {
            line += &format!(", skipped samples {}", self.skipped_samples);
        }
        if !self.host.is_empty() {
            line += &format!(", on {}", self.host);
        }
        line
    }
}

/// A name and a value for each process, or for the first ones.
pub(super) fn lines(all: &[ProcessReport]) -> Vec<(String, String)> {
    let shown = all.iter().take(LINES);
    let mut lines: Vec<(String, String)> = shown
        .map(|one| (format!("process {}", one.process), one.line()))
        .collect();
    if let Some(more) = all.len().checked_sub(LINES).filter(|more| *more > 0) {
        lines.push((
            "processes".to_string(),
            format!("{more} more in report.json"),
        ));
    }
    lines
}

/// The processes that the others wait for.
pub(crate) fn findings(all: &[ProcessReport]) -> Vec<String> {
    let measured: Vec<&ProcessReport> = (all.iter())
        .filter(|one| one.training_seconds >= LEAST_SECONDS && one.steps > 0)
        .collect();
    let mut own: Vec<f64> = measured
        .iter()
        .filter_map(|one| one.own_seconds())
        .collect();
    own.sort_by(f64::total_cmp);
    // With two processes, the faster one.
    let median = own.get(own.len().saturating_sub(1) / 2).copied();
    let compared = match own.len() {
        2 => "in the other process",
        _ => "in the median of the processes",
    };
    let is_one_host = measured.windows(2).all(|pair| pair[0].host == pair[1].host);
    let remedy = if is_one_host {
        "its cores have other work, or it has fewer of them"
    } else {
        "look for other work on its host"
    };
    let waiting = measured.iter().filter_map(|one| {
        let share = one.share(one.input_wait_seconds);
        (share > INPUT_SHARE).then(|| {
            format!(
                "{} waits for data {:.0} % of the time of its steps, and the others wait for it: use \
                 more workers, do less work in `Dataset::read`, or use a faster disk there",
                one.name(),
                100.0 * share
            )
        })
    });
    let slow = measured.iter().filter_map(|one| {
        let (own, median) = (one.own_seconds()?, median?);
        (own > SLOWER * median).then(|| {
            format!(
                "{} is slow, and the others wait for it: a step takes {:.2} ms there without \
                 waiting, and {:.2} ms {compared}; {remedy}",
                one.name(),
                1e3 * own,
                1e3 * median
            )
        })
    });
    waiting.chain(slow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(process: u64, input: f64, exchange: f64) -> ProcessReport {
        ProcessReport {
            process,
            host: format!("node{process}"),
            steps: 1000,
            training_seconds: 10.0,
            input_wait_seconds: input,
            exchange_seconds: Some(exchange),
            bytes_sent: Some(5_000_000),
            restarts: 0,
            skipped_samples: 0,
        }
    }

    #[test]
    fn process_that_waits_for_data_is_named() {
        let all = [
            process(0, 0.0, 5.0),
            process(1, 0.9, 4.0),
            process(2, 5.0, 0.0),
        ];
        let found = findings(&all);
        assert_eq!(found.len(), 1, "{found:?}");
        let expected = "process 2 on node2 waits for data 50 % of the time of its steps";
        assert!(found[0].starts_with(expected), "{found:?}");
    }

    #[test]
    fn slow_process_is_named() {
        // 5.0, 5.5 and 6.5 ms without waiting: the median is 5.5, and 1.2 times of it 6.6.
        let all = [
            process(0, 0.0, 5.0),
            process(1, 0.0, 4.5),
            process(2, 0.0, 3.5),
        ];
        assert_eq!(findings(&all), [""; 0]);
        let all = [
            process(0, 0.0, 5.0),
            process(1, 0.0, 4.5),
            process(2, 0.0, 3.3),
        ];
        let found = findings(&all);
        assert_eq!(found.len(), 1, "{found:?}");
        let expected =
            "process 2 on node2 is slow, and the others wait for it: a step takes 6.70 ms";
        assert!(found[0].starts_with(expected), "{found:?}");
    }

    #[test]
    fn slow_one_of_two_is_compared_with_the_other() {
        let mut all = [process(0, 0.0, 5.0), process(1, 0.0, 3.0)];
        let found = findings(&all);
        let expected = "and 5.00 ms in the other process; look for other work on its host";
        assert!(found[0].ends_with(expected), "{found:?}");
        all[1].host = all[0].host.clone();
        let found = findings(&all);
        let expected = "in the other process; its cores have other work, or it has fewer of them";
        assert!(found[0].ends_with(expected), "{found:?}");
    }

    /// One program on the devices of all processes: every step takes as long as the slowest one's.
    #[test]
    fn communication_that_is_not_measured_is_not_shown() {
        let unmeasured = |rank, input| ProcessReport {
            exchange_seconds: None,
            bytes_sent: None,
            training_seconds: 10.0 + rank as f64 * 10.0,
            ..process(rank, input, 0.0)
        };
        let all = [unmeasured(0, 0.0), unmeasured(1, 1.0)];
        assert_eq!(findings(&all), [""; 0]);
        let expected = "10.00 ms a step, input wait 0 %, on node0";
        assert_eq!(lines(&all)[0].1, expected);
    }

    #[test]
    fn many_processes_have_few_lines() {
        let all: Vec<_> = (0..40).map(|rank| process(rank, 1.0, 2.0)).collect();
        let lines = lines(&all);
        assert_eq!(lines.len(), LINES + 1);
        let expected =
            "10.00 ms a step, input wait 10 %, communication 20 %, 5.00 MB sent, on node0";
        assert_eq!(lines[0], ("process 0".to_string(), expected.to_string()));
        assert_eq!(lines[LINES].1, "24 more in report.json");
    }
}
