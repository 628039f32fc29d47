//! The commands on faulty plugins.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use halite_tests::process::{self, Running};
use tempfile::TempDir;

use crate::faults::library::faulty;

/// A limit that no command reaches unless it hangs, not even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(150);

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Ended(process::Ended);

/// One faulty plugin, and the commands to run on it.
pub(crate) struct Faulty {
    directory: TempDir,
    plugin: PathBuf,
    /// Seconds that the plugin may take to open, and for a case of `plugins check`.
    deadline: &'static str,
    /// Seconds that the plugin may take for a program.
    compile_deadline: &'static str,
}

impl Faulty {
    pub(crate) fn new(fault: &str) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let plugin = faulty(directory.path(), fault);
        // Deadlines that must not expire are generous.
        let deadline = match fault {
            // The plugin must open within this.
            "destroy:sleep" | "compile:sleep" | "execute:sleep" => "12",
            "never-ready" => "3",
            _ if fault.ends_with(":sleep") => "3",
            _ => "60",
        };
        let compile_deadline = if fault == "compile:sleep" { "3" } else { "60" };
        Faulty {
            directory,
            plugin,
            deadline,
            compile_deadline,
        }
    }

    fn accelerator(&self) -> String {
        format!("plugin:{}", self.plugin.display())
    }

    /// As [`devices`](Self::devices), loading the plugin without a probe.
    pub(crate) fn devices_unprobed(&self) -> Ended {
        let mut command = self.halite();
        run(command.env("HALITE_PLUGIN_PROBE", "off").args([
            "devices",
            "--accelerator",
            &self.accelerator(),
        ]))
    }

    pub(crate) fn devices(&self) -> Ended {
        run(self
            .halite()
            .args(["devices", "--accelerator", &self.accelerator()]))
    }

    pub(crate) fn train(&self) -> Ended {
        run(&mut self.training())
    }

    /// As [`train`](Self::train), loading the plugin without a probe.
    fn train_unprobed(&self) -> Ended {
        run(self.training().env("HALITE_PLUGIN_PROBE", "off"))
    }

    fn training(&self) -> Command {
        let out = self.directory.path().join("run");
        let mut command = self.halite();
        command.args("train mnist --model mlp --limit 256 --epochs 1 --accelerator".split(' '));
        command.arg(self.accelerator()).arg("--out").arg(out);
        command
    }

    /// `halite plugins check` of the cases whose name contains `only`.
    pub(crate) fn check(&self, only: &str) -> Ended {
        let mut command = self.halite();
        command
            .args("plugins check --devices 1 --deadline".split(' '))
            .arg(self.deadline);
        run(command.args(["--only", only]).arg(&self.plugin))
    }

    fn halite(&self) -> Command {
        let mut command = process::command(Path::new(env!("CARGO_BIN_EXE_halite")), "");
        if let Some(cache) = std::env::var_os("HALITE_CACHE_DIR") {
            command.env("HALITE_CACHE_DIR", cache);
        }
        command
            .env("HALITE_COMPILE_CACHE", "off")
            .env("HALITE_PLUGIN_DEADLINE", self.deadline)
            .env("HALITE_COMPILE_DEADLINE", self.compile_deadline);
        command
    }
}

/// Runs checks of plugins that hang at the same time: they wait for deadlines.
fn at_once<const N: usize>(checks: [&(dyn Fn() + Sync); N]) {
    thread::scope(|scope| checks.into_iter().for_each(|check| _ = scope.spawn(check)));
}

fn run(command: &mut Command) -> Ended {
    let ended = Running::start(command).unwrap().end(DEADLINE);
    println!(
        "{command:?}\n{}\n{}{}",
        ended.status, ended.stdout, ended.stderr
    );
    Ended(ended)
}

impl Ended {
    /// Asserts exit code 1 and that each of `parts` was printed.
    #[track_caller]
    pub(crate) fn fails_with(&self, parts: &[&str]) -> &Self {
        assert_eq!(self.0.code(), Some(1), "{}", self.0.summary());
        self.prints(parts)
    }

