//! Opening the directory of a run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use halite_core::{Error, Result};

use crate::{
    TrainerOptions,
    checkpoint::{CheckpointStore, Keep, LOCK, RANKING, Ranking, RunPosition, Saved},
    files,
    loggers::{CsvLog, PAGE, REPORT, Report, TABLE, TableMark},
    resume::Metadata,
};

pub(crate) const PLOT: &str = "metrics.svg";
const CHECKPOINTS: &str = "checkpoints";
/// Copy of the table's rows, in the directory of the checkpoints that mark them.
const ROWS: &str = "rows.csv";

/// The directory of a run, open for writing.
pub(crate) struct RunFiles {
    pub(crate) dir: PathBuf,
    pub(crate) store: CheckpointStore,
    pub(crate) csv: CsvLog,
}

impl RunFiles {
    /// Without the store of the checkpoints, and that.
    pub(crate) fn parted(self) -> ((PathBuf, CsvLog), CheckpointStore) {
        ((self.dir, self.csv), self.store)
    }
}

/// Opens the directory of a run, if it has one, and reads the checkpoint to resume from, if the run
/// should resume and there is one. Removes leftovers of killed processes. Rows and checkpoints of a
/// run are not changed before `check` has accepted the checkpoint.
///
/// # Errors
/// If the directory cannot be written; if it holds another run, in any state, and this one does not
/// resume; if the checkpoint to resume from cannot be read, or `check` rejects it.
pub(crate) fn open(
    options: &TrainerOptions,
    check: impl FnOnce(&mut Saved) -> Result<()>,
) -> Result<Option<(RunFiles, Option<Saved>)>> {
    let Some(dir) = options.out.as_deref() else {
        return Ok(None);
    };
    let checkpoints = dir.join(CHECKPOINTS);
    let was_run = checkpoints.join(LOCK).is_file();
    let store = CheckpointStore::open(&checkpoints, options.keep_last)?;
    let mut saved = match &options.resume_from {
        Some(name) => Some(store.load(name)?),
        None if options.resume => store.latest()?,
        None => {
            refuse_another_run(dir, &store.folders()?)?;
            None
        }
    };
    if let Some(saved) = &mut saved {
        check(saved)?;
    }
    if let (Some(saved), None) = (&saved, &options.resume_from) {
        // More checkpoints than necessary do no harm to the run.
        if let Err(error) = kept(saved).and_then(|keep| store.prune(&keep)) {
            halite_core::warning!("{error}");
        }
    }
    for name in [TABLE, PLOT, REPORT, PAGE] {
        remove_temporary(&dir.join(name))?;
    }
    let (table, rows) = (dir.join(TABLE), checkpoints.join(ROWS));
    remove_temporary(&rows)?;
    let csv = match &saved {
        Some(saved) => {
            let state = Metadata::of(saved)?.callbacks.remove(TABLE);
            if let Some(mark) = state.and_then(TableMark::of_state) {
                mark.restore(&table, &rows)?;
            }
            CsvLog::resume(&table, saved.position().step)?
        }
        None => {
            clear(dir, was_run)?;
            CsvLog::create(&table)?
        }
    };
    let (dir, csv) = (dir.to_path_buf(), csv.copied_to(rows));
    Ok(Some((RunFiles { dir, store, csv }, saved)))
}

/// What the run of this checkpoint keeps besides the newest and the best.
fn kept(saved: &Saved) -> Result<Keep> {
    let state = Metadata::of(saved)?.callbacks.remove(RANKING);
    let ranking = state.and_then(|state| serde_json::from_value::<Ranking>(state).ok());
    Ok(ranking.unwrap_or_default().keep())
}

