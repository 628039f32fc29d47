//! `halite plugins check`: runs [`super::child`] in a child process, and reports its results.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use clap::Args;
use halite::{
    Error, ErrorKind, Result,
    backends::{self, OpenOptions, PLUGINS, Search, Source, pjrt::printable},
    fetch,
};
use serde_json::{Value, json};

use super::{child, report::Report};
use crate::cli::{open_options, process};

/// Describe a plugin and run the conformance tests on it
///
/// Prints the versions of the plugin, of PJRT's API and of StableHLO, its extensions, the missing
/// functions, and its devices. Then it runs the conformance cases: transfers of every type, donation,
/// events, invalid input, threads, many devices. Each case is a line: `ok`, `skipped` with the
/// reason, or `FAILED` with the actual and the expected result.
///
/// The plugin is loaded in a child process: if it ends the process, the running case fails, and the
/// others still run. After three cases that hang, the others are skipped.
///
/// The exit code is 0 if no case failed, else 1.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  halite plugins check cpu                       the plugin of `--accelerator cpu`, installed if it is missing
  halite plugins check ./my_plugin.so            any plugin, by path
  halite plugins check embedded                  the executor that is part of halite, without a plugin
  halite plugins check cpu --devices 8           with eight virtual devices, for cases on many devices
  halite plugins check cpu --only donation       the cases whose name contains a word
  halite plugins check cpu --json                as JSON")]
pub(super) struct Check {
    /// A name of `halite plugins list`, `embedded`, or the path of a plugin's library
    #[arg(value_name = "NAME-OR-PATH")]
    target: PathBuf,
    /// Number of virtual devices, for `embedded` or a plugin for CPUs [default: the plugin's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    devices: Option<u32>,
    /// Run only the cases whose name contains this, such as `transfers` or `donation::`
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    only: String,
    /// Timeout of one case [default: 120, or more if the case needs it]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    deadline: Option<u64>,
    /// Print JSON instead of text, at the end
    #[arg(long)]
    json: bool,
    /// Runs as the child process that loads the plugin, and skips this number of cases.
    #[arg(long, hide = true)]
    as_child: Option<usize>,
}