    /// Asserts that it succeeded, or as [`fails_with`](Self::fails_with): where it is a matter of time
    /// which comes first.
    #[track_caller]
    pub(crate) fn succeeds_or_fails_with(&self, parts: &[&str]) {
        if !self.0.succeeded() {
            self.fails_with(parts);
        }
    }

    /// Asserts that each of `parts` was printed, and no control character for a terminal.
    #[track_caller]
    pub(crate) fn prints(&self, parts: &[&str]) -> &Self {
        let printed = format!("{}{}", self.0.stdout, self.0.stderr);
        for part in parts {
            assert!(printed.contains(part), "`{part}` is not in: {printed}");
        }
        let control = printed
            .chars()
            .find(|&c| c.is_control() && !matches!(c, '\n' | '\t' | '\r'));
        assert_eq!(
            control, None,
            "a control character reaches the terminal: {printed:?}"
        );
        self
    }

    /// Asserts exit code 0.
    #[track_caller]
    pub(crate) fn succeeds(&self) -> &Self {
        assert!(self.0.succeeded(), "{}", self.0.summary());
        self.prints(&[])
    }

    /// Asserts that a signal ended it: a process cannot contain what a plugin does in it.
    #[track_caller]
    pub(crate) fn dies_of(&self, signal: i32) -> &Self {
        assert_eq!(self.0.signal(), Some(signal), "{}", self.0.summary());
        self
    }
}

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

#[test]
fn plugin_without_table_is_refused() {
    let plugin = Faulty::new("null-table");
    plugin
        .devices()
        .fails_with(&["null-table.so", "no table of functions"]);
    plugin
        .train()
        .fails_with(&["null-table.so", "no table of functions"]);
    plugin
        .check("")
        .fails_with(&["null-table.so", "no table of functions"]);
}

#[test]
fn plugin_with_a_tiny_table_is_refused() {
    let plugin = Faulty::new("tiny-table");
    plugin
        .devices()
        .fails_with(&["tiny-table.so", "a table of 8 bytes"]);
    plugin
        .check("")
        .fails_with(&["tiny-table.so", "a table of 8 bytes"]);
}

#[test]
fn plugin_without_devices_fails_every_command() {
    let plugin = Faulty::new("no-devices");
    plugin
        .devices()
        .fails_with(&["no-devices.so", "lists no device"]);
    plugin
        .train()
        .fails_with(&["no-devices.so", "lists no device"]);
    plugin
        .check("")
        .fails_with(&["no-devices.so", "lists no device"]);
}

#[test]
fn plugin_with_a_device_listed_twice_is_refused() {
    let plugin = Faulty::new("same-ids");
    plugin
        .devices()
        .fails_with(&["same-ids.so", "device 0 twice"]);
}

#[test]
fn lying_counts_are_not_believed() {
    for (fault, words) in [
        ("many-devices", "1125899906842624"),
        ("many-attributes", "1125899906842624"),
        ("create:lying", "1125899906842624"),
    ] {
        let plugin = Faulty::new(fault);
        let file = fault.replace(':', "-");
        plugin.devices().fails_with(&[&file, words]);
        plugin.check("").fails_with(&[&file, words]);
    }
}

#[test]
fn lying_program_size_is_not_believed() {
    let plugin = Faulty::new("large-program");
    // Everything that the optimized program is read for has other sources.
    plugin.train().succeeds();
    plugin.check("programs::").prints(&[" passed, "]);
}

#[test]
fn lying_serialized_size_is_not_believed() {
    let plugin = Faulty::new("large-serialized");
    plugin
        .check("programs::executable_survives")
        .fails_with(&["1125899906842624"]);
}

