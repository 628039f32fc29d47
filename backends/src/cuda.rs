//! NVIDIA GPUs: detection, and the options of the CUDA plugin.

mod driver;
mod indices;
mod libraries;
mod packages;

use std::{env, path::Path, time::Duration};

pub use driver::{Driver, VisibleGpu};
use halite_core::{Error, ErrorKind, Result};
use halite_fetch::{Cache, Progress};
pub use libraries::{CudaLibrary, advice};
pub use packages::{LIBRARIES, PACKAGE, install_libraries};

use self::indices::{indices, own_indices};
pub use crate::options::{CudaAllocator, CudaOptions};
use crate::{
    devices::Devices,
    holders::{Holder, holders, numbered},
    load::{Node, load},
    locate::{Located, Search},
    opened::Opened,
    options::OpenOptions,
    plugins::CUDA_LIBRARY,
};

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

/// Adds the other processes on the GPUs to an out-of-memory error.
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

    pub(super) fn driver(cuda: (u32, u32), devices: usize) -> Driver {
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
    fn out_of_memory_error_names_other_processes() {
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
