//! `halite run`: runs a StableHLO program.

mod inputs;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use halite::{
    Array, HostArray, Result,
    backends::Accelerator,
    core::files,
    exchange::{Artifact, npy},
    fetch,
};

use self::inputs::Input;
use crate::cli::{io_error, open};

/// Run a StableHLO program: MLIR text, portable bytecode, or an artifact of `jax.export`
///
/// Prints the type and the values of each result. The program runs on one device.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// The program: `.mlir`, `.mlirbc`, or what `jax.export.export(f)(..).serialize()` returned
    file: PathBuf,
    /// Value of the next argument: `FILE.npy`, `FILE.safetensors:NAME`, `zeros`, or `random:SEED`
    /// (floats from -1 to below 1, zeros and ones of integers); `FILE.safetensors` gives each
    /// argument the tensor of its name. The last one also gives the arguments after it, if it is
    /// not a single array
    #[arg(long = "input", short, value_name = "VALUE")]
    inputs: Vec<Input>,
    /// Write result N to `DIR/N.npy`. NumPy has no bf16 and no 8-bit floats: load them with
    /// `numpy.load(file).view(ml_dtypes.bfloat16)`
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// `auto`, `cpu`, `cuda`, `tpu`, `embedded`, `rocm`, `oneapi`, `tt`, or `plugin:PATH`
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Run it also on a platform that it was not exported for: results may differ there
    #[arg(long)]
    any_platform: bool,
    /// Print the program's arguments and results, and do not run it
    #[arg(long)]
    describe: bool,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  halite run double.mlir --describe                     its arguments and results
  halite run double.mlir -i x.npy                       the first argument is an array that NumPy saved
  halite run step.jax -i params.safetensors -i random:1 parameters by name, random numbers for the rest
  halite run step.jax -i zeros -o results --accelerator embedded

In Python, `numpy.save('x.npy', x)` writes an array, and this a program:
  open('step.jax', 'wb').write(jax.export.export(jax.jit(step))(params, batch).serialize())";

impl Run {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut artifact = Artifact::open(&self.file)?;
        if self.any_platform {
            artifact = artifact.on_any_platform();
        }
        if self.describe {
            describe(&artifact);
            return Ok(ExitCode::SUCCESS);
        }
        let inputs = inputs::load(&self.inputs, artifact.inputs())?;
        let bar = &mut fetch::Bar::default();
        let client = open(&self.accelerator, self.cache_dir, bar)?.client;

        let started = Instant::now();
        let program = artifact.compile(&client)?;
        let compile_time = started.elapsed();
        let inputs: Vec<Array> = (inputs.iter())
            .map(|input| Array::upload(&client, input, program.sharding()))
            .collect::<Result<_>>()?;
        inputs.iter().try_for_each(Array::wait)?;
        let started = Instant::now();
        let outputs = program.run(&inputs.iter().collect::<Vec<_>>())?;
        outputs.iter().try_for_each(Array::wait)?;
        let run_time = started.elapsed();

        say!(
            "{} on {}: compiled in {}, ran in {}",
            artifact.name(),
            client.platform().name,
            seconds(compile_time),
            seconds(run_time)
        );
        for (index, (output, expected)) in outputs.iter().zip(artifact.outputs()).enumerate() {
            let values = output.read()?;
            say!(
                "{}: {} = {values}",
                result_name(&expected.name),
                expected.ty
            );
            if let Some(directory) = &self.output {
                save(directory, index, &values)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the interface of a program.
fn describe(artifact: &Artifact) {
    say!("program    {}", artifact.name());
    if !artifact.platforms().is_empty() {
        say!("platforms  {}", artifact.platforms().join(", "));
    }
    for input in artifact.inputs() {
        let unused = if input.used { "" } else { " (not used)" };
        say!("argument   {}: {}{unused}", input.name, input.ty);
    }
    for output in artifact.outputs() {
        say!("result     {}: {}", result_name(&output.name), output.ty);
    }
}

/// The path of a result; that of a function's only result is empty.
fn result_name(path: &str) -> &str {
    if path.is_empty() { "result" } else { path }
}

fn seconds(duration: Duration) -> String {
    let milliseconds = 1e3 * duration.as_secs_f64();
    match milliseconds {
        1e3.. => format!("{:.2} s", milliseconds / 1e3),
        1.0.. => format!("{milliseconds:.1} ms"),
        _ => format!("{:.0} us", 1e3 * milliseconds),
    }
}

fn save(directory: &Path, index: usize, values: &HostArray) -> Result<()> {
    let path = directory.join(format!("{index}.npy"));
    fs::create_dir_all(directory)
        .and_then(|()| files::write_output(&path, &npy::write(values)))
        .map_err(io_error("run", "write", &path))
}
