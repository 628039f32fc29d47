//! What a backend runs itself, which decides how programs for it are lowered. Backends state it; no
//! platform is named here.

use std::str::FromStr;

use crate::{Error, Narrowing, Result};

/// What a backend runs itself, and what programs for it are lowered to: data that
/// [`Backend::capabilities`](crate::Backend::capabilities) states.
///
/// ```
/// use halite_core::{Capabilities, Client, Null};
///
/// let mut capabilities = Capabilities::default();
/// capabilities.rounds_products = false;
/// let client = Client::new(Null::new(1)).with_capabilities(capabilities);
/// assert_eq!(client.capabilities(), capabilities);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
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
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
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
    /// All that are known, on any platform.
    pub const ALL: Self = Faults {
        negative_padding: true,
        split_windows: true,
        split_products: true,
        arc_tangent: true,
        swapped_operands: true,
        integer_power: true,
        integer_convolutions: true,
        reversed_kernels: true,
        nested_slices: true,
        equal_indices: true,
    };
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
    /// Those of a backend of which nothing is known: its programs cast wherever the policy allows,
    /// ask for full precision in products, keep their loops and call no function of this process.
    pub const UNKNOWN: Self = Capabilities {
        narrowing: Narrowing::Everywhere,
        kernels: Kernels::Off,
        processor: Processor::TYPICAL,
        one_function: false,
        unrolled: 0,
        narrow_convolutions: false,
        narrow_matrices: false,
        rounds_products: true,
        faults: Faults::NONE,
    };
    /// Those that a program for any target may use: [`UNKNOWN`](Self::UNKNOWN), and it is lowered
    /// around the faults of all compilers.
    pub const PORTABLE: Self = Capabilities {
        faults: Faults::ALL,
        ..Self::UNKNOWN
    };
}

impl Default for Capabilities {
    /// [`UNKNOWN`](Self::UNKNOWN).
    fn default() -> Self {
        Self::UNKNOWN
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
