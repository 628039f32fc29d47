//! Cache keys of programs: digests of all inputs of a compilation.
//!
//! A key of more than is needed costs a compilation, and a key of less gives wrong results. So it
//! contains everything that is not known to be irrelevant; only the source locations of operations
//! are left out.

use std::{env, fmt::Write, fs, io::Read, sync::Arc};

use halite_core::{CompileOptions, Device, FlagValue, Platform, Program, ProgramKey, Signature};
use sha2::{Digest, Sha256};

use crate::{
    PjrtDevice, Plugin,
    compile::{devices_for, options_for},
    environment_flags::named_files,
    quirks::Quirks,
    scan::facts_of,
    shared_client::Shared,
    value::Options,
};

/// Version of the digested parts and their order. Another version gives other keys.
const VERSION: u32 = 3;

/// Environment variables that set the number of threads of a client.
const CLIENT_VARIABLES: [&str; 2] = ["NPROC", "PJRT_NPROC"];

/// The client option with the index of the process in the job. It does not affect compilation.
const NUMBER_IN_JOB: &str = "node_id";

/// See [`Backend::program_key`](halite_core::Backend::program_key). `None` for programs that
/// would not compile or that several processes compile together, for compilations that dump
/// intermediate forms, and where the compiler's flags are not known for certain.
pub(crate) fn program_key(
    client: &Arc<Shared>,
    program: &Program,
    options: &CompileOptions,
) -> Option<ProgramKey> {
    if client.quirks().compiles_together && client.spans_processes() {
        return None;
    }
    let environment = client
        .plugin()
        .environment_flags()
        .current(client.quirks())?;
    let asks_for_dump = |text: &str| text.contains("xla_dump");
    let mut files = Vec::new();
    for (name, value) in &options.flags {
        if asks_for_dump(name) {
            return None;
        }
        if let FlagValue::Str(text) = value {
            files.extend(if asks_for_dump(text) {
                None
            } else {
                named_files(name, text)
            }?);
        }
    }
    let facts = facts_of(program);
    let devices = devices_for(client, program, &facts, options).ok()?;

    let mut digest = Sha256::new();
    // Each part with its length, so that no two lists of parts are the same bytes.
    let mut part = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    part(&VERSION.to_le_bytes());
    part(client.identity().as_bytes());
    part(environment.as_bytes());
    part(files.concat().as_bytes());
    part(&options_for(client, &facts, options, &devices));
    let Signature {
        inputs,
        outputs,
        donated,
    } = &program.signature;
    part(
        format!(
            "{inputs:?} {outputs:?} {donated:?} {} {}",
            program.replicas, program.partitions
        )
        .as_bytes(),
    );
    // The last part, because its length is not known before.
    program.code.without_locations(|piece| digest.update(piece));
    Some(ProgramKey(digest.finalize().into()))
}

/// Values of the variables that a client of `plugin` reads while it is created. Called while no
/// other client is being created: some variables are set only while one is, and no compilation at
/// that time depends on them.
pub(crate) fn client_variables(plugin: &Plugin) -> String {
    plugin.environment_flags().note_changes();
    CLIENT_VARIABLES
        .iter()
        .filter_map(|name| Some(format!("; {name}={}", env::var_os(name)?.display())))
        .collect()
}

/// Identity of a client's compiler. It decides, together with a program and its options, the
/// compiled code: the build of the plugin, the options of the client, its devices, and the
/// processor where code is compiled for it.
pub(crate) fn client_identity(
    plugin: &Plugin,
    platform: &Platform,
    devices: &[PjrtDevice],
    options: &Options,
    variables: &str,
) -> String {
    let mut text = format!(
        "{}; {}{variables}",
        plugin.identity(&platform.name),
        platform.version
    );
    for (name, value) in options.iter().filter(|(name, _)| name != NUMBER_IN_JOB) {
        _ = write!(text, "; {name}={value:?}");
    }
    for device in devices {
        _ = write!(
            text,
            "; {} {} {:?}",
            device.id().0,
            device.kind(),
            device.attributes()
        );
    }
    if Quirks::of(&platform.name, plugin.api_version()).runs_on_host {
        let threads = std::thread::available_parallelism().map_or(0, usize::from);
        _ = write!(text, "; {threads} threads; {}", processor_model());
    }
    text
}

/// The model and the features of the first processor, as Linux knows them; empty elsewhere.
/// Compilers tune code for the model.
fn processor_model() -> String {
    const NAMED: [&str; 13] = [
        "vendor_id",
        "cpu family",
        "model",
        "model name",
        "stepping",
        "flags", // x86
        "CPU implementer",
        "CPU architecture",
        "CPU variant",
        "CPU part",
        "CPU revision",
        "Features", // arm
        "isa",      // RISC-V
    ];
    // A machine can have hundreds of processors, and the kernel formats each slowly.
    const FIRST: u64 = 8 << 10;
    let mut text = String::new();
    let read =
        fs::File::open("/proc/cpuinfo").and_then(|file| file.take(FIRST).read_to_string(&mut text));
    if read.is_err() {
        return String::new();
    }
    let first = text.lines().take_while(|line| !line.is_empty());
    first
        .filter(|line| {
            line.split_once(':')
                .is_some_and(|(name, _)| NAMED.contains(&name.trim()))
        })
        .collect()
}
