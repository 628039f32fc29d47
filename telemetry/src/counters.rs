//! Counts of what a client did.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Counts of what a client did since it was created. They only grow.
#[derive(Debug, Default)]
pub struct Counters {
    uploads: AtomicU64,
    uploaded_bytes: AtomicU64,
    blocking_reads: AtomicU64,
    fetches: AtomicU64,
    compiles: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    cached_bytes: AtomicU64,
    saved_nanos: AtomicU64,
    launches: AtomicU64,
}

impl Counters {
    /// The counts now.
    pub fn snapshot(&self) -> CounterSnapshot {
        CounterSnapshot {
            uploads: self.uploads.load(Relaxed),
            uploaded_bytes: self.uploaded_bytes.load(Relaxed),
            blocking_reads: self.blocking_reads.load(Relaxed),
            fetches: self.fetches.load(Relaxed),
            compiles: self.compiles.load(Relaxed),
            cache_hits: self.cache_hits.load(Relaxed),
            cache_misses: self.cache_misses.load(Relaxed),
            cached_bytes: self.cached_bytes.load(Relaxed),
            compile_time_saved: Duration::from_nanos(self.saved_nanos.load(Relaxed)),
            launches: self.launches.load(Relaxed),
        }
    }

    pub(crate) fn count_upload(&self, bytes: usize) {
        self.uploads.fetch_add(1, Relaxed);
        self.uploaded_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn count_blocking_read(&self) {
        self.blocking_reads.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_fetch(&self) {
        self.fetches.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_compile(&self) {
        self.compiles.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_cache_hit(&self, bytes: usize, saved: Duration) {
        self.cache_hits.fetch_add(1, Relaxed);
        self.cached_bytes.fetch_add(bytes as u64, Relaxed);
        let nanos = u64::try_from(saved.as_nanos()).unwrap_or(u64::MAX);
        self.saved_nanos.fetch_add(nanos, Relaxed);
    }

    pub(crate) fn count_cache_miss(&self) {
        self.cache_misses.fetch_add(1, Relaxed);
    }

    /// Counts a launch, and returns the number of launches before.
    pub(crate) fn count_launch(&self) -> u64 {
        self.launches.fetch_add(1, Relaxed)
    }
}

/// [`Counters`] at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CounterSnapshot {
    /// Copies from host to device.
    pub uploads: u64,
    /// Bytes of those copies.
    pub uploaded_bytes: u64,
    /// Reads that blocked a host thread until the device was done.
    pub blocking_reads: u64,
    /// Copies from device to host that were queued without waiting.
    pub fetches: u64,
    /// Programs compiled.
    pub compiles: u64,
    /// Programs loaded from the [cache](halite_core::Client::with_program_cache) instead of being
    /// compiled.
    pub cache_hits: u64,
    /// Programs compiled because they were not in the cache.
    pub cache_misses: u64,
    /// Serialized bytes of the programs loaded from the cache.
    pub cached_bytes: u64,
    /// Time that the cache saved: compile times of the original compilations minus load times.
    pub compile_time_saved: Duration,
    /// Programs launched.
    pub launches: u64,
}

impl CounterSnapshot {
    /// The counts since `earlier`, a snapshot of the same client.
    pub fn since(&self, earlier: &CounterSnapshot) -> CounterSnapshot {
        CounterSnapshot {
            uploads: self.uploads - earlier.uploads,
            uploaded_bytes: self.uploaded_bytes - earlier.uploaded_bytes,
            blocking_reads: self.blocking_reads - earlier.blocking_reads,
            fetches: self.fetches - earlier.fetches,
            compiles: self.compiles - earlier.compiles,
            cache_hits: self.cache_hits - earlier.cache_hits,
            cache_misses: self.cache_misses - earlier.cache_misses,
            cached_bytes: self.cached_bytes - earlier.cached_bytes,
            compile_time_saved: self.compile_time_saved - earlier.compile_time_saved,
            launches: self.launches - earlier.launches,
        }
    }

    /// The counts with their names in reports.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("Compiles", self.compiles),
            ("CacheHits", self.cache_hits),
            ("CacheMisses", self.cache_misses),
            ("CachedBytes", self.cached_bytes),
            ("Launches", self.launches),
            ("Uploads", self.uploads),
            ("UploadedBytes", self.uploaded_bytes),
            ("BlockingReads", self.blocking_reads),
            ("Fetches", self.fetches),
        ]
    }
}
