//! `report.json` and `report.html` as a callback.

use std::path::{Path, PathBuf};

use halite_core::Result;

use crate::{
    Report,
    callback::{Callback, Run},
    files,
    loggers::CsvLog,
};

/// Writes the report at the end of the run.
pub(crate) struct ReportFile {
    /// `report.json`.
    pub(crate) report: PathBuf,
    /// `report.html`.
    pub(crate) page: PathBuf,
    /// The table with the rows of the page.
    pub(crate) table: PathBuf,
    /// Properties of the run, by name.
    pub(crate) configuration: Vec<(String, String)>,
}

impl ReportFile {
    fn write_page(&self, report: &Report) -> Result<()> {
        let rows = CsvLog::read(&self.table)?;
        let dir = self.page.parent().and_then(Path::file_name);
        let title = dir.unwrap_or_default().to_string_lossy();
        let page = report.to_html(&title, &rows, &self.configuration)?;
        files::replace(&self.page, page.as_bytes())
            .map_err(|error| files::failed("report", "write", &self.page, &error))
    }
}

impl Callback for ReportFile {
    fn on_fit_end(&mut self, _: &mut Run, report: &mut Report) -> Result<()> {
        let written = [report.write(&self.report), self.write_page(report)];
        for error in written.into_iter().filter_map(Result::err) {
            halite_core::warning!("{error}. The other files of the run are complete");
        }
        Ok(())
    }
}
