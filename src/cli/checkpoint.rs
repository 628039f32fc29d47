//! `halite checkpoint`: what the checkpoints of a run hold, whether they are whole, and their
//! arrays in one file. Nothing here opens a device.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use clap::{Args, Subcommand};
use halite::{
    Error, ErrorKind, Result,
    fetch::Bytes,
    train::{
        checkpoint::{Best, CheckpointInfo, CheckpointStore, RunPosition, Saved},
        loggers::format_metric,
    },
};

/// List, show, verify or export the checkpoints of a run
///
/// RUN is the directory of a run (`--out` of `halite train`), CHECKPOINT one of the folders in its
/// `checkpoints`. A run in place of a checkpoint is its best one, or its newest if none is marked
/// as best. A file of `--save-weights-only` is read by `export`. No device is needed, and a run that
/// is training is not disturbed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckpointCommand {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  halite checkpoint ls runs/mnist-cnn
  halite checkpoint show runs/mnist-cnn/checkpoints/step-00001874
  halite checkpoint verify runs/mnist-cnn                 reads every file; names the damaged ones
  halite checkpoint export runs/mnist-cnn -o cnn.safetensors
  halite checkpoint consolidate runs/mnist-cnn --out cnn.safetensors         the same

In Python:
  weights = safetensors.numpy.load_file('cnn.safetensors')

A run keeps its two newest checkpoints and its best one (`--keep-last`, `--save-top-k`). The newest
checkpoint that is whole is never removed. `halite train .. --resume` continues from the newest,
`--from CHECKPOINT` from another; `halite export` writes the forward pass for JAX.";

#[derive(Subcommand, Debug)]
enum Command {
    /// List the checkpoints of a run, newest first, and then its files of weights
    Ls {
        /// Directory of a run
        run: PathBuf,
    },
    /// Show position, options and arrays of a checkpoint
    Show {
        /// Folder of a checkpoint, or directory of a run
        #[arg(value_name = "CHECKPOINT")]
        path: PathBuf,
    },
    /// Verify the digests of a checkpoint, or of all of a run; fails if one is damaged
    Verify {
        /// Folder of a checkpoint, or directory of a run
        #[arg(value_name = "CHECKPOINT")]
        path: PathBuf,
    },
    /// Write the parameters of the model to one safetensors file
    ///
    /// The files of a checkpoint that several processes wrote are merged.
    ///
    /// A run with averages of the parameters (--ema) is validated, and its best checkpoint chosen,
    /// with the averages: --average writes these, otherwise it is the parameters in training.
    #[command(visible_alias = "consolidate")]
    Export {
        /// Folder of a checkpoint, file of weights, or directory of a run
        #[arg(value_name = "CHECKPOINT")]
        path: PathBuf,
        /// File to write; one that is there is replaced
        #[arg(long, short, visible_alias = "out", value_name = "FILE")]
        output: PathBuf,
        /// All arrays, by their names in the checkpoint: `model.*`, the optimizer's `slots.*`,
        /// `step`, `key`
        #[arg(long, conflicts_with = "average")]
        all: bool,
        /// The averages of the trained parameters in place of the parameters
        #[arg(long)]
        average: bool,
    },
}

