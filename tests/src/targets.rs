//! A CPU client that also compiles every program for the targets of the vendors' compilers.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use halite_backends::{OpenOptions, OpenTarget, Search, Target};
use halite_core::{
    Backend, Capabilities, Client, CompileOptions, DeviceId, Error, ErrorKind, Executable,
    HostBytes, Launch, Launched, Placement, Platform, Program, ProgramMemory, Result, Signature,
    TensorType,
};
use halite_fetch::{Bar, Cache};
use halite_pjrt::{Pjrt, PjrtBuffer, PjrtDevice, PjrtEvent, PjrtExecutable, Plugin};

/// Targets that programs are compiled for, each with eight devices.
const TARGETS: [&str; 2] = ["tpu:v5e:2x4", "cuda:h100:1x8"];

/// An expected difference: a program that the CPU compiles and a target rejects.
struct Difference {
    platform: &'static str,
    /// Text that such programs contain.
    program: &'static str,
    /// Text of the compiler's error.
    words: &'static str,
    because: &'static str,
}

/// Programs that the vendors' compilers reject.
const DIFFERENCES: &[Difference] = &[
    Difference {
        platform: "tpu",
        program: "\"stablehlo.select_and_scatter\"(%arg0, %arg1, %0) <{padding = dense<[[0, 1]]>",
        words: "Padding in 1D select and scatter is currently not implemented",
        because: "libtpu has select_and_scatter of one dimension without padding only; of two and more it has all",
    },
    Difference {
        platform: "tpu",
        program: "module @too_large",
        words: "CompileTimeHbmOom",
        because: "a result of 256 TiB is refused at once, not when it is run",
    },
    Difference {
        platform: "cuda",
        program: "module @too_large",
        words: "does not fit",
        because: "a result of 256 TiB is refused at once, not when it is run",
    },
];

/// Environment variable: if it is set, [`eval::open`](crate::eval::open) is [`open`].
pub const VARIABLE: &str = "HALITE_TEST_TARGETS";

/// Opens a CPU client with eight devices, whose programs are compiled for the targets too. Installs
/// libtpu and the CUDA plugin if they are missing.
///
/// # Errors
/// If a plugin cannot be installed or loaded.
pub fn open() -> Result<Client> {
    let cache = Cache::open(None)?;
    let plugin = Plugin::load(Search::cpu(&cache).ensure(&mut Bar::default())?.path)?;
    let cpu = plugin.client(vec![("cpu_device_count".to_owned(), 8i64.into())])?;
    Ok(Client::new(Also {
        cpu,
        targets: targets()?,
        seen: Mutex::default(),
    }))
}

fn targets() -> Result<&'static [OpenTarget]> {
    static OPEN: OnceLock<Result<Vec<OpenTarget>, String>> = OnceLock::new();
    let open = || {
        TARGETS
            .iter()
            .map(|name| self::target(name))
            .collect::<Result<_>>()
            .map_err(|error| error.to_string())
    };
    OPEN.get_or_init(open)
        .as_deref()
        .map_err(|words| Error::new(ErrorKind::Unavailable, "open targets", words))
}

/// Opens a target.
///
/// # Errors
/// If its plugin cannot be installed or loaded.
pub fn target(name: &str) -> Result<OpenTarget> {
    name.parse::<Target>()?
        .open(&OpenOptions::default(), &mut Bar::default())
}

#[derive(Debug)]
struct Also {
    cpu: Pjrt,
    targets: &'static [OpenTarget],
    /// Programs that have been compiled.
    seen: Mutex<HashSet<Arc<[u8]>>>,
}

#[derive(Debug)]
struct Compiled(PjrtExecutable);

impl Backend for Also {
    type Device = PjrtDevice;
    type Buffer = PjrtBuffer;
    type Executable = Compiled;
    type Event = PjrtEvent;

    fn platform(&self) -> &Platform {
        self.cpu.platform()
    }

    fn devices(&self) -> &[PjrtDevice] {
        self.cpu.devices()
    }

    fn capabilities(&self) -> Capabilities {
        self.cpu.capabilities()
    }

    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<PjrtBuffer> {
        self.cpu.upload(bytes, ty, to)
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<Compiled> {
        let compiled = self.cpu.compile(program, options);
        let is_new = self
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(program.code.bytes().into());
        // Devices and flags are the CPU's.
        if is_new && options.flags.is_empty() && program.devices() <= 8 {
            for target in self.targets {
                compare(target, program, compiled.as_ref().map(|_| ()))?;
            }
        }
        compiled.map(Compiled)
    }

    fn load(
        &self,
        bytes: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<Compiled> {
        self.cpu.load(bytes, name, signature, options).map(Compiled)
    }
}

/// Compiles for a target. It must accept what the CPU accepts, except the known differences, and
/// reject what the CPU rejects.
fn compare(target: &OpenTarget, program: &Program, by_cpu: Result<(), &Error>) -> Result<()> {
    let name = target.target();
    let failed = |message: String| {
        let text = String::from_utf8_lossy(program.code.bytes());
        Err(Error::new(
            ErrorKind::Internal,
            "compare",
            format!("{name}: {message}\n{text}"),
        ))
    };
    let text = String::from_utf8_lossy(program.code.bytes());
    let applies =
        |known: &&Difference| known.platform == name.platform() && text.contains(known.program);
    let known = DIFFERENCES.iter().find(applies);
    match (
        target.compile(program, &CompileOptions::default()),
        by_cpu,
        known,
    ) {
        (Err(error), Ok(()), Some(known)) if error.to_string().contains(known.words) => {
            println!("{name} does not take it, as expected: {}", known.because);
            Ok(())
        }
        (Err(error), Ok(()), _) => failed(format!("does not compile: {error}")),
        (Ok(_), Ok(()), Some(known)) => failed(format!(
            "compiles, which was not expected: {}",
            known.because
        )),
        (Ok(compiled), Ok(()), None) => {
            let outputs = compiled.output_types()?;
            if outputs
                .iter()
                .map(Option::as_ref)
                .ne(program.signature.outputs.iter().map(Some))
            {
                return failed(format!(
                    "gives {outputs:?}, not {:?}",
                    program.signature.outputs
                ));
            }
            if compiled.serialize()?.is_empty() {
                return failed("serializes to nothing".to_owned());
            }
            Ok(())
        }
        (Ok(_), Err(error), _) => failed(format!("takes what the CPU refuses: {error}")),
        (Err(_), Err(_), _) => Ok(()),
    }
}

impl Executable<Also> for Compiled {
    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn devices(&self) -> &[DeviceId] {
        self.0.devices()
    }

    fn launch(&self, launch: Launch<'_, PjrtBuffer>) -> Result<Launched<PjrtBuffer>> {
        self.0.launch(launch)
    }

    fn serialize(&self) -> Result<Vec<u8>> {
        Executable::serialize(&self.0)
    }

    fn memory(&self) -> Result<ProgramMemory> {
        self.0.memory()
    }

    fn cost(&self) -> Result<Vec<(String, f64)>> {
        self.0.cost()
    }
}