/// Prepares a directory without checkpoints for a new run. Files of others are moved aside.
fn clear(dir: &Path, was_run: bool) -> Result<()> {
    let there = |name: &str| dir.join(name).symlink_metadata().is_ok();
    // Processes of a job agree on a stop after the start, and then report no step.
    let did_nothing = Report::read(dir.join(REPORT)).is_ok_and(|report| report.steps == 0);
    let has_result = there(REPORT) && !did_nothing;
    if was_run && !has_result && !CsvLog::has_several_epochs(&dir.join(TABLE)) {
        // A run was killed before its first checkpoint; its table is replaced too.
        for name in [PLOT, REPORT, PAGE] {
            let path = dir.join(name);
            if there(name) && path.is_file() {
                fs::remove_file(&path)
                    .map_err(|error| files::failed("fit", "remove", &path, &error))?;
            }
        }
        return Ok(());
    }
    let mut names = vec![PLOT, REPORT, PAGE];
    if was_run || there(REPORT) {
        names.push(TABLE);
    }
    for name in names {
        let path = dir.join(name);
        let moved = files::move_aside(&path)
            .map_err(|error| files::failed("fit", "move aside", &path, &error))?;
        if let Some(aside) = moved {
            halite_core::warning!(
                "{} does not belong to this run; it is moved to {}",
                path.display(),
                aside.display()
            );
        }
    }
    Ok(())
}

/// Removes the leftover of a process that was killed while it replaced `path`.
fn remove_temporary(path: &Path) -> Result<()> {
    let temporary = files::temporary_of(path);
    if temporary
        .symlink_metadata()
        .is_ok_and(|found| !found.is_dir())
    {
        fs::remove_file(&temporary)
            .map_err(|error| files::failed("fit", "remove", &temporary, &error))?;
    }
    Ok(())
}

/// Rejects a new run that would overwrite the checkpoints of another.
fn refuse_another_run(dir: &Path, folders: &[(PathBuf, Result<RunPosition>)]) -> Result<()> {
    if let Some(step) = folders
        .iter()
        .find_map(|(_, position)| Some(position.as_ref().ok()?.step))
    {
        let message = format!(
            "{} already contains a run, at step {step}; resume it (`resume`, --resume), or use \
             another directory (`out`, --out)",
            dir.display()
        );
        return Err(Error::invalid("fit", message));
    }
    let problems = folders
        .iter()
        .filter_map(|(_, position)| position.as_ref().err());
    let problems: String = problems
        .map(|error| format!("\n  {}", error.message()))
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} already contains a run, and none of its checkpoints can be used:{problems}\n\
         Use another directory (`out`, --out), move the checkpoints away to start again, or repair \
         one for --resume",
        dir.display()
    );
    Err(Error::invalid("fit", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_without_steps_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let options = TrainerOptions {
            out: Some(dir.path().to_path_buf()),
            resume: true,
            quiet: true,
            ..TrainerOptions::default()
        };
        for steps in [0, 3] {
            drop(open(&options, |_| Ok(())).unwrap());
            let report = Report {
                steps,
                ..Report::default()
            };
            report.write(dir.path().join(REPORT)).unwrap();
            drop(open(&options, |_| Ok(())).unwrap());
            let aside = dir.path().join(format!("{REPORT}.aside"));
            assert_eq!(aside.exists(), steps > 0);
            assert!(!dir.path().join(REPORT).exists());
        }
    }

    #[test]
    fn new_run_destroys_no_files_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let names = [TABLE, PLOT, REPORT, PAGE];
        for name in names {
            fs::write(dir.path().join(name), "someone's work").unwrap();
        }
        let options = TrainerOptions {
            out: Some(dir.path().to_path_buf()),
            quiet: true,
            ..TrainerOptions::default()
        };
        open(&options, |_| Ok(())).unwrap();
        for name in names {
            let aside = fs::read(dir.path().join(format!("{name}.aside"))).unwrap();
            assert_eq!(aside, b"someone's work");
        }
        assert!(!dir.path().join(PLOT).exists() && !dir.path().join(REPORT).exists());
    }
}
