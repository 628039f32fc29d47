//! Keeping compiled programs, so that the next process need not compile them.

use std::{fmt, time::Duration};

use crate::{Error, Result};

/// Where compiled programs are kept: on a disk, in most cases. See
/// [`Client::with_program_cache`](crate::Client).
///
/// A cache only saves time. Whatever goes wrong in it, the program is compiled: so no method
/// returns an error, and a cache says by other means, and not more than once, that it does not
/// work.
pub trait ProgramCache: fmt::Debug + Send + Sync + 'static {
    /// The program that was kept under this key.
    fn find(&self, key: &ProgramKey) -> Option<KeptProgram>;

    /// Keeps a program that was just compiled, if it is worth it. Errors of `serialize` mean that
    /// it cannot be kept.
    fn keep(
        &self,
        key: &ProgramKey,
        compiled: &Compiled<'_>,
        serialize: &dyn Fn() -> Result<Vec<u8>>,
    );

    /// The backend has loaded what [`find`](Self::find) gave. A program that was given out, and
    /// neither loaded nor refused by the end of the process, may have ended it.
    fn loaded(&self, _key: &ProgramKey) {}

    /// The backend refuses what [`find`](Self::find) gave, for this reason.
    fn refused(&self, key: &ProgramKey, reason: &Error);
}

/// What tells a program, compiled as it is to be, from all others: a digest of all that decides
/// what the compiler makes.
///
/// It is given by [`Backend::program_key`](crate::Backend::program_key). It is shown as 64
/// hexadecimal digits.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct ProgramKey(pub [u8; 32]);

impl fmt::Display for ProgramKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ProgramKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramKey({self})")
    }
}

/// A program out of a [`ProgramCache`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptProgram {
    /// What [`Executable::serialize`](crate::Executable::serialize) gave.
    pub serialized: Vec<u8>,
    /// How long compiling it took.
    pub compile_time: Duration,
}

/// What a [`ProgramCache`] is told of a program to keep.
#[derive(Clone, Copy, Debug)]
pub struct Compiled<'a> {
    /// For people: the program's name.
    pub name: &'a str,
    /// For people: the backend's platform.
    pub platform: &'a str,
    /// How long compiling it took.
    pub compile_time: Duration,
}
