//! Damages files of runs and of the cache, and judges what the command does then: an error, a
//! recovery, or the same bits as without the damage are right; another result, a panic, a hang, or
//! a loss of undamaged data are wrong.
//!
//! On the command line: `cargo run -p halite-tests --bin corrupt -- --cases 5000 --seed 1`.

mod damage;
mod judge;

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use judge::{Contents, judge};
use serde::Serialize;

use crate::{
    parallel,
    process::{self, Ended, Running},
    random::Random,
    runs::{self, Outcome},
};

/// Options of the harness.
#[derive(Debug)]
pub struct Options {
    /// The `halite` command.
    pub halite: PathBuf,
    /// Number of cases.
    pub cases: u64,
    /// Number of the first case, to repeat a single one.
    pub first: u64,
    /// Seed; each case is a function of the seed and its number.
    pub seed: u64,
    /// Longest time that a process may take.
    pub deadline: Duration,
    /// Number of parallel cases.
    pub jobs: usize,
    /// Whether to print each case.
    pub verbose: bool,
}

/// The damaged directory, and the command to run on it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
enum Place {
    /// A stopped run, to be resumed.
    Stopped,
    /// A finished run, to be resumed.
    Finished,
    /// A finished run; another one starts in its directory, without `--resume`.
    Overwritten,
    /// Plugins, compiled programs and locks in the cache; trains on a text.
    Cache,
    /// Images in the cache.
    Images,
    /// Compiled programs and digests of a plugin given by its path.
    Digests,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Stopped => "stopped run",
            Place::Finished => "finished run",
            Place::Overwritten => "run overwritten",
            Place::Cache => "cache",
            Place::Images => "images",
            Place::Digests => "digests",
        }
    }
}

/// Right reactions of the command.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
enum Right {
    SameBits,
    Recovered,
    Error,
}

/// Results of all cases.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    seed: u64,
    counts: BTreeMap<Place, (BTreeMap<Right, u64>, u64)>,
    /// Failures, each with the seed and number that reproduce it.
    pub failures: Vec<String>,
}

impl Summary {
    /// Number of cases with each right reaction: same bits, recovery with a warning, error.
    pub fn outcomes(&self) -> [u64; 3] {
        [Right::SameBits, Right::Recovered, Right::Error].map(|right| {
            self.counts
                .values()
                .filter_map(|(counts, _)| counts.get(&right))
                .sum()
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>9} {:>9} {:>9} {:>9}",
            "damaged", "same bits", "recovered", "error", "wrong"
        )?;
        for (place, (counts, wrong)) in &self.counts {
            let count = |right| counts.get(&right).copied().unwrap_or(0);
            let [same, recovered, error] =
                [Right::SameBits, Right::Recovered, Right::Error].map(count);
            writeln!(
                f,
                "{:<16} {same:>9} {recovered:>9} {error:>9} {wrong:>9}",
                place.name()
            )?;
        }
        let [same, recovered, error] = self.outcomes();
        let wrong = self.failures.len() as u64;
        write!(
            f,
            "seed {}: {} cases, {wrong} wrong",
            self.seed,
            same + recovered + error + wrong
        )
    }
}

/// Runs the harness.
///
/// # Errors
/// If there is no plugin or no temporary directory, or if an undamaged run fails or leaves no
/// weights.
pub fn run(options: &Options) -> Result<Summary, String> {
    let harness = Harness::new(options)?;
    let mut summary = Summary {
        seed: options.seed,
        ..Summary::default()
    };
    let numbers = options.first..options.first + options.cases;
    let cases = parallel::map(options.jobs, numbers.clone(), |index| {
        let case = harness.case(index);
        if options.verbose {
            let (place, story, judged) = &case;
            println!("{index} {}: {story}: {judged:?}", place.name());
        }
        case
    });
    for (index, (place, story, judged)) in numbers.zip(cases) {
        let (counts, wrong) = summary.counts.entry(place).or_default();
        match judged {
            Ok(right) => *counts.entry(right).or_default() += 1,
            Err(how) => {
                *wrong += 1;
                let (seed, name) = (options.seed, place.name());
                let failure = format!("case {index}, seed {seed}, {name}: {story}: {how}");
                summary.failures.push(failure);
            }
        }
    }
    Ok(summary)
}

