//! TPU slices by name.

use std::{fmt, str::FromStr};

use halite_core::DeviceSpec;
use halite_pjrt::{OptionValue, Options};

use super::{by_x, sizes};

/// Environment variables that libtpu needs without a TPU: otherwise it queries a metadata server
/// for minutes, cannot be loaded by two processes at once, writes logs to a shared directory, and
/// warns about this program's alignment on stderr. The accelerator type does not matter, because
/// topologies specify it.
pub(super) const ENVIRONMENT: &[(&str, &str)] = &[
    ("TPU_SKIP_MDS_QUERY", "1"),
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("TPU_WORKER_ID", "0"),
    ("TPU_LOG_DIR", "disabled"),
    ("LIBTPU_INIT_ARGS", "--hugepage_text=false"),
];

/// A generation of TPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "their names")]
pub enum TpuGeneration {
    V2,
    V3,
    V4,
    V5e,
    V5p,
    V6e,
    /// Ironwood.
    Tpu7x,
}

impl TpuGeneration {
    /// Every generation, oldest first.
    pub const ALL: [TpuGeneration; 7] = [
        Self::V2,
        Self::V3,
        Self::V4,
        Self::V5e,
        Self::V5p,
        Self::V6e,
        Self::Tpu7x,
    ];

    /// The name in a target: `v5e`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V3 => "v3",
            Self::V4 => "v4",
            Self::V5e => "v5e",
            Self::V5p => "v5p",
            Self::V6e => "v6e",
            Self::Tpu7x => "tpu7x",
        }
    }

    /// The name that libtpu reports of a device.
    fn kind(self) -> &'static str {
        match self {
            Self::V2 => "TPU v2",
            Self::V3 => "TPU v3",
            Self::V4 => "TPU v4",
            Self::V5e => "TPU v5 lite",
            Self::V5p => "TPU v5",
            Self::V6e => "TPU v6 lite",
            Self::Tpu7x => "TPU7x",
        }
    }

    /// Number of axes of its network.
    fn axes(self) -> usize {
        match self {
            Self::V2 | Self::V3 | Self::V5e | Self::V6e => 2,
            Self::V4 | Self::V5p | Self::Tpu7x => 3,
        }
    }

    /// Number of chips of a pod, the largest slice.
    fn pod(self) -> u64 {
        match self {
            Self::V2 | Self::V5e | Self::V6e => 256,
            Self::V3 => 1024,
            Self::V4 => 4096,
            Self::V5p => 8960,
            Self::Tpu7x => 9216,
        }
    }

    /// The longest axis of a two-dimensional pod.
    fn longest(self) -> Option<u32> {
        match self {
            Self::V2 | Self::V5e | Self::V6e => Some(16),
            Self::V3 => Some(32),
            Self::V4 | Self::V5p | Self::Tpu7x => None,
        }
    }

    /// Number of devices of a chip: its cores, where they do not work as one.
    pub(super) fn devices_per_chip(self) -> usize {
        match self {
            Self::V2 | Self::V3 | Self::V4 | Self::Tpu7x => 2,
            Self::V5e | Self::V5p | Self::V6e => 1,
        }
    }

    /// An existing slice, as an example in errors.
    fn example(self) -> &'static str {
        if self.axes() == 2 { "4x4" } else { "4x4x4" }
    }
}

/// TPU slices of one shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TpuTarget {
    /// The generation.
    pub generation: TpuGeneration,
    /// Chips along each axis of a slice.
    pub chips: Vec<u32>,
    /// Number of such slices, connected by the data center network.
    pub slices: u32,
    /// Uses the two cores of a v4's chip as one device.
    pub megacore: bool,
}

/// Maximum number of slices, more than any job had; the compiler creates all their devices.
const MOST_SLICES: u32 = 256;

impl TpuTarget {
    pub(super) fn device_count(&self) -> usize {
        let chips: usize = self.chips.iter().map(|&size| size as usize).product();
        let per_chip = if self.megacore {
            1
        } else {
            self.generation.devices_per_chip()
        };
        chips * per_chip * self.slices as usize
    }

    /// The vendor's numbers of one device. The kind of a v4 is that of a chip whose cores are one
    /// device.
    pub(super) fn spec(&self) -> Option<DeviceSpec> {
        let spec = DeviceSpec::of_kind(self.generation.kind())?;
        let is_core = self.generation == TpuGeneration::V4 && !self.megacore;
        Some(if is_core { spec.part_of(2) } else { spec })
    }

    /// The name of the topology in libtpu.
    pub(super) fn topology(&self) -> String {
        format!("{}:{}", self.generation.name(), by_x(&self.chips))
    }

