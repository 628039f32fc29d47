//! Reports of a process to `halite launch`: lines on stderr that the launcher takes out of the
//! output.

use std::{
    env,
    fmt::Display,
    io::{self, Write},
    sync::LazyLock,
};

/// Set by the launcher, to the version of these lines.
pub(crate) const VARIABLE: &str = "HALITE_LAUNCHER";

const START: &str = "\u{1e}halite ";

/// Tells `halite launch` why this process fails, if it was launched.
pub fn tell_launcher(error: &impl Display) {
    Record::Failed(error.to_string()).send();
}

/// Tells `halite launch` that this process ends early because of a signal, with the status that
/// shells give for it (143 for SIGTERM), if it was launched.
pub fn tell_stopped(status: u8) {
    Record::Stopped(status).send();
}

/// Whether there is a launcher that reads the lines.
pub(crate) fn is_launched() -> bool {
    static LAUNCHED: LazyLock<bool> = LazyLock::new(|| env::var_os(VARIABLE).is_some());
    *LAUNCHED
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Record {
    /// The process has joined the job, from this host.
    Joined { host: String, pid: u32 },
    /// It has finished its part.
    Finished,
    /// It ends early because of a signal, with the status of the launcher.
    Stopped(u8),
    /// The newest checkpoint of the job.
    Saved(String),
    /// It fails.
    Failed(String),
    /// Its program has ended with this status, as a shell reports it.
    Exited(i32),
}

impl Record {
    /// Tells it to the launcher, if there is one.
    pub(crate) fn send(&self) {
        if is_launched() {
            // A launcher that is gone ends this process by other means.
            _ = io::stderr().write_all(format!("{}\n", self.line()).as_bytes());
        }
    }

    fn line(&self) -> String {
        match self {
            Record::Joined { host, pid } => format!("{START}joined {pid} {host}"),
            Record::Finished => format!("{START}finished"),
            Record::Stopped(status) => format!("{START}stopped {status}"),
            Record::Saved(checkpoint) => format!("{START}saved {}", one_line(checkpoint)),
            Record::Failed(reason) => format!("{START}failed {}", one_line(reason)),
            Record::Exited(status) => format!("{START}exited {status}"),
        }
    }

    /// Splits a line of output into what was printed before it and a record.
    pub(crate) fn split(line: &str) -> (&str, Option<Record>) {
        let Some((before, record)) = line.split_once(START) else {
            return (line, None);
        };
        let (kind, rest) = record.split_once(' ').unwrap_or((record, ""));
        let record = match kind {
            "joined" => rest.split_once(' ').and_then(|(pid, host)| {
                let (pid, host) = (pid.parse().ok()?, host.to_owned());
                Some(Record::Joined { host, pid })
            }),
            "finished" => Some(Record::Finished),
            "stopped" => rest.parse().ok().map(Record::Stopped),
            "saved" => Some(Record::Saved(lines(rest))),
            "failed" => Some(Record::Failed(lines(rest))),
            "exited" => rest.parse().ok().map(Record::Exited),
            _ => None,
        };
        match record {
            Some(record) => (before, Some(record)),
            None => (line, None),
        }
    }
}

/// A text on one line, for [`lines`].
fn one_line(text: &str) -> String {
    text.replace('\n', "\u{1f}")
}

fn lines(text: &str) -> String {
    text.replace('\u{1f}', "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let host = "node 1".to_owned();
        for record in [
            Record::Joined { host, pid: 7 },
            Record::Finished,
            Record::Stopped(143),
            Record::Saved("runs/a/checkpoints/step-40".to_owned()),
            Record::Failed("a\nb".to_owned()),
            Record::Exited(137),
        ] {
            let line = format!("half a line{}", record.line());
            assert_eq!(Record::split(&line), ("half a line", Some(record)));
        }
        for line in [
            "",
            "text",
            "\u{1e}halite exited many",
            "\u{1e}halite joined",
        ] {
            assert_eq!(Record::split(line), (line, None));
        }
    }
}
