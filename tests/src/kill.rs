//! Kills and stops training runs at random moments, resumes them, and compares the results bit for
//! bit with those of an undisturbed run.
//!
//! On the command line: `cargo run -p halite-tests --bin kill -- --runs 1000 --seed 1`.

mod configurations;
mod faults;
mod images;
#[cfg(target_os = "linux")]
mod jobs;
mod summary;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    parallel,
    process::{self, Running},
    random::Random,
    runs::Outcome,
};
pub use configurations::{CONFIGURATIONS, Configuration, JOBS, TRAININGS};
use faults::{Disturbance, Record, Wrong};
use summary::Done;
pub use summary::Summary;

/// Options of the harness.
#[derive(Debug)]
pub struct Options {
    /// The `halite` command. The program [`TRAININGS`] is beside it; without it, its
    /// configurations are left out, unless `only` names them.
    pub halite: PathBuf,
    /// Number of runs, each with one to three faults.
    pub runs: u64,
    /// Seed of the faults, which are a function of the seed and the run's number.
    pub seed: u64,
    /// Longest time that a process may take.
    pub deadline: Duration,
    /// Number of parallel runs.
    pub jobs: usize,
    /// Whether to run [jobs](JOBS) of several processes, and not processes alone.
    pub processes: bool,
    /// Names of the configurations to run; all if empty.
    pub only: Vec<String>,
    /// Whether to keep the directories of runs that failed.
    pub keep: bool,
}

