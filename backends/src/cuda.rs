//! NVIDIA GPUs: detection, and the options of the CUDA plugin.

mod driver;
mod libraries;
mod packages;

use std::{env, fmt, path::Path, str::FromStr, time::Duration};

use halite_core::{Error, ErrorKind, ProcessGroup, Result};
use halite_fetch::{Cache, Progress};
use halite_pjrt::OptionValue;

use crate::{
    accelerator::{Devices, Node, OpenOptions, Opened, load},
    holders::{Holder, holders, numbered},
    locate::{Located, Search},
    plugins::CUDA_LIBRARY,
};

pub use driver::{Driver, VisibleGpu};
pub use libraries::{CudaLibrary, advice};
pub use packages::{LIBRARIES, PACKAGE, install_libraries};

/// Options of XLA's CUDA client. Unset options have the plugin's defaults.
///
/// JAX has the same as `XLA_PYTHON_CLIENT_ALLOCATOR`, `XLA_PYTHON_CLIENT_MEM_FRACTION`,
/// `XLA_PYTHON_CLIENT_PREALLOCATE`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CudaOptions {
    /// The allocator of device memory.
    pub allocator: Option<CudaAllocator>,
    /// Fraction of each device's memory to use, above 0 and at most 1.
    pub memory_fraction: Option<f32>,
    /// Allocates the memory when the client is created.
    pub preallocate: Option<bool>,
    /// Bytes reserved for collectives.
    pub collective_memory: Option<u64>,
}

/// Allocators of device memory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum CudaAllocator {
    /// The plugin's default.
    Default,
    /// XLA's own pool, best fit with coalescing.
    Bfc,
    /// The driver's pool, `cudaMallocAsync`.
    CudaAsync,
    /// `cudaMalloc` for each buffer: slow, and frees memory at once.
    Platform,
}

impl CudaAllocator {
    const ALL: [CudaAllocator; 4] = [Self::Default, Self::Bfc, Self::CudaAsync, Self::Platform];

    /// The name in the plugin's options and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Bfc => "bfc",
            Self::CudaAsync => "cuda_async",
            Self::Platform => "platform",
        }
    }
}

impl fmt::Display for CudaAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CudaAllocator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|allocator| allocator.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                Error::invalid(
                    "allocator",
                    format!("unknown allocator `{text}`; expected one of {names}"),
                )
            })
    }
}

impl CudaOptions {
    /// Options of the plugin's client for these of the visible devices; all if `devices` is empty.
    fn client(&self, devices: &[u32]) -> Result<Vec<(String, OptionValue)>> {
        let invalid = |what: String| Err(Error::invalid("cuda options", what));
        let mut options: Vec<(String, OptionValue)> = vec![("platform_name".into(), "cuda".into())];
        if !devices.is_empty() {
            let devices = devices.iter().map(|&device| i64::from(device)).collect();
            options.push(("visible_devices".into(), OptionValue::Ints(devices)));
        }
        if let Some(allocator) = self.allocator {
            options.push(("allocator".into(), allocator.name().into()));
        }
        if let Some(fraction) = self.memory_fraction {
            if !(fraction > 0.0 && fraction <= 1.0) {
                return invalid(format!(
                    "`memory_fraction` is {fraction}; expected above 0 and at most 1"
                ));
            }
            options.push(("memory_fraction".into(), OptionValue::Float(fraction)));
        }
        if let Some(preallocate) = self.preallocate {
            options.push(("preallocate".into(), OptionValue::Bool(preallocate)));
        }
        if let Some(bytes) = self.collective_memory {
            let Ok(bytes) = i64::try_from(bytes) else {
                return invalid(format!(
                    "`collective_memory` is {bytes}; expected at most 2^63 - 1"
                ));
            };
            options.push(("collective_memory_size".into(), OptionValue::Int(bytes)));
        }
        Ok(options)
    }
}

/// The oldest CUDA version that runs the plugin, which is built for CUDA 13, and the oldest driver
/// with it.
const OLDEST_CUDA: (u32, u32) = (13, 0);
const OLDEST_DRIVER: &str = "580";

/// Queries the driver and its devices. Allocates no device memory.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if there is no driver or no device, or the driver is too old, with
/// what to do. [`ErrorKind::DeadlineExceeded`] if the driver does not answer within a minute; it is
/// not queried again until it does.
pub fn probe() -> Result<Driver> {
    check_driver(driver::query(), Path::new("/"))
}

