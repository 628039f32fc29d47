//! Programs for a backend: their code and signature, options of the compiler, and the memory that
//! they take.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

use super::Code;
use crate::{DeviceId, TensorType};

/// A StableHLO program with its signature.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name for dumps, reports and errors.
    pub name: Arc<str>,
    /// StableHLO.
    pub code: Code,
    /// Types of arguments and results, per device.
    pub signature: Signature,
    /// Number of SPMD partitions: devices that share one run, each with its shards of the tensors.
    /// At least 1.
    pub partitions: usize,
    /// Number of replicas: runs side by side on tensors of their own, which collectives exchange.
    /// At least 1.
    pub replicas: usize,
}

impl Program {
    /// Number of devices of one run.
    pub fn devices(&self) -> usize {
        self.partitions * self.replicas
    }
}

/// Types of arguments and results of a program, per device.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Signature {
    /// Argument types.
    pub inputs: Vec<TensorType>,
    /// Result types.
    pub outputs: Vec<TensorType>,
    /// Indices of arguments whose memory the program may reuse, ascending.
    pub donated: Vec<usize>,
}

/// Devices and flags of a compilation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileOptions {
    /// One device per replica and partition, replicas outermost. Empty means the first devices of
    /// this process.
    pub devices: Vec<DeviceId>,
    /// Options of the plugin's compiler by name, without leading dashes.
    pub flags: Vec<(String, FlagValue)>,
}

/// Value of a compiler option. Plugins reject a value of another type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the types of options")]
pub enum FlagValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
}

/// Memory that a compiled program needs on each device, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProgramMemory {
    /// Arguments.
    pub arguments: u64,
    /// Results.
    pub outputs: u64,
    /// Results that reuse the memory of donated arguments.
    pub aliased: u64,
    /// Scratch memory during a run.
    pub temporary: u64,
    /// The program itself.
    pub code: u64,
    /// Largest sum of values that are alive at once, where the compiler reports it. XLA's CPU
    /// plugin leaves out temporary values.
    pub peak: Option<u64>,
}

impl ProgramMemory {
    /// Memory that a run needs, without the program itself: arguments, results that reuse none of
    /// them, and scratch memory; or the [peak](Self::peak), where it is more, as of a small program
    /// on a TPU, whose peak has copies in the chip's fast memory.
    ///
    /// The peak alone may be less: scratch memory is one allocation with gaps between its values,
    /// which a run takes whole.
    pub fn required(&self) -> u64 {
        let own = self.outputs.saturating_sub(self.aliased);
        let sum = self.arguments.saturating_add(own);
        let sum = sum.saturating_add(self.temporary);
        sum.max(self.peak.unwrap_or(0))
    }
}

/// Operations of a compiled program that an interpreter computes.
#[derive(Clone, Debug)]
pub struct Interpreted {
    /// Their name: `sort`.
    pub operation: Arc<str>,
    /// What they are operations of: an element type, such as `f8E4M3FN`; or, where all operations
    /// of a program are interpreted, what kind of program it is.
    pub of: Arc<str>,
    /// Their number in the program, each counted once.
    pub count: u64,
    /// Nanoseconds that launches have spent in them so far.
    pub nanoseconds: Arc<AtomicU64>,
}

impl fmt::Display for Interpreted {
    /// `` `sort` of f8E4M3FN ``
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of {}", self.operation, self.of)
    }
}
