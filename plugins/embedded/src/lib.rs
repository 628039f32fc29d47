//! The embedded executor of halite as a PJRT plugin, for JAX and every other caller of PJRT.
//!
//! Options of the client: `devices`, the number of virtual devices, 1 by default; `oracle`, true to
//! interpret programs in `f64`; `node_id` and `num_nodes`, the index of this process and the number
//! of processes, whose devices the client has together; `collective_timeout`, the longest wait of a
//! launch for another process, in seconds, 60 by default.
#![forbid(unsafe_code)]

use std::time::Duration;

use halite_core::{Error, Result};
use halite_embedded::{Embedded, Mode, Node};
use halite_plugin::Options;

fn open(options: &mut Options) -> Result<Embedded> {
    // Uploads copy from any memory.
    options.set_host_memory(());
    let devices = options.int("devices")?.unwrap_or(1);
    let mode = match options.bool("oracle")? {
        Some(true) => Mode::Oracle,
        Some(false) | None => Mode::Fast,
    };
    Embedded::new(&halite_embedded::Options {
        devices: number("devices", devices)?,
        mode,
        node: node(options)?,
        ..halite_embedded::Options::default()
    })
}

/// This process among several, if there are several.
fn node(options: &mut Options) -> Result<Option<Node>> {
    let index = number("node_id", options.int("node_id")?.unwrap_or(0))?;
    let count = number("num_nodes", options.int("num_nodes")?.unwrap_or(1))?;
    let seconds = options.int("collective_timeout")?.unwrap_or(60);
    if count <= 1 {
        return Ok(None);
    }
    Ok(Some(Node {
        index,
        count,
        store: options.key_value_store()?,
        patience: Duration::from_secs(number("collective_timeout", seconds)?.into()),
    }))
}

fn number(name: &str, value: i64) -> Result<u32> {
    u32::try_from(value).map_err(|_| {
        let message = format!("option `{name}` is {value}; expected a number from 0 to 2^32 - 1");
        Error::invalid("open", message)
    })
}

halite_plugin::export_plugin!(open);
