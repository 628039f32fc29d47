//! `halite devices`: what there is to run on.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use halite::{
    Result,
    backends::{Accelerator, OpenOptions},
    fetch,
};

/// Show the devices, their memory, and the plugin behind them.
#[derive(Args, Debug)]
pub(crate) struct Devices {
    /// `auto`, `cpu`, `cpu:N` for N virtual devices, `cuda`, `cuda:0,1`, `tpu`, `tpu:0`, or `plugin:PATH`
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Where packages are kept [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

impl Devices {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let options = OpenOptions { cache: self.cache_dir, ..OpenOptions::default() };
        let opened = self.accelerator.open_with(&options, &mut fetch::Bar::default())?;
        let client = opened.client;
        say!("platform  {} ({})", client.platform().name, client.platform().version);
        say!("plugin    {}", opened.located);
        say!("\n{:<4} {:<8} {:<24} {:<36} memory in use / limit", "id", "process", "kind", "memories");
        for device in client.devices() {
            let memories: Vec<String> = device.memories().iter().map(|memory| format!("{memory:?}")).collect();
            let memory = match device.memory() {
                Ok(stats) => format!("{} / {}", stats.in_use, stats.limit.map_or("?".to_string(), |limit| limit.to_string())),
                Err(_) => "not reported".to_string(),
            };
            say!("{:<4} {:<8} {:<24} {:<36} {memory}", device.id().0, device.process(), device.kind(), memories.join(", "));
        }
        Ok(ExitCode::SUCCESS)
    }
}
