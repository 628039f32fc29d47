//! The plugins that halite knows, as data.
//!
//! A plugin is loaded only from a path that the user gave, or from a file whose SHA-256 is in this table.

use halite_fetch::{Client, FileSpec, Package, Transform};

/// A plugin that some package ships.
#[derive(Clone, Copy, Debug)]
pub struct KnownPlugin {
    /// The name by which it is installed: `halite plugins install cpu`.
    pub name: &'static str,
    /// The kind of accelerator it drives.
    pub platform: &'static str,
    /// What to know before choosing it.
    pub about: &'static str,
    /// Under which terms it is given, as its package says.
    pub licence: &'static str,
    /// The package, with the library and its licence files.
    pub package: Package,
    /// The library among the package's files.
    pub library: FileSpec,
    /// The operating system and the architecture it is built for, as in `std::env::consts`.
    pub target: (&'static str, &'static str),
}

impl KnownPlugin {
    /// Whether it is built for this machine.
    pub fn runs_here(&self) -> bool {
        self.target == (std::env::consts::OS, std::env::consts::ARCH)
    }

    /// The Python module that the package installs: the folder of the library in a Python environment.
    pub(crate) fn python_module(&self) -> &'static str {
        self.library.inside.split('/').next().unwrap_or_default()
    }
}

/// Every known plugin. The first one of a platform is its default.
pub const PLUGINS: &[KnownPlugin] = &[
    KnownPlugin {
        name: "cpu",
        platform: "cpu",
        about: "XLA for CPU: PJRT 0.115, StableHLO 1.20; needs glibc 2.27 and libstdc++",
        licence: "Apache-2.0; its LICENSE and THIRD_PARTY_NOTICES are installed beside it",
        package: Package {
            client: Client::Pip,
            name: "lammps-jax-pjrt-cpu",
            version: "0.11.2",
            archive_size: 62_711_338,
            archive_sha256: Some("1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1"),
            files: &[CPU_LIBRARY, CPU_LICENCE, CPU_NOTICES],
        },
        library: CPU_LIBRARY,
        target: ("linux", "x86_64"),
    },
    KnownPlugin {
        name: "cpu-alternative",
        platform: "cpu",
        about: "XLA for CPU: PJRT 0.106, StableHLO 1.16; needs glibc 2.27 only; ends the process on bad input to more than \
                one device",
        licence: "Apache-2.0, as the package states; it ships no licence file",
        package: Package {
            client: Client::Pip,
            name: "fastatomstruct-xla-cpu",
            version: "2026.6.23",
            archive_size: 63_200_622,
            archive_sha256: Some("88b1c430b341b4bea40a37420311c9c75db6e22b46d2ff95b6986577bee6afe9"),
            files: &[ALTERNATIVE_LIBRARY],
        },
        library: ALTERNATIVE_LIBRARY,
        target: ("linux", "x86_64"),
    },
];

const CPU_LIBRARY: FileSpec = FileSpec {
    inside: "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
    name: "pjrt_c_api_cpu_plugin.so",
    size: 201_600_336,
    sha256: "ad1309ac822b1b24d51b7f9947c7c9fa9ef5d67f390584cbc3d1fa2428fed9c2",
    transform: Transform::None,
};
const CPU_LICENCE: FileSpec = FileSpec {
    inside: "lammps_jax_pjrt_cpu-0.11.2.dist-info/licenses/LICENSE",
    name: "LICENSE",
    size: 11_356,
    sha256: "43070e2d4e532684de521b885f385d0841030efa2b1a20bafb76133a5e1379c1",
    transform: Transform::None,
};
const CPU_NOTICES: FileSpec = FileSpec {
    inside: "lammps_jax_pjrt_cpu-0.11.2.dist-info/licenses/THIRD_PARTY_NOTICES",
    name: "THIRD_PARTY_NOTICES",
    size: 251_851,
    sha256: "82ad5ecbaf2c97949993a153fb996b712b8a1cb4f9c5030410a0853de4ebbe8f",
    transform: Transform::None,
};

const ALTERNATIVE_LIBRARY: FileSpec = FileSpec {
    inside: "fastatomstruct_xla_cpu/libpjrt_cpu.so",
    name: "libpjrt_cpu.so",
    size: 273_768_800,
    sha256: "0a0fe56ca17be9efc7b942e89e534e5e0ad4a0f1e369b66d27b62184509015b9",
    transform: Transform::None,
};

/// The known plugin of this name.
///
/// # Errors
/// If there is none; the message lists those there are.
pub fn plugin(name: &str) -> halite_core::Result<&'static KnownPlugin> {
    PLUGINS.iter().find(|plugin| plugin.name == name).ok_or_else(|| {
        let names: Vec<_> = PLUGINS.iter().map(|plugin| plugin.name).collect();
        halite_core::Error::invalid("plugins", format!("there is no plugin `{name}`; there are {}", names.join(", ")))
    })
}
