//! Artifacts as compiled programs.

use std::sync::Arc;

use halite_core::{Arg, Array, Client, CompileOptions, Error, ErrorKind, Loaded, Result, Sharding};

use crate::{
    Artifact, ArtifactInput, ArtifactOutput,
    cpu_plugin::{without_atan, without_integer_power},
    faults, portable,
};

/// An [`Artifact`] that is compiled for a device: a function of arrays.
#[derive(Debug)]
pub struct CompiledArtifact {
    inputs: Vec<ArtifactInput>,
    outputs: Vec<ArtifactOutput>,
    loaded: Loaded,
    sharding: Arc<Sharding>,
}

impl Artifact {
    /// Compiles the program for the first local device of a client. Blocks.
    ///
    /// # Errors
    /// The compiler's error; if the client has no local device, or another platform than those that
    /// the program was exported for (see [`on_any_platform`](Self::on_any_platform)); if the
    /// program has an operation that the compiler is known to get wrong
    /// ([`Faults`](halite_core::Faults)).
    #[track_caller]
    pub fn compile(&self, client: &Client) -> Result<CompiledArtifact> {
        let Some(&device) = client.local_devices().first() else {
            let message = format!("{client:?} has no local device");
            return Err(Error::new(ErrorKind::Unavailable, "compile", message));
        };
        let platform = &client.platform().name;
        let faults = client.capabilities().faults;
        let mut module = self.module_for(platform)?;
        faults::check(&module, &faults, platform)?;
        if faults.arc_tangent {
            without_atan(&mut module);
        }
        if faults.integer_power {
            without_integer_power(&mut module)?;
        }
        let program = module.interface()?.program(portable(&module, None)?);
        let options = CompileOptions {
            devices: vec![device],
            ..CompileOptions::default()
        };
        Ok(CompiledArtifact {
            inputs: self.inputs().to_vec(),
            outputs: self.outputs().to_vec(),
            loaded: client.compile(&program, &options)?,
            sharding: Sharding::single(device),
        })
    }
}

impl CompiledArtifact {
    /// The inputs, in order.
    pub fn inputs(&self) -> &[ArtifactInput] {
        &self.inputs
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> &[ArtifactOutput] {
        &self.outputs
    }

    /// The sharding of inputs and outputs: the device that it runs on.
    pub fn sharding(&self) -> &Arc<Sharding> {
        &self.sharding
    }

    /// The compiled program, for its sizes and estimates.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Queues one run, and returns the outputs in order.
    ///
    /// # Errors
    /// If the number of inputs, or the type or device of one, is not that of the program. The
    /// message names the input.
    pub fn run(&self, inputs: &[&Array]) -> Result<Vec<Array>> {
        self.launch(inputs.iter().map(|&input| Arg::Borrow(input)))
    }

    /// Queues one run. The memory of inputs that are moved in is reused for outputs where the
    /// program allows it (`jax.jit(.., donate_argnums=..)`).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn launch<'a>(
        &self,
        inputs: impl IntoIterator<Item = Arg<'a, Array>>,
    ) -> Result<Vec<Array>> {
        let inputs: Vec<Arg<'a, Array>> = inputs.into_iter().collect();
        if inputs.len() != self.inputs.len() {
            let (given, expected) = (inputs.len(), self.inputs.len());
            let names: Vec<&str> = (self.inputs.iter())
                .map(|input| input.name.as_str())
                .collect();
            return Err(Error::invalid(
                OP,
                format!(
                    "{given} inputs given, the program has {expected}: {}",
                    names.join(", ")
                ),
            ));
        }
        for (input, expected) in inputs.iter().zip(&self.inputs) {
            self.check(input.buffer(), expected)?;
        }
        let donated = &self.loaded.signature().donated;
        let used = inputs
            .into_iter()
            .zip(&self.inputs)
            .filter(|(_, input)| input.used);
        let mut inputs: Vec<Option<Arg<'a, Array>>> = used.map(|(input, _)| Some(input)).collect();
        let mut args = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.iter_mut().enumerate() {
            let reused = |input: &mut Arg<'a, Array>| {
                matches!(input, Arg::Donate(_)) && donated.contains(&index)
            };
            args.push(match input.take_if(reused) {
                Some(Arg::Donate(array)) => Arg::Donate(array.into_shards()),
                _ => {
                    let kept = input.as_ref().expect("only moved inputs are taken");
                    Arg::Borrow(kept.buffer().shards())
                }
            });
        }
        let results = self.loaded.launch(args)?;
        (self.outputs.iter().zip(results))
            .map(|(output, shards)| Array::from_shards(output.ty.clone(), &self.sharding, shards))
            .collect()
    }

    fn check(&self, array: &Array, input: &ArtifactInput) -> Result<()> {
        let ArtifactInput { name, ty, .. } = input;
        if array.ty() != ty {
            let message = format!("input `{name}` is {}, the program has {ty}", array.ty());
            return Err(Error::invalid(OP, message));
        }
        let devices = array.sharding().mesh().devices();
        let device = self.sharding.mesh().devices()[0];
        if devices != [device] {
            let message = format!(
                "input `{name}` is on devices {devices:?}, the program runs on {device:?}; upload \
                 it with `sharding()` of the program"
            );
            return Err(Error::invalid(OP, message));
        }
        Ok(())
    }
}

const OP: &str = "run";