impl Check {
    pub(super) fn run(self, cache: &fetch::Cache) -> Result<ExitCode> {
        if let Some(skip) = self.as_child {
            process::end_with_parent()?;
            child::run(
                &self.target,
                cache.root(),
                self.devices,
                &self.only,
                self.deadline.map(Duration::from_secs),
                skip,
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        let (target, description) = locate(&self.target, cache)?;
        let mut report = Report::new(self.json);
        report.say(&format!("plugin       {description}"));
        loop {
            let mut process = Loading::start(&target, cache.root(), &self, report.cases.len())?;
            match process.follow(&mut report)? {
                Ended::Done => break,
                Ended::Hung => {
                    report.skip_rest(&self.only);
                    break;
                }
                // Each process runs at least one case, so the loop ends.
                Ended::Died => {}
            }
        }
        report.finish()
    }
}

/// Returns what the child opens, the name of an accelerator or the path of a library, and a
/// description of the library.
fn locate(target: &Path, cache: &fetch::Cache) -> Result<(PathBuf, String)> {
    let mut bar = fetch::Bar::default();
    let known = PLUGINS
        .iter()
        .find(|plugin| target.as_os_str() == plugin.name);
    let located = match known {
        Some(plugin) => match Search::platform(plugin.platform, cache) {
            // The default is what the platform's name means elsewhere.
            Some(search) if plugin.name == plugin.platform => {
                let search = Search {
                    trust_python: open_options(None).trust_python,
                    ..search
                };
                let found = search.ensure(&mut bar)?;
                match found.plugin {
                    // Its files are digested, whatever their times are.
                    Some(plugin) if found.source == Source::Cache => {
                        backends::install(plugin, cache, &mut bar)?
                    }
                    _ => found,
                }
            }
            _ => backends::install(plugin, cache, &mut bar)?,
        },
        None => {
            let shown = target.display().to_string();
            if shown == child::EMBEDDED {
                return Ok((target.to_path_buf(), shown));
            }
            if !shown.contains(['/', '\\', '.']) && !target.exists() {
                let names: Vec<_> = PLUGINS.iter().map(|plugin| plugin.name).collect();
                let message = format!(
                    "no plugin or file `{shown}`; expected the path of a library, {}, or one of {}",
                    child::EMBEDDED,
                    names.join(", ")
                );
                return Err(Error::invalid("plugins check", message));
            }
            return Ok((target.to_path_buf(), shown));
        }
    };
    let description = located.to_string();
    // By their names, plugins of vendors are opened with the environment and options that they need,
    // and fail at once where the hardware is missing.
    let by_name = known.is_some_and(|plugin| child::opens_by_name(plugin.name));
    Ok((
        if by_name {
            target.to_path_buf()
        } else {
            located.path
        },
        description,
    ))
}

/// Time that the child has in addition to its own deadlines for opening and for each case.
const GRACE: Duration = Duration::from_secs(60);
/// Number of hung cases after which the remaining cases are skipped.
const HUNG_LIMIT: usize = 3;

/// The child process that has loaded the plugin.
struct Loading(process::Child);

/// End of a child process.
enum Ended {
    /// It ran every case.
    Done,
    /// The plugin ended the process during a case.
    Died,
    /// Too many cases hung.
    Hung,
}

impl Loading {
    fn start(target: &Path, cache: &Path, check: &Check, skip: usize) -> Result<Self> {
        let mut arguments: Vec<OsString> = [
            "plugins",
            "check",
            "--only",
            &check.only,
            "--as-child",
            &skip.to_string(),
            "--cache-dir",
        ]
        .map(Into::into)
        .into();
        arguments.push(cache.into());
        if open_options(None).trust_python {
            arguments.push("--trust-python".into());
        }
        if let Some(seconds) = check.deadline {
            arguments.extend(["--deadline".into(), seconds.to_string().into()]);
        }
        if let Some(devices) = check.devices {
            arguments.extend(["--devices".into(), devices.to_string().into()]);
        }
        arguments.extend(["--".into(), target.into()]);
        Ok(Loading(process::Child::start(
            "plugins check",
            arguments,
            false,
        )?))
    }

    /// Reports the messages of the child until it ends.
    fn follow(&mut self, report: &mut Report) -> Result<Ended> {
        let mut timeout = OpenOptions::default().deadline + GRACE;
        loop {
            let line = match self.line(timeout, report.running.is_none()) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => return self.died(report, Some(timeout)),
                Err(RecvTimeoutError::Disconnected) => return self.died(report, None),
            };
            // A plugin may write to stdout as well.
            let Ok(message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            match message["event"].as_str() {
                Some("opened") => report.opened(&message["plugin"]),
                Some("unavailable") => {
                    let message = printable(message["message"].as_str().unwrap_or_default());
                    return Err(Error::new(ErrorKind::Unavailable, "plugins check", message));
                }
                Some("begin") => {
                    let seconds = message["seconds"].as_u64().unwrap_or(0);
                    timeout = Duration::from_secs(seconds) + GRACE;
                    report.begin(&message);
                }
                Some("end") => {
                    report.end(&message);
                    if report.hung >= HUNG_LIMIT {
                        return Ok(Ended::Hung);
                    }
                }
                Some("done") => return Ok(Ended::Done),
                _ => {}
            }
        }
    }

    /// Receives the next line of the child. While the plugin `opens`, which can take minutes, it
    /// prints the elapsed time now and then.
    fn line(&self, timeout: Duration, opens: bool) -> Result<String, RecvTimeoutError> {
        let started = Instant::now();
        let limit = OpenOptions::default().deadline;
        let mut notice = Duration::from_secs(10).min(limit / 2);
        loop {
            let until = if opens { timeout.min(notice) } else { timeout };
            match self.0.line(until.saturating_sub(started.elapsed())) {
                Err(RecvTimeoutError::Timeout) if opens && started.elapsed() < timeout => {
                    remark!(
                        "the plugin has not opened after {} s; the limit is {} s",
                        started.elapsed().as_secs(),
                        limit.as_secs()
                    );
                    notice *= 3;
                }
                received => return received,
            }
        }
    }

    /// Handles a child that sent nothing until the timeout, or ended.
    fn died(&mut self, report: &mut Report, timeout: Option<Duration>) -> Result<Ended> {
        let end = match timeout {
            Some(time) => format!(
                "the plugin sent nothing for {} s and was killed",
                time.as_secs()
            ),
            None => format!("the plugin ended the process ({})", self.0.status()),
        };
        let message = match self.0.last_output() {
            Some(output) => format!("{end}; its last output: {output}"),
            None => end,
        };
        if report.running.is_some() {
            report
                .end(&json!({"verdict": "failed", "message": message, "hung": timeout.is_some()}));
            return Ok(if report.hung >= HUNG_LIMIT {
                Ended::Hung
            } else {
                Ended::Died
            });
        }
        let when = match report.is_opened() {
            false => "while it was loaded",
            true => "between two cases",
        };
        Err(Error::new(
            ErrorKind::Internal,
            "plugins check",
            format!("{when}, {message}; use another build of it"),
        ))
    }
}