#[test]
fn odd_error_texts_are_shown_as_text() {
    for (fault, words) in [
        ("create:escapes", r"\u{1b}[2J"),
        ("create:not-utf8", "in Latin-1"),
        ("create:huge", "more bytes"),
        ("create:error", "refused on purpose"),
    ] {
        let plugin = Faulty::new(fault);
        let ended = plugin.devices();
        ended.fails_with(&[&fault.replace(':', "-"), words]);
        assert!(
            ended.0.stderr.len() < 1 << 16,
            "{} bytes are printed",
            ended.0.stderr.len()
        );
        plugin.check("").fails_with(&[words]);
    }
}

#[test]
fn escapes_in_names_do_not_reach_the_terminal() {
    let plugin = Faulty::new("escapes-in-kind");
    plugin.devices().succeeds();
    plugin.check("donation::state").succeeds();
}

#[test]
fn missing_output_is_an_error() {
    let plugin = Faulty::new("missing-output");
    plugin
        .train()
        .fails_with(&["fewer results than the program has"]);
    plugin
        .check("donation::state")
        .fails_with(&["fewer results than the program has"]);
}

#[test]
fn buffer_returned_twice_is_an_error() {
    let plugin = Faulty::new("same-output");
    plugin
        .train()
        .fails_with(&["same-output.so", "the same buffer"]);
}

#[test]
fn argument_returned_as_result_is_an_error() {
    let plugin = Faulty::new("argument-output");
    plugin
        .train()
        .fails_with(&["argument-output.so", "the same buffer"]);
    plugin.check("donation::").fails_with(&["the same buffer"]);
}

#[test]
fn read_without_an_event_is_an_error() {
    let plugin = Faulty::new("no-read-event");
    plugin
        .devices()
        .fails_with(&["no-read-event.so", "returned no event"]);
    plugin
        .train()
        .fails_with(&["no-read-event.so", "returned no event"]);
    plugin
        .check("transfers::every_type")
        .fails_with(&["returned no event"]);
}

#[test]
fn upload_without_a_done_event_is_copied() {
    let plugin = Faulty::new("no-done-event");
    plugin.devices().succeeds();
    plugin.train().succeeds();
    plugin.check("transfers::every_type").succeeds();
}

#[test]
fn event_that_never_fires_is_a_deadline_of_devices() {
    let plugin = Faulty::new("never-ready");
    plugin
        .devices()
        .fails_with(&["the round trip of 1 MB failed", "3s"]);
}

#[test]
fn check_stops_after_cases_that_hang() {
    let plugin = Faulty::new("never-ready");
    let ended = plugin.check("");
    ended.fails_with(&[
        "hangs: not done after 3 s",
        "not run: 3 cases hung",
        " 3 failed, ",
    ]);
}

#[test]
fn constructor_that_hangs_costs_its_deadline() {
    let plugin = Faulty::new("constructor:sleep");
    let words = ["constructor-sleep.so", "constructors", "3 s"];
    at_once([&|| _ = plugin.devices().fails_with(&words), &|| {
        _ = plugin.check("").fails_with(&words)
    }]);
}

#[test]
fn constructor_that_hangs_does_not_block_the_end() {
    let plugin = Faulty::new("constructor:sleep");
    let words = ["constructor-sleep.so has not started after 3 s"];
    at_once([
        &|| _ = plugin.devices_unprobed().fails_with(&words),
        &|| {
            // The thread that loads the data may wait for the dynamic loader.
            _ = plugin.train_unprobed().fails_with(&words)
        },
    ]);
}

#[test]
fn unreadable_deadline_is_refused() {
    let plugin = Faulty {
        deadline: "soon",
        ..Faulty::new("null-table")
    };
    plugin.devices().fails_with(&[
        "HALITE_PLUGIN_DEADLINE is `soon`; expected a positive whole number of seconds",
    ]);
}

#[test]
fn constructor_that_ends_the_process_is_refused() {
    for (fault, how) in [
        ("constructor:abort", "SIGABRT"),
        ("constructor:crash", "SIGSEGV"),
        ("constructor:exit", "exit status: 0"),
        ("constructor:throw", "SIGABRT"),
    ] {
        let plugin = Faulty::new(fault);
        plugin
            .devices()
            .fails_with(&[&fault.replace(':', "-"), how]);
    }
}

