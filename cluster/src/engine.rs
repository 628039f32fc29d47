//! The MPI library: a pinned package, or one that `HALITE_MPI` names.

use std::{
    env,
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, Result};
use halite_fetch::{Cache, Client, FileSpec, Package, Progress, Transform};

/// Environment variable with the path of an MPI library.
pub(crate) const VARIABLE: &str = "HALITE_MPI";

const LIBRARY: &str = "lib/libmpi_abi.so.1";

macro_rules! file {
    ($folder:literal, $name:literal, $size:literal, $sha256:literal, $transform:ident) => {
        FileSpec {
            inside: concat!($folder, $name),
            name: $name,
            size: $size,
            sha256: $sha256,
            transform: Transform::$transform,
        }
    };
}

macro_rules! library {
    ($name:literal, $size:literal, $sha256:literal) => {
        file!("mpich-5.0.2.data/data/", $name, $size, $sha256, None)
    };
}

macro_rules! executable {
    ($name:literal, $size:literal, $sha256:literal) => {
        file!("mpich-5.0.2.data/data/", $name, $size, $sha256, Executable)
    };
}

macro_rules! licence {
    ($name:literal, $size:literal, $sha256:literal) => {
        file!(
            "mpich-5.0.2.dist-info/licenses/",
            $name,
            $size,
            $sha256,
            None
        )
    };
}

/// MPICH, with the modules of UCX and libfabric that it loads, and its launcher Hydra. The folders
/// are those of the package, because the libraries find each other by them.
#[rustfmt::skip]
pub const MPICH: Package = Package {
    client: Client::Pip,
    name: "mpich",
    version: "5.0.2",
    archive_size: 13_282_595,
    archive_sha256: Some("8fed465ebff269ea2ebac179a25de02671ddf8df476e0f115be089015015cfd4"),
    files: &[
        library!("lib/libmpi_abi.so.1", 12_796_721, "42918a6749a42355dee5388281a94c37303832f9e11bc138709fb5e7622529fa"),
        library!("lib/mpich/libfabric.so.1", 1_249_177, "774cf3f9fc0edd82cfbee15e1610c36f94f2b8d1410115d7bab7ca5cd7764003"),
        library!("lib/mpich/libucm.so.0", 127_769, "ec60318e242e5526325d39564c78ed9fb7a1666c79ba138fdabf2720479f0da2"),
        library!("lib/mpich/libucp.so.0", 1_040_457, "da88318be234deef89f5ac29f180d1cba549fb1588cafa1f659cd0433efb2d97"),
        library!("lib/mpich/libucs.so.0", 466_481, "dc2547cf7278c048dac4dbc052b0ae72b93fff5ccdd5a34da1086730c0bd7cb6"),
        library!("lib/mpich/libucs_signal.so.0", 14_240, "8ed5194bd9ad58be4aff909404306e23abea937aa5eaced774b65baf241c65be"),
        library!("lib/mpich/libuct.so.0", 275_873, "7c64f83367a547cb54b7e2b4a31b886550f2e4284e612cf413b6e26a79f38b27"),
        library!("lib/mpich/ucx/libuct_cma.so.0", 30_481, "c6f281308448a47df88a077276c2eaa39ce2bcaa6d7d0c0e58bf58ad49d31920"),
        library!("lib/mpich/ucx/libuct_ib.so.0", 303_953, "fc6897506e0e7344d913db41c2139738a4cd1247efb80a8a651df954cde1a6d4"),
        library!("lib/mpich/ucx/libuct_ib_efa.so.0", 58_409, "693ce201c4b3bcf805431f98385e3efd9ae10c565dfbb140a784cb0f8efe30c8"),
        library!("lib/mpich/ucx/libuct_ib_mlx5.so.0", 450_281, "93a60813a9ee514cb2e9bf32a736d1826a0a9de00829ed7e6fb12cbb466bf66e"),
        library!("lib/mpich/ucx/libuct_rdmacm.so.0", 67_305, "cd9fff1ecb177e671b2c03a0b44125104b0fd0c8c2313c2bd96be8e91bf05c79"),
        library!("lib/mpich/libfabric/libefa-fi.so", 749_409, "e032509f7d2b8ea6c2eae49b5924baced0e76b8a4d01dc8496cf20add1e128d8"),
        library!("lib/mpich/libfabric/libpsmx2-fi.so", 512_249, "6524f7291e79840c8200547b62e553e0282b26f6057e44ef51e9fd5330c21107"),
        library!("lib/mpich/libfabric/libverbs-fi.so", 529_009, "e4cef4cd839bb4a9970289b0fb10a2fc4f1c80b4e13787a9931ed25fbde44aee"),
        executable!("bin/mpiexec", 745_856, "18e436afe968b4534a93555c10db82622375d3457f8827f9147d3f960e211a9e"),
        executable!("bin/hydra_pmi_proxy", 675_456, "8c9f1c5be81678a2d0a402d1a3ad2747a9262b9ada3a977795b3cf99d16ace91"),
        licence!("LICENSE", 1_893, "60fc73dd0d561c98aa1987fcd68c57be2fcb55add62ad69d3a35f42e10967399"),
        licence!("LICENSE.hwloc", 2_552, "d79a936a42f3c6cb7c8375a023d43f4435f4664d3a5a2ea6b4623cff83c7fc06"),
        licence!("LICENSE.json-c", 2_205, "74c1e6ca5eba76b54d0ad00d4815c8315c1b3bc45ff99de61d103dc92486284c"),
        licence!("LICENSE.ofi", 19_859, "09fcf3e28e57cdb62f027bcfad63a9859740209aaac33f80da8b72d30a4ee036"),
        licence!("LICENSE.ucx", 2_291, "ebb5c7fa3d2e20fbee5431a975c7196779647490324dc2346cc561f0f044048d"),
    ],
    parts: &[],
};

/// An MPI library.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) library: PathBuf,
}

impl Engine {
    /// Finds the library that `HALITE_MPI` names, or installs the package.
    ///
    /// # Errors
    /// If the variable names no file; if the package has no build for this system, or cannot be
    /// installed.
    pub(crate) fn find(cache: Option<&Path>, progress: &mut dyn Progress) -> Result<Engine> {
        if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            return Engine::named(Path::new(&path));
        }
        if (env::consts::OS, env::consts::ARCH) != ("linux", "x86_64") {
            let message = format!(
                "{MPICH} has no build for {} {}; set {VARIABLE} to a library with the standard ABI \
                 of MPI 5.0 (libmpi_abi.so)",
                env::consts::OS,
                env::consts::ARCH
            );
            return Err(Error::new(ErrorKind::Unavailable, "MPI", message));
        }
        let installed = Cache::open(cache)?.ensure(&MPICH, progress)?;
        Ok(Engine {
            library: installed.path(LIBRARY),
        })
    }

    /// The library at `path`.
    fn named(path: &Path) -> Result<Engine> {
        let path = std::path::absolute(path)?;
        if !path.is_file() {
            let message = format!("{VARIABLE}: {} is not a file", path.display());
            return Err(Error::new(ErrorKind::Unavailable, "MPI", message));
        }
        Ok(Engine { library: path })
    }
}