/// Runs the harness.
///
/// # Errors
/// If there is no plugin or no temporary directory, or if an undisturbed run fails or leaves no
/// weights.
pub fn run(options: &Options) -> Result<Summary, String> {
    let harness = Harness::new(options)?;
    let mut summary = Summary::new(options.seed);
    for done in parallel::map(options.jobs, 0..options.runs, |index| harness.one(index)) {
        done.add_to(&mut summary);
    }
    Ok(summary)
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

impl<'a> Harness<'a> {
    fn new(options: &'a Options) -> Result<Self, String> {
        let directory =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let cache = directory.path().join("cache");
        process::fill_cache(&cache)?;
        if options.processes {
            process::add_mpi(&cache)?;
        }
        let words = [
            "the", "cat", "dog", "runs", "over", "a", "hill", "blue", "moon", "sings",
        ];
        let mut random = Random::new(1, 1);
        let text: Vec<&str> = (0..2000).map(|_| *random.pick(&words)).collect();
        fs::write(directory.path().join("text.txt"), text.join(" "))
            .map_err(|error| format!("text.txt: {error}"))?;
        images::write(&directory.path().join("images"))
            .map_err(|error| format!("images: {error}"))?;
        let has_trainings = options.halite.with_file_name(TRAININGS).is_file();
        let selected = |configuration: &&Configuration| match &options.only[..] {
            [] => has_trainings || !configuration.arguments.starts_with(TRAININGS),
            only => only.iter().any(|name| name == configuration.name),
        };
        let mut harness = Harness {
            options,
            directory,
            expected: Vec::new(),
        };
        let all = match options.processes {
            true => &JOBS[..],
            false => &CONFIGURATIONS,
        };
        let configurations: Vec<_> = all.iter().filter(selected).collect();
        // As parallel as the disturbed runs, whose faults are timed by the durations of these.
        let expected = parallel::map(options.jobs, 0..configurations.len() as u64, |index| {
            harness.undisturbed(*configurations[index as usize])
        });
        harness.expected = expected.into_iter().collect::<Result<_, _>>()?;
        if harness.expected.is_empty() {
            let names: Vec<_> = all.iter().map(|one| one.name).collect();
            let names = names.join(", ");
            let only = options.only.join(", ");
            return Err(format!(
                "unknown configuration {only}; expected one of {names}"
            ));
        }
        Ok(harness)
    }

    /// The command of the training; of a job that of its launcher, which starts it again so often
    /// after a failure.
    fn command(&self, configuration: Configuration, out: &Path, restarts: u32) -> Command {
        let text = self.directory.path().join("text.txt");
        let (program, arguments) = match configuration.arguments.strip_prefix(TRAININGS) {
            Some(arguments) => (self.options.halite.with_file_name(TRAININGS), arguments),
            None => (self.options.halite.clone(), configuration.arguments),
        };
        let mut command = process::command(&program, "");
        if configuration.processes > 1 {
            let (count, restarts) = (configuration.processes, restarts.to_string());
            command.args(["launch", "-n", &count.to_string(), "--threads", "1"]);
            command.args(["--grace", "2", "--restarts", &restarts, "--log-dir"]);
            command
                .arg(out.with_extension("logs"))
                .arg("--")
                .arg(&program);
        }
        for argument in arguments.split_whitespace() {
            match argument {
                "{text}" => command.arg(&text),
                "{images}" => command.arg(self.directory.path().join("images")),
                _ => command.arg(argument),
            };
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
            let started = Running::start(&mut self.command(configuration, &out, 0));
            let ended = started.map_err(|error| format!("{}: {error}", configuration.name))?;
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

    /// Disturbs one training, and resumes it until it is complete.
    fn disturbed(
        &self,
        configuration: Configuration,
        out: &Path,
        took: Duration,
        outcome: &Outcome,
        random: Random,
    ) -> (Result<(), Wrong>, Record) {
        let start = |resumes: bool, restarts| {
            let mut command = self.command(configuration, out, restarts);
            Running::start(command.args(resumes.then_some("--resume")))
        };
        let (deadline, record) = (self.options.deadline, Record::default());
        #[cfg(target_os = "linux")]
        if configuration.processes > 1 {
            let mut job = jobs::DisturbedJob {
                start: &start,
                out,
                processes: configuration.processes,
                took,
                deadline,
                random,
                record,
            };
            return (job.run(), job.record);
        }
        let mut disturbance = Disturbance {
            start: &|resumes| start(resumes, 0),
            out,
            took,
            last_step: outcome.weights.as_ref().map_or(0, |(step, _)| *step),
            deadline,
            random,
            record,
        };
        (disturbance.run(), disturbance.record)
    }

    /// Runs one training, with faults drawn by its number.
    fn one(&self, index: u64) -> Done {
        let random = Random::new(self.options.seed, index);
        let Expected {
            configuration,
            outcome,
            took,
        } = &self.expected[index as usize % self.expected.len()];
        let configuration = *configuration;
        let out = self.directory.path().join(format!("run-{index}"));
        let disturbed = |took| {
            let _ = fs::remove_dir_all(&out);
            self.disturbed(configuration, &out, took, outcome, random.clone())
        };
        let (mut result, mut record) = disturbed(*took);
        // Where a run is faster than the undisturbed one, it ends before its fault.
        for half in 1..=5 {
            if result.is_err() || !record.faults.is_empty() {
                break;
            }
            (result, record) = disturbed(*took / (1 << half));
        }
        let mut wrong = std::mem::take(&mut record.not_saved);
        match result {
            Err(error) => wrong.push(error),
            Ok(()) => {
                let differences = Outcome::read(&out).differences(outcome);
                wrong.extend(differences.into_iter().map(|difference| Wrong {
                    what: difference.what,
                    how: difference.how,
                }));
            }
        }
        let described = |Wrong { what, how }| {
            let name = configuration.name;
            let (seed, history) = (self.options.seed, record.history.join(", "));
            let how = format!("{name} run {index}, seed {seed}: {what}: {how}; {history}");
            (what, how)
        };
        let done = Done {
            configuration: configuration.name,
            wrong: wrong.into_iter().map(described).collect(),
            record,
        };
        // The rest may take hours.
        done.wrong.iter().for_each(|(_, how)| eprintln!("{how}"));
        let _ = fs::remove_dir_all(out.with_extension("logs"));
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
}

fn move_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).or_else(|_| process::link_tree(from, to))
}
