//! Properties of a program that a backend would otherwise search its text for.

/// Properties of a program that decide how a compiler is called. Whoever builds a program from a
/// graph knows them; a backend searches the text of other programs.
///
/// They hold only for programs without custom calls and without types of more than
/// [`LARGEST_TYPE`](Self::LARGEST_TYPE) bytes: a backend does not look for programs that its
/// compiler cannot take among those that have facts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProgramFacts {
    /// Has annotations for the Shardy partitioner (`sdy.sharding`).
    pub shardy: bool,
    /// Has annotations for the GSPMD partitioner (`mhlo.sharding`).
    pub gspmd: bool,
    /// Number of devices in each device mesh that the program defines.
    pub mesh_sizes: Vec<usize>,
    /// Chooses the memory layout of arguments or results (`mhlo.layout_mode`).
    pub layout_modes: bool,
    /// Has a convolution.
    pub convolutions: bool,
    /// Has a tensor of `bf16`.
    pub bf16: bool,
    /// Asks XLA's CPU compiler to compile it as one function (`xla_cpu_small_call`).
    pub one_function: bool,
}

impl ProgramFacts {
    /// Largest type in a program with facts, in bytes. Far below what drivers can count.
    pub const LARGEST_TYPE: usize = 1 << 48;
}
