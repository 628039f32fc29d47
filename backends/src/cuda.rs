//! NVIDIA GPUs: whether there are any that the plugin can use, and how it is opened.

mod driver;

use std::{fmt, path::Path, str::FromStr};

use halite_core::{Error, ErrorKind, Result};
use halite_fetch::{Cache, Progress};
use halite_pjrt::OptionValue;

use crate::{
    accelerator::{OpenOptions, Opened, load},
    locate::{Located, Search},
};

pub use driver::{Driver, VisibleGpu};

/// How XLA's CUDA client takes the memory of its devices. What is not set is the plugin's own
/// default.
///
/// The same switches in JAX: `XLA_PYTHON_CLIENT_ALLOCATOR`, `XLA_PYTHON_CLIENT_MEM_FRACTION`,
/// `XLA_PYTHON_CLIENT_PREALLOCATE`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CudaOptions {
    /// Who hands out device memory.
    pub allocator: Option<CudaAllocator>,
    /// The part of each device's memory to use, above 0 and at most 1.
    pub memory_fraction: Option<f32>,
    /// Whether to take it all at once when the client is made.
    pub preallocate: Option<bool>,
    /// Bytes set apart for collectives.
    pub collective_memory: Option<u64>,
    /// Which of `node_count` processes this is, and how many there are.
    pub node: Option<Node>,
}

/// A process among those that share one job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Node {
    /// Its number, from 0.
    pub id: u32,
    /// How many there are.
    pub count: u32,
}

/// Who hands out device memory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum CudaAllocator {
    /// What the plugin takes by itself.
    Default,
    /// XLA's own pool, best fit with coalescing.
    Bfc,
    /// The driver's pool, `cudaMallocAsync`.
    CudaAsync,
    /// `cudaMalloc` for each buffer: slow, and gives memory back at once.
    Platform,
}

impl CudaAllocator {
    const ALL: [CudaAllocator; 4] = [Self::Default, Self::Bfc, Self::CudaAsync, Self::Platform];

    /// As the plugin and the command line spell it.
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
                    format!("there is none named `{text}`; there are {names}"),
                )
            })
    }
}

impl CudaOptions {
    /// The options of the plugin's client, for these devices of the visible ones; all if there are
    /// none.
    fn client(&self, devices: &[u32]) -> Result<Vec<(String, OptionValue)>> {
        let refused = |what: String| Err(Error::invalid("cuda options", what));
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
                return refused(format!(
                    "`memory_fraction` is {fraction}; it must be above 0 and at most 1"
                ));
            }
            options.push(("memory_fraction".into(), OptionValue::Float(fraction)));
        }
        if let Some(preallocate) = self.preallocate {
            options.push(("preallocate".into(), OptionValue::Bool(preallocate)));
        }
        if let Some(bytes) = self.collective_memory {
            let Ok(bytes) = i64::try_from(bytes) else {
                return refused(format!(
                    "`collective_memory` is {bytes} bytes, more than there can be"
                ));
            };
            options.push(("collective_memory_size".into(), OptionValue::Int(bytes)));
        }
        if let Some(Node { id, count }) = self.node {
            if id >= count {
                return refused(format!("node {id} of {count}: nodes are counted from 0"));
            }
            if count > 1 {
                // Without a store of keys the plugin ends the process.
                return refused(format!(
                    "{count} nodes: several processes need a store of keys, which halite does not give yet"
                ));
            }
            options.push(("node_id".into(), OptionValue::Int(id.into())));
            options.push(("num_nodes".into(), OptionValue::Int(count.into())));
        }
        Ok(options)
    }
}

/// The oldest CUDA of a driver that runs the plugin, which is built for CUDA 13, and the oldest
/// driver that has it.
const OLDEST_CUDA: (u32, u32) = (13, 0);
const OLDEST_DRIVER: &str = "580";

/// What the driver says of itself and its devices. Takes no device memory.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if there is no driver, no device, or the driver is too old, with what
/// to do. [`ErrorKind::DeadlineExceeded`] if the driver does not answer within a minute; it is not
/// asked again while it does not.
pub fn probe() -> Result<Driver> {
    judge(driver::ask(), Path::new("/"))
}

