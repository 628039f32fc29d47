//! Facts of a program that decide how a compiler is called.

/// Facts of a program that decide how a compiler is called. A [module](crate::ModuleCode) states
/// them; a backend searches the text of other programs.
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
    /// Targets of custom calls, of a module.
    pub custom_calls: Vec<String>,
    /// A type whose size in bytes does not fit 64 bits, where dimensions of 0 count as 1.
    pub oversized: Option<String>,
    /// Has a `reduce_window` of one element with negative padding.
    pub cut_window_of_one: bool,
    /// Calls `TopK`, which returns a tuple, with one tensor as its result.
    pub untupled_top_k: bool,
}
