//! Code shared by the tests that need several crates: the harnesses and their helpers.
#![forbid(unsafe_code)]

pub mod combinations;
#[cfg(unix)]
pub mod corrupt;
pub mod differences;
pub mod embedded;
pub mod eval;
pub mod fuzz;
pub mod golden;
pub mod hanging;
#[cfg(unix)]
pub mod kill;
#[cfg(unix)]
pub mod launchers;
pub mod long;
pub mod lowering;
pub mod parallel;
pub mod parity;
pub mod process;
pub mod published;
pub mod python;
pub mod random;
pub mod runs;
#[cfg(target_os = "linux")]
pub mod soak;
pub mod targets;

/// The programs in the crates' READMEs compile.
#[cfg(doctest)]
mod readmes {
    macro_rules! readme {
        ($($name:ident: $path:literal)*) => { $(
            #[doc = include_str!($path)]
            struct $name;
        )* };
    }
    readme! {
        Core: "../../core/README.md"
        Derive: "../../core/derive/README.md"
        Ir: "../../core/ir/README.md"
        Stablehlo: "../../core/stablehlo/README.md"
        Backends: "../../backends/README.md"
        Conformance: "../../backends/conformance/README.md"
        Fetch: "../../backends/fetch/README.md"
        Pjrt: "../../backends/pjrt/README.md"
        PjrtSys: "../../backends/pjrt-sys/README.md"
        Nn: "../../nn/README.md"
        Data: "../../data/README.md"
        Train: "../../train/README.md"
        Embedded: "../../backends/embedded/README.md"
    }
}
