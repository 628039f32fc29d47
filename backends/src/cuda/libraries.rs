//! The libraries of NVIDIA's that XLA's plugin opens by name while it runs.
//!
//! They are loaded before the plugin, by their paths, so that its searches by name find these
//! copies: first those beside the plugin, then those of the Python environment and of conda, then
//! those that `halite plugins install cuda-libraries` installed, then what the system's loader
//! finds. Files, folders and oldest versions are those of JAX, in the requirements of its package
//! `jax-cuda13-plugin`.
//!
//! `unsafe` is needed to load a library, which runs its initialisers, and to call the function that
//! returns its version. It stands here and not in `halite-pjrt`, which knows one plugin's C
//! interface and no vendor: which libraries there are, and where they are searched, is known in
//! this crate alone.
#![allow(unsafe_code)]

use std::{
    cell::OnceCell,
    collections::BTreeSet,
    env,
    ffi::c_int,
    fmt, fs,
    path::{Path, PathBuf},
    ptr,
    sync::{Mutex, PoisonError},
};

use halite_core::{Error, ErrorKind, Result};

use halite_fetch::{Bytes, Cache};

use super::packages;
use crate::locate::directories_of;

/// A version as its major, minor and patch number.
type Version = [u32; 3];

/// A library that the plugin may open.
struct Known {
    file: &'static str,
    /// Its folder below `nvidia` in an environment of Python.
    folder: &'static str,
    /// The package of pip that has it.
    package: &'static str,
    oldest: Version,
    /// What does not work without it; `None` is nearly everything.
    only_for: Option<&'static str>,
    version: Query,
}

