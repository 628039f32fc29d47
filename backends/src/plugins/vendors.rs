//! Plugins of AMD, Intel and Tenstorrent. They were loaded, but never run on their hardware.
//!
//! What they need beside their packages was read from the libraries (`DT_NEEDED`), and its packages
//! from the metadata of the Python packages that install them for JAX.

use halite_fetch::{Client, FileSpec, Package};

use super::{KnownPlugin, Need, Provider};

const WHEEL: Client = Client::Wheel {
    python: "3.12",
    platform: "manylinux_2_27_x86_64",
};

pub(super) const ROCM: KnownPlugin = KnownPlugin {
    name: "rocm",
    platform: "rocm",
    about: "XLA for AMD GPUs, ROCm 10.1; never run by halite's developers; needs glibc 2.27 and \
            ROCm's libraries",
    licence: "Apache-2.0, as the package states; it ships no licence file",
    shows_licence: false,
    only_by_name: false,
    package: Package {
        client: WHEEL,
        name: "jax-rocm10-pjrt",
        version: "0.12.0",
        archive_size: 133_727_472,
        archive_sha256: Some("45ee7b471b71a582ce165dd63069b10d1d8923d849b61b6fa8783f1d13294edb"),
        files: &[ROCM_LIBRARY],
        parts: &[],
    },
    library: ROCM_LIBRARY,
    needs: &[Need {
        names: ROCM_NAMES,
        from: Provider::Other(
            "AMD's ROCm 10.1 (searched for in /opt/rocm/lib, too; the extra `with-rocm` of \
             jax-rocm10-plugin names its packages for Python)",
        ),
    }],
    target: ("linux", "x86_64"),
};

pub(super) const ROCM_7: KnownPlugin = KnownPlugin {
    name: "rocm7",
    about: "XLA for AMD GPUs, ROCm 7.14; never run by halite's developers; needs glibc 2.27 and \
            ROCm's libraries",
    package: Package {
        name: "jax-rocm7-pjrt",
        archive_size: 133_415_872,
        archive_sha256: Some("4551d0714523355f2946ca1958c3f584e95661e467a641d36b726f718a1c7934"),
        files: &[ROCM_7_LIBRARY],
        ..ROCM.package
    },
    library: ROCM_7_LIBRARY,
    needs: &[Need {
        names: ROCM_NAMES,
        from: Provider::Other(
            "AMD's ROCm 7.14 (searched for in /opt/rocm/lib, too; the extra `with-rocm` of \
             jax-rocm7-plugin names its packages for Python)",
        ),
    }],
    ..ROCM
};

pub(super) const ONEAPI: KnownPlugin = KnownPlugin {
    name: "oneapi",
    platform: "oneapi",
    about: "XLA for Intel GPUs, oneAPI 2025.1; never run by halite's developers; needs glibc 2.27, \
            oneAPI's libraries and Level Zero's loader",
    licence: "Apache-2.0, as the package states; it ships no licence file",
    shows_licence: false,
    only_by_name: false,
    package: Package {
        client: WHEEL,
        name: "jax-oneapi-pjrt",
        version: "0.11.2",
        archive_size: 135_149_983,
        archive_sha256: Some("ae7250c5d4459dcfedf4de1bf683edfef0502861e44b6e9bfaa7d8133b4292c1"),
        files: &[ONEAPI_LIBRARY],
        parts: &[],
    },
    library: ONEAPI_LIBRARY,
    needs: ONEAPI_NEEDS,
    target: ("linux", "x86_64"),
};