const TEXT: &str = "train text --model tiny --context 16 --steps 30 --batch-size 4 --epochs 2 \
                    --checkpoint-every 5 --sample 20";
const DIGITS: &str = "train mnist --model mlp --limit 64 --batch-size 32 --epochs 1";

struct Harness<'a> {
    options: &'a Options,
    directory: tempfile::TempDir,
    /// Expected outcomes of the undamaged runs.
    text: Outcome,
    digits: Outcome,
}

impl<'a> Harness<'a> {
    fn new(options: &'a Options) -> Result<Self, String> {
        let directory =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let base = directory.path().to_path_buf();
        process::fill_cache(&base.join("cache"))?;
        let text = "the cat runs over a hill and the dog sings to the blue moon ".repeat(60);
        fs::write(base.join("text.txt"), text).map_err(|error| format!("text.txt: {error}"))?;
        let empty = || Outcome::read(Path::new("/nonexistent"));
        let mut harness = Harness {
            options,
            directory,
            text: empty(),
            digits: empty(),
        };

        let cache = base.join("cache");
        let undamaged = [
            ("finished", Place::Finished),
            ("digits", Place::Images),
            ("by-path", Place::Digests),
        ];
        let run = |index| {
            let (name, place): (&str, Place) = undamaged[index as usize];
            let ended = harness.ended(&mut harness.command(place, &cache, &base.join(name)))?;
            match ended.succeeded() {
                true => Ok(()),
                false => Err(format!("{name}, undamaged: {}", ended.summary())),
            }
        };
        parallel::map(options.jobs, 0..undamaged.len() as u64, run)
            .into_iter()
            .collect::<Result<(), String>>()?;
        harness.text = Outcome::read(&base.join("finished"));
        harness.digits = Outcome::read(&base.join("digits"));
        // Else a comparison with it would find nothing.
        for (name, outcome) in [("finished", &harness.text), ("digits", &harness.digits)] {
            if outcome.weights.is_none() {
                return Err(format!("{name}, undamaged: no weights"));
            }
        }
        if Outcome::read(&base.join("by-path")).weights != harness.text.weights {
            return Err("a plugin named by its path gives other weights".to_owned());
        }
        harness.stop(&cache, &base.join("stopped"))?;
        // Installers create these locks; here they exist only to be damaged.
        let locks = cache.join(".locks");
        let packages: Vec<String> = runs::files(&cache)
            .into_iter()
            .filter(|name| !name.contains('/') && name.contains("p"))
            .collect();
        let planted = fs::create_dir_all(&locks).and_then(|()| {
            packages
                .iter()
                .filter(|name| *name != "programs")
                .try_for_each(|name| fs::write(locks.join(name), ""))
        });
        planted.map_err(|error| format!("{}: {error}", locks.display()))?;
        // Cases copy this one: runs of other cases write to `cache` meanwhile.
        let whole = base.join("cache-unused");
        process::link_tree(&cache, &whole)
            .map_err(|error| format!("{}: {error}", whole.display()))?;
        Ok(harness)
    }

    /// Leaves a run that was stopped between two checkpoints.
    fn stop(&self, cache: &Path, out: &Path) -> Result<(), String> {
        for _ in 0..20 {
            let _ = fs::remove_dir_all(out);
            let mut running = Running::start(&mut self.command(Place::Stopped, cache, out))
                .map_err(|error| error.to_string())?;
            if running.wait_until(self.options.deadline, || runs::newest_step(out) >= 30) {
                // Frozen first, so that the signal is handled as soon as the step is done.
                running.signal("STOP");
                running.signal("TERM");
                running.signal("CONT");
            }
            let ended = running.end(self.options.deadline);
            if ended.code() == Some(143)
                && runs::newest_step(out) < 55
                && runs::checkpoints(out).len() >= 2
            {
                return Ok(());
            }
        }
        Err("no run was stopped in its middle in 20 attempts".to_owned())
    }

