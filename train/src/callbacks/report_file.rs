//! `report.json` as a callback.

use std::path::PathBuf;

use halite_core::Result;

use crate::{
    Report,
    callback::{Callback, Run},
};

/// Writes the report at the end of the run.
pub(crate) struct ReportFile(pub(crate) PathBuf);

impl Callback for ReportFile {
    fn on_fit_end(&mut self, _: &mut Run, report: &mut Report) -> Result<()> {
        if let Err(error) = report.write(&self.0) {
            halite_core::warning!("{error}. The other files of the run are complete");
        }
        Ok(())
    }
}