/// The function that returns a library's version.
#[derive(Clone, Copy)]
enum Query {
    /// `status f(int* version)`, with the values of the major and of the minor number's unit.
    Number(&'static str, [u32; 2]),
    /// `size_t f(void)`, likewise.
    Returned(&'static str, [u32; 2]),
    /// `status f(int property, int* value)`, with properties 0, 1, 2.
    Property(&'static str),
    /// `status f(int* major, int* minor)`.
    Pair(&'static str),
    /// `status f(int* major, int* minor, int* patch)`.
    Triple(&'static str),
}

/// In the order in which JAX loads them.
#[rustfmt::skip]
const LIBRARIES: [Known; 12] = {
    use Query::{Number, Pair, Property, Returned, Triple};
    const CUDA: &str = "cu13/lib";
    const SEVERAL: Option<&str> = Some("several GPUs");
    const PROFILE: Option<&str> = Some("a profile of the device");
    [
        Known { file: "libcudart.so.13", folder: CUDA, package: "nvidia-cuda-runtime", oldest: [13, 0, 0], only_for: None, version: Number("cudaRuntimeGetVersion", [1000, 10]) },
        Known { file: "libnvJitLink.so.13", folder: CUDA, package: "nvidia-nvjitlink", oldest: [13, 0, 0], only_for: None, version: Pair("nvJitLinkVersion") },
        Known { file: "libnvrtc.so.13", folder: CUDA, package: "nvidia-cuda-nvrtc", oldest: [13, 0, 0], only_for: None, version: Pair("nvrtcVersion") },
        Known { file: "libcublasLt.so.13", folder: CUDA, package: "nvidia-cublas", oldest: [13, 0, 0], only_for: None, version: Property("cublasLtGetProperty") },
        Known { file: "libcublas.so.13", folder: CUDA, package: "nvidia-cublas", oldest: [13, 0, 0], only_for: None, version: Property("cublasGetProperty") },
        Known { file: "libnccl.so.2", folder: "nccl/lib", package: "nvidia-nccl-cu13", oldest: [2, 27, 7], only_for: SEVERAL, version: Number("ncclGetVersion", [10_000, 100]) },
        Known { file: "libcupti.so.13", folder: CUDA, package: "nvidia-cuda-cupti", oldest: [13, 0, 0], only_for: PROFILE, version: Number("cuptiGetVersion", [10_000, 100]) },
        Known { file: "libcusparse.so.12", folder: CUDA, package: "nvidia-cusparse", oldest: [12, 6, 2], only_for: None, version: Property("cusparseGetProperty") },
        Known { file: "libcusolver.so.12", folder: CUDA, package: "nvidia-cusolver", oldest: [12, 0, 3], only_for: None, version: Property("cusolverGetProperty") },
        Known { file: "libcufft.so.12", folder: CUDA, package: "nvidia-cufft", oldest: [12, 0, 0], only_for: None, version: Property("cufftGetProperty") },
        Known { file: "libnvshmem_host.so.3", folder: "nvshmem/lib", package: "nvidia-nvshmem-cu13", oldest: [3, 3, 20], only_for: SEVERAL, version: Triple("nvshmemx_vendor_get_version_info") },
        Known { file: "libcudnn.so.9", folder: "cudnn/lib", package: "nvidia-cudnn-cu13", oldest: [9, 12, 0], only_for: None, version: Returned("cudnnGetVersion", [10_000, 100]) },
    ]
};

/// A library that XLA's plugin for NVIDIA GPUs opens, as this process found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaLibrary {
    /// Name of its file: `libcudnn.so.9`.
    pub name: &'static str,
    /// The file, if it is loaded and known.
    pub path: Option<PathBuf>,
    /// Its version as it reports it: major, minor, patch.
    pub version: Option<[u32; 3]>,
    /// The reason why it cannot be used: it is missing, does not load, or is too old.
    pub problem: Option<String>,
    /// What does not work without it; `None` is nearly everything.
    pub only_for: Option<&'static str>,
    /// The package of pip that has it, with the versions that are accepted.
    pub package: String,
}

/// `libcudnn.so.9 9.12.0: /opt/..`, or why it cannot be used.
impl fmt::Display for CudaLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if let Some(version) = self.version {
            write!(f, " {}", text(version))?;
        }
        match (&self.problem, &self.path) {
            (Some(problem), _) => write!(f, ": {problem}"),
            (None, Some(path)) => write!(f, ": {}", path.display()),
            (None, None) => f.write_str(": by the system's loader"),
        }
    }
}

fn text(version: Version) -> String {
    let [major, minor, patch] = version;
    format!("{major}.{minor}.{patch}")
}

/// Loads the libraries once in this process, and returns them all: those that cannot be used, too.
/// The search begins in the environment that has this plugin. A plugin for CUDA 12 needs others,
/// which are left to the system's loader.
pub(crate) fn load(plugin: &Path, cache: &Cache) -> Vec<CudaLibrary> {
    static LOADED: Mutex<Vec<CudaLibrary>> = Mutex::new(Vec::new());

    if plugin.iter().any(|part| part == "xla_cuda12") {
        return Vec::new();
    }
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if loaded.is_empty() {
        *loaded = load_from(&Places::new(plugin, cache), &LIBRARIES);
    }
    loaded.clone()
}

/// Checks that nothing that nearly every program needs is missing.
///
/// # Errors
/// [`ErrorKind::Unavailable`] with all libraries that cannot be used, and the commands that install
/// them.
pub(crate) fn check(libraries: &[CudaLibrary]) -> Result<()> {
    let unusable = || libraries.iter().filter(|one| one.problem.is_some());
    let is_needed = |library: &CudaLibrary| library.only_for.is_none();
    let Some(advice) = advice(libraries).filter(|_| unusable().any(is_needed)) else {
        return Ok(());
    };
    let names: Vec<_> = unusable().map(ToString::to_string).collect();
    let message = format!(
        "libraries of CUDA cannot be used: {}; {advice}",
        names.join("; ")
    );
    Err(Error::new(ErrorKind::Unavailable, "cuda", message))
}

/// The commands that install the libraries that cannot be used; `None` if all can.
pub fn advice(libraries: &[CudaLibrary]) -> Option<String> {
    let unusable = libraries.iter().filter(|one| one.problem.is_some());
    let packages: BTreeSet<_> = unusable.map(|one| format!("'{}'", one.package)).collect();
    let packages = Vec::from_iter(packages).join(" ");
    (!packages.is_empty()).then(|| {
        format!(
            "install them all with `halite plugins install {}` ({} to download), or these with \
             `python3 -m pip install {packages}`",
            packages::LIBRARIES,
            Bytes(packages::PACKAGE.download_size())
        )
    })
}

/// Where libraries are searched for.
struct Places {
    /// Folders `nvidia` beside the plugin.
    beside: Vec<PathBuf>,
    /// Folders `nvidia` of the Python environment, asked for where one is needed.
    python: OnceCell<Vec<PathBuf>>,
    /// `lib` of the active conda environment.
    conda: Option<PathBuf>,
    /// Folder `nvidia` of the libraries that halite installed.
    installed: Option<PathBuf>,
}

impl Places {
    fn new(plugin: &Path, cache: &Cache) -> Self {
        let beside = plugin.ancestors().skip(1).take(3);
        let beside = beside.map(|folder| folder.join("nvidia"));
        let conda = env::var_os("CONDA_PREFIX").filter(|prefix| !prefix.is_empty());
        Places {
            beside: beside.filter(|folder| folder.is_dir()).collect(),
            python: OnceCell::new(),
            conda: conda.map(|prefix| Path::new(&prefix).join("lib")),
            installed: packages::installed(cache),
        }
    }

    fn python(&self) -> &[PathBuf] {
        self.python.get_or_init(|| {
            let found = directories_of(&["nvidia"]).unwrap_or_default();
            found.into_iter().map(|(_, folder)| folder).collect()
        })
    }

    /// The first file there is.
    fn file(&self, known: &Known) -> Option<PathBuf> {
        let inside = |folder: &PathBuf| folder.join(known.folder).join(known.file);
        let beside = self.beside.iter().map(inside).find(|path| path.is_file());
        beside
            .or_else(|| self.python().iter().map(inside).find(|path| path.is_file()))
            .or_else(|| {
                let path = self.conda.as_ref()?.join(known.file);
                path.is_file().then_some(path)
            })
            .or_else(|| {
                self.installed
                    .iter()
                    .map(inside)
                    .find(|path| path.is_file())
            })
    }
}

fn load_from(places: &Places, libraries: &[Known]) -> Vec<CudaLibrary> {
    let load = |known: &Known| {
        let file = places.file(known);
        let name = file.clone().unwrap_or_else(|| known.file.into());
        // SAFETY: runs the library's initialisers. It is NVIDIA's by its name, in an environment
        // that the user made; the plugin would open it by that name too.
        let opened = unsafe { libloading::Library::new(&name) };
        let [major, ..] = known.oldest;
        let mut found = CudaLibrary {
            name: known.file,
            path: None,
            version: None,
            problem: None,
            only_for: known.only_for,
            package: format!("{}>={},<{}", known.package, text(known.oldest), major + 1),
        };
        match opened {
            Ok(library) => {
                found.path = file.or_else(|| mapped(known.file));
                found.version = version(&library, known.version);
                if found.version.is_some_and(|version| version < known.oldest) {
                    let path = found.path.as_deref().unwrap_or(Path::new(known.file));
                    let oldest = text(known.oldest);
                    found.problem = Some(format!("{} is older than {oldest}", path.display()));
                }
                // It stays loaded for the plugin, which finds it by its name.
                std::mem::forget(library);
            }
            Err(error) if file.is_some() => {
                found.problem = Some(format!("does not load: {error}"));
            }
            Err(_) => found.problem = Some("is missing".into()),
        }
        found
    };
    libraries.iter().map(load).collect()
}

/// The file that the system's loader took for this name, as Linux lists it.
fn mapped(file: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|start| &line[start..]));
    let named = |path: &&str| {
        path.rsplit('/')
            .next()
            .is_some_and(|name| name.starts_with(file))
    };
    paths.into_iter().find(named).map(PathBuf::from)
}

