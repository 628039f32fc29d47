//! The interface of caches of compiled programs.

use std::{fmt, time::Duration};

use crate::{Error, Result};

/// A cache of compiled programs, on a disk in most cases: see
/// [`Client::with_program_cache`](crate::Client::with_program_cache).
///
/// A cache only saves time. If it fails, the program is compiled, so no method returns an error; a
/// cache that does not work logs that once.
pub trait ProgramCache: fmt::Debug + Send + Sync + 'static {
    /// Looks up a program.
    fn find(&self, key: &ProgramKey) -> Option<CachedProgram>;

    /// Called before a program that was not found is compiled. May wait while another process compiles
    /// it; returns whether it is worth looking again.
    fn begin(&self, _key: &ProgramKey) -> bool {
        false
    }

    /// Called when a program that was [begun](Self::begin) could not be compiled.
    fn failed(&self, _key: &ProgramKey) {}

    /// Stores a program that was just compiled, if that is worth it. If `serialize` returns an
    /// error, the program cannot be stored.
    fn insert(
        &self,
        key: &ProgramKey,
        compiled: &Compiled<'_>,
        serialize: &dyn Fn() -> Result<Vec<u8>>,
    );

    /// Called when the backend loaded what [`find`](Self::find) returned. If neither this nor
    /// [`rejected`](Self::rejected) is called, loading may have ended the process.
    fn loaded(&self, _key: &ProgramKey) {}

    /// Called when the backend rejected what [`find`](Self::find) returned.
    fn rejected(&self, key: &ProgramKey, reason: &Error);
}

/// Key of a compiled program: a digest of everything that the compiler's result depends on.
///
/// [`Backend::program_key`](crate::Backend::program_key) computes it. It is displayed as 64
/// hexadecimal digits.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct ProgramKey(pub [u8; 32]);

impl fmt::Display for ProgramKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::hex(&self.0))
    }
}

impl fmt::Debug for ProgramKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramKey({self})")
    }
}

/// A program found in a [`ProgramCache`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CachedProgram {
    /// The result of [`Executable::serialize`](crate::Executable::serialize).
    pub serialized: Vec<u8>,
    /// Compile time of the original compilation.
    pub compile_time: Duration,
}

/// Description of a program that a [`ProgramCache`] stores.
#[derive(Clone, Copy, Debug)]
pub struct Compiled<'a> {
    /// The program's name, for listings.
    pub name: &'a str,
    /// The backend's platform, for listings.
    pub platform: &'a str,
    /// Compile time of the original compilation.
    pub compile_time: Duration,
}