#[test]
fn hang_while_opening_costs_its_deadline() {
    let hangs = |fault, words| {
        move || {
            let plugin = Faulty::new(fault);
            let file = fault.replace(':', "-");
            plugin
                .devices()
                .fails_with(&[&file, words, "has not returned after"]);
            plugin.check("").fails_with(&[&file, words]);
        }
    };
    at_once([
        &hangs("get:sleep", "has not started after 3 s"),
        &hangs("initialize:sleep", "has not started after 3 s"),
        &hangs("create:sleep", "has been looking for its devices"),
        &|| {
            Faulty::new("create:sleep")
                .train()
                .fails_with(&["create-sleep.so", "has been looking for its devices"]);
        },
    ]);
}

#[test]
fn client_that_is_never_destroyed_does_not_block() {
    let plugin = Faulty::new("destroy:sleep");
    at_once([
        &|| _ = plugin.devices().succeeds().prints(&["destroy-sleep.so"]),
        &|| _ = plugin.train().succeeds(),
    ]);
}

#[test]
fn exit_while_opening_is_an_error() {
    for fault in ["get:exit", "initialize:exit", "create:exit"] {
        let plugin = Faulty::new(fault);
        let file = fault.replace(':', "-");
        plugin.devices().fails_with(&[&file, "ended the process"]);
        plugin.check("").fails_with(&[&file, "ended the process"]);
    }
}

#[test]
fn exit_while_compiling_is_an_error() {
    let plugin = Faulty::new("compile:exit");
    plugin
        .train()
        .fails_with(&["compile-exit.so", "ended the process"]);
    plugin
        .check("donation::state")
        .fails_with(&["ended the process"]);
}

#[test]
fn exception_while_opening_is_an_error() {
    for fault in ["get:throw", "initialize:throw", "create:throw"] {
        let plugin = Faulty::new(fault);
        let file = fault.replace(':', "-");
        plugin.devices().fails_with(&[&file, "exception"]);
        plugin.check("").fails_with(&[&file, "exception"]);
    }
}

#[test]
fn exception_while_compiling_is_an_error() {
    let plugin = Faulty::new("compile:throw");
    plugin.train().fails_with(&[
        "compile-throw.so",
        "PJRT_Client_Compile threw a C++ exception",
    ]);
    plugin
        .check("donation::state")
        .fails_with(&["PJRT_Client_Compile threw a C++ exception"]);
}

#[test]
fn exception_of_a_launch_names_the_plugin() {
    let plugin = Faulty::new("execute:throw");
    plugin
        .train()
        .dies_of(SIGABRT)
        .prints(&["execute-throw.so", "PJRT_LoadedExecutable_Execute threw"]);
    plugin
        .check("donation::state")
        .fails_with(&["PJRT_LoadedExecutable_Execute threw"]);
}

#[test]
fn compiler_that_hangs_costs_its_deadline() {
    let plugin = Faulty::new("compile:sleep");
    at_once([
        &|| _ = plugin.check("donation::state").fails_with(&["after 3 s"]),
        &|| {
            plugin
                .train()
                .fails_with(&["compile-sleep.so", "HALITE_COMPILE_DEADLINE"]);
        },
    ]);
}

#[test]
fn check_contains_a_plugin_that_dies() {
    for (fault, signal, name) in [
        ("create:abort", SIGABRT, "SIGABRT"),
        ("create:crash", SIGSEGV, "SIGSEGV"),
        ("upload:abort", SIGABRT, "SIGABRT"),
        ("execute:crash", SIGSEGV, "SIGSEGV"),
    ] {
        let plugin = Faulty::new(fault);
        // In process nothing can be done about it.
        plugin.train().dies_of(signal);
        plugin.check("donation::state").fails_with(&[name]);
    }
}

#[test]
fn check_ends_a_launch_that_hangs() {
    Faulty::new("execute:sleep")
        .check("donation::state")
        .fails_with(&["hangs: not done after 12 s"]);
}
