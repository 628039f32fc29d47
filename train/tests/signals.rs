//! Real signals to a real process.
#![cfg(unix)]

use std::{
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use halite_train::signals::{Interrupts, StopFlag, StopReason};

const SCRIPT: &str = "HALITE_TEST_SIGNALS";

/// Not a test: the process that gets the signals. It prints a line at each point where the tests
/// send one.
#[test]
#[ignore = "the other tests start it as a process"]
fn helper_that_gets_signals() {
    let Ok(script) = std::env::var(SCRIPT) else {
        return;
    };
    let ready = |what: &str| println!("\n{what}");
    let wait = |flag: &StopFlag| {
        while !flag.is_set() {
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("\nstopped by {:?}", flag.reason().unwrap());
    };
    match &*script {
        "stop" => {
            let interrupts = Interrupts::install().unwrap();
            ready("installed");
            wait(&interrupts.flag());
            std::thread::sleep(Duration::from_secs(60));
        }
        "drop" => {
            let first = Interrupts::install().unwrap();
            let second = Interrupts::install().unwrap();
            drop(first);
            ready("one dropped");
            wait(&second.flag());
            drop(second);
            let again = Interrupts::install().unwrap();
            ready("installed again");
            wait(&again.flag());
            drop(again);
            ready("all dropped");
            std::thread::sleep(Duration::from_secs(60));
        }
        other => panic!("no script {other}"),
    }
}

/// Returns a command that runs `program` with the default actions of signals. A child inherits
/// signals that its parent ignores, as a background job of a shell ignores SIGINT. Where `env` cannot
/// reset them, the tests need a parent that ignores none.
fn with_default_signals(program: &Path) -> Command {
    let env = || {
        let mut env = Command::new("/usr/bin/env");
        env.arg("--default-signal=INT,HUP,TERM");
        env
    };
    let probe = env().arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return Command::new(program);
    }
    let mut command = env();
    command.arg(program);
    command
}

struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(script: &str) -> Self {
        let mut command = with_default_signals(&std::env::current_exe().unwrap());
        command
            .args([
                "--ignored",
                "--exact",
                "signals::helper_that_gets_signals",
                "--nocapture",
            ])
            .env(SCRIPT, script);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Process { child, lines }
    }

    fn expect(&mut self, want: &str) {
        let mut line = String::new();
        while line.trim() != want {
            line.clear();
            assert_ne!(
                self.lines.read_line(&mut line).unwrap(),
                0,
                "it ended before `{want}`"
            );
        }
    }

    fn signal(&self, signal: &str) {
        // The shell's own `kill`: not every machine has a program of this name.
        let sent = Command::new("sh")
            .args(["-c", &format!("kill {signal} {}", self.child.id())])
            .status()
            .unwrap();
        assert!(sent.success(), "kill {signal}: {sent}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn second_interrupt_ends_the_process() {
    let mut process = Process::start("stop");
    process.expect("installed");
    process.signal("-INT");
    process.expect("stopped by Interrupt");
    process.signal("-INT");
    assert_eq!(process.child.wait().unwrap().code(), Some(130));
}

#[test]
fn interrupt_after_sigterm_does_not_end_the_process() {
    let mut process = Process::start("stop");
    process.expect("installed");
    process.signal("-TERM");
    process.expect("stopped by Terminate");
    process.signal("-TERM");
    process.signal("-INT");
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        process.child.try_wait().unwrap().is_none(),
        "it continues saving"
    );
    process.signal("-INT");
    assert_eq!(process.child.wait().unwrap().code(), Some(130));
}

#[test]
fn default_action_returns_after_the_last_watcher() {
    let mut process = Process::start("drop");
    process.expect("one dropped");
    process.signal("-INT");
    process.expect("stopped by Interrupt");
    process.expect("installed again");
    process.signal("-INT");
    process.expect("stopped by Interrupt");
    process.expect("all dropped");
    process.signal("-INT");
    assert_eq!(process.child.wait().unwrap().signal(), Some(2));
}

#[test]
fn signals_set_the_flag_of_the_caller() {
    let flag = StopFlag::new();
    let interrupts = Interrupts::watch(flag.clone()).unwrap();
    assert_eq!(interrupts.reason(), None);
    flag.stop();
    assert_eq!(interrupts.reason(), Some(StopReason::Asked));
}
