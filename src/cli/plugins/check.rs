//! `halite plugins check`: runs [`super::child`] in a process of its own, and says what came of it.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use clap::Args;
use halite::{
    Error, ErrorKind, Result,
    backends::{self, OpenOptions, PLUGINS, Search, conformance::cases, pjrt::printable},
    fetch,
};
use serde_json::{Value, json};

use super::child;
use crate::cli::{process, say_part};

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
  halite plugins check cpu --devices 8           with eight virtual devices, for cases on many devices
  halite plugins check cpu --only donation       the cases whose name contains a word
  halite plugins check cpu --json                as JSON")]
pub(super) struct Check {
    /// A name of `halite plugins list`, or the path of a plugin's library
    #[arg(value_name = "NAME-OR-PATH")]
    target: PathBuf,
    /// Number of virtual devices, for a plugin for CPUs [default: the plugin's]
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
    /// This is the process that loads the plugin; the number of cases to leave out.
    #[arg(long, hide = true)]
    as_child: Option<usize>,
}

impl Check {
    pub(super) fn run(self, cache: &fetch::Cache) -> Result<ExitCode> {
        if let Some(skip) = self.as_child {
            process::end_with_parent()?;
            child::run(
                &self.target,
                self.devices,
                &self.only,
                self.deadline.map(Duration::from_secs),
                skip,
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        let (target, words) = locate(&self.target, cache)?;
        let mut report = Report {
            json: self.json,
            ..Report::default()
        };
        report.say(&format!("plugin       {words}"));
        loop {
            let mut process = Loading::start(&target, &self, report.cases.len())?;
            match process.follow(&mut report)? {
                Ended::Done => break,
                Ended::Hung => {
                    report.leave_out_rest(&self.only);
                    break;
                }
                // Each turn has seen one case more, so this comes to an end.
                Ended::Died => {}
            }
        }
        report.finish()
    }
}

/// What the child is to open, an accelerator's name or a library's path, and how the library was
/// found.
fn locate(target: &Path, cache: &fetch::Cache) -> Result<(PathBuf, String)> {
    let mut bar = fetch::Bar::default();
    let known = PLUGINS
        .iter()
        .find(|plugin| target.as_os_str() == plugin.name);
    let located = match known {
        Some(plugin) => match Search::platform(plugin.platform, cache) {
            // The default is what the platform's name means elsewhere.
            Some(search) if plugin.name == plugin.platform => search.ensure(&mut bar)?,
            _ => backends::install(plugin, cache, &mut bar)?,
        },
        None => {
            let shown = target.display().to_string();
            if !shown.contains(['/', '\\', '.']) && !target.exists() {
                let names: Vec<_> = PLUGINS.iter().map(|plugin| plugin.name).collect();
                let message = format!(
                    "no plugin or file `{shown}`; expected the path of a library, or one of {}",
                    names.join(", ")
                );
                return Err(Error::invalid("plugins check", message));
            }
            return Ok((target.to_path_buf(), shown));
        }
    };
    let words = located.to_string();
    // Vendors' plugins need an environment and options of their own, and may wait for minutes where
    // the hardware is missing.
    let by_name =
        known.is_some_and(|plugin| plugin.name == plugin.platform && plugin.platform != "cpu");
    Ok((
        if by_name {
            target.to_path_buf()
        } else {
            located.path
        },
        words,
    ))
}

/// How long a plugin's process may be late before it is ended: opening and each case have deadlines
/// of their own there.
const PATIENCE_BESIDES: Duration = Duration::from_secs(60);
/// Number of hung cases after which the remaining ones are skipped.
const MOST_HUNG: usize = 3;

/// The process that has the plugin.
struct Loading(process::Child);

enum Ended {
    /// It ran every case.
    Done,
    /// The plugin ended it during a case.
    Died,
    /// Too many cases hung.
    Hung,
}

impl Loading {
    fn start(target: &Path, check: &Check, skip: usize) -> Result<Self> {
        let mut arguments: Vec<OsString> = [
            "plugins",
            "check",
            "--only",
            &check.only,
            "--as-child",
            &skip.to_string(),
        ]
        .map(Into::into)
        .into();
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

    /// Takes down what it says, until it ends.
    fn follow(&mut self, report: &mut Report) -> Result<Ended> {
        let to_open = OpenOptions::default().deadline;
        let (mut patience, mut silent_since) = (to_open + PATIENCE_BESIDES, Instant::now());
        // While it opens, nothing else on the screen says that it is alive.
        let mut notice = Duration::from_secs(10).min(to_open / 2);
        loop {
            let silent = silent_since.elapsed();
            let opens = report.running.is_none();
            let line = match self.0.line(
                if opens {
                    patience.min(notice)
                } else {
                    patience
                }
                .saturating_sub(silent),
            ) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if opens && silent_since.elapsed() < patience => {
                    let waited = silent_since.elapsed().as_secs();
                    remark!(
                        "the plugin has not opened after {waited} s; it may take {} s",
                        to_open.as_secs()
                    );
                    notice *= 3;
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => return self.died(report, Some(patience)),
                Err(RecvTimeoutError::Disconnected) => return self.died(report, None),
            };
            silent_since = Instant::now();
            // A plugin may write to stdout as well.
            let Ok(message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            match message["event"].as_str() {
                Some("opened") => report.opened(&message["plugin"]),
                Some("refused") => {
                    let words = message["message"].as_str().unwrap_or_default();
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        "plugins check",
                        printable(words),
                    ));
                }
                Some("begin") => {
                    patience = Duration::from_secs(message["seconds"].as_u64().unwrap_or(0))
                        + PATIENCE_BESIDES;
                    report.begin(&message);
                }
                Some("end") => {
                    report.end(&message);
                    if report.hung >= MOST_HUNG {
                        return Ok(Ended::Hung);
                    }
                }
                Some("done") => return Ok(Ended::Done),
                _ => {}
            }
        }
    }

    fn died(&mut self, report: &mut Report, silent_for: Option<Duration>) -> Result<Ended> {
        let how = match silent_for {
            Some(time) => format!(
                "the plugin was silent for {} s, and was ended",
                time.as_secs()
            ),
            None => format!("the plugin ended the process ({})", self.0.status()),
        };
        let words = match self.0.last_words() {
            Some(words) => format!("{how}; its last words: {words}"),
            None => how,
        };
        if report.running.is_some() {
            report.end(&json!({"verdict": "failed", "words": words, "hung": silent_for.is_some()}));
            return Ok(if report.hung >= MOST_HUNG {
                Ended::Hung
            } else {
                Ended::Died
            });
        }
        let when = if report.plugin.is_null() {
            "while it was loaded"
        } else {
            "between two cases"
        };
        Err(Error::new(
            ErrorKind::Internal,
            "plugins check",
            format!("{when}, {words}; use another build of it"),
        ))
    }
}

/// What is known so far.
#[derive(Default)]
struct Report {
    json: bool,
    plugin: Value,
    cases: Vec<Value>,
    running: Option<(String, Instant)>,
    /// How many cases were not done in time.
    hung: usize,
    seconds: f64,
}

impl Report {
    fn say(&self, line: &str) {
        if !self.json {
            say!("{line}");
        }
    }

    fn opened(&mut self, plugin: &Value) {
        if !self.plugin.is_null() {
            return;
        }
        self.plugin = plugin.clone();
        let text = |value: &Value| printable(value.as_str().unwrap_or_default());
        let list = |value: &Value| {
            value
                .as_array()
                .into_iter()
                .flatten()
                .map(text)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let or = |text: String, other: &str| {
            if text.is_empty() {
                other.to_owned()
            } else {
                text
            }
        };
        self.say(&format!(
            "platform     {} ({})",
            text(&plugin["platform"]),
            text(&plugin["version"])
        ));
        self.say(&format!("PJRT API     {}", text(&plugin["api"])));
        let stablehlo = match &plugin["stablehlo"] {
            Value::Null => "not said".to_owned(),
            range => format!("{} to {}", text(&range["oldest"]), text(&range["newest"])),
        };
        self.say(&format!("StableHLO    {stablehlo}"));
        self.say(&format!(
            "extensions   {}",
            or(list(&plugin["extensions"]), "none")
        ));
        self.say(&format!(
            "lacks        {}",
            or(
                list(&plugin["missing_functions"]),
                "no function that halite knows"
            )
        ));
        for device in plugin["devices"].as_array().into_iter().flatten() {
            let local = if device["local"].as_bool() == Some(false) {
                ", of another process"
            } else {
                ""
            };
            self.say(&format!(
                "device {:<5} {}; memory: {}{local}",
                device["id"].to_string(),
                text(&device["kind"]),
                list(&device["memories"])
            ));
        }
        self.say("");
    }

    fn begin(&mut self, message: &Value) {
        let name = |key| message[key].as_str().unwrap_or_default();
        self.running = Some((name("case").to_owned(), Instant::now()));
        if !self.json {
            // Without its end: if this process is ended too, the last line names the case.
            say_part(format_args!("{} ... ", printable(name("sentence"))));
        }
    }

    fn end(&mut self, message: &Value) {
        let Some((name, began)) = self.running.take() else {
            return;
        };
        let verdict = message["verdict"].as_str().unwrap_or("failed");
        let words = &*printable(message["words"].as_str().unwrap_or_default());
        self.hung += usize::from(message["hung"].as_bool() == Some(true));
        let seconds = message["seconds"]
            .as_f64()
            .unwrap_or_else(|| began.elapsed().as_secs_f64());
        self.seconds += seconds;
        let colour = |code: &str, word: &str| match io::stdout().is_terminal() {
            true => format!("\x1b[{code}m{word}\x1b[0m"),
            false => word.to_owned(),
        };
        self.say(&match verdict {
            "passed" => format!("{} ({seconds:.2} s)", colour("32", "ok")),
            "skipped" => format!("{}: {words}", colour("33", "skipped")),
            _ => format!("{}: {words}", colour("1;31", "FAILED")),
        });
        let words = (!words.is_empty()).then_some(words);
        self.cases
            .push(json!({"case": name, "verdict": verdict, "words": words, "seconds": seconds}));
    }

    /// Notes the cases that did not run because others hung.
    fn leave_out_rest(&mut self, only: &str) {
        let words = format!("not run: {} cases hung", self.hung);
        let cases = cases();
        let rest: Vec<_> = cases
            .iter()
            .filter(|case| case.name.contains(only))
            .skip(self.cases.len())
            .collect();
        if !rest.is_empty() {
            self.say(&format!("{} more cases are {words}", rest.len()));
        }
        for case in rest {
            self.cases.push(
                json!({"case": case.name, "verdict": "skipped", "words": words, "seconds": 0.0}),
            );
        }
    }

    fn finish(self) -> Result<ExitCode> {
        let count = |verdict: &str| {
            self.cases
                .iter()
                .filter(|case| case["verdict"] == verdict)
                .count()
        };
        let (passed, failed, skipped) = (count("passed"), count("failed"), count("skipped"));
        if self.cases.is_empty() {
            return Err(Error::invalid(
                "plugins check",
                "no case has this in its name; leave out --only to see all names",
            ));
        }
        if self.json {
            let counts = json!({"passed": passed, "failed": failed, "skipped": skipped, "seconds": self.seconds});
            say!(
                "{:#}",
                json!({"plugin": self.plugin, "cases": self.cases, "summary": counts})
            );
        } else {
            say!(
                "\n{passed} passed, {failed} failed, {skipped} skipped in {:.1} s",
                self.seconds
            );
            for case in self.cases.iter().filter(|case| case["verdict"] == "failed") {
                say!("failed: {}", case["case"].as_str().unwrap_or_default());
            }
        }
        Ok(if failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
