//! Programs as portable bytecode, for readers that know StableHLO and no other dialect.

use halite_core::Result;
use halite_stablehlo::{Module, Version};

/// Versions to write a program in: the first that has everything in the program is the one that
/// most readers know.
const VERSIONS: [Version; 4] = [
    Version::new(1, 0, 0),
    Version::new(1, 9, 0),
    Version::new(1, 13, 0),
    Version::new(1, 17, 0),
];

/// Writes a program as portable bytecode of `version`; by default of the oldest of 1.0.0, 1.9.0,
/// 1.13.0 and 1.17.0 that has what the program uses.
///
/// `erf`, which is not in StableHLO, becomes the composite `chlo.erf`, as in programs of JAX:
/// compilers that do not know it run its decomposition.
///
/// # Errors
/// If the version does not have what the program uses; by default, if the newest does not.
pub fn portable(module: &Module, version: Option<Version>) -> Result<Vec<u8>> {
    let module = module.with_erf_composites()?;
    if let Some(version) = version {
        return module.to_bytecode(version);
    }
    let (last, older) = VERSIONS.split_last().expect("there are versions");
    let written = older
        .iter()
        .find_map(|&version| module.to_bytecode(version).ok());
    written.map_or_else(|| module.to_bytecode(*last), Ok)
}
