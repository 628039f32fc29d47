//! The observer that feeds [`Metrics`], and the client's access to them.

mod launches;

use std::{sync::Arc, sync::atomic::Ordering::Relaxed};

use halite_core::{
    Client, Compilation, Error, ExecutableSource, LaunchObserver, Observer, Program, Transfer,
};

use self::launches::FunctionLaunches;
use crate::{Counters, Metric, Metrics, TelemetryOptions, dump};

/// Metrics of a [`Client`].
pub trait ClientMetrics: Sized {
    /// Attaches [`Metrics`] with default options to a client that has none.
    fn measured(self) -> Self;

    /// The client's metrics.
    ///
    /// # Panics
    /// If the client has none: call [`measured`](Self::measured) where it is created.
    fn metrics(&self) -> &Arc<Metrics>;

    /// The client's counters.
    ///
    /// # Panics
    /// As [`metrics`](Self::metrics).
    fn counters(&self) -> &Counters {
        self.metrics().counters()
    }
}

impl ClientMetrics for Client {
    fn measured(self) -> Self {
        if Metrics::of(&self).is_some() {
            return self;
        }
        TelemetryOptions::default().attach(self)
    }

    fn metrics(&self) -> &Arc<Metrics> {
        Metrics::of(self).expect(
            "the client has no metrics; attach them where it is created: \
             `Client::new(backend).measured()`",
        )
    }
}

impl Metrics {
    /// The metrics of a client, if it is [measured](ClientMetrics::measured).
    pub fn of(client: &Client) -> Option<&Arc<Metrics>> {
        let observer: Option<&MetricsObserver> = client.observer();
        observer.map(|MetricsObserver(metrics)| metrics)
    }
}

impl TelemetryOptions {
    /// Returns the client with [`Metrics`] that have these options.
    pub fn attach(self, client: Client) -> Client {
        let client = if self.blocking_launches {
            client.with_blocking_launches(true)
        } else {
            client
        };
        client.with_observer(MetricsObserver(Arc::new(Metrics::new(self))))
    }
}

/// The observer of a measured client.
#[derive(Debug)]
struct MetricsObserver(Arc<Metrics>);

impl Observer for MetricsObserver {
    fn compiled(&self, compilation: &Compilation<'_>) -> Option<Box<dyn LaunchObserver>> {
        let MetricsObserver(metrics) = self;
        let loaded = compilation.loaded;
        let function = metrics.function(loaded.name(), compilation.cause.origin);
        function
            .devices
            .store(loaded.devices().len() as u64, Relaxed);
        match compilation.source {
            ExecutableSource::Compiler => metrics.counters.count_compile(),
            ExecutableSource::CacheMiss => {
                metrics.counters.count_cache_miss();
                metrics.counters.count_compile();
            }
            ExecutableSource::CacheHit { bytes, saved } => {
                metrics.counters.count_cache_hit(bytes, saved);
            }
            ExecutableSource::Serialized => {}
        }
        function.add_interpreted(loaded.interpreted());
        if let Some(program) = compilation.program {
            metrics.record(&function, program, compilation);
        }
        let signature = loaded.signature();
        Some(Box::new(FunctionLaunches {
            metrics: metrics.clone(),
            function,
            inputs: signature.inputs.len() as u64,
            outputs: signature.outputs.len() as u64,
        }))
    }

    fn compile_failed(&self, program: &Program, _error: &Error) -> Option<String> {
        let dir = self.0.options().dump_dir.as_deref();
        Some(dump::write_rejected(dir, program))
    }

    fn wants_graph(&self) -> bool {
        self.0.options().dump_dir.is_some()
    }

    fn uploaded(&self, transfer: &Transfer) {
        self.0.counters.count_upload(transfer.bytes);
        self.time(Metric::Upload, transfer);
        self.0.uploads.add(transfer);
    }

    fn read(&self, transfer: &Transfer) {
        self.0.counters.count_blocking_read();
        self.time(Metric::Read, transfer);
        self.0.reads.add(transfer);
    }

    fn fetch_queued(&self) {
        self.0.counters.count_fetch();
    }

    fn fetched(&self, transfer: &Transfer) {
        self.time(Metric::Fetch, transfer);
        tracing::trace!(
            target: "halite::device",
            bytes = transfer.bytes,
            device = transfer.device.0,
            nanos = transfer.duration().as_nanos() as u64,
            "fetch"
        );
    }
}

impl MetricsObserver {
    fn time(&self, metric: Metric, transfer: &Transfer) {
        let timer = self.0.timer(metric);
        timer.add_at(transfer.ended, transfer.duration());
    }
}
