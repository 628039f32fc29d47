//! Kills and stops training runs at random moments, resumes them, and compares the results bit for
//! bit with those of an undisturbed run.
//!
//! On the command line: `cargo run -p halite-tests --bin kill -- --runs 1000 --seed 1`.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    process::{self, Running},
    random::Random,
    runs::{Outcome, newest_step},
};

/// A training command.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// Its name in the table.
    pub name: &'static str,
    /// Arguments of `halite`; `{text}` is replaced by the path of a text file.
    arguments: &'static str,
}

/// The trainings to kill: short ones, with many checkpoints.
pub const CONFIGURATIONS: [Configuration; 5] = [
    Configuration {
        name: "mlp",
        arguments: "train mnist --model mlp --limit 640 --batch-size 32 --epochs 2 \
                    --checkpoint-every 5",
    },
    Configuration {
        name: "cnn",
        arguments: "train mnist --model cnn --limit 96 --batch-size 16 --epochs 2 \
                    --checkpoint-every 2",
    },
    Configuration {
        name: "text",
        arguments: "train text --model tiny --data {text} --context 16 --steps 30 --batch-size 4 --epochs 2 \
                    --checkpoint-every 5 --sample 20",
    },
    Configuration {
        name: "eight devices",
        arguments: "train mnist --model mlp --accelerator cpu:8 --limit 320 --batch-size 32 --epochs 2 \
                    --checkpoint-every 5",
    },
    Configuration {
        name: "bf16-mixed",
        arguments: "train mnist --model mlp --precision bf16-mixed --limit 320 --batch-size 32 --epochs 2 \
                    --checkpoint-every 5",
    },
];

/// A signal that a process gets.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Fault {
    Kill,
    Terminate,
    HangUp,
    /// Stopped for a while, then continued, like a laptop that sleeps.
    Stop,
}

impl Fault {
    const ALL: [Fault; 4] = [Fault::Kill, Fault::Terminate, Fault::HangUp, Fault::Stop];

    fn name(self) -> &'static str {
        match self {
            Fault::Kill => "KILL",
            Fault::Terminate => "TERM",
            Fault::HangUp => "HUP",
            Fault::Stop => "STOP",
        }
    }

    fn number(self) -> u32 {
        match self {
            Fault::HangUp => 1,
            Fault::Kill => 9,
            Fault::Terminate => 15,
            Fault::Stop => 19,
        }
    }
}

/// Options of the harness.
#[derive(Debug)]
pub struct Options {
    /// The `halite` command.
    pub halite: PathBuf,
    /// Number of runs, each with one to three faults.
    pub runs: u64,
    /// Seed of the faults, which are a function of the seed and the run's number.
    pub seed: u64,
    /// Longest time that a process may take.
    pub deadline: Duration,
    /// Number of parallel runs.
    pub jobs: usize,
    /// Names of the configurations to run; all if empty.
    pub only: Vec<String>,
    /// Whether to keep the directories of runs that failed.
    pub keep: bool,
}

/// Results of all runs.
#[derive(Debug, Default)]
pub struct Summary {
    seed: u64,
    configurations: BTreeMap<&'static str, Counts>,
    /// Failures, each with the seed and number that reproduce it.
    pub failures: Vec<String>,
}

#[derive(Debug, Default)]
struct Counts {
    runs: u64,
    faults: BTreeMap<Fault, u64>,
    in_resume: u64,
    wrong: BTreeMap<&'static str, u64>,
}

impl Summary {
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

/// Runs the harness.
///
/// # Errors
/// If there is no plugin or no temporary directory, or if an undisturbed run fails or leaves no
/// weights.
pub fn run(options: &Options) -> Result<Summary, String> {
    let harness = Harness::new(options)?;
    let summary = Mutex::new(Summary {
        seed: options.seed,
        ..Summary::default()
    });
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    if index >= options.runs {
                        break;
                    }
                    let done = harness.one(index);
                    done.add_to(&mut summary.lock().unwrap_or_else(PoisonError::into_inner));
                }
            });
        }
    });
    Ok(summary.into_inner().unwrap_or_else(PoisonError::into_inner))
}

struct Harness<'a> {
    options: &'a Options,
    directory: tempfile::TempDir,
    expected: Vec<Expected>,
}

/// Result of an undisturbed run.
struct Expected {
    configuration: Configuration,
    outcome: Outcome,
    /// Duration of the run.
    took: Duration,
}

