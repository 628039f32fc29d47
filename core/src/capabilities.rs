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
    /// The compiler makes one function of a small program that asks for it, as XLA's for CPUs does.
    /// Not with [`Kernels::Off`].
    pub one_function: bool,
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

impl Capabilities {
    /// Capabilities that a program for any target may use: it casts wherever the policy allows, and
    /// calls no function of this process.
    pub const PORTABLE: Self = Capabilities {
        narrowing: Narrowing::Everywhere,
        kernels: Kernels::Off,
        one_function: false,
    };

    /// Measured capabilities of the devices of a [`Platform::name`](crate::Platform), for programs
    /// that call no function of this process. Those of a client are
    /// [`Client::capabilities`](crate::Client::capabilities).
    pub fn on(platform: &str) -> Self {
        Capabilities {
            narrowing: Narrowing::on(platform),
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