impl CheckpointCommand {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Ls { run } => list(&run)?,
            Command::Show { path } => show(&CheckpointInfo::read(checkpoint_at(&path)?)?)?,
            Command::Verify { path } => verify(&path)?,
            Command::Export {
                path,
                output,
                all,
                average,
            } => export(&path, &output, Exported::of(all, average))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Opens the directory of the checkpoints of a run.
fn open(run: &Path) -> Result<CheckpointStore> {
    if run.is_file() {
        let message = format!(
            "{} is a file; give the directory of a run, or a folder in its `checkpoints`; `halite \
             checkpoint export` takes a file of weights",
            run.display()
        );
        return Err(Error::invalid("checkpoint", message));
    }
    let inside = run.join("checkpoints");
    CheckpointStore::open_read_only(if inside.is_dir() { &inside } else { run })
}

/// True if it is the folder of a checkpoint, whole or not.
fn is_checkpoint(path: &Path) -> bool {
    path.join("manifest.json").is_file() || path.join("COMMIT").is_file()
}

/// The folder of the checkpoint that `path` names.
fn checkpoint_at(path: &Path) -> Result<PathBuf> {
    if is_checkpoint(path) {
        return Ok(path.to_path_buf());
    }
    let store = open(path)?;
    let newest = || store.list().map(|all| all.into_iter().next());
    let chosen = match store.best()?.map(|best| best.path) {
        Some(best) if best.is_file() => {
            remark!(
                "of the best checkpoint, {}, only the weights are kept; this is the newest",
                best.display()
            );
            newest()?.map(|(path, _)| path)
        }
        Some(best) => Some(best),
        None => newest()?.map(|(path, _)| path),
    };
    chosen.ok_or_else(|| no_checkpoint(path))
}

fn no_checkpoint(path: &Path) -> Error {
    let message = format!(
        "no checkpoint in {}; give the directory of a run (`--out` of `halite train`), or a folder \
         in its `checkpoints`",
        path.display()
    );
    Error::new(ErrorKind::Unavailable, "checkpoint", message)
}

fn list(run: &Path) -> Result<()> {
    let store = open(run)?;
    let (folders, weights) = (store.folders()?, store.weights()?);
    if folders.is_empty() && weights.is_empty() {
        return Err(no_checkpoint(run));
    }
    let best = store.best().unwrap_or_else(|error| {
        remark!("{error}");
        None
    });
    let paths = folders.iter().map(|(path, _)| path);
    let paths = paths.chain(weights.iter().map(|(path, _)| path));
    let width = paths.map(|path| name(path).len()).max();
    let width = width.unwrap_or_default().max(20);
    say!(
        "{:<width$} {:>10} {:>22} {:>10} {:>12}",
        "checkpoint",
        "step",
        "trained",
        "size",
        "saved"
    );
    for (path, position) in &folders {
        let name = name(path);
        let info = position.as_ref().ok().map(|_| CheckpointInfo::read(path));
        let Some(Ok(info)) = info else {
            say!("{name:<width$} damaged, or of a later halite; `halite checkpoint verify` tells");
            continue;
        };
        let size = info.files().map(|(_, bytes)| bytes).sum();
        let (step, trained) = (info.position().step, trained(info.position()));
        let row = row(step, &trained, size, &path.join("COMMIT"));
        let line = format!("{name:<width$} {row}  {}", mark(best.as_ref(), path));
        say!("{}", line.trim_end());
    }
    for (path, step) in &weights {
        let size = path.metadata().map_or(0, |file| file.len());
        let row = row(*step, "weights alone", size, path);
        let line = format!(
            "{:<width$} {row}  {}",
            name(path),
            mark(best.as_ref(), path)
        );
        say!("{}", line.trim_end());
    }
    Ok(())
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Columns of a checkpoint that was complete when the file `last` was written.
fn row(step: u64, trained: &str, size: u64, last: &Path) -> String {
    let saved = last.metadata().and_then(|file| file.modified());
    let saved = saved.map_or_else(|_| "?".to_string(), ago);
    let size = Bytes(size).to_string();
    format!("{step:>10} {trained:>22} {size:>10} {saved:>12}")
}

/// `best: accuracy 97.61 %` for the best checkpoint.
fn mark(best: Option<&Best>, path: &Path) -> String {
    best.filter(|best| best.path == path)
        .map_or_else(String::new, |best| {
            format!(
                "best: {} {}",
                best.metric,
                format_metric(&best.metric, best.value)
            )
        })
}

/// How far a run was: `2 epochs`, `2 epochs, 40 steps`.
fn trained(position: RunPosition) -> String {
    let epochs = match position.epoch {
        1 => "1 epoch".to_string(),
        epochs => format!("{epochs} epochs"),
    };
    match position.batch {
        0 => epochs,
        batches => format!("{epochs}, {batches} steps"),
    }
}

fn show(info: &CheckpointInfo) -> Result<()> {
    let line = |name: &str, value: &str| say!("{name:<12} {value}");
    let (format, halite) = info.versions();
    line("checkpoint", &info.path().display().to_string());
    let position = info.position();
    line(
        "position",
        &format!("step {}: {}", position.step, trained(position)),
    );
    line("seed", &info.seed().to_string());
    if let Some((metric, value)) = info.best_by() {
        line(
            "best",
            &format!(
                "when it was saved, by {metric} {}",
                format_metric(metric, value)
            ),
        );
    }
    line("written by", &format!("halite {halite}, format {format}"));
    for (index, (name, bytes)) in info.files().enumerate() {
        let title = if index == 0 { "files" } else { "" };
        line(title, &format!("{name}, {}", Bytes(bytes)));
    }
    let options = info.options();
    if !options.is_empty() {
        say!("\noptions of the run");
        let width = options
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0);
        for (name, value) in &options {
            // The text of an optimizer has several lines.
            let value = value.replace('\n', &format!("\n  {:width$}  ", ""));
            say!("  {name:<width$}  {value}");
        }
    }
    let bytes: usize = info.arrays().iter().map(|(_, ty)| ty.bytes()).sum();
    say!("\n{} arrays, {}", info.arrays().len(), Bytes(bytes as u64));
    let types = info.arrays().iter().map(|(_, ty)| ty.to_string());
    let width = types.map(|ty| ty.len()).max().unwrap_or(0);
    for (name, ty) in info.arrays() {
        say!(
            "  {:<width$} {:>12}  {name}",
            ty.to_string(),
            Bytes(ty.bytes() as u64).to_string()
        );
    }
    Ok(())
}

fn verify(path: &Path) -> Result<()> {
    let folders: Vec<PathBuf> = if is_checkpoint(path) {
        vec![path.to_path_buf()]
    } else {
        (open(path)?.folders()?.into_iter())
            .map(|(path, _)| path)
            .collect()
    };
    if folders.is_empty() {
        return Err(no_checkpoint(path));
    }
    let mut damaged = 0;
    for folder in &folders {
        let verified = CheckpointInfo::read(folder).and_then(|info| {
            let files: Vec<u64> = info.files().map(|(_, bytes)| bytes).collect();
            let size = Bytes(files.iter().sum());
            Ok((info.verify()?, format!("{} files, {size}", files.len() + 2)))
        });
        match verified {
            Ok((damages, size)) if damages.is_empty() => {
                say!("whole    {}: {size}", folder.display());
            }
            Ok((damages, _)) => {
                damaged += 1;
                for damage in damages {
                    say!("damaged  {}: {damage}", folder.display());
                }
            }
            Err(error) => {
                damaged += 1;
                say!("damaged  {}", error.message());
            }
        }
    }
    match damaged {
        0 => Ok(()),
        count => {
            let message = format!("{count} of {} damaged, as listed above", folders.len());
            Err(Error::new(ErrorKind::Corrupt, "checkpoint", message))
        }
    }
}

/// What `export` writes of a checkpoint.
#[derive(Clone, Copy)]
enum Exported {
    Model,
    Average,
    All,
}

impl Exported {
    fn of(all: bool, average: bool) -> Self {
        match (all, average) {
            (true, _) => Exported::All,
            (false, true) => Exported::Average,
            (false, false) => Exported::Model,
        }
    }
}

fn export(path: &Path, output: &Path, what: Exported) -> Result<()> {
    let saved = Saved::of_run(path)?;
    let is_of_trainer = saved.arrays().any(|(name, _)| name.starts_with("model."));
    let count = match what {
        Exported::Average => {
            let averages = saved.averages()?.into_iter();
            let paths: HashMap<String, String> =
                averages.map(|(path, name)| (name, path)).collect();
            saved.export(output, |name| paths.get(name).cloned())?
        }
        Exported::Model if is_of_trainer => {
            saved.export(output, |name| name.strip_prefix("model.").map(String::from))?
        }
        Exported::Model | Exported::All => saved.export(output, |name| Some(name.to_string()))?,
    };
    let bytes = output.metadata().map_or(0, |file| file.len());
    say!(
        "{}: {count} arrays of {}, {}",
        output.display(),
        saved.path().display(),
        Bytes(bytes)
    );
    Ok(())
}

fn ago(time: SystemTime) -> String {
    let seconds = SystemTime::now()
        .duration_since(time)
        .unwrap_or_default()
        .as_secs();
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}
