//! PyTorch, in a process of its own: `benches/peers/torch_convolutions.py`.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use halite::{DType, Error, ErrorKind, Result};
use halite_benches::ConvShape;

use super::measure::Seconds;

/// The process.
pub(crate) struct Torch {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Torch {
    pub(crate) fn start(python: &str) -> Result<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/torch_convolutions.py");
        let mut process = Command::new(python)
            .arg(script)
            // Threads that wait for work must not count as work, nor take it from others.
            .env("OMP_WAIT_POLICY", "passive")
            .env_remove("GOMP_SPINCOUNT")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&format!("{python} {script}: {error}")))?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (input, output) = pipes.ok_or_else(|| failed("the process has no pipes"))?;
        let output = BufReader::new(output).lines();
        Ok(Torch {
            process,
            input,
            output,
        })
    }

    /// Makes the tensors of a shape.
    pub(crate) fn prepare(&mut self, shape: &ConvShape, dtype: DType) -> Result<()> {
        let sizes = [
            shape.dims,
            shape.batch,
            shape.size,
            shape.features,
            shape.outputs,
            shape.groups,
            shape.kernel,
            shape.stride,
            shape.dilation,
            shape.input_dilation,
            shape.padding,
        ];
        let sizes = sizes.map(|size| size.to_string()).join(" ");
        self.ask(&format!("shape {dtype} {sizes}")).map(drop)
    }

    /// Seconds of a pass, in its faster memory format.
    pub(crate) fn seconds(&mut self, pass: usize, turn: f64) -> Result<Seconds> {
        let answer = self.ask(&format!("run {pass} {turn}"))?;
        let mut numbers = answer.split(' ').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(processor)), Some(Ok(wall))) => Ok(Seconds { processor, wall }),
            _ => Err(failed(&answer)),
        }
    }

    fn ask(&mut self, line: &str) -> Result<String> {
        writeln!(self.input, "{line}").map_err(|error| failed(&error.to_string()))?;
        let answer = self.output.next().and_then(|line| line.ok());
        answer.ok_or_else(|| failed("the process ended; its last lines say why"))
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn failed(message: &str) -> Error {
    Error::new(ErrorKind::Unavailable, "PyTorch", message)
}
