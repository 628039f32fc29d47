//! Properties of devices that decide how programs for them are lowered.

use std::str::FromStr;

use crate::{Error, Narrowing, Result};

/// Properties of the devices of a program that decide how it is lowered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capabilities {
    /// Values for which casting to the compute dtype pays.
    pub narrowing: Narrowing,
    /// Convolutions and attention that call halite's kernels.
    pub kernels: Kernels,
    /// The processor that runs these kernels. It decides which ones are faster than the compiler's
    /// code.
    pub processor: Processor,
    /// The compiler makes one function of a small program that asks for it, as XLA's for CPUs does.
    /// Not with [`Kernels::Off`].
    pub one_function: bool,
    /// Most nodes that the iterations of a loop of fixed length have together, for the loop to be
    /// unrolled; 0 keeps all loops.
    pub unrolled: usize,
    /// Convolutions of 16-bit operands have results of their type, which are converted: the compiler
    /// has no other ones, and would convert the operands to `f32`.
    pub narrow_convolutions: bool,
    /// Products of a few rows read a matrix of `bf16` as it is. Matrices that are stored so and computed
    /// with in `f32` are converted where they are read, not at the beginning of the program. Where
    /// these products are [`kernels`](Self::kernels), the compiler does not have to.
    pub narrow_matrices: bool,
    /// The device rounds the operands of a contraction of `f32`, unless the program asks for full
    /// precision.
    pub rounds_products: bool,
    /// Faults of the compiler that the program is lowered around.
    pub faults: Faults,
}

/// Faults of a compiler that give wrong numbers without an error, end the process, or refuse a program
/// that others run. Programs are lowered around those that are set; decisions 0051 and 0054 describe
/// each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Faults {
    /// A convolution with negative padding reads outside of its input.
    pub negative_padding: bool,
    /// The partitioner computes windows along a sharded dimension wrong: operations that pad one
    /// operand with different values share the padded copy, the parts of a convolution are added over
    /// devices that hold copies of the same part, the starts of dynamic slices are not clamped, and a
    /// scatter adds what fills up the last part of its updates.
    pub split_windows: bool,
    /// The partitioner reorders the result of a product that is summed over devices, where a dimension
    /// of the result is sharded over the summed axes and that of an operand over others.
    pub split_products: bool,
    /// `atan2(x, 1)` returns other elements and zeros: its vectorized arc tangent is wrong.
    pub arc_tangent: bool,
    /// A convolution of a dilated input with fewer places than the kernel may end the process.
    pub swapped_operands: bool,
    /// Powers of integers take account of six bits of the exponent only.
    pub integer_power: bool,
    /// Convolutions of integers are refused, or keep sums within the range of `s8` instead of wrapping.
    pub integer_convolutions: bool,
    /// A convolution in batch groups adds the groups, where its kernel is reversed or its input dilated;
    /// one whose kernel is reversed along some dimensions alone sums `f16` in `f16`.
    pub reversed_kernels: bool,
    /// The starts of a slice of a dynamic slice are added to those of the latter before either is moved
    /// into range, also where the outer one is a gather of one index.
    pub nested_slices: bool,
    /// If a scatter sets several updates at one index, any of them may win, and another one in another
    /// scatter with the same indices.
    pub equal_indices: bool,
}

impl Faults {
    /// No fault is known.
    pub const NONE: Self = Faults {
        negative_padding: false,
        split_windows: false,
        split_products: false,
        arc_tangent: false,
        swapped_operands: false,
        integer_power: false,
        integer_convolutions: false,
        reversed_kernels: false,
        nested_slices: false,
        equal_indices: false,
    };
    /// Those of every version of XLA's CPU plugin so far.
    pub const CPU: Self = Faults {
        negative_padding: true,
        split_windows: true,
        split_products: true,
        arc_tangent: true,
        swapped_operands: true,
        integer_power: true,
        nested_slices: true,
        ..Self::NONE
    };
    /// Those of XLA's plugins for GPUs.
    pub const GPU: Self = Faults {
        integer_power: true,
        nested_slices: true,
        integer_convolutions: true,
        reversed_kernels: true,
        equal_indices: true,
        ..Self::NONE
    };
    /// Those of libtpu. XLA leaves the order of updates open on all devices that compute in parallel.
    pub const TPU: Self = Faults {
        equal_indices: true,
        ..Self::NONE
    };
    /// All that are known, on any platform.
    pub const ALL: Self = Faults {
        integer_convolutions: true,
        reversed_kernels: true,
        equal_indices: true,
        ..Self::CPU
    };

    /// Known faults on a [`Platform::name`](crate::Platform), in any version.
    pub fn on(platform: &str) -> Self {
        match platform {
            "cpu" => Self::CPU,
            "cuda" | "rocm" => Self::GPU,
            "tpu" => Self::TPU,
            _ => Self::NONE,
        }
    }
}

/// What a program for a CPU leaves to halite instead of the compiler: convolutions and attention that
/// call halite's kernels in this process, and loops that are asked to be
/// [one function](Capabilities::one_function).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Kernels {
    /// None: `off`.
    #[default]
    Off,
    /// What is faster than XLA's code for CPUs: `on`.
    On,
    /// All that is possible, for tests: `all`.
    All,
}

/// A GPT of 24 layers, forward and backward. Without loops, XLA's CUDA plugin runs a step as one
/// CUDA graph.
const MOST_UNROLLED: usize = 4096;

/// A processor, as far as it decides whether a kernel is faster than the compiler's code.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Processor {
    /// Size of its vectors.
    pub vector_bits: usize,
    /// Number of threads that a kernel uses.
    pub threads: usize,
}

impl Default for Processor {
    /// A processor with AVX2, or the like, and four cores.
    fn default() -> Self {
        Self::TYPICAL
    }
}

impl Processor {
    const TYPICAL: Self = Processor {
        vector_bits: 256,
        threads: 4,
    };
}

impl Capabilities {
    /// Capabilities that a program for any target may use: it casts wherever the policy allows, calls
    /// no function of this process, and is lowered around the faults of all compilers.
    pub const PORTABLE: Self = Capabilities {
        narrowing: Narrowing::Everywhere,
        kernels: Kernels::Off,
        processor: Processor::TYPICAL,
        one_function: false,
        unrolled: 0,
        narrow_convolutions: false,
        narrow_matrices: false,
        rounds_products: true,
        faults: Faults::ALL,
    };

    /// Measured capabilities of the devices of a [`Platform::name`](crate::Platform), for programs
    /// that call no function of this process. Those of a client are
    /// [`Client::capabilities`](crate::Client::capabilities).
    pub fn on(platform: &str) -> Self {
        Capabilities {
            narrowing: Narrowing::on(platform),
            unrolled: if platform == "cuda" { MOST_UNROLLED } else { 0 },
            narrow_convolutions: platform == "cuda",
            narrow_matrices: platform == "halite",
            rounds_products: !matches!(platform, "cpu" | "halite"),
            faults: Faults::on(platform),
            ..Self::PORTABLE
        }
    }
}

impl FromStr for Kernels {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "off" => Ok(Kernels::Off),
            "on" => Ok(Kernels::On),
            "all" => Ok(Kernels::All),
            _ => {
                let message = format!("`{text}` is unknown; expected on, off or all");
                Err(Error::invalid("kernels", message))
            }
        }
    }
}
