//! `report.json` and `report.html` as a callback.

use std::path::PathBuf;

use halite_core::Result;

use crate::{
    Report,
    callback::{Callback, Run},
    loggers::REPORT,
};

/// Writes the report at the end of the run.
pub(crate) struct ReportFile {
    /// The directory of the run.
    pub(crate) dir: PathBuf,
    /// Properties of the run, by name.
    pub(crate) configuration: Vec<(String, String)>,
}

impl Callback for ReportFile {
    fn on_fit_end(&mut self, _: &mut Run, report: &mut Report) -> Result<()> {
        report.configuration = self.configuration.clone();
        report.add_best_metrics(&self.dir);
        let written = [
            report.write(self.dir.join(REPORT)),
            report.write_page(&self.dir),
        ];
        for error in written.into_iter().filter_map(Result::err) {
            halite_core::warning!("{error}. The other files of the run are complete");
        }
        Ok(())
    }
}