/// Asks a library for its version; `None` where it does not have the function, or it fails.
fn version(library: &libloading::Library, query: Query) -> Option<Version> {
    let split = |number: u64, [major, minor]: [u32; 2]| {
        let (major, minor) = (u64::from(major), u64::from(minor));
        let parts = [number / major, number % major / minor, number % minor];
        Some(parts.map(|part| u32::try_from(part).unwrap_or(u32::MAX)))
    };
    let mut parts: [c_int; 3] = [0; 3];
    let [first, second, third] = &mut parts;
    // SAFETY: the signatures are those of NVIDIA's headers, see `Query`. The functions write one
    // integer to each pointer, and need no device.
    unsafe {
        match query {
            Query::Number(name, units) => {
                let function = library
                    .get::<unsafe extern "C" fn(*mut c_int) -> c_int>(name)
                    .ok()?;
                let done = function(first) == 0;
                return done.then(|| split(u64::from(first.unsigned_abs()), units))?;
            }
            Query::Returned(name, units) => {
                let function = library.get::<unsafe extern "C" fn() -> usize>(name).ok()?;
                return split(function() as u64, units);
            }
            Query::Property(name) => {
                let function = library
                    .get::<unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(name)
                    .ok()?;
                for (property, part) in (0..).zip([first, second, third]) {
                    if function(property, ptr::from_mut(part)) != 0 {
                        return None;
                    }
                }
            }
            Query::Pair(name) => {
                let function = library
                    .get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(name)
                    .ok()?;
                if function(first, second) != 0 {
                    return None;
                }
            }
            Query::Triple(name) => {
                type Function = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int) -> c_int;
                let function = library.get::<Function>(name).ok()?;
                if function(first, second, third) != 0 {
                    return None;
                }
            }
        }
    }
    Some(parts.map(c_int::unsigned_abs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nowhere(beside: &Path) -> Places {
        Places {
            beside: vec![beside.into()],
            python: OnceCell::from(Vec::new()),
            conda: None,
            installed: None,
        }
    }

    /// A library of this system under the name of one of NVIDIA's.
    const STAND_IN: Known = Known {
        file: "libhalite_stand_in.so.9",
        folder: "cudnn/lib",
        package: "nvidia-cudnn-cu13",
        oldest: [9, 12, 0],
        only_for: None,
        version: Query::Returned("getpid", [1, 1]),
    };

    #[test]
    fn missing_broken_and_old_libraries_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let places = nowhere(directory.path());
        let found = load_from(&places, &[STAND_IN]).remove(0);
        assert_eq!(found.problem.as_deref(), Some("is missing"));

        let file = directory.path().join("cudnn/lib/libhalite_stand_in.so.9");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "not a library").unwrap();
        let found = load_from(&places, &[STAND_IN]).remove(0);
        assert!(found.problem.unwrap().starts_with("does not load: "));
        let error = check(&load_from(&places, &[STAND_IN]))
            .unwrap_err()
            .to_string();
        let command = "or these with `python3 -m pip install 'nvidia-cudnn-cu13>=9.12.0,<10'`";
        assert!(error.ends_with(command), "{error}");
    }

    #[test]
    fn optional_library_may_be_missing() {
        let directory = tempfile::tempdir().unwrap();
        let optional = Known {
            only_for: Some("several GPUs"),
            ..STAND_IN
        };
        let found = load_from(&nowhere(directory.path()), &[optional]);
        assert_eq!(found[0].to_string(), "libhalite_stand_in.so.9: is missing");
        check(&found).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn library_of_the_system_reports_its_file_and_version() {
        let directory = tempfile::tempdir().unwrap();
        // A process id is its own major number with these units.
        let known = |oldest| Known {
            file: "libc.so.6",
            oldest,
            ..STAND_IN
        };
        let load = |oldest| load_from(&nowhere(directory.path()), &[known(oldest)]).remove(0);
        let found = load([1, 0, 0]);
        assert_eq!(found.version, Some([std::process::id(), 0, 0]));
        assert!(found.path.as_ref().unwrap().is_file(), "{found}");
        assert_eq!(found.problem, None);
        let problem = load([u32::MAX - 1, 0, 0]).problem.unwrap();
        assert!(
            problem.contains("libc.so.6 is older than 4294967294.0.0"),
            "{problem}"
        );
    }

    #[test]
    fn plugin_for_cuda_12_is_left_to_the_loader() {
        let plugin = Path::new("/env/jax_plugins/xla_cuda12/xla_cuda_plugin.so");
        assert_eq!(load(plugin, &Cache::at("none")), []);
    }
}