/// Result of one disturbed run.
struct Done {
    configuration: &'static str,
    faults: Vec<Fault>,
    in_resume: u64,
    wrong: Vec<(&'static str, String)>,
}

impl Done {
    fn add_to(self, summary: &mut Summary) {
        let counts = summary
            .configurations
            .entry(self.configuration)
            .or_default();
        counts.runs += 1;
        counts.in_resume += self.in_resume;
        for fault in self.faults {
            *counts.faults.entry(fault).or_default() += 1;
        }
        for (what, how) in self.wrong {
            *counts.wrong.entry(what).or_default() += 1;
            summary.failures.push(how);
        }
    }
}

impl<'a> Harness<'a> {
    fn new(options: &'a Options) -> Result<Self, String> {
        let directory =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        process::fill_cache(&directory.path().join("cache"))?;
        let words = [
            "the", "cat", "dog", "runs", "over", "a", "hill", "blue", "moon", "sings",
        ];
        let mut random = Random::new(1, 1);
        let text: Vec<&str> = (0..2000).map(|_| *random.pick(&words)).collect();
        fs::write(directory.path().join("text.txt"), text.join(" "))
            .map_err(|error| format!("text.txt: {error}"))?;
        let wanted = |configuration: &&Configuration| {
            options.only.is_empty() || options.only.iter().any(|name| name == configuration.name)
        };
        let mut harness = Harness {
            options,
            directory,
            expected: Vec::new(),
        };
        for configuration in CONFIGURATIONS.iter().filter(wanted) {
            let expected = harness.undisturbed(*configuration)?;
            harness.expected.push(expected);
        }
        if harness.expected.is_empty() {
            let names = CONFIGURATIONS
                .map(|configuration| configuration.name)
                .join(", ");
            let only = options.only.join(", ");
            return Err(format!(
                "unknown configuration {only}; expected one of {names}"
            ));
        }
        Ok(harness)
    }

    fn command(&self, configuration: Configuration, out: &Path) -> Command {
        let text = self.directory.path().join("text.txt");
        let mut command = process::command(&self.options.halite, "");
        for argument in configuration.arguments.split_whitespace() {
            if argument == "{text}" {
                command.arg(&text);
            } else {
                command.arg(argument);
            }
        }
        command
            .args(["--quiet", "--out"])
            .arg(out)
            .env("HALITE_CACHE_DIR", self.directory.path().join("cache"));
        command
    }

    /// Runs it twice: the duration must be that of a run that compiles nothing.
    fn undisturbed(&self, configuration: Configuration) -> Result<Expected, String> {
        let mut outcomes = Vec::new();
        let mut took = Duration::ZERO;
        for name in ["first", "second"] {
            let out = self
                .directory
                .path()
                .join(format!("{}-{name}", configuration.name.replace(' ', "-")));
            let began = Instant::now();
            let started = Running::start(&mut self.command(configuration, &out));
            let ended =
                started.map_err(|error| format!("{}: {error}", self.options.halite.display()))?;
            let ended = ended.end(self.options.deadline);
            if !ended.succeeded() {
                return Err(format!(
                    "{}, undisturbed: {}",
                    configuration.name,
                    ended.summary()
                ));
            }
            took = began.elapsed();
            let outcome = Outcome::read(&out);
            // Else a comparison with it would find nothing.
            if outcome.weights.is_none() {
                return Err(format!(
                    "{}, undisturbed: no weights in {}",
                    configuration.name,
                    out.display()
                ));
            }
            outcomes.push(outcome);
        }
        let outcome = outcomes.pop().expect("there were two runs");
        let differences = outcomes[0].differences(&outcome);
        match differences.is_empty() {
            true => Ok(Expected {
                configuration,
                outcome,
                took,
            }),
            false => Err(format!(
                "{}: two undisturbed runs differ: {differences:?}",
                configuration.name
            )),
        }
    }

    /// Runs one training, with faults drawn by its number.
    fn one(&self, index: u64) -> Done {
        let mut random = Random::new(self.options.seed, index);
        let Expected {
            configuration,
            outcome,
            took,
        } = &self.expected[index as usize % self.expected.len()];
        let (configuration, took) = (*configuration, *took);
        let out = self.directory.path().join(format!("run-{index}"));
        let mut done = Done {
            configuration: configuration.name,
            faults: Vec::new(),
            in_resume: 0,
            wrong: Vec::new(),
        };
        let mut history = Vec::new();
        let last_step = outcome.weights.as_ref().map_or(0, |(step, _)| *step);
        let mut log = Log {
            done: &mut done,
            history: &mut history,
            not_saved: Vec::new(),
        };
        let result = self.disturbed(configuration, took, last_step, &out, &mut random, &mut log);
        let not_saved = log.not_saved;
        let mut wrong = |what, how: String| {
            let how = format!(
                "{} run {index}, seed {}: {what}: {how}; {}",
                configuration.name,
                self.options.seed,
                history.join(", ")
            );
            done.wrong.push((what, how));
        };
        for Wrong { what, how } in not_saved {
            wrong(what, how);
        }
        match result {
            Err(Wrong { what, how }) => wrong(what, how),
            Ok(()) => {
                for difference in Outcome::read(&out).differences(outcome) {
                    wrong(difference.what, difference.how);
                }
            }
        }
        if done.wrong.is_empty() || !self.options.keep {
            // On an error it is removed with the directory of the harness.
            let _ = fs::remove_dir_all(&out);
        } else if let Ok(kept) = tempfile::Builder::new().prefix("halite-kill-").tempdir() {
            let kept = kept.keep();
            if move_directory(&out, &kept.join("run")).is_ok() {
                eprintln!("kept: {}", kept.join("run").display());
            }
        }
        done
    }

