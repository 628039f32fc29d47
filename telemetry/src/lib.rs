//! Telemetry of halite: what a [`Client`](halite_core::Client) did, how long it took, and what is
//! worth changing.
//!
//! [`Metrics`] is an [`Observer`](halite_core::Observer) of `halite-core`: it counts and times
//! every upload, read, fetch, compile and launch, with the user's line. [`Activity`] is a snapshot
//! of it, and [`Activity::findings`] are rules that find what makes a program slow.
//! [`TelemetryOptions`] adds output: a log on stderr, dumps of programs, a file of metrics.
//!
//! `halite_backends::Accelerator` attaches all of it, as the environment configures it. Nothing
//! here runs or changes a program, and no crate below depends on it.
//!
//! ```
//! use halite_core::{Array, Client, HostArray, Null, Sharding};
//! use halite_telemetry::{ClientMetrics, Metric};
//!
//! # fn main() -> halite_core::Result<()> {
//! let client = Client::new(Null::new(1)).measured();
//! let device = Sharding::single(client.local_devices()[0]);
//! for _ in 0..3 {
//!     Array::upload(&client, &HostArray::scalar(1.0f32), &device)?.read()?;
//! }
//! assert_eq!(client.counters().snapshot().blocking_reads, 3);
//! assert_eq!(client.metrics().timer(Metric::Read).timing().count, 3);
//! let activity = client.metrics().activity();
//! assert_eq!(activity.reads[0].count, 3);
//! assert!(activity.reads[0].location.file().ends_with(".rs")); // this file, the line of `read`
//! println!("{}", client.metrics().report());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod activity;
mod console;
mod counters;
mod device_clock;
mod dump;
mod findings;
mod function;
mod metrics;
mod metrics_file;
mod observer;
mod options;
mod report;
mod text;
mod timer;

pub use activity::{
    Activity, CompileRecord, FunctionActivity, InputActivity, InterpretedActivity, SiteActivity,
};
pub use counters::{CounterSnapshot, Counters};
pub use findings::{Finding, FindingKind};
pub use metrics::{InputSource, Metric, Metrics};
pub use observer::ClientMetrics;
pub use options::{TelemetryOptions, Verbosity};
pub use text::program_digest;
pub use timer::{PERCENTILES, Timer, Timing};
