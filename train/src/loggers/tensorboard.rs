//! Event files of TensorBoard: the logger, and the writer for custom loops.
//!
//! Nothing here waits: an event is appended to a file with one call of the system.

mod event;

use std::{
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use halite_core::{Error, ErrorKind, Result};
use halite_data::records::write_record;

use self::event::{Event, Image, Value, What};
use super::{Logger, Row, append::AppendFile, directory};

const OP: &str = "tensorboard";

/// Writes the metrics of a run for TensorBoard: `tensorboard --logdir runs` shows each directory
/// below `runs` as a run.
///
/// A metric `loss` is the tags `loss/train` and `loss/validation`, so that both stand side by side;
/// the hyperparameters are a text. Each process of a run writes a file of its own, whose start tells
/// TensorBoard which steps of the files before it repeats.
#[derive(Debug, Default)]
pub struct TensorBoard {
    dir: Option<PathBuf>,
    writer: Option<SummaryWriter>,
    /// The first step of the process, from 0.
    first: u64,
}

impl TensorBoard {
    /// The files are in the directory of the run ([`out`](crate::TrainerOptions::out)).
    pub fn new() -> Self {
        TensorBoard::default()
    }

    /// The files are in `dir`.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        TensorBoard {
            dir: Some(dir.into()),
            ..TensorBoard::default()
        }
    }

    fn writer(&mut self) -> Result<&mut SummaryWriter> {
        let closed = || Error::new(ErrorKind::Internal, OP, "the logger is not open");
        self.writer.as_mut().ok_or_else(closed)
    }
}

impl Logger for TensorBoard {
    fn open(&mut self, out: Option<&Path>, resumed_from: Option<u64>) -> Result<()> {
        let dir = directory(OP, self.dir.as_deref(), out)?;
        self.first = resumed_from.map_or(0, |step| step + 1);
        self.writer = Some(SummaryWriter::starting_at(dir, self.first)?);
        Ok(())
    }

    fn log_hyperparameters(&mut self, hyperparameters: &[(String, String)]) -> Result<()> {
        let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
        let rows = hyperparameters.iter();
        let rows: String = rows
            .map(|(name, value)| format!("| {} | {} |\n", cell(name), cell(value)))
            .collect();
        let (table, step) = (format!("| name | value |\n|---|---|\n{rows}"), self.first);
        self.writer()?.add_text("hyperparameters", &table, step)
    }

    fn log_metrics(&mut self, row: &Row) -> Result<()> {
        let metrics = row.metrics.iter();
        let tagged = metrics.map(|(name, value)| (format!("{name}/{}", row.split), *value));
        self.writer()?.add_scalars(tagged, row.step)
    }

    fn flush(&mut self) -> Result<()> {
        self.writer()?.flush()
    }
}

/// Writes an event file of TensorBoard, for a custom training loop. It has the methods of
/// PyTorch's `SummaryWriter`.
///
/// ```
/// use halite_train::loggers::SummaryWriter;
///
/// # let runs = tempfile::tempdir().unwrap();
/// # let runs = runs.path();
/// let mut writer = SummaryWriter::create(runs.join("first"))?;
/// for step in 1..=100u32 {
///     writer.add_scalar("loss/train", 1.0 / f64::from(step), step.into())?;
/// }
/// writer.add_text("sample", "Call me Ishmael.", 100)?;
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Debug)]
pub struct SummaryWriter(AppendFile);

impl SummaryWriter {
    /// Creates a file in `dir`, beside those of earlier processes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(dir: impl AsRef<Path>) -> Result<Self> {
        let now = SystemTime::now();
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        // TensorBoard reads files in the order of their names.
        let name = format!(
            "events.out.tfevents.{:010}.{:09}.halite",
            now.as_secs(),
            now.subsec_nanos()
        );
        let mut writer = SummaryWriter(AppendFile::open(OP, dir.as_ref().join(name))?);
        writer.write(0, What::Version("brain.Event:2"))?;
        Ok(writer)
    }

    /// The same for a process that continues a run with step `first`: what other files have of that
    /// step and later ones does not count. PyTorch's `purge_step`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn starting_at(dir: impl AsRef<Path>, first: u64) -> Result<Self> {
        let mut writer = SummaryWriter::create(dir)?;
        writer.write(first, What::Start)?;
        Ok(writer)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Adds a number, which TensorBoard stores as `f32`.
    ///
    /// # Errors
    /// If it cannot be written; [`flush`](Self::flush) tries again.
    pub fn add_scalar(&mut self, tag: &str, value: f64, step: u64) -> Result<()> {
        self.add_scalars([(tag.to_string(), value)], step)
    }

    /// Adds numbers of one step, by tag.
    ///
    /// # Errors
    /// If they cannot be written; [`flush`](Self::flush) tries again.
    pub fn add_scalars(
        &mut self,
        values: impl IntoIterator<Item = (String, f64)>,
        step: u64,
    ) -> Result<()> {
        let values = values.into_iter();
        let values = values.map(|(tag, value)| (tag, Value::Scalar(value as f32)));
        self.write(step, What::Summary(values.collect()))
    }

    /// Adds a text, in Markdown.
    ///
    /// # Errors
    /// If it cannot be written; [`flush`](Self::flush) tries again.
    pub fn add_text(&mut self, tag: &str, text: &str, step: u64) -> Result<()> {
        self.write(
            step,
            What::Summary(vec![(tag.to_string(), Value::Text(text))]),
        )
    }

    /// Adds a picture: `pixels` has `[height][width][channels]` bytes, with 1 channel for grey, 3
    /// for RGB or 4 for RGBA.
    ///
    /// # Errors
    /// If `pixels` has another length; if it cannot be written, and [`flush`](Self::flush) tries
    /// again.
    pub fn add_image(&mut self, tag: &str, pixels: &[u8], size: [u32; 3], step: u64) -> Result<()> {
        let [height, width, channels] = size;
        let file = super::png::encode(pixels, [height, width, channels])?;
        let image = Image {
            width,
            height,
            channels,
            file: &file,
        };
        self.write(
            step,
            What::Summary(vec![(tag.to_string(), Value::Image(image))]),
        )
    }

    /// Writes what could not be written before.
    ///
    /// # Errors
    /// If it still cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        self.0.catch_up()
    }

    fn write(&mut self, step: u64, what: What<'_>) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let event = Event {
            wall_time: now.unwrap_or_default().as_secs_f64(),
            step,
            what,
        };
        let mut record = Vec::new();
        write_record(&mut record, &event.encode()).expect("writing to memory does not fail");
        self.0.push(&record)
    }
}
