//! Damages files of runs and of the cache, and judges what the command does then: an error, a
//! recovery, or the same bits as without the damage are right; another result, a panic, a hang, or
//! a loss of undamaged data are wrong.
//!
//! On the command line: `cargo run -p halite-tests --bin corrupt -- --cases 5000 --seed 1`.

mod damage;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use crate::{
    process::{self, Ended, Running},
    random::Random,
    runs::{self, Outcome},
};
use damage::Damaged;

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
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
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
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Right {
    SameBits,
    Recovered,
    Error,
}

/// Results of all cases.
#[derive(Debug, Default)]
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
    let summary = Mutex::new(Summary {
        seed: options.seed,
        ..Summary::default()
    });
    let next = AtomicU64::new(options.first);
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    if index >= options.first + options.cases {
                        break;
                    }
                    let (place, story, judged) = harness.case(index);
                    let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
                    if options.verbose {
                        println!("{index} {}: {story}: {judged:?}", place.name());
                    }
                    let (counts, wrong) = summary.counts.entry(place).or_default();
                    match judged {
                        Ok(right) => *counts.entry(right).or_default() += 1,
                        Err(how) => {
                            *wrong += 1;
                            let what = format!(
                                "case {index}, seed {}, {}: {story}: {how}",
                                options.seed,
                                place.name()
                            );
                            summary.failures.push(what);
                        }
                    }
                }
            });
        }
    });
    Ok(summary.into_inner().unwrap_or_else(PoisonError::into_inner))
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
        for (name, place) in [
            ("finished", Place::Finished),
            ("digits", Place::Images),
            ("by-path", Place::Digests),
        ] {
            let ended = harness.ended(&mut harness.command(place, &cache, &base.join(name)))?;
            if !ended.succeeded() {
                return Err(format!("{name}, undamaged: {}", ended.summary()));
            }
        }
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
        let table_before = runs::table(&out.join("metrics.csv"));
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
        Ok((
            story,
            judge(place, &ended, &out, &before, &table_before, expected),
        ))
    }
}

/// Undamaged contents of a run that must not be lost: weights and rows.
struct Contents {
    files: BTreeSet<(String, Vec<u8>)>,
    /// Rows of `metrics.csv` without the column of seconds.
    rows: Vec<String>,
    /// The step of the newest checkpoint.
    newest: u64,
}

impl Contents {
    fn of(out: &Path, damaged: &[Damaged]) -> Self {
        let precious =
            |name: &String| name.ends_with("arrays.safetensors") || name == "metrics.csv";
        let whole = |name: &String| !damaged.iter().any(|damaged| damaged.touches(name));
        let read = |name: String| {
            let path = out.join(&name);
            path.symlink_metadata().ok().filter(fs::Metadata::is_file)?;
            Some((name, fs::read(path).ok()?))
        };
        let names = runs::files(out)
            .into_iter()
            .filter(|name| precious(name) && whole(name));
        Contents {
            files: names.filter_map(read).collect(),
            rows: runs::table(&out.join("metrics.csv")),
            newest: runs::newest_step(out),
        }
    }

    /// Returns the files whose content is in no file any more.
    fn lost(&self, out: &Path) -> Vec<&str> {
        let now: BTreeSet<Vec<u8>> = Contents::everywhere(out);
        self.files
            .iter()
            .filter(|(_, content)| !now.contains(content))
            .map(|(name, _)| &**name)
            .collect()
    }

