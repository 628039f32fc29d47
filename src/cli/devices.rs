//! `halite devices`: lists the available devices.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use halite::{
    Array, DType, Error, ErrorKind, HostArray, Result, Sharding, TensorType,
    backends::{Accelerator, OpenOptions},
    fetch,
    telemetry::ClientMetrics,
};

/// Show the devices, their memory, and the plugin behind them.
#[derive(Args, Debug)]
pub(crate) struct Devices {
    /// `auto`, `cpu`, `cpu:N` for N virtual devices, `cuda`, `cuda:0,1`, `tpu`, `tpu:0`, or
    /// `plugin:PATH`
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

impl Devices {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let options = OpenOptions {
            cache: self.cache_dir,
            ..OpenOptions::default()
        };
        let deadline = options.deadline;
        let opened = self
            .accelerator
            .open_with(&options, &mut fetch::Bar::default())?;
        let client = opened.client;
        let plugin = opened.plugin;
        say!(
            "platform    {} ({})",
            client.platform().name,
            client.platform().version
        );
        say!("plugin      {}", opened.located);
        for reason in &opened.refused {
            say!("unavailable {reason}");
        }
        if let Some(versions) = plugin.stablehlo() {
            let [major, minor, patch] = versions.minimum;
            say!(
                "programs    StableHLO text; portable artifacts from version {major}.{minor}.{patch}"
            );
        }
        let extensions: Vec<String> = (plugin.extensions().iter())
            .map(|extension| {
                extension
                    .name()
                    .map_or_else(|| extension.number.to_string(), str::to_string)
            })
            .collect();
        say!("extensions  {}", extensions.join(", "));
        let missing = plugin.missing_functions();
        if !missing.is_empty() {
            say!("missing     {}", missing.join(", "));
        }
        say!(
            "profiler    {}",
            if plugin.profiler().is_some() {
                "yes: --profile writes an .xplane.pb too"
            } else {
                "none"
            }
        );
        say!(
            "\n{:<4} {:<8} {:<24} {:<36} memory in use / peak / limit",
            "id",
            "process",
            "kind",
            "memories"
        );
        for device in client.devices() {
            let memories: Vec<String> = device
                .memories()
                .iter()
                .map(|memory| format!("{memory:?}"))
                .collect();
            let memory = match device.memory() {
                Ok(stats) => {
                    let known = |bytes: Option<u64>| {
                        bytes.map_or("?".to_string(), |bytes| fetch::Bytes(bytes).to_string())
                    };
                    format!(
                        "{} / {} / {}",
                        fetch::Bytes(stats.in_use),
                        known(stats.peak),
                        known(stats.limit)
                    )
                }
                Err(_) => "not reported".to_string(),
            };
            say!(
                "{:<4} {:<8} {:<24} {:<36} {memory}",
                device.id().0,
                device.process(),
                device.kind(),
                memories.join(", ")
            );
            for (name, value) in device.attributes() {
                say!("     {name} = {value}");
            }
        }
        let megabyte = HostArray::zeros(TensorType::new(DType::U8, [1 << 20]));
        let mut failed = false;
        for device in client.local_devices() {
            let fetched = Array::upload(&client, &megabyte, &Sharding::single(device))
                .and_then(|array| array.fetch());
            if let Err(error) = fetched.and_then(|pending| pending.wait_for(deadline)) {
                say!(
                    "device {}: the round trip of 1 MB failed: {error}",
                    device.0
                );
                failed = true;
            }
        }
        say!(
            "\nround trip of 1 MB to each device\n{}",
            client.metrics().report().trim_end()
        );
        if failed {
            let message = format!(
                "{} does not work; `halite plugins check PATH` has details",
                opened.located.path.display()
            );
            return Err(Error::new(ErrorKind::Unavailable, "devices", message));
        }
        Ok(ExitCode::SUCCESS)
    }
}
