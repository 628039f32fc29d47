//! Table of the plugins that halite can install.
//!
//! A plugin is loaded only from a path that the user gave, or from a file whose SHA-256 is in this
//! table. The digest is computed at installation, and again whenever the file's times or inode
//! changed, or users other than this process's and root could have replaced the file.

mod vendors;

use std::collections::BTreeSet;

use halite_fetch::{Client, FileSpec, Package, Transform};

/// A plugin that a package of a registry contains.
#[derive(Clone, Copy, Debug)]
pub struct KnownPlugin {
    /// Name for installation: `halite plugins install cpu`.
    pub name: &'static str,
    /// Kind of accelerator: `cpu`, `cuda`, `tpu`, `rocm`, `oneapi` or `tt`.
    pub platform: &'static str,
    /// Description for users: versions, system requirements.
    pub about: &'static str,
    /// License, as the package states it.
    pub licence: &'static str,
    /// Shows the license before the installation, because not all of the package is known
    /// to be open source.
    pub shows_licence: bool,
    /// Used only if it is named, never by a search.
    pub only_by_name: bool,
    /// Package with the library and its license files.
    pub package: Package,
    /// Library among the files of the package.
    pub library: FileSpec,
    /// Packages of the libraries that are loaded with it and are not among its files. The first one
    /// that fits a name counts.
    pub needs: &'static [Need],
    /// Operating system and architecture that it is built for, as in `std::env::consts`.
    pub target: (&'static str, &'static str),
}

/// Libraries that a plugin needs, and what they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Beginnings of the names of their files: `libmkl_`.
    pub names: &'static [&'static str],
    /// What has them.
    pub from: Provider,
}

/// What installs a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// A package of pip, with its version: `mkl==2025.1.0`.
    Pip(&'static str),
    /// Anything else, as messages describe it.
    Other(&'static str),
}

impl KnownPlugin {
    /// Returns whether it is built for this machine.
    pub fn runs_here(&self) -> bool {
        self.target == HERE
    }

    /// Returns the Python module that the package installs, and the path of the library in it.
    pub(crate) fn in_python(&self) -> (&'static str, &'static str) {
        self.library
            .inside
            .split_once('/')
            .unwrap_or(("", self.library.inside))
    }
}

/// Operating system and architecture of this process.
pub(crate) const HERE: (&str, &str) = (std::env::consts::OS, std::env::consts::ARCH);

/// The hosts that these plugins are built for: `linux x86_64`.
pub(crate) fn hosts<'p>(plugins: impl IntoIterator<Item = &'p KnownPlugin>) -> String {
    let name = |plugin: &KnownPlugin| format!("{} {}", plugin.target.0, plugin.target.1);
    let names: BTreeSet<String> = plugins.into_iter().map(name).collect();
    Vec::from_iter(names).join(", ")
}

