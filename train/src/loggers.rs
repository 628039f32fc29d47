//! Loggers: the [`Logger`] trait, the progress bar, the table of metrics, its plot, event files of
//! [`TensorBoard`], [`JsonLines`], and the report.
//!
//! Nothing here touches a device: values have arrived on the host before.

mod append;
pub(crate) mod csv;
mod json_lines;
mod logger;
mod plot;
mod png;
mod progress;
mod report;
mod tensorboard;

use self::logger::directory;
pub(crate) use self::{
    csv::TableMark,
    plot::render_range,
    report::{PAGE, REPORT, TABLE, findings_of_processes},
};
pub use self::{
    csv::{CsvLog, Row, Split},
    json_lines::JsonLines,
    logger::Logger,
    plot::{plot_metrics, render_metrics, render_runs},
    progress::Progress,
    report::{DeviceReport, Prediction, ProcessReport, Report, Shown},
    tensorboard::{SummaryWriter, TensorBoard},
};
pub use crate::format::{format_metric, format_seconds, is_fraction};
