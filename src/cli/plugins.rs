//! `halite plugins`: PJRT plugins.

use std::process::ExitCode;

use clap::Args;
use halite::Result;

/// List, install or check PJRT plugins.
#[derive(Args, Debug)]
pub(crate) struct Plugins {}

impl Plugins {
    pub(crate) fn run(self) -> Result<ExitCode> {
        Ok(ExitCode::SUCCESS)
    }
}