    /// Keeps of `lost` the tables that have a row which no table has any more, and all other files:
    /// a run that continues writes its rows again, with other times.
    fn lost_rows<'a>(&self, lost: Vec<&'a str>, out: &Path) -> Vec<&'a str> {
        let tables = runs::files(out)
            .into_iter()
            .filter(|name| name.starts_with("metrics.csv"));
        let rows: BTreeSet<String> = tables
            .flat_map(|name| runs::table(&out.join(name)))
            .collect();
        let is_lost =
            |name: &&str| *name != "metrics.csv" || !self.rows.iter().all(|row| rows.contains(row));
        lost.into_iter().filter(is_lost).collect()
    }

    fn everywhere(out: &Path) -> BTreeSet<Vec<u8>> {
        let is_file = |path: &PathBuf| {
            path.symlink_metadata()
                .is_ok_and(|metadata| metadata.is_file())
        };
        runs::files(out)
            .into_iter()
            .map(|name| out.join(name))
            .filter(is_file)
            .filter_map(|path| fs::read(path).ok())
            .collect()
    }
}

fn judge(
    place: Place,
    ended: &Ended,
    out: &Path,
    before: &Contents,
    table_before: &[String],
    expected: &Outcome,
) -> Result<Right, String> {
    if ended.timed_out {
        return Err(format!("it hung: {}", ended.summary()));
    }
    if ended.panicked() {
        return Err(format!("it panicked: {}", ended.summary()));
    }
    if ended.signal().is_some() {
        return Err(format!("a signal ended it: {}", ended.summary()));
    }
    if !ended.succeeded() {
        let has_error = ended
            .stderr
            .split_once("error: ")
            .is_some_and(|(_, error)| !error.trim().is_empty());
        if !has_error || ended.code() != Some(1) {
            return Err(format!("it failed without an error: {}", ended.summary()));
        }
        // A run that made progress before it failed has removed older checkpoints.
        let lost = before.lost_rows(before.lost(out), out);
        return match lost.is_empty() || runs::newest_step(out) > before.newest {
            true => Ok(Right::Error),
            false => Err(format!(
                "it failed and destroyed {lost:?}: {}",
                ended.summary()
            )),
        };
    }
    let found = Outcome::read(out);
    if found.weights != expected.weights {
        return Err(format!(
            "other weights: {:?}; {}",
            found.differences(expected),
            ended.summary()
        ));
    }
    if found.texts != expected.texts {
        return Err(format!("another text: {}", ended.summary()));
    }
    check_table(&found.table, table_before, &expected.table, &ended.stderr)?;
    if place == Place::Overwritten {
        let lost = before.lost(out);
        if !lost.is_empty() {
            return Err(format!(
                "it restarted and overwrote {lost:?}: {}",
                ended.summary()
            ));
        }
    }
    Ok(if ended.stderr.contains("WARN") {
        Right::Recovered
    } else {
        Right::SameBits
    })
}

/// Checks the rows of `metrics.csv`. A changed digit cannot be detected in a text, so a row may
/// stay as the damage left it. No row may change otherwise, or be lost without a warning.
fn check_table(
    found: &[String],
    damaged: &[String],
    expected: &[String],
    stderr: &str,
) -> Result<(), String> {
    // A changed digit may be beyond the precision of the number.
    let number = |cell: &str| {
        cell.parse::<f64>()
            .map_or(cell.to_owned(), |number| number.to_string())
    };
    // A damaged header may move a value to another column.
    let values = |rows: &[String]| -> Vec<String> {
        let cells = |row: &String| {
            row.split(',')
                .filter(|cell| !cell.is_empty())
                .map(number)
                .collect::<Vec<_>>()
                .join(",")
        };
        rows.iter().skip(1).map(cells).collect()
    };
    let [found, damaged, expected] = [found, damaged, expected].map(values);
    let changed: Vec<&String> = found.iter().filter(|row| !expected.contains(row)).collect();
    if let Some(row) = changed.iter().find(|row| !damaged.contains(row)) {
        return Err(format!("a row of metrics.csv has changed: {row}"));
    }
    let missing = expected.iter().filter(|row| !found.contains(row)).count();
    if missing > changed.len() && !stderr.contains("metrics.csv") {
        return Err(format!(
            "{missing} rows of metrics.csv were lost without a warning"
        ));
    }
    Ok(())
}
