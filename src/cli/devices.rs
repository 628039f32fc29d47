//! `halite devices`: lists the available devices.

mod report;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use halite::{
    Array, Client, DType, Error, ErrorKind, HostArray, Result, Sharding, TensorType,
    backends::{Accelerator, OpenOptions, Opened, cuda, pjrt},
    core::{Device, format_flops},
    fetch,
    telemetry::ClientMetrics,
};

/// Show the devices, their memory, and the plugin behind them.
#[derive(Args, Debug)]
pub(crate) struct Devices {
    /// `auto`, `cpu`, `cpu:N` for N virtual devices, `cuda`, `cuda:N` for the first N, `cuda:[0,1]`
    /// by index, `tpu` likewise, `embedded`, `embedded:N`, `rocm` (AMD), `oneapi` (Intel), `tt`
    /// (Tenstorrent), or `plugin:PATH`
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Also write what a report of a fault needs to FILE, as JSON: versions, processor, environment
    /// variables of halite and plugins, devices, digests of plugins, and the report of the newest
    /// run in `runs`. Nothing of it is sent anywhere
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

impl Devices {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let options = super::open_options(self.cache_dir);
        let (accelerator, deadline) = (&self.accelerator, options.deadline);
        let opened = accelerator.open_with(&options, &mut fetch::Bar::default());
        if let Some(path) = &self.report {
            report::write(path, accelerator, opened.as_ref(), options.cache.as_deref())?;
            remark!("wrote {}; read it before you publish it", path.display());
        }
        if let Accelerator::Cuda { .. } = accelerator {
            say_libraries(&options);
        }
        let opened = opened?;
        say_driver(&opened);
        say_devices(&opened.client);
        let works = round_trips(&opened.client, deadline);
        if !works {
            let message = format!(
                "{} does not work; `halite plugins check PATH` has details",
                opened.driver
            );
            return Err(Error::new(ErrorKind::Unavailable, "devices", message));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the platform and its driver.
fn say_driver(opened: &Opened) {
    let platform = opened.client.platform();
    say!("platform    {} ({})", platform.name, platform.version);
    say!("plugin      {}", opened.driver);
    for reason in &opened.refused {
        say!("unavailable {reason}");
    }
    if let Some(plugin) = opened.driver.plugin() {
        say_plugin(plugin);
    }
}

/// Prints the libraries that the plugin for NVIDIA GPUs opens, also where there is no driver.
fn say_libraries(options: &OpenOptions) {
    let libraries = match cuda::libraries(options) {
        Ok(libraries) => libraries,
        // Where the driver is missing too, the error that follows is of the driver alone.
        Err(error) => return say!("plugin      {error}"),
    };
    for library in &libraries {
        say!("library     {library}");
    }
    if let Some(advice) = cuda::advice(&libraries) {
        say!("missing     {advice}");
    }
}

fn say_plugin(plugin: &'static pjrt::Plugin) {
    if let Some(versions) = plugin.stablehlo() {
        let [major, minor, patch] = versions.minimum;
        say!("programs    StableHLO text; portable artifacts from version {major}.{minor}.{patch}");
    }
    let extensions = plugin.extensions();
    let extensions = extensions.iter().map(|extension| match extension.name() {
        Some(name) => name.to_string(),
        None => extension.number.to_string(),
    });
    say!("extensions  {}", extensions.collect::<Vec<_>>().join(", "));
    let missing = plugin.missing_functions();
    if !missing.is_empty() {
        say!("missing     {}", missing.join(", "));
    }
    let profiler = match plugin.profiler() {
        Some(_) => "yes: --profile writes an .xplane.pb too",
        None => "none",
    };
    say!("profiler    {profiler}");
}

/// Prints the devices as a table.
fn say_devices(client: &Client) {
    say!(
        "\n{:<4} {:<8} {:<24} {:<36} memory in use / peak / limit",
        "id",
        "process",
        "kind",
        "memories"
    );
    for device in client.devices() {
        let memories = device.memories();
        let memories = memories.iter().map(|memory| format!("{memory:?}"));
        say!(
            "{:<4} {:<8} {:<24} {:<36} {}",
            device.id().0,
            device.process(),
            device.kind(),
            memories.collect::<Vec<_>>().join(", "),
            memory_use(device)
        );
        if let Some(spec) = device.spec() {
            say!(
                "     peak in bf16 = {}, memory = {} ({})",
                format_flops(spec.bf16_flops),
                fetch::Bytes(spec.memory),
                spec.source
            );
        }
        for (name, value) in device.attributes() {
            say!("     {name} = {value}");
        }
    }
}

/// Returns the memory in use, its peak and its limit, as far as the device reports them.
fn memory_use(device: &dyn Device) -> String {
    let Ok(stats) = device.memory() else {
        return "not reported".to_string();
    };
    let known =
        |bytes: Option<u64>| bytes.map_or("?".to_string(), |bytes| fetch::Bytes(bytes).to_string());
    let (peak, limit) = (known(stats.peak), known(stats.limit));
    format!("{} / {peak} / {limit}", fetch::Bytes(stats.in_use))
}

/// Copies data to each device and back, and prints the metrics. Returns true if every device works.
fn round_trips(client: &Client, deadline: Duration) -> bool {
    let megabyte = HostArray::zeros(TensorType::new(DType::U8, [1 << 20]));
    let mut works = true;
    for device in client.local_devices() {
        let fetched = Array::upload(client, &megabyte, &Sharding::single(device))
            .and_then(|array| array.fetch());
        if let Err(error) = fetched.and_then(|pending| pending.wait_for(deadline)) {
            say!(
                "device {}: the round trip of 1 MB failed: {error}",
                device.0
            );
            works = false;
        }
    }
    say!(
        "\nround trip of 1 MB to each device\n{}",
        client.metrics().report().trim_end()
    );
    works
}
