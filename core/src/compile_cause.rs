//! Why a program is compiled, as its caller knows it: for observers and error messages.

use std::{fmt, panic::Location, sync::Arc, time::Duration};

use crate::{Error, Sharding, TensorType};

/// The reason for a compilation, and where it comes from in the user's code.
#[derive(Clone, Debug, Default)]
pub struct CompileCause {
    /// The line that made the function.
    pub origin: Option<&'static Location<'static>>,
    /// The line that called it.
    pub called_at: Option<&'static Location<'static>>,
    /// Differences from earlier compilations.
    pub reason: Reason,
    /// Times of the stages before the compiler.
    pub stages: Stages,
    /// The graph that the program was printed from, as text. Needed only if
    /// [`Client::wants_graph`](crate::Client::wants_graph).
    pub graph: Option<String>,
    /// The largest tensors of the program, largest first; listed in out-of-memory errors.
    pub largest: Vec<LargeBuffer>,
}

/// Times of the stages that make a function launchable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stages {
    /// Tracing the function.
    pub trace: Duration,
    /// Optimizing the graph and printing it as StableHLO.
    pub print: Duration,
    /// Compiling it for the devices, or loading it from the program cache.
    pub compile: Duration,
}

impl Stages {
    /// The sum of all stages.
    pub fn total(&self) -> Duration {
        self.trace + self.print + self.compile
    }
}

/// One of the largest tensors of a program.
#[derive(Clone, Debug)]
pub struct LargeBuffer {
    /// The path of an input, or the operation that computes it.
    pub what: String,
    /// Its type, per device where that is known.
    pub ty: TensorType,
    /// The line of the user's code that it comes from.
    pub line: Option<&'static Location<'static>>,
}

impl LargeBuffer {
    fn bytes(&self) -> usize {
        self.ty.checked_bytes().unwrap_or(usize::MAX)
    }
}

impl fmt::Display for LargeBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = format_bytes(self.bytes() as u64);
        write!(f, "{} {}, {size}", self.what, self.ty)?;
        match self.line {
            Some(line) => write!(f, " ({line})"),
            None => Ok(()),
        }
    }
}

/// Differences from earlier compilations of the same function.
#[derive(Clone, Debug, Default)]
pub enum Reason {
    /// [`Client::compile`](crate::Client::compile) was called directly.
    #[default]
    Requested,
    /// The function was not compiled before.
    First,
    /// Inputs have other types or shardings than before.
    InputChanged(Vec<InputChange>),
    /// The inputs are trees of another structure than before.
    Arranged {
        /// Number of arrays before.
        from: usize,
        /// Number of arrays now.
        to: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Requested => write!(f, "requested"),
            Reason::First => write!(f, "first call"),
            Reason::InputChanged(changes) => {
                let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
                f.write_str(&changes.join("; "))
            }
            Reason::Arranged { from, to } if from != to => write!(f, "{to} arrays, not {from}"),
            Reason::Arranged { .. } => write!(f, "the tree of inputs has another structure"),
        }
    }
}

/// An input of a function whose type or sharding changed.
#[derive(Clone, Debug)]
pub struct InputChange {
    /// Its path in the tree of inputs; empty for a single input.
    pub path: String,
    /// Type and sharding before.
    pub from: (TensorType, Arc<Sharding>),
    /// Type and sharding now.
    pub to: (TensorType, Arc<Sharding>),
}

impl InputChange {
    /// The input's name for messages.
    pub fn name(&self) -> String {
        if self.path.is_empty() {
            "the input".to_string()
        } else {
            format!("`{}`", self.path)
        }
    }

    /// Before and after as text, with shardings or devices where only they changed.
    pub fn describe(&self) -> (String, String) {
        let with_sharding = |(ty, sharding): &(TensorType, Arc<Sharding>)| {
            if sharding.mesh().size() == 1 {
                ty.to_string()
            } else {
                format!("{ty} by {sharding}")
            }
        };
        let with_devices = |(ty, sharding): &(TensorType, Arc<Sharding>)| {
            let devices: Vec<u32> = sharding.mesh().devices().iter().map(|id| id.0).collect();
            format!("{ty} on devices {devices:?}")
        };
        let (from, to) = (with_sharding(&self.from), with_sharding(&self.to));
        if from == to {
            return (with_devices(&self.from), with_devices(&self.to));
        }
        (from, to)
    }
}

impl fmt::Display for InputChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.describe();
        write!(f, "{} was {from}, is {to}", self.name())
    }
}

/// What helps against too little memory.
const HELP: &str = "what helps: a smaller batch, more devices to share the model or the batch, \
                    `checkpoint` around layers, bf16";

/// Adds the largest tensors of the program, and what would help, to an out-of-memory error.
#[cold]
pub(crate) fn explain_out_of_memory(error: Error, program: &str, largest: &[LargeBuffer]) -> Error {
    let tensors = listed("its", largest);
    error.with_note(&format!(
        "`{program}` needs more memory than there is; {tensors}{HELP}"
    ))
}

/// The same for the error of a result, which comes when it is read: the program that failed
/// returned it, or returned what it was computed from.
#[cold]
pub(crate) fn explain_queued_out_of_memory(
    error: Error,
    program: &str,
    largest: &[LargeBuffer],
) -> Error {
    let tensors = listed(&format!("`{program}`'s"), largest);
    error.with_note(&format!(
        "`{program}`, or a program whose results it takes, needs more memory than there is; \
         {tensors}{HELP}"
    ))
}

/// The list of the largest tensors for an error; `whose` they are is its first word.
fn listed(whose: &str, largest: &[LargeBuffer]) -> String {
    let most = largest.iter().map(LargeBuffer::bytes).max().unwrap_or(0);
    // A tensor of a hundredth of the largest one's size does not matter.
    let significant: Vec<String> = largest
        .iter()
        .filter(|large| large.bytes() > most / 100)
        .map(ToString::to_string)
        .collect();
    if significant.is_empty() {
        return String::new();
    }
    format!("{whose} largest tensors: {}; ", significant.join("; "))
}

/// Formats a size in the largest decimal unit, with three digits: `1.50 GB`.
#[doc(hidden)]
pub fn format_bytes(bytes: u64) -> String {
    let (value, unit) = match bytes as f64 {
        b if b >= 1e12 => (b / 1e12, "TB"),
        b if b >= 1e9 => (b / 1e9, "GB"),
        b if b >= 1e6 => (b / 1e6, "MB"),
        b if b >= 1e3 => (b / 1e3, "kB"),
        b => return format!("{b:.0} B"),
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}
