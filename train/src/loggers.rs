//! Loggers: the [`Logger`] trait, the progress bar, the table of metrics, its plot, and the report.
//!
//! Nothing here touches a device: values have arrived on the host before.

pub(crate) mod csv;
mod logger;
mod plot;
mod progress;
mod report;

pub(crate) use self::csv::TableMark;
pub use self::{
    csv::{CsvLog, Row, Split},
    logger::Logger,
    plot::{plot_metrics, render_metrics},
    progress::Progress,
    report::Report,
};
pub use crate::format::{format_metric, is_fraction};