fn judge(answer: Result<Driver, driver::NoDriver>, root: &Path) -> Result<Driver> {
    let unavailable = |message: String| Err(Error::new(ErrorKind::Unavailable, "cuda", message));
    let module = root.join("dev/nvidiactl").exists();
    match answer {
        Err(driver::NoDriver::Missing) if module => unavailable(
            "the system has NVIDIA's kernel module, but this process finds no libcuda.so.1: in a container, start it with the \
             GPUs (`--gpus all`); else put the library's folder into LD_LIBRARY_PATH"
                .into(),
        ),
        Err(driver::NoDriver::Missing) => unavailable(format!(
            "no NVIDIA driver (no libcuda.so.1, no /dev/nvidiactl); where there is a GPU, install driver {OLDEST_DRIVER} or newer"
        )),
        Err(driver::NoDriver::Silent(waited)) => Err(Error::new(
            ErrorKind::DeadlineExceeded,
            "cuda",
            format!(
                "NVIDIA's driver has not answered for {} s; a GPU may be stuck: see whether `nvidia-smi` answers",
                waited.as_secs()
            ),
        )),
        Err(driver::NoDriver::Refused(words)) => unavailable(format!("NVIDIA's driver says: {words}")),
        Ok(driver) if driver.devices.is_empty() => {
            let hidden = std::env::var("CUDA_VISIBLE_DEVICES").ok();
            let why = hidden.map_or(String::new(), |value| format!("; CUDA_VISIBLE_DEVICES is `{value}`"));
            unavailable(format!("NVIDIA's driver shows no devices{why}"))
        }
        Ok(driver) if driver.cuda < OLDEST_CUDA => unavailable(format!(
            "the driver runs CUDA up to {}.{}, the plugin is built for {}.{}; install driver {OLDEST_DRIVER} or newer",
            driver.cuda.0, driver.cuda.1, OLDEST_CUDA.0, OLDEST_CUDA.1
        )),
        Ok(driver) => Ok(driver),
    }
}

/// That these devices are there.
fn check_devices(driver: &Driver, devices: &[u32]) -> Result<()> {
    let Some(missing) = devices
        .iter()
        .find(|&&device| device as usize >= driver.devices.len())
    else {
        return Ok(());
    };
    let names: Vec<String> = driver
        .devices
        .iter()
        .enumerate()
        .map(|(index, gpu)| format!("{index}: {}", gpu.name))
        .collect();
    Err(Error::new(
        ErrorKind::Unavailable,
        "cuda",
        format!(
            "there is no device {missing}; there are {}",
            names.join(", ")
        ),
    ))
}

/// Opens these devices; all if there are none named.
pub(crate) fn open(
    devices: &[u32],
    options: &OpenOptions,
    progress: &mut dyn Progress,
) -> Result<Opened> {
    let driver = probe()?;
    check_devices(&driver, devices)?;
    let client = options.cuda.client(devices)?;
    let cache = Cache::open(options.cache.as_deref())?;
    let search = Search::cuda(&cache);
    let open = |located: Located| {
        load(
            located,
            client.iter().chain(&options.client).cloned().collect(),
            &[],
            options.deadline,
        )
    };
    if options.offline {
        search.find_that(open)
    } else {
        search.ensure_that(progress, open)
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
    fn each_reason_why_there_is_no_cuda_says_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let says = |answer| judge(answer, root.path()).unwrap_err().to_string();
        assert!(says(Err(driver::NoDriver::Missing)).contains("install driver 580"));
        assert!(
            says(Err(driver::NoDriver::Refused("no device".into()))).ends_with("says: no device")
        );
        assert!(
            says(Err(driver::NoDriver::Silent(
                std::time::Duration::from_secs(60)
            )))
            .contains("not answered for 60 s")
        );
        assert!(says(Ok(driver((13, 0), 0))).contains("shows no devices"));
        assert!(says(Ok(driver((12, 8), 1))).contains("up to 12.8"));
        assert_eq!(
            judge(Ok(driver((13, 1), 1)), root.path()).unwrap(),
            driver((13, 1), 1)
        );
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
        assert!(says(Err(driver::NoDriver::Missing)).contains("--gpus all"));
    }

    #[test]
    fn a_device_that_is_not_there_is_named_with_those_that_are() {
        let error = check_devices(&driver((13, 0), 2), &[1, 2])
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "cuda: there is no device 2; there are 0: NVIDIA H100, 1: NVIDIA H100"
        );
    }

    #[test]
    fn options_are_those_of_the_plugin_and_wrong_ones_are_refused() {
        let options = CudaOptions {
            allocator: Some("bfc".parse().unwrap()),
            memory_fraction: Some(0.5),
            preallocate: Some(false),
            collective_memory: Some(1024),
            node: Some(Node { id: 0, count: 1 }),
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
        assert_eq!(names[..6], expected);
        assert_eq!(names[6..], ["node_id", "num_nodes"]);
        let refused = |options: CudaOptions| options.client(&[]).unwrap_err().to_string();
        assert!(
            refused(CudaOptions {
                memory_fraction: Some(1.5),
                ..CudaOptions::default()
            })
            .contains("1.5")
        );
        assert!(
            refused(CudaOptions {
                memory_fraction: Some(f32::NAN),
                ..CudaOptions::default()
            })
            .contains("NaN")
        );
        assert!(
            refused(CudaOptions {
                node: Some(Node { id: 2, count: 2 }),
                ..CudaOptions::default()
            })
            .contains("node 2 of 2")
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
    fn what_this_machine_says_of_its_driver_is_an_answer_either_way() {
        match probe() {
            Ok(driver) => assert!(driver.cuda >= OLDEST_CUDA && !driver.devices.is_empty()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
}
