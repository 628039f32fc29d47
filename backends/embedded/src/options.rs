//! Options of the executor.

use crate::node::Node;

/// Options of an [`Embedded`](crate::Embedded).
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of virtual devices, at least 1.
    pub devices: u32,
    /// How programs run.
    pub mode: Mode,
    /// Threads that run the kernels of [`Mode::Fast`], for all devices together; 0 for as many as
    /// there are cores. Results do not depend on it.
    pub threads: usize,
    /// This process among several, whose devices the client has together: `devices` are those of
    /// this one.
    pub node: Option<Node>,
}

/// How programs run.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Mode {
    /// By a plan of fused kernels, in `f32` where the program is.
    #[default]
    Fast,
    /// By the interpreter, which rounds once and adds floats in `f64`.
    Oracle,
}

impl Default for Options {
    /// One device, fast, on all cores.
    fn default() -> Self {
        Options {
            devices: 1,
            mode: Mode::default(),
            threads: 0,
            node: None,
        }
    }
}