fn check_driver(answer: Result<Driver, driver::NoDriver>, root: &Path) -> Result<Driver> {
    let unavailable = |message: String| Err(Error::new(ErrorKind::Unavailable, "cuda", message));
    let module = root.join("dev/nvidiactl").exists();
    match answer {
        Err(driver::NoDriver::Missing) if module => unavailable(
            "the system has NVIDIA's kernel module, but this process finds no libcuda.so.1; start \
             a container with the GPUs (`--gpus all`), else add the library's directory to \
             LD_LIBRARY_PATH"
                .into(),
        ),
        Err(driver::NoDriver::Missing) => unavailable(format!(
            "no NVIDIA driver (no libcuda.so.1, no /dev/nvidiactl); if there is a GPU, install \
             driver {OLDEST_DRIVER} or newer"
        )),
        Err(driver::NoDriver::Silent(waited)) => Err(Error::new(
            ErrorKind::DeadlineExceeded,
            "cuda",
            format!(
                "NVIDIA's driver has not answered for {} s; a GPU may be stuck: check whether \
                 `nvidia-smi` answers",
                waited.as_secs()
            ),
        )),
        Err(driver::NoDriver::Failed(message)) => unavailable(format!(
            "NVIDIA's driver failed: {message}{}",
            visible_devices()
        )),
        Ok(driver) if driver.devices.is_empty() => unavailable(format!(
            "NVIDIA's driver reports no devices{}",
            visible_devices()
        )),
        Ok(driver) if driver.cuda < OLDEST_CUDA => unavailable(format!(
            "the driver supports CUDA up to {}.{}, the plugin needs {}.{}; install driver \
             {OLDEST_DRIVER} or newer",
            driver.cuda.0, driver.cuda.1, OLDEST_CUDA.0, OLDEST_CUDA.1
        )),
        Ok(driver) => Ok(driver),
    }
}

/// The variable that hides GPUs from the driver, where it is set, for the end of a message.
fn visible_devices() -> String {
    const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
    let value = env::var_os(VISIBLE);
    value.map_or(String::new(), |value| {
        let value = value.display();
        format!("; {VISIBLE} is `{value}`: unset it, or list the indices of GPUs, from 0")
    })
}

/// Loads the libraries that the plugin opens while it runs, as opening an accelerator does, and
/// returns them all: those that are missing or too old, too. Needs no driver.
///
/// # Errors
/// As opening, if the plugin is not found; it is not installed.
pub fn libraries(options: &OpenOptions) -> Result<Vec<CudaLibrary>> {
    let cache = Cache::open(options.cache.as_deref())?;
    let search = Search {
        trust_python: options.trust_python,
        ..Search::cuda(&cache)
    };
    Ok(libraries::load(&search.find()?.path, &cache))
}

/// Returns whether a library is XLA's plugin for NVIDIA GPUs, by the name of its file.
pub fn is_plugin(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name == CUDA_LIBRARY.name)
}

/// Loads the libraries of a plugin for NVIDIA GPUs that is given by its path. What is missing is an
/// error where the plugin needs it.
pub(crate) fn load_libraries(plugin: &Path, cache: &Cache) {
    libraries::load(plugin, cache);
}

/// Returns the indices of these devices; empty for all.
fn indices(driver: &Driver, devices: &Devices) -> Result<Vec<u32>> {
    let names = || {
        let gpus = driver.devices.iter().enumerate();
        let names: Vec<String> = gpus
            .map(|(index, gpu)| format!("{index}: {}", gpu.name))
            .collect();
        names.join(", ")
    };
    let indices = devices.among(driver.devices.len(), "device", names);
    indices.map_err(|message| Error::new(ErrorKind::Unavailable, "cuda", message))
}

/// Time that the other processes have to open their devices, too.
const TOGETHER: Duration = Duration::from_secs(300);

/// Returns the indices of the devices of one of several processes. Indices that the user chose are
/// each process' own; otherwise the processes of a host divide its GPUs, unless their launcher has:
/// then their variables `CUDA_VISIBLE_DEVICES` differ.
fn own_indices(driver: &Driver, devices: &Devices, group: &dyn ProcessGroup) -> Result<Vec<u32>> {
    let visible = env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let all = group.all_gather("CUDA_VISIBLE_DEVICES", visible.as_bytes(), TOGETHER)?;
    let is_divided = all.iter().any(|other| other != visible.as_bytes());
    if is_divided || matches!(devices, Devices::Indices(_)) {
        return indices(driver, devices);
    }
    let place = [group.local_rank(), group.local_size()];
    let part = part(driver.devices.len(), devices, place);
    part.map_err(|message| Error::new(ErrorKind::Unavailable, "cuda", message))
}