    pub(super) fn options(&self) -> Options {
        let mut options = Options::new();
        if self.slices > 1 {
            options.push((
                "num_slices".into(),
                OptionValue::Int(i64::from(self.slices)),
            ));
        }
        if self.megacore {
            options.push(("chip_config_name".into(), "megacore".into()));
        }
        options
    }

    /// Rejects slices that do not exist, some of which libtpu accepts and then aborts on.
    fn check(&self) -> Result<(), String> {
        let name = self.generation.name();
        self.check_size()?;
        self.check_hosts()?;
        if self.megacore && self.generation != TpuGeneration::V4 {
            let cores = if self.generation.devices_per_chip() == 1 {
                "are always one device"
            } else {
                "are always two"
            };
            return Err(format!(
                "megacore is an option of v4, the cores of a {name} chip {cores}; remove it"
            ));
        }
        if !(1..=MOST_SLICES).contains(&self.slices) {
            return Err(format!(
                "{} slices; expected 1 to {MOST_SLICES}",
                self.slices
            ));
        }
        Ok(())
    }

    /// Checks the number of axes, and the number of chips along each and in all.
    fn check_size(&self) -> Result<(), String> {
        let (generation, shape) = (self.generation, by_x(&self.chips));
        let name = generation.name();
        if self.chips.len() != generation.axes() {
            let example = generation.example();
            return Err(format!(
                "`{shape}` has {} axes, a {name} has {}; expected for instance \
                 tpu:{name}:{example}",
                self.chips.len(),
                generation.axes()
            ));
        }
        if let Some(longest) = generation.longest()
            && self.chips.iter().any(|&size| size > longest)
        {
            return Err(format!(
                "a {name} has at most {longest} chips along each axis; take \
                 tpu:{name}:{longest}x{longest} or less, or several slices of it: \
                 tpu:{name}:{longest}x{longest},slices=4"
            ));
        }
        let sizes = self.chips.iter().map(|&size| u64::from(size));
        let chips = sizes.fold(1, u64::saturating_mul);
        if chips > generation.pod() {
            return Err(format!(
                "`{shape}` is {chips} chips, a pod of {name} has {}; choose a smaller slice",
                generation.pod()
            ));
        }
        Ok(())
    }

    /// Checks that the slice divides into hosts. A host has 2x2 chips, or a part of them on slices
    /// of one row.
    fn check_hosts(&self) -> Result<(), String> {
        let mut even = self.chips.clone();
        for size in even.iter_mut().take(2).filter(|size| **size > 1) {
            *size = size.next_multiple_of(2);
        }
        if even == self.chips {
            return Ok(());
        }
        Err(format!(
            "`{}` does not divide into hosts of 2x2 chips: the first two axes are 1 or even; \
             expected for instance tpu:{}:{}",
            by_x(&self.chips),
            self.generation.name(),
            by_x(&even)
        ))
    }
}

/// `v4:4x4x4,megacore,slices=2`
impl fmt::Display for TpuTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.generation.name(), by_x(&self.chips))?;
        if self.megacore {
            f.write_str(",megacore")?;
        }
        if self.slices > 1 {
            write!(f, ",slices={}", self.slices)?;
        }
        Ok(())
    }
}

impl FromStr for TpuTarget {
    /// The error is a message without the target.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let slice = words.next().unwrap_or_default();
        let (name, shape) = slice.split_once(':').ok_or_else(|| {
            format!("the shape of `{slice}` is missing; expected for instance tpu:v5e:4x4")
        })?;
        let generation = TpuGeneration::ALL
            .into_iter()
            .find(|known| known.name() == name)
            .ok_or_else(|| {
                let known: Vec<_> = TpuGeneration::ALL
                    .iter()
                    .map(|known| known.name())
                    .collect();
                let meant = match name {
                    "v5litepod" | "v5lite" => "; use v5e for a v5litepod",
                    "v7" | "v7x" => "; use tpu7x for a v7x",
                    _ => "",
                };
                format!(
                    "unknown TPU `{name}`; expected one of {}{meant}",
                    known.join(", ")
                )
            })?;
        let chips = sizes(shape).ok_or_else(|| {
            format!(
                "invalid shape `{shape}`; expected for instance tpu:{name}:{}",
                generation.example()
            )
        })?;
        let mut target = TpuTarget {
            generation,
            chips,
            slices: 1,
            megacore: false,
        };
        for word in words {
            match word.split_once('=') {
                None if word == "megacore" => target.megacore = true,
                Some(("slices", count)) => {
                    target.slices = count.parse().map_err(|_| {
                        format!(
                            "invalid number of slices `{count}`; expected for instance slices=4"
                        )
                    })?;
                }
                _ => {
                    return Err(format!(
                        "unknown option `{word}` of a TPU target; expected megacore or slices=4"
                    ));
                }
            }
        }
        target.check()?;
        Ok(target)
    }
}