/// Every known plugin. The first one of a platform is its default.
pub const PLUGINS: &[KnownPlugin] = &[
    KnownPlugin {
        name: "cpu",
        platform: "cpu",
        about: "XLA for CPU: PJRT 0.115, StableHLO 1.20; needs glibc 2.27 and libstdc++",
        licence: "Apache-2.0; its LICENSE and THIRD_PARTY_NOTICES are installed beside it",
        shows_licence: false,
        only_by_name: false,
        package: Package {
            client: Client::Pip,
            name: "lammps-jax-pjrt-cpu",
            version: "0.11.2",
            archive_size: 62_711_338,
            archive_sha256: Some(
                "1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1",
            ),
            files: &[CPU_LIBRARY, CPU_LICENCE, CPU_NOTICES],
            parts: &[],
        },
        library: CPU_LIBRARY,
        needs: &[],
        target: ("linux", "x86_64"),
    },
    KnownPlugin {
        name: "cpu-alternative",
        platform: "cpu",
        about: "XLA for CPU: PJRT 0.106, StableHLO 1.16; needs glibc 2.27 only; aborts the process on invalid input to several \
                devices",
        licence: "Apache-2.0, as the package states; it ships no licence file",
        shows_licence: false,
        only_by_name: false,
        package: Package {
            client: Client::Pip,
            name: "fastatomstruct-xla-cpu",
            version: "2026.6.23",
            archive_size: 63_200_622,
            archive_sha256: Some(
                "88b1c430b341b4bea40a37420311c9c75db6e22b46d2ff95b6986577bee6afe9",
            ),
            files: &[ALTERNATIVE_LIBRARY],
            parts: &[],
        },
        library: ALTERNATIVE_LIBRARY,
        needs: &[],
        target: ("linux", "x86_64"),
    },
    KnownPlugin {
        name: "cpu-old",
        platform: "cpu",
        about: "XLA for CPU, old version: PJRT 0.81, StableHLO 1.13; for tests of compatibility; needs glibc 2.27 and \
                libstdc++",
        licence: "none is stated, and no licence file is in the package",
        shows_licence: true,
        only_by_name: true,
        package: Package {
            client: Client::Pip,
            name: "xla-cpu-pjrt",
            version: "0.0.1",
            archive_size: 63_461_052,
            archive_sha256: Some(
                "55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc",
            ),
            files: &[OLD_LIBRARY],
            parts: &[],
        },
        library: OLD_LIBRARY,
        needs: &[],
        target: ("linux", "x86_64"),
    },
    KnownPlugin {
        name: "tpu",
        platform: "tpu",
        about: "Google's libtpu: PJRT 0.116, StableHLO 1.23; compiles for TPU v2 to v6e and TPU7x without a device; needs \
                glibc 2.31",
        licence: "not open source; Copyright 2026 Google LLC, made available as \"Software\" under the agreement governing \
                  your use of Google Cloud Platform (or, if none exists, the agreement at https://cloud.google.com/terms), \
                  including the Service Specific Terms at https://cloud.google.com/terms/service-terms; installed for you \
                  alone: do not redistribute it",
        shows_licence: true,
        only_by_name: false,
        package: Package {
            client: Client::Wheel {
                python: "3.11",
                platform: "manylinux_2_31_x86_64",
            },
            name: "libtpu",
            version: "0.0.51",
            archive_size: 204_805_508,
            archive_sha256: Some(
                "ba67ddbfdbac61c8da1fafc26cd51b93e9fe4d298016e2882eb986b1718cba34",
            ),
            files: &[TPU_LIBRARY, TPU_LICENCE, TPU_NOTICES],
            parts: &[],
        },
        library: TPU_LIBRARY,
        needs: &[],
        target: ("linux", "x86_64"),
    },
    KnownPlugin {
        name: "cuda",
        platform: "cuda",
        about: "XLA for NVIDIA GPUs, CUDA 13: PJRT 0.116, StableHLO 1.22; compiles for A100, H100, H200 and B200 without a device; \
                needs glibc 2.27",
        licence: "the plugin: Apache-2.0, as its package states; NVIDIA's ptxas and libdevice: the NVIDIA Software License \
                  Agreement, which is installed beside them",
        shows_licence: true,
        only_by_name: false,
        package: Package {
            client: Client::Wheel {
                python: "3.11",
                platform: "manylinux_2_27_x86_64",
            },
            name: "jax-cuda13-pjrt",
            version: "0.12.0.1",
            archive_size: 134_922_808,
            archive_sha256: Some(
                "5899bb6177eda86ea532afb9a26794f2bdd04966f6a01f9028266b16c2b6cf90",
            ),
            files: &[CUDA_LIBRARY],
            parts: &[CUDA_ASSEMBLER, CUDA_MATHEMATICS],
        },
        library: CUDA_LIBRARY,
        needs: &[],
        target: ("linux", "x86_64"),
    },
    vendors::ROCM,
    vendors::ROCM_7,
    vendors::ONEAPI,
    vendors::TENSTORRENT,
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

const OLD_LIBRARY: FileSpec = FileSpec {
    inside: "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
    name: "xla_cpu_pjrt.so",
    size: 259_284_552,
    sha256: "88c3f28c5900f48ad4a82cab9e79bba9537809743395e341485f8794268820dc",
    transform: Transform::None,
};

const TPU_LIBRARY: FileSpec = FileSpec {
    inside: "libtpu/libtpu.so",
    name: "libtpu.so",
    size: 574_812_664,
    sha256: "ad0b2a3bc5d4de96f653b3701aaed8769a691776ca0e14c791dcdca785d43e42",
    transform: Transform::None,
};
const TPU_LICENCE: FileSpec = FileSpec {
    inside: "libtpu/LICENSE",
    name: "LICENSE",
    size: 298,
    sha256: "cd191c9b2d3b10ffb96cda64c2bb3e9760854967dd5d60d72e5720561ecfc124",
    transform: Transform::None,
};
const TPU_NOTICES: FileSpec = FileSpec {
    inside: "libtpu/THIRD_PARTY_NOTICES.txt",
    name: "THIRD_PARTY_NOTICES.txt",
    size: 813_975,
    sha256: "eb8b6f3ad494e193f98bb17a08553163c28aec842a78a40207fbf957e1972363",
    transform: Transform::None,
};

pub(crate) const CUDA_LIBRARY: FileSpec = FileSpec {
    inside: "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
    name: "xla_cuda_plugin.so",
    size: 395_967_648,
    sha256: "b6de513893c09af2c77e71afcef46d9706f8c259337cdef4cd5cae2353886f75",
    transform: Transform::None,
};
/// The plugin compiles to PTX and runs NVIDIA's assembler. It looks for it in a folder `cuda`
/// beside itself, among others.
const CUDA_ASSEMBLER: Package = Package {
    client: Client::Wheel {
        python: "3.11",
        platform: "manylinux2014_x86_64",
    },
    name: "nvidia-cuda-nvcc",
    version: "13.0.88",
    archive_size: 37_384_532,
    archive_sha256: Some("56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03"),
    files: &[
        FileSpec {
            inside: "nvidia/cu13/bin/ptxas",
            name: "cuda/bin/ptxas",
            size: 37_741_528,
            sha256: "daba837a68265cae38c832d13399b61dab811891de9b8914defddef143b849f2",
            transform: Transform::Executable,
        },
        FileSpec {
            inside: "nvidia_cuda_nvcc-13.0.88.dist-info/licenses/License.txt",
            name: "cuda/License.txt",
            size: 59_262,
            sha256: "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd",
            transform: Transform::None,
        },
    ],
    parts: &[],
};
/// The functions of mathematics that programs for GPUs call, as LLVM bitcode.
const CUDA_MATHEMATICS: Package = Package {
    client: Client::Wheel {
        python: "3.11",
        platform: "manylinux2010_x86_64",
    },
    name: "nvidia-nvvm",
    version: "13.0.88",
    archive_size: 61_601_415,
    archive_sha256: Some("c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0"),
    files: &[FileSpec {
        inside: "nvidia/cu13/nvvm/libdevice/libdevice.10.bc",
        name: "cuda/nvvm/libdevice/libdevice.10.bc",
        size: 464_132,
        sha256: "91334d6e12748f6cb5bbf0a1cd965a56bcd93dc4f496d2e5c5f8c6e523094356",
        transform: Transform::None,
    }],
    parts: &[],
};

/// The known plugin of this name.
///
/// # Errors
/// If there is none; the message lists those there are.
pub fn plugin(name: &str) -> halite_core::Result<&'static KnownPlugin> {
    PLUGINS
        .iter()
        .find(|plugin| plugin.name == name)
        .ok_or_else(|| {
            let names: Vec<_> = PLUGINS.iter().map(|plugin| plugin.name).collect();
            halite_core::Error::invalid(
                "plugins",
                format!(
                    "there is no plugin `{name}`; there are {}",
                    names.join(", ")
                ),
            )
        })
}