/// Returns the part of `count` GPUs of process `rank` among `size` of a host.
fn part(count: usize, devices: &Devices, [rank, size]: [usize; 2]) -> Result<Vec<u32>, String> {
    let each = match devices {
        Devices::Count(each) => *each as usize,
        _ => count / size,
    };
    let of = || format!("{size} processes share this host, which has {count} GPUs");
    if each == 0 || each * size > count {
        return Err(format!(
            "{} and {} are needed; start fewer processes, or name GPUs that several of them share: \
             `cuda:[0]`",
            of(),
            each.max(1) * size
        ));
    }
    if !matches!(devices, Devices::Count(_)) && each * size < count {
        return Err(format!(
            "{}: that is no multiple; `cuda:{each}` takes {each} for each process",
            of()
        ));
    }
    Ok((rank * each..(rank + 1) * each)
        .map(|index| index as u32)
        .collect())
}

/// Time that the other processes have to download the plugin. The end of a process is noticed at
/// once.
const INSTALLED: Duration = Duration::from_secs(3600);

/// Returns this process among several, if it is, when each has found or installed its plugin: none
/// waits for a download of another one while it creates its client.
fn node_when_all_are_ready(options: &OpenOptions) -> Result<Option<Node>> {
    if let Some(group) = options.processes.as_ref().filter(|group| group.size() > 1) {
        group.barrier("the plugin is installed", INSTALLED)?;
    }
    options.node()
}

/// Opens these devices.
pub(crate) fn open(
    devices: &Devices,
    options: &OpenOptions,
    progress: &mut dyn Progress,
) -> Result<Opened> {
    let driver = probe()?;
    let devices = match &options.processes {
        Some(group) if group.size() > 1 => own_indices(&driver, devices, &**group)?,
        _ => indices(&driver, devices)?,
    };
    let client = options.cuda.client(&devices)?;
    // For all libraries that are tried: one that exchanges keys is there in all processes.
    let mut node = None;
    let cache = Cache::open(options.cache.as_deref())?;
    let search = Search {
        trust_python: options.trust_python,
        ..Search::cuda(&cache)
    };
    let open = |located: Located| {
        let libraries = libraries::load(&located.path, &cache);
        libraries::check(&libraries)?;
        let node = match &node {
            Some(node) => node,
            None => node.insert(node_when_all_are_ready(options)?),
        };
        let of_node = node.iter().flat_map(Node::options);
        let client = client.iter().cloned().chain(of_node);
        load(
            located,
            client.chain(options.client.iter().cloned()).collect(),
            &[],
            options.deadline,
            node.clone(),
        )
    };
    let opened = if options.offline {
        search.find_that(open)
    } else {
        search.ensure_that(progress, open)
    };
    let opened = opened.map_err(|failure| explain(failure.into(), Path::new("/")))?;
    let client = opened.client.with_other_users(|| users(Path::new("/")));
    Ok(Opened { client, ..opened })
}

/// Says which other processes have a GPU open, as far as this process can see.
fn users(root: &Path) -> Option<String> {
    let users = holders(root, &numbered(&root.join("dev"), "nvidia"));
    let names = users.iter().map(|holder| {
        let Holder {
            process,
            command,
            file,
        } = holder;
        format!("{process} (`{command}`, {})", file.display())
    });
    let names = Vec::from_iter(names).join(", ");
    (!users.is_empty()).then(|| {
        format!(
            "other processes have a GPU open, and may hold its memory: {names}; `nvidia-smi` shows \
             how much"
        )
    })
}

