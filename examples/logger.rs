//! A logger: metrics as lines of JSON. `cargo run --release --example logger`
use std::{fs, io, io::Write, path::PathBuf};

use halite::train::{Logger, loggers::Row};
use halite::{ErrorKind, prelude::*};
use serde_json::{Value, json};

pub(crate) struct JsonLines(pub(crate) PathBuf);

fn failed(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, "json lines", error.to_string())
}

impl Logger for JsonLines {
    fn resume(&mut self, step: u64) -> Result<()> {
        // Later rows are logged again.
        let is_before = |line: &&str| {
            serde_json::from_str::<Value>(line).is_ok_and(|row| row["step"].as_u64() <= Some(step))
        };
        let text = fs::read_to_string(&self.0).map_err(failed)?;
        let rows: Vec<&str> = text.split_inclusive('\n').filter(is_before).collect();
        fs::write(&self.0, rows.concat()).map_err(failed)
    }

    fn log_metrics(&mut self, row: &Row) -> Result<()> {
        let metrics: Value = row.metrics.iter().cloned().collect();
        let line = json!({"step": row.step, "split": row.split.to_string(), "metrics": metrics});
        let file = fs::File::options().append(true).create(true).open(&self.0);
        writeln!(file.map_err(failed)?, "{line}").map_err(failed)
    }
}

include!("shared/two_classes.rs");

fn main() -> Result<()> {
    let path = std::env::temp_dir().join("two-classes.jsonl");
    fit_two_classes(|trainer| trainer.logger(JsonLines(path.clone())))?;
    println!("{}", fs::read_to_string(path).map_err(failed)?);
    Ok(())
}