    fn command(&self, place: Place, cache: &Path, out: &Path) -> Command {
        let base = self.directory.path();
        let mut command = match place {
            Place::Images => process::command(&self.options.halite, DIGITS),
            _ => {
                let mut command = process::command(&self.options.halite, TEXT);
                command.arg("--data").arg(base.join("text.txt"));
                command
            }
        };
        if place == Place::Digests {
            let found = runs::files(&base.join("cache"))
                .into_iter()
                .find(|name| name.ends_with(".so"));
            let plugin = base
                .join("cache")
                .join(found.expect("the cache has the plugin"));
            command.args(["--devices", "1", "--accelerator"]);
            command.arg(format!("plugin:{}", plugin.display()));
        } else {
            // `auto` runs on the embedded executor, with a warning, if the plugin is gone.
            command.args(["--accelerator", "cpu"]);
        }
        command
            .args(["--quiet", "--out"])
            .arg(out)
            .env("HALITE_CACHE_DIR", cache);
        // No package can be installed again, so damage is an error or is repaired from local data.
        command.env("PATH", "/nonexistent");
        command
    }

    fn ended(&self, command: &mut Command) -> Result<Ended, String> {
        let running = Running::start(command)
            .map_err(|error| format!("{}: {error}", self.options.halite.display()))?;
        Ok(running.end(self.options.deadline))
    }

    fn case(&self, index: u64) -> (Place, String, Result<Right, String>) {
        let mut random = Random::new(self.options.seed, index);
        let place = match random.below(100) {
            0..45 => Place::Stopped,
            45..58 => Place::Finished,
            58..66 => Place::Overwritten,
            66..86 => Place::Cache,
            86..94 => Place::Images,
            _ => Place::Digests,
        };
        let directory = self.directory.path().join(format!("case-{index}"));
        let (mut story, judged) = match self.judged(place, &directory, &mut random) {
            Ok(done) => done,
            Err(error) => ("not run".to_owned(), Err(error)),
        };
        if story.is_empty() {
            story.push_str("nothing");
        }
        // On an error it is removed with the directory of the harness.
        let _ = fs::remove_dir_all(&directory);
        (place, story, judged)
    }

    fn judged(
        &self,
        place: Place,
        directory: &Path,
        random: &mut Random,
    ) -> Result<(String, Result<Right, String>), String> {
        let base = self.directory.path();
        let (out, own_cache) = (directory.join("run"), directory.join("cache"));
        let io = |error: std::io::Error| format!("{}: {error}", directory.display());
        let in_cache = matches!(place, Place::Cache | Place::Images | Place::Digests);
        let (root, from) = match place {
            Place::Stopped => (&out, base.join("stopped")),
            Place::Finished | Place::Overwritten => (&out, base.join("finished")),
            Place::Cache | Place::Images | Place::Digests => {
                (&own_cache, base.join("cache-unused"))
            }
        };
        process::link_tree(&from, root).map_err(io)?;
        let in_place = |name: &str| match place {
            Place::Images => name.starts_with("npm-"),
            Place::Digests => name.starts_with("programs"),
            Place::Cache => !name.starts_with("npm-"),
            _ => true,
        };
        let targets: Vec<String> = runs::files(root)
            .into_iter()
            .filter(|name| in_place(name))
            .collect();
        let mut damaged = Vec::new();
        for _ in 0..if random.percent(25) { 2 } else { 1 } {
            damaged.extend(damage::draw(root, &targets, random).map_err(io)?);
        }
        let story = damaged
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", then ");

        let before = Contents::of(&out, &damaged);
        let cache = if in_cache {
            &own_cache
        } else {
            &base.join("cache")
        };
        let mut command = self.command(place, cache, &out);
        if matches!(place, Place::Stopped | Place::Finished) {
            command.arg("--resume");
        }
        let ended = self.ended(&mut command)?;
        let expected = if place == Place::Images {
            &self.digits
        } else {
            &self.text
        };
        Ok((story, judge(place, &ended, &out, &before, expected)))
    }
}