/// Adds the other processes on the GPUs to an error for want of memory.
fn explain(error: Error, root: &Path) -> Error {
    match error.kind() {
        ErrorKind::OutOfMemory => match users(root) {
            Some(users) => error.with_note(&users),
            None => error,
        },
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(cuda: (u32, u32), devices: usize) -> Driver {
        let gpu = VisibleGpu {
            name: "NVIDIA H100".into(),
            memory: 80 << 30,
            compute_capability: (9, 0),
        };
        Driver {
            cuda,
            devices: vec![gpu; devices],
        }
    }

    #[test]
    fn errors_say_how_to_get_cuda() {
        let root = tempfile::tempdir().unwrap();
        let says = |answer| check_driver(answer, root.path()).unwrap_err().to_string();
        assert!(says(Err(driver::NoDriver::Missing)).contains("install driver 580"));
        assert!(
            says(Err(driver::NoDriver::Failed("no device".into()))).ends_with("failed: no device")
        );
        assert!(
            says(Err(driver::NoDriver::Silent(
                std::time::Duration::from_secs(60)
            )))
            .contains("not answered for 60 s")
        );
        assert!(says(Ok(driver((13, 0), 0))).contains("reports no devices"));
        assert!(says(Ok(driver((12, 8), 1))).contains("up to 12.8"));
        assert_eq!(
            check_driver(Ok(driver((13, 1), 1)), root.path()).unwrap(),
            driver((13, 1), 1)
        );
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
        assert!(says(Err(driver::NoDriver::Missing)).contains("--gpus all"));
    }

    #[test]
    fn unknown_device_is_an_error_with_all_devices() {
        let of =
            |devices| indices(&driver((13, 0), 2), &devices).map_err(|error| error.to_string());
        assert_eq!(
            of(Devices::Indices(vec![1, 2])).unwrap_err(),
            "cuda: unknown device 2; expected one of 0: NVIDIA H100, 1: NVIDIA H100"
        );
        assert_eq!(
            of(Devices::Count(3)).unwrap_err(),
            "cuda: 3 devices asked for, and this host has 2: 0: NVIDIA H100, 1: NVIDIA H100; an \
             index is written in brackets: [3]"
        );
        assert!(of(Devices::All).unwrap().is_empty());
        assert_eq!(of(Devices::Count(2)).unwrap(), [0, 1]);
        assert_eq!(of(Devices::Indices(vec![1])).unwrap(), [1]);
    }

    #[test]
    fn processes_of_a_host_divide_its_devices() {
        let all = |count, place| part(count, &Devices::All, place);
        assert_eq!(all(8, [0, 8]).unwrap(), [0]);
        assert_eq!(all(8, [3, 4]).unwrap(), [6, 7]);
        assert_eq!(all(4, [0, 1]).unwrap(), [0, 1, 2, 3]);
        assert_eq!(part(8, &Devices::Count(2), [1, 2]).unwrap(), [2, 3]);
        assert_eq!(
            all(1, [0, 2]).unwrap_err(),
            "2 processes share this host, which has 1 GPUs and 2 are needed; start fewer processes, \
             or name GPUs that several of them share: `cuda:[0]`"
        );
        assert!(
            all(8, [0, 3])
                .unwrap_err()
                .contains("`cuda:2` takes 2 for each process")
        );
        assert!(
            part(4, &Devices::Count(3), [0, 2])
                .unwrap_err()
                .contains("6 are needed")
        );
    }

    #[test]
    fn options_are_checked() {
        let options = CudaOptions {
            allocator: Some("bfc".parse().unwrap()),
            memory_fraction: Some(0.5),
            preallocate: Some(false),
            collective_memory: Some(1024),
        };
        let names: Vec<String> = options
            .client(&[1])
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let expected = [
            "platform_name",
            "visible_devices",
            "allocator",
            "memory_fraction",
            "preallocate",
            "collective_memory_size",
        ];
        assert_eq!(names, expected);
        let error = |options: CudaOptions| options.client(&[]).unwrap_err().to_string();
        assert!(
            error(CudaOptions {
                memory_fraction: Some(1.5),
                ..CudaOptions::default()
            })
            .contains("1.5")
        );
        assert!(
            error(CudaOptions {
                memory_fraction: Some(f32::NAN),
                ..CudaOptions::default()
            })
            .contains("NaN")
        );
        assert!(
            "pool"
                .parse::<CudaAllocator>()
                .unwrap_err()
                .to_string()
                .contains("cuda_async")
        );
    }

    #[test]
    fn error_for_want_of_memory_names_other_processes() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        std::fs::create_dir_all(at("proc/4242/fd")).unwrap();
        std::fs::create_dir_all(at("dev")).unwrap();
        std::fs::write(at("dev/nvidia0"), "").unwrap();
        std::fs::write(at("dev/nvidiactl"), "").unwrap();
        std::fs::write(at("proc/4242/cmdline"), "python3\0hold.py\0").unwrap();
        let error = |kind| explain(Error::new(kind, "cuda", "1 GB"), root.path()).to_string();
        assert_eq!(error(ErrorKind::OutOfMemory), "cuda: 1 GB");
        std::os::unix::fs::symlink(at("dev/nvidia0"), at("proc/4242/fd/9")).unwrap();
        let text = error(ErrorKind::OutOfMemory);
        assert!(text.contains("4242 (`python3 hold.py`, "), "{text}");
        assert_eq!(error(ErrorKind::Unavailable), "cuda: 1 GB");
    }

    #[test]
    fn probe_of_this_machine_returns() {
        match probe() {
            Ok(driver) => assert!(driver.cuda >= OLDEST_CUDA && !driver.devices.is_empty()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
}
