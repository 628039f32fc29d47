//! What a run tells: a line of progress, a table of metrics, a plot of them, and a report.
//!
//! Nothing here touches a device: values come from the trainer, which has read them back.

pub(crate) mod csv;
mod format;
mod plot;
mod progress;
mod report;

pub(crate) use self::{csv::TableMark, format::format_seconds};
pub use self::{
    csv::{CsvLog, Row, Split},
    format::{format_metric, is_fraction},
    plot::{plot_metrics, render_metrics},
    progress::Progress,
    report::Report,
};