    fn disturbed(
        &self,
        configuration: Configuration,
        took: Duration,
        last_step: u64,
        out: &Path,
        random: &mut Random,
        log: &mut Log<'_>,
    ) -> Result<(), Wrong> {
        let resumed = |resumes: bool| {
            let mut command = self.command(configuration, out);
            command.args(resumes.then_some("--resume"));
            Running::start(&mut command).map_err(|error| Wrong {
                what: "not started",
                how: error.to_string(),
            })
        };
        let mut left = 1 + random.below(3);
        let mut resumes = false;
        while left > 0 {
            let mut running = resumed(resumes)?;
            // A process that was only stopped continues, and may get the next fault too.
            loop {
                let fault = *random.pick(&[
                    Fault::Kill,
                    Fault::Kill,
                    Fault::Kill,
                    Fault::Terminate,
                    Fault::HangUp,
                    Fault::Stop,
                ]);
                let moment = self.wait_for_moment(&mut running, took, out, random);
                if running.has_ended() {
                    left = 0;
                    check_end(&running.end(self.options.deadline), None)?;
                    break;
                }
                left -= 1;
                let step = newest_step(out);
                log.history.push(format!(
                    "{} {moment} (checkpoint of step {step}{})",
                    fault.name(),
                    if resumes { ", resumed" } else { "" }
                ));
                log.done.faults.push(fault);
                log.done.in_resume += u64::from(resumes);
                // A handler may be installed just after the signal, so only an earlier one counts.
                let handled = running.handles(Fault::Terminate.number());
                running.signal(fault.name());
                if fault == Fault::Stop {
                    thread::sleep(Duration::from_millis(20 + random.below(300) as u64));
                    running.signal("CONT");
                    if left > 0 {
                        continue;
                    }
                    check_end(&running.end(self.options.deadline), None)?;
                    break;
                }
                let ended = running.end(self.options.deadline);
                check_end(&ended, Some(fault))?;
                let by_signal = ended.signal().is_some() && fault != Fault::Kill;
                // After its last step there is nothing left to save.
                if by_signal && handled && newest_step(out) < last_step {
                    log.not_saved.push(Wrong {
                        what: "not saved",
                        how: ended.summary(),
                    });
                }
                break;
            }
            resumes = true;
        }
        check_end(&resumed(true)?.end(self.options.deadline), None)
    }

    /// Waits for a random moment, or until a checkpoint is being written; describes the moment.
    fn wait_for_moment(
        &self,
        running: &mut Running,
        took: Duration,
        out: &Path,
        random: &mut Random,
    ) -> String {
        let store = out.join("checkpoints");
        let half_written = || {
            let entries = fs::read_dir(&store).into_iter().flatten().flatten();
            entries.into_iter().any(|entry| {
                entry.file_name().to_string_lossy().starts_with('.') && entry.path().is_dir()
            })
        };
        if random.percent(35) {
            running.wait_until(took * 2, half_written);
            thread::sleep(Duration::from_micros(random.below(3000) as u64));
            return "while a checkpoint is written".to_owned();
        }
        let delay = took.mul_f64(random.below(1050) as f64 / 1000.0);
        running.wait_until(delay, || false);
        format!("after {} ms", delay.as_millis())
    }
}

/// Record of a disturbed run.
struct Log<'a> {
    done: &'a mut Done,
    history: &'a mut Vec<String>,
    /// Faults that ended a process without a save although its handler was installed.
    not_saved: Vec<Wrong>,
}

struct Wrong {
    what: &'static str,
    how: String,
}

/// Checks that a process ended as it must after this signal; without one it must succeed.
fn check_end(ended: &process::Ended, fault: Option<Fault>) -> Result<(), Wrong> {
    let wrong = |what| {
        Err(Wrong {
            what,
            how: ended.summary(),
        })
    };
    if ended.timed_out {
        return wrong("hung");
    }
    if ended.panicked() {
        return wrong("panicked");
    }
    if ended.stderr.contains("cannot be used") {
        return wrong("damaged checkpoint");
    }
    let number = fault.map(Fault::number);
    let by_signal = ended.signal().map(i32::unsigned_abs);
    match fault {
        _ if ended.succeeded() => Ok(()),
        None => wrong("refused"),
        Some(Fault::Kill) if by_signal == number => Ok(()),
        // Saved and ended, with the exit code that a shell expects.
        Some(Fault::Terminate | Fault::HangUp)
            if ended.code() == number.map(|number| 128 + number as i32) =>
        {
            Ok(())
        }
        // Right as long as there is nothing to save.
        Some(Fault::Terminate | Fault::HangUp) if by_signal == number => Ok(()),
        _ => wrong("other exit status"),
    }
}

fn move_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).or_else(|_| process::link_tree(from, to))
}