pub(super) const TENSTORRENT: KnownPlugin = KnownPlugin {
    name: "tt",
    platform: "tt",
    about: "Tenstorrent's libtt; never run by halite's developers; needs glibc 2.34 and libstdc++",
    licence: "none is stated, and no licence file is in the package",
    shows_licence: true,
    only_by_name: false,
    package: Package {
        client: Client::Wheel {
            python: "3.12",
            platform: "manylinux_2_34_x86_64",
        },
        name: "jax-tt-plugin",
        version: "0.1.3",
        archive_size: 83_550_265,
        archive_sha256: Some("10f2fe2f77b3f0d25a68a9fbf53dab713b1edd854f1ab50bf973783c9be9da83"),
        files: &[TENSTORRENT_LIBRARY],
        parts: &[],
    },
    library: TENSTORRENT_LIBRARY,
    needs: &[],
    target: ("linux", "x86_64"),
};

const ROCM_LIBRARY: FileSpec = FileSpec::plain(
    "jax_plugins/xla_rocm10/xla_rocm_plugin.so",
    "xla_rocm_plugin.so",
    459_361_656,
    "1fca9d70d3f30c351006089c07eac4f78162e6e3a5338266127247c7fdbc1e2e",
);

const ROCM_7_LIBRARY: FileSpec = FileSpec::plain(
    "jax_plugins/xla_rocm7/xla_rocm_plugin.so",
    "xla_rocm_plugin.so",
    459_001_112,
    "6e7239347f37f1a5a17c2a2d9301411f9f17e30e0707a717f4717556fa402511",
);

const ONEAPI_LIBRARY: FileSpec = FileSpec::plain(
    "jax_plugins/xla_oneapi/xla_oneapi_plugin.so",
    "xla_oneapi_plugin.so",
    521_495_584,
    "7bdaf7a9aa365742ad4185921f233f99eed16b4f2a02cae2cf9d85b9310da151",
);

const TENSTORRENT_LIBRARY: FileSpec = FileSpec::plain(
    "jax_plugins/libtt/libtt.so",
    "libtt.so",
    142_519_864,
    "c3a255e7217251383043bad3090d6d2c3fcce99d1c0c772f5735f3ae7cc00654",
);

const ROCM_NAMES: &[&str] = &[
    "libMIOpen.so",
    "libamd",
    "libhip",
    "libhsa-",
    "librccl.so",
    "libroc",
];

/// The versions are those of the extra `with-oneapi` of `jax-oneapi-plugin`.
const ONEAPI_NEEDS: &[Need] = &[
    pip(&["libmpi.so"], "impi-rt==2021.15.0"),
    pip(&["libhwloc.so"], "tcmlib==1.3.0"),
    pip(&["libumf.so"], "umf==0.10.0"),
    pip(&["libur_"], "intel-cmplr-lib-ur==2025.1.1"),
    pip(&["libOpenCL.so"], "intel-opencl-rt==2025.1.1"),
    pip(
        &[
            "libimf.so",
            "libintlc.so",
            "libirc.so",
            "libirng.so",
            "libsvml.so",
        ],
        "intel-cmplr-lib-rt==2025.1.1",
    ),
    pip(&["libsycl.so"], "intel-sycl-rt==2025.1.1"),
    pip(&["libmkl_sycl_blas.so"], "onemkl-sycl-blas==2025.1.0"),
    pip(&["libmkl_sycl_dft.so"], "onemkl-sycl-dft==2025.1.0"),
    pip(&["libmkl_sycl_lapack.so"], "onemkl-sycl-lapack==2025.1.0"),
    pip(&["libmkl_sycl_rng.so"], "onemkl-sycl-rng==2025.1.0"),
    pip(&["libmkl_sycl_sparse.so"], "onemkl-sycl-sparse==2025.1.0"),
    pip(&["libmkl_"], "mkl==2025.1.0"),
    Need {
        names: &["libze_"],
        // That of Debian 12, 1.8, lacks functions that `libur_adapter_level_zero.so.0` calls.
        from: Provider::Other(
            "Level Zero's loader 1.20 or newer (`apt-get install libze1` on Debian 13)",
        ),
    },
];

const fn pip(names: &'static [&'static str], package: &'static str) -> Need {
    Need {
        names,
        from: Provider::Pip(package),
    }
}
