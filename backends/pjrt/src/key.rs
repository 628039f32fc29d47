//! The key of a program in a cache: a digest of all that decides what compiling it gives.
//!
//! Too much in it costs a compile; too little would give wrong results. So what is not known to be without effect is in it,
//! and of what the text says only its locations are left out: which file and line an operation came from is for messages.

use std::{env, fmt::Write, fs, io::Read, sync::Arc};

use halite_core::{CompileOptions, Device, FlagValue, Platform, Program, ProgramKey, Signature};
use sha2::{Digest, Sha256};

use crate::{
    PjrtDevice, Plugin,
    annotations::without_locations,
    client::Shared,
    executable::{devices_for, options_for},
    value::Options,
};

/// What is digested, in which order. Another number, other keys.
const VERSION: u32 = 2;

/// Variables that compilers read by themselves.
const VARIABLES: [&str; 4] = ["XLA_FLAGS", "LIBTPU_INIT_ARGS", "TF_XLA_FLAGS", "NVIDIA_TF32_OVERRIDE"];

/// Variables that a client reads when it is created: over how many threads it lays out programs.
const CLIENT_VARIABLES: [&str; 2] = ["NPROC", "PJRT_NPROC"];

/// A client option that differs between processes which compile alike: the number of this one in the job.
const NUMBER_IN_JOB: &str = "node_id";

/// See [`Backend::program_key`](halite_core::Backend::program_key). `None` for what would not compile, and for what is
/// compiled to have its intermediate forms written to disk.
pub(crate) fn program_key(client: &Arc<Shared>, program: &Program, options: &CompileOptions) -> Option<ProgramKey> {
    let variables = VARIABLES.map(|name| env::var_os(name).unwrap_or_default());
    let asks_for_dump = |text: &str| text.contains("xla_dump");
    let flag =
        |(name, value): &(String, FlagValue)| asks_for_dump(name) || matches!(value, FlagValue::Str(text) if asks_for_dump(text));
    if options.flags.iter().any(flag) || variables.iter().any(|value| asks_for_dump(&value.to_string_lossy())) {
        return None;
    }
    let devices = devices_for(client, program, options).ok()?;

    let mut digest = Sha256::new();
    // Each part with its length, so that no two lists of parts are the same bytes.
    let mut part = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    part(&VERSION.to_le_bytes());
    part(client.identity().as_bytes());
    variables.iter().for_each(|value| part(value.as_encoded_bytes()));
    part(&options_for(client, program, options, &devices));
    let Signature { inputs, outputs, donated } = &program.signature;
    part(format!("{inputs:?} {outputs:?} {donated:?} {} {}", program.replicas, program.partitions).as_bytes());
    // Its length is not known before, and it is the last.
    without_locations(&program.code, |piece| digest.update(piece));
    Some(ProgramKey(digest.finalize().into()))
}

/// What the user says to a client that is about to be created, beside its options. To be asked while no other client is being
/// created: some variables are set for as long as that takes, and what is compiled meanwhile has nothing to do with them.
pub(crate) fn client_variables() -> String {
    CLIENT_VARIABLES.iter().filter_map(|name| Some(format!("; {name}={}", env::var_os(name)?.display()))).collect()
}

/// What decides, besides a program and its options, what a client's compiler makes of it: the build of the plugin, how the
/// client was made, its devices, and where the code is for this machine's processor, that one.
pub(crate) fn client_identity(
    plugin: &Plugin,
    platform: &Platform,
    devices: &[PjrtDevice],
    options: &Options,
    variables: &str,
) -> String {
    let mut text = format!("{}; {}{variables}", plugin.identity(&platform.name), platform.version);
    for (name, value) in options.iter().filter(|(name, _)| name != NUMBER_IN_JOB) {
        _ = write!(text, "; {name}={value:?}");
    }
    for device in devices {
        _ = write!(text, "; {} {} {:?}", device.id().0, device.kind(), device.attributes());
    }
    if &*platform.name == "cpu" {
        let threads = std::thread::available_parallelism().map_or(0, usize::from);
        _ = write!(text, "; {threads} threads; {}", processor_model());
    }
    text
}

/// The model and the features of the first processor, as Linux knows them; empty elsewhere. Compilers know more of them
/// than can be asked for otherwise, and choose what is fast on the model.
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
    // A machine can have hundreds of processors, and the kernel takes its time for each.
    const FIRST: u64 = 8 << 10;
    let mut text = String::new();
    let read = fs::File::open("/proc/cpuinfo").and_then(|file| file.take(FIRST).read_to_string(&mut text));
    if read.is_err() {
        return String::new();
    }
    let first = text.lines().take_while(|line| !line.is_empty());
    first.filter(|line| line.split_once(':').is_some_and(|(name, _)| NAMED.contains(&name.trim()))).collect()
}
