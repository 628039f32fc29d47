//! Report of `halite plugins check`: the plugin and the result of each case.

use std::{process::ExitCode, time::Instant};

use halite::{Error, Result, backends::pjrt::printable, conformance::cases};
use serde_json::{Value, json};

use crate::cli::{is_colored, prints_to_terminal, say_part};

/// Results so far, which are printed as they arrive, or as JSON at the end.
#[derive(Default)]
pub(super) struct Report {
    json: bool,
    /// Description of the plugin; null before it is opened.
    plugin: Value,
    pub(super) cases: Vec<Value>,
    /// Name of the running case, and its start.
    pub(super) running: Option<(String, Instant)>,
    /// Number of cases that exceeded their deadline.
    pub(super) hung: usize,
    seconds: f64,
}

/// Returns a string of the child without control characters.
fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default())
}

fn list(value: &Value) -> String {
    let values = value.as_array().into_iter().flatten();
    values.map(text).collect::<Vec<_>>().join(", ")
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Report {
            json,
            ..Report::default()
        }
    }

    /// Returns true if the plugin was opened.
    pub(super) fn is_opened(&self) -> bool {
        !self.plugin.is_null()
    }

    /// Prints a line of text.
    pub(super) fn say(&self, line: &str) {
        if !self.json {
            say!("{line}");
        }
    }

    /// Prints the description of the plugin, once.
    pub(super) fn opened(&mut self, plugin: &Value) {
        if self.is_opened() {
            return;
        }
        self.plugin = plugin.clone();
        let (platform, version) = (text(&plugin["platform"]), text(&plugin["version"]));
        self.say(&format!("platform     {platform} ({version})"));
        if !plugin["api"].is_null() {
            self.say_api(plugin);
        }
        for device in plugin["devices"].as_array().into_iter().flatten() {
            let process = match device["local"].as_bool() {
                Some(false) => ", of another process",
                _ => "",
            };
            self.say(&format!(
                "device {:<5} {}; memory: {}{process}",
                device["id"].to_string(),
                text(&device["kind"]),
                list(&device["memories"])
            ));
        }
        self.say("");
    }

    /// Prints what is known of the C API of a plugin.
    fn say_api(&self, plugin: &Value) {
        let or = |list: String, other: &str| {
            if list.is_empty() {
                other.to_owned()
            } else {
                list
            }
        };
        self.say(&format!("PJRT API     {}", text(&plugin["api"])));
        let stablehlo = match &plugin["stablehlo"] {
            Value::Null => "not reported".to_owned(),
            range => format!("{} to {}", text(&range["oldest"]), text(&range["newest"])),
        };
        self.say(&format!("StableHLO    {stablehlo}"));
        let extensions = or(list(&plugin["extensions"]), "none");
        self.say(&format!("extensions   {extensions}"));
        let missing = list(&plugin["missing_functions"]);
        let missing = or(missing, "no function that halite uses");
        self.say(&format!("missing      {missing}"));
    }

    /// Starts a case.
    pub(super) fn begin(&mut self, message: &Value) {
        let name = |key| message[key].as_str().unwrap_or_default();
        self.running = Some((name("case").to_owned(), Instant::now()));
        if !self.json {
            // Without a line end: if this process is killed too, the last line names the case.
            say_part(format_args!("{} ... ", printable(name("sentence"))));
        }
    }

    /// Ends the running case.
    pub(super) fn end(&mut self, message: &Value) {
        let Some((name, began)) = self.running.take() else {
            return;
        };
        let verdict = message["verdict"].as_str().unwrap_or("failed");
        let details = &*printable(message["message"].as_str().unwrap_or_default());
        self.hung += usize::from(message["hung"].as_bool() == Some(true));
        let seconds = message["seconds"]
            .as_f64()
            .unwrap_or_else(|| began.elapsed().as_secs_f64());
        self.seconds += seconds;
        let color = |code: &str, word: &str| {
            if prints_to_terminal() && is_colored() {
                format!("\x1b[{code}m{word}\x1b[0m")
            } else {
                word.to_owned()
            }
        };
        self.say(&match verdict {
            "passed" => format!("{} ({seconds:.2} s)", color("32", "ok")),
            "skipped" => format!("{}: {details}", color("33", "skipped")),
            _ => format!("{}: {details}", color("1;31", "FAILED")),
        });
        let details = (!details.is_empty()).then_some(details);
        self.cases.push(
            json!({"case": name, "verdict": verdict, "message": details, "seconds": seconds}),
        );
    }

    /// Records the cases that did not run because others hung.
    pub(super) fn skip_rest(&mut self, only: &str) {
        let message = format!("not run: {} cases hung", self.hung);
        let cases = cases();
        let rest: Vec<_> = cases
            .iter()
            .filter(|case| case.name.contains(only))
            .skip(self.cases.len())
            .collect();
        if !rest.is_empty() {
            self.say(&format!("{} more cases are {message}", rest.len()));
        }
        for case in rest {
            self.cases.push(
                json!({"case": case.name, "verdict": "skipped", "message": message, "seconds": 0.0}),
            );
        }
    }

    /// Prints the summary, and returns the exit code.
    pub(super) fn finish(self) -> Result<ExitCode> {
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
                "no case name contains the text of --only; without it all cases run",
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
