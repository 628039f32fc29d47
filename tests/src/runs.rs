//! Results in the directory of a training run, and their differences from another run's.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use halite::train::checkpoint::Saved;

/// The result of a run, which no disturbance may change.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The step of the newest checkpoint, and all of its [arrays].
    pub weights: Option<(u64, Vec<u8>)>,
    /// Rows of `metrics.csv` without the column of seconds.
    pub table: Vec<String>,
    /// The parts of `report.json` that do not depend on time.
    pub report: BTreeMap<String, serde_json::Value>,
    /// The tokenizer and the sample of a text.
    pub texts: BTreeMap<String, Vec<u8>>,
    /// All files and folders.
    pub files: Vec<String>,
}

/// One difference of a run from another.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The part that differs: `weights`, `metrics.csv`, `report.json`, `text`, `files`,
    /// `checkpoints`.
    pub what: &'static str,
    /// Description with both values.
    pub how: String,
}

impl Outcome {
    /// Reads the directory of a run. Missing or unreadable parts are empty.
    pub fn read(out: &Path) -> Self {
        const TEXTS: [&str; 2] = ["tokenizer.json", "sample.txt"];
        let text = |name: &str| Some((name.to_owned(), read_regular(&out.join(name)).ok()?));
        Outcome {
            weights: newest(out).and_then(|(step, path)| Some((step, arrays(&path)?))),
            table: table(&out.join("metrics.csv")),
            report: report(&out.join("report.json")),
            texts: TEXTS.into_iter().filter_map(text).collect(),
            files: files(out),
        }
    }

    /// Returns the differences from an undisturbed run.
    pub fn differences(&self, expected: &Outcome) -> Vec<Difference> {
        let mut found = Vec::new();
        let mut differs = |what, how: String| found.push(Difference { what, how });
        match (&self.weights, &expected.weights) {
            (mine, theirs) if mine == theirs => {}
            (None, _) => differs("weights", "no checkpoint".to_owned()),
            (Some((step, _)), Some((expected, _))) if step != expected => {
                differs(
                    "weights",
                    format!("newest checkpoint of step {step}, want {expected}"),
                );
            }
            _ => differs("weights", "other bits".to_owned()),
        }
        if self.table != expected.table {
            differs("metrics.csv", lists(&self.table, &expected.table));
        }
        if self.report != expected.report {
            let other = |name: &&String| self.report.get(*name) != expected.report.get(*name);
            let names: Vec<&String> = expected.report.keys().filter(other).collect();
            let shown = |name: &&String| {
                let value = |report: &BTreeMap<String, serde_json::Value>| {
                    report
                        .get(*name)
                        .map_or("nothing".to_owned(), serde_json::Value::to_string)
                };
                format!(
                    "{name}: {} instead of {}",
                    value(&self.report),
                    value(&expected.report)
                )
            };
            differs(
                "report.json",
                names.iter().map(shown).collect::<Vec<_>>().join("; "),
            );
        }
        if self.texts != expected.texts {
            differs(
                "text",
                format!("{:?}", self.texts.keys().collect::<Vec<_>>()),
            );
        }
        // A stopped run has saved at other steps, but retains no more checkpoints.
        let ([mine, my_checkpoints], [theirs, their_checkpoints]) =
            (self.parted(), expected.parted());
        if mine != theirs {
            differs("files", lists(&mine, &theirs));
        }
        if my_checkpoints.len() > their_checkpoints.len() {
            differs(
                "checkpoints",
                format!("{my_checkpoints:?} remain instead of {their_checkpoints:?}"),
            );
        }
        found
    }

    /// Files and folders apart from checkpoints, and folders of checkpoints.
    fn parted(&self) -> [Vec<String>; 2] {
        let (checkpoints, others): (Vec<String>, Vec<String>) = self
            .files
            .iter()
            .cloned()
            .partition(|name| name.starts_with("checkpoints/step-"));
        [
            others,
            checkpoints
                .into_iter()
                .filter(|name| name.matches('/').count() == 1)
                .collect(),
        ]
    }
}

/// Describes the items that are in one list alone.
fn lists(mine: &[String], theirs: &[String]) -> String {
    let only = |these: &[String], those: &[String]| {
        these
            .iter()
            .filter(|item| !those.contains(item))
            .cloned()
            .collect::<Vec<_>>()
    };
    format!(
        "not expected: {:?}; missing: {:?}; {} for {}",
        only(mine, theirs),
        only(theirs, mine),
        mine.len(),
        theirs.len()
    )
}

/// Contents of a regular file. A pipe or a link to a device, which damage may have put in a file's
/// place, can be read without end.
fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// All arrays of a checkpoint: the bytes of the file of one process, or names, types and elements of
/// what the processes of a job have written. `None` if they cannot be read.
pub fn arrays(checkpoint: &Path) -> Option<Vec<u8>> {
    if let Ok(bytes) = read_regular(&checkpoint.join("arrays.safetensors")) {
        return Some(bytes);
    }
    let mut saved = Saved::read(checkpoint).ok()?;
    let wanted = saved
        .arrays()
        .map(|(name, ty)| (name.to_owned(), ty.clone()));
    let wanted: Vec<_> = wanted.collect();
    let arrays = saved.take_all(&wanted).ok()?.into_iter();
    let bytes = wanted.iter().zip(arrays).flat_map(|((name, ty), array)| {
        [
            format!("{name} {ty}\n").into_bytes(),
            array.bytes().to_vec(),
        ]
        .concat()
    });
    Some(bytes.collect())
}

/// Folders of a run's complete checkpoints, by step.
pub fn checkpoints(out: &Path) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(out.join("checkpoints"))
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let step = name
                .strip_prefix("step-")?
                .split('.')
                .next()?
                .parse()
                .ok()?;
            Some((step, entry.path()))
        })
        .collect();
    found.sort();
    found
}

/// The newest checkpoint of a run.
pub fn newest(out: &Path) -> Option<(u64, PathBuf)> {
    checkpoints(out).pop()
}

/// The step of a run's newest checkpoint, 0 if there is none.
pub fn newest_step(out: &Path) -> u64 {
    newest(out).map_or(0, |(step, _)| step)
}

/// Lines of a table without the column of seconds.
pub fn table(path: &Path) -> Vec<String> {
    let text = read_regular(path).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .map(untimed)
        .collect()
}

fn untimed(line: &str) -> String {
    let cells = line
        .split(',')
        .enumerate()
        .filter(|(column, _)| *column != 2);
    cells.map(|(_, cell)| cell).collect::<Vec<_>>().join(",")
}

fn report(path: &Path) -> BTreeMap<String, serde_json::Value> {
    const TIMELESS: [&str; 6] = [
        "metrics",
        "train_metrics",
        "steps",
        "epochs",
        "seed",
        "interrupted",
    ];
    let text = read_regular(path).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    TIMELESS
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), report.get(name)?.clone())))
        .collect()
}

/// Paths of all files and folders below `root`, relative to it.
pub fn files(root: &Path) -> Vec<String> {
    fn collect(folder: &Path, root: &Path, found: &mut Vec<String>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path
                .strip_prefix(root)
                .expect("it is below its root")
                .to_string_lossy()
                .into_owned();
            found.push(name);
            if path.symlink_metadata()?.is_dir() {
                collect(&path, root, found)?;
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    // A missing folder has no files.
    let _ = collect(root, root, &mut found);
    found.sort();
    found
}
