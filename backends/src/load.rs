//! Plugins of accelerators: they are loaded, and their clients are created, alone or in a job.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use halite_core::{Backend, Client, ErrorKind, Kernels, KeyValueStore, Result};
use halite_pjrt::{LoadOptions, OptionValue, Plugin};

use crate::{
    environment::Environment,
    kernels,
    locate::Located,
    needed,
    opened::{Driver, Opened},
    options::OpenOptions,
};

/// Loads a plugin, and creates a client of the devices of all processes where the plugin can.
pub(crate) fn load_in_job(located: Located, options: &OpenOptions) -> Result<Opened> {
    let deadline = options.deadline;
    let Some(node) = options.node()? else {
        return load(located, options.client.clone(), &[], deadline, None);
    };
    let client = node.options().chain(options.client.iter().cloned());
    let opened = load(located.clone(), client.collect(), &[], deadline, Some(node));
    match opened {
        Ok(opened) => Ok(match &options.processes {
            Some(group) => Opened {
                client: opened.client.with_processes(group.clone()),
                ..opened
            },
            None => opened,
        }),
        // A plugin without such options has the devices of its process alone, as those for CPUs.
        Err(error) if error.kind() == ErrorKind::InvalidArgument => {
            tracing::info!(%error, "opened without other processes");
            load(located, options.client.clone(), &[], deadline, None)
        }
        opened => opened,
    }
}

/// A process among those whose devices a client has.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) count: usize,
    /// Through which they find each other's devices.
    pub(crate) store: Arc<dyn KeyValueStore>,
}

impl Node {
    /// Options of a plugin's client.
    pub(crate) fn options(&self) -> impl Iterator<Item = (String, OptionValue)> + use<> {
        let options = [("node_id", self.index), ("num_nodes", self.count)];
        options
            .into_iter()
            .map(|(name, value)| (name.to_owned(), OptionValue::Int(value as i64)))
    }
}

impl OpenOptions {
    /// This process among several, with a store of their own; `None` for a process alone. All of
    /// them call this at the same time.
    pub(crate) fn node(&self) -> Result<Option<Node>> {
        let Some(group) = self.processes.as_ref().filter(|group| group.size() > 1) else {
            return Ok(None);
        };
        Ok(Some(Node {
            index: group.rank(),
            count: group.size(),
            store: group.store("devices")?,
        }))
    }
}

/// Loads a plugin and creates its client, both within the deadline.
pub(crate) fn load(
    located: Located,
    options: Vec<(String, OptionValue)>,
    environment: &[(&str, &str)],
    deadline: Duration,
    node: Option<Node>,
) -> Result<Opened> {
    let started = Instant::now();
    needed::provide(&located)?;
    let plugin = Plugin::load_with(
        &located.path,
        &load_options(&located, environment, deadline),
    )?;
    let left = deadline.saturating_sub(started.elapsed());
    let client = match node {
        Some(node) => plugin.client_with_store(options, left, node.store)?,
        None => plugin.client_within(options, left)?,
    };
    let variables = Environment::read()?;
    let wanted = (variables.kernels).unwrap_or(kernels::used(halite_kernels::OPTIMIZED));
    let callable = client.runs_custom_calls() && wanted != Kernels::Off && kernels::register();
    let mut capabilities = Backend::capabilities(&client);
    capabilities.kernels = if callable { wanted } else { Kernels::Off };
    capabilities.processor = kernels::processor();
    capabilities.one_function = client.compiles_functions();
    capabilities.unrolled = variables.unrolled.unwrap_or(capabilities.unrolled);
    Ok(Opened {
        client: Client::new(client).with_capabilities(capabilities),
        driver: Driver::Plugin { plugin, located },
        refused: Vec::new(),
    })
}

/// Returns the options for loading a library: one with a known digest needs no probe.
pub(crate) fn load_options<'a>(
    located: &Located,
    environment: &'a [(&'a str, &'a str)],
    deadline: Duration,
) -> LoadOptions<'a> {
    LoadOptions {
        environment,
        deadline,
        probe: located.plugin.is_none(),
    }
}
