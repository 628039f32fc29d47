//! `metrics.jsonl`: the metrics of a run as lines of JSON.

use std::{io, path::Path, path::PathBuf};

use halite_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

use super::{Logger, Row, Split, append::AppendFile, directory};
use crate::files;

const OP: &str = "json lines";
const FILE: &str = "metrics.jsonl";
/// Largest file that is read to continue it.
const SIZE_LIMIT: u64 = 2 << 30;

/// Writes `metrics.jsonl`: a line of JSON for every row of metrics, in the file as soon as it is
/// logged.
///
/// ```json
/// {"step":50,"epoch":0,"seconds":1.25,"split":"train","metrics":{"loss":0.5,"accuracy":0.875}}
/// ```
///
/// Numbers that are not finite, which JSON does not have, are `"NaN"`, `"inf"` and `"-inf"`. A
/// resumed run drops the lines of steps that it repeats.
///
/// With pandas, `pd.json_normalize([json.loads(line) for line in open("metrics.jsonl")])` is a table.
#[derive(Debug, Default)]
pub struct JsonLines {
    dir: Option<PathBuf>,
    file: Option<AppendFile>,
    /// Rows at the step from which the run resumed: they are there if it was killed after them.
    logged: Vec<(u64, String)>,
}

impl JsonLines {
    /// The file is in the directory of the run ([`out`](crate::TrainerOptions::out)).
    pub fn new() -> Self {
        JsonLines::default()
    }

    /// The file is in `dir`.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        JsonLines {
            dir: Some(dir.into()),
            ..JsonLines::default()
        }
    }

    fn file(&mut self) -> Result<&mut AppendFile> {
        let closed = || Error::new(ErrorKind::Internal, OP, "the logger is not open");
        self.file.as_mut().ok_or_else(closed)
    }
}

impl Logger for JsonLines {
    fn open(&mut self, out: Option<&Path>, resumed_from: Option<u64>) -> Result<()> {
        let path = directory(OP, self.dir.as_deref(), out)?.join(FILE);
        let failed = |error| files::failed(OP, "move aside", &path, &error);
        self.logged.clear();
        match resumed_from {
            Some(step) => self.logged = keep_up_to(&path, step)?,
            None => {
                if let Some(aside) = files::move_aside(&path).map_err(failed)? {
                    halite_core::warning!(
                        "{} does not belong to this run; it is moved to {}",
                        path.display(),
                        aside.display()
                    );
                }
            }
        }
        self.file = Some(AppendFile::open(OP, path)?);
        Ok(())
    }

    fn log_metrics(&mut self, row: &Row) -> Result<()> {
        let key = (row.step, row.split.to_string());
        if let Some(there) = self.logged.iter().position(|logged| *logged == key) {
            // A resumed run repeats a row with the same metrics.
            self.logged.swap_remove(there);
            return Ok(());
        }
        let line = line_of(row);
        self.file()?.push(line.as_bytes())
    }

    fn flush(&mut self) -> Result<()> {
        self.file()?.catch_up()
    }
}

fn line_of(row: &Row) -> String {
    let metrics = row.metrics.iter();
    let metrics: Map<String, Value> = metrics
        .map(|(name, value)| {
            if value.is_finite() {
                (name.clone(), json!(value))
            } else {
                (name.clone(), json!(value.to_string()))
            }
        })
        .collect();
    // In this order, which a map of JSON does not keep.
    format!(
        "{{\"step\":{},\"epoch\":{},\"seconds\":{},\"split\":\"{}\",\"metrics\":{}}}\n",
        row.step,
        row.epoch,
        json!(row.seconds),
        row.split,
        Value::Object(metrics)
    )
}

/// Drops the lines of a file after `step`, and from the first that is not one of this format.
/// Returns the rows at `step`.
fn keep_up_to(path: &Path, step: u64) -> Result<Vec<(u64, String)>> {
    let text = match files::read_plain(path, SIZE_LIMIT) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(files::failed(OP, "read", path, &error)),
    };
    let key_of = |line: &[u8]| {
        let line: Value = serde_json::from_slice(line).ok()?;
        let split: Split = line["split"].as_str()?.parse().ok()?;
        Some((line["step"].as_u64()?, split.to_string()))
    };
    let (mut kept, mut logged, mut total) = (Vec::new(), Vec::new(), 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let key = key_of(line).filter(|_| line.ends_with(b"\n"));
        let Some(key) = key else {
            // A line that a killed process wrote in part is the last one.
            if total + line.len() < text.len() {
                halite_core::warning!(
                    "{}: a line is not one of metrics; it and those that follow are dropped",
                    path.display()
                );
            }
            break;
        };
        total += line.len();
        if key.0 <= step {
            kept.extend_from_slice(line);
        }
        if key.0 == step {
            logged.push(key);
        }
    }
    if kept.len() < text.len() {
        files::replace(path, &kept).map_err(|error| files::failed(OP, "write", path, &error))?;
    }
    Ok(logged)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use expect_test::expect;

    use super::*;

    fn row(step: u64, split: Split, loss: f64) -> Row {
        Row {
            step,
            epoch: step / 4,
            seconds: 0.5,
            split,
            metrics: vec![("loss".into(), loss)],
        }
    }

    #[test]
    fn rows_are_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut logger = JsonLines::new();
        logger.open(Some(dir.path()), None).unwrap();
        logger.log_metrics(&row(2, Split::Train, 0.1)).unwrap();
        logger
            .log_metrics(&row(4, Split::Validation, f64::NAN))
            .unwrap();
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        expect![[r#"
            {"step":2,"epoch":0,"seconds":0.5,"split":"train","metrics":{"loss":0.1}}
            {"step":4,"epoch":1,"seconds":0.5,"split":"validation","metrics":{"loss":"NaN"}}
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn resumed_run_leaves_no_row_out() {
        let dir = tempfile::tempdir().unwrap();
        let rows = [
            row(2, Split::Train, 0.1),
            row(4, Split::Train, 0.2),
            row(4, Split::Validation, 0.3),
            row(6, Split::Train, 0.4),
        ];
        let mut logger = JsonLines::at(dir.path());
        logger.open(None, None).unwrap();
        rows.iter().for_each(|row| logger.log_metrics(row).unwrap());
        let path = dir.path().join(FILE);
        let whole = fs::read_to_string(&path).unwrap();
        // Killed while it wrote a line.
        fs::write(&path, format!("{whole}{{\"step\":8")).unwrap();

        // The validation of step 4 is repeated, and the steps after it.
        let mut logger = JsonLines::at(dir.path());
        logger.open(None, Some(4)).unwrap();
        rows[2..]
            .iter()
            .for_each(|row| logger.log_metrics(row).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    }

    #[test]
    fn file_of_others_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "someone's work").unwrap();
        JsonLines::at(dir.path()).open(None, None).unwrap();
        let aside = fs::read(dir.path().join("metrics.jsonl.aside")).unwrap();
        assert_eq!(aside, b"someone's work");
    }

    #[test]
    fn logger_without_a_directory_is_refused() {
        let error = JsonLines::new().open(None, None).unwrap_err().to_string();
        assert!(error.contains("`out`"), "{error}");
    }
}
