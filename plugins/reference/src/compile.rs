//! From a program to an executable: checks of devices, flags, signature and shardings.

use std::sync::Arc;

use halite_core::{
    CompileOptions, DeviceId, Error, HloSharding, Program, ProgramKey, Result, Signature,
    TensorType,
};
use halite_stablehlo::{Attributes, Function, Module, RankedType, Type, ValueId};
use sha2::{Digest, Sha256};

use crate::{
    ReferenceExecutable,
    backend::Client,
    oracle::{Partitioning, of_attributes, shard_type},
};

/// A program as it was given.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: Arc<str>,
    pub(crate) code: Arc<[u8]>,
    pub(crate) replicas: usize,
    pub(crate) partitions: usize,
}

impl Source {
    /// Reads and checks the program.
    ///
    /// # Errors
    /// Those of [`Backend::compile`](halite_core::Backend::compile), with the program's name.
    pub(crate) fn load(
        self,
        op: &'static str,
        client: &Arc<Client>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<ReferenceExecutable> {
        let refuse = |error: Error| {
            let message = format!("`{}`: {}", self.name, error.message());
            client.on(Error::new(error.kind(), op, message))
        };
        let devices = self
            .assign(client, options)
            .map_err(|m| refuse(Error::invalid(op, m)))?;
        let module = self.read().map_err(refuse)?;
        let partitioning = partitioning(&module, self.partitions).map_err(refuse)?;
        check_signature(&module, &partitioning, signature)
            .map_err(|message| refuse(Error::invalid(op, message)))?;
        Ok(ReferenceExecutable {
            client: client.clone(),
            module: Arc::new(module),
            partitioning: Arc::new(partitioning),
            signature: signature.clone(),
            devices,
            source: self,
        })
    }

    fn read(&self) -> Result<Module> {
        // A text is valid UTF-8, bytecode starts with bytes that are not.
        match std::str::from_utf8(&self.code) {
            Ok(text) => Module::parse(text),
            Err(_) => Module::from_bytecode(&self.code),
        }
    }

    /// The devices that the options name, or the first ones.
    fn assign(&self, client: &Client, options: &CompileOptions) -> Result<Vec<DeviceId>, String> {
        if let Some((name, _)) = options.flags.first() {
            return Err(format!(
                "unknown compiler flag `{name}`; the reference executor has no flags"
            ));
        }
        let (replicas, partitions) = (self.replicas, self.partitions);
        let needed = replicas.checked_mul(partitions).filter(|&count| count > 0);
        let known: Vec<_> = client.device_ids().collect();
        let (given, source) = match &options.devices[..] {
            [] => (
                &known[..known.len().min(needed.unwrap_or(0))],
                "are available",
            ),
            given => (given, "were given"),
        };
        if Some(given.len()) != needed {
            return Err(format!(
                "{replicas} replicas of {partitions} partitions need as many devices, {} {source}",
                given.len()
            ));
        }
        for (index, id) in given.iter().enumerate() {
            if !known.contains(id) {
                let last = known.len() - 1;
                return Err(format!("unknown device {}; expected 0 to {last}", id.0));
            }
            if given[..index].contains(id) {
                return Err(format!("device {} is given twice", id.0));
            }
        }
        Ok(given.to_vec())
    }
}

/// The shardings of inputs and outputs.
fn partitioning(module: &Module, partitions: usize) -> Result<Partitioning> {
    let main = module.main()?;
    let none = Attributes::default();
    let read = |ids: &[ValueId], attributes: &[Attributes]| -> Result<Vec<HloSharding>> {
        let read = |(number, &id): (usize, &ValueId)| {
            let rank = main.ty(id).as_tensor().map_or(0, RankedType::rank);
            of_attributes(
                module,
                attributes.get(number).unwrap_or(&none),
                rank,
                partitions,
            )
        };
        ids.iter().enumerate().map(read).collect()
    };
    Ok(Partitioning {
        inputs: read(&main.body.arguments, &main.input_attributes)?,
        outputs: read(&main.body.results, &main.output_attributes)?,
    })
}

fn check_signature(
    module: &Module,
    partitioning: &Partitioning,
    signature: &Signature,
) -> Result<(), String> {
    let main = module.main().map_err(|error| error.message().to_owned())?;
    let inputs = (&main.body.arguments[..], &partitioning.inputs[..]);
    check_types("argument", main, inputs, &signature.inputs)?;
    let outputs = (&main.body.results[..], &partitioning.outputs[..]);
    check_types("result", main, outputs, &signature.outputs)?;
    let (donated, count) = (&signature.donated, signature.inputs.len());
    if donated.iter().any(|&index| index >= count) || !donated.is_sorted_by(|a, b| a < b) {
        return Err(format!(
            "donated inputs {donated:?} are not ascending indices of {count} inputs"
        ));
    }
    Ok(())
}

fn check_types(
    what: &str,
    main: &Function,
    (ids, shardings): (&[ValueId], &[HloSharding]),
    declared: &[TensorType],
) -> Result<(), String> {
    if ids.len() != declared.len() {
        let (count, given) = (ids.len(), declared.len());
        return Err(format!(
            "the signature has {given} {what}s, `main` has {count}"
        ));
    }
    for (number, ((&id, sharding), declared)) in ids.iter().zip(shardings).zip(declared).enumerate()
    {
        let ty = shard_of(main.ty(id), sharding)
            .map_err(|reason| format!("{what} {number} of `main`: {reason}"))?;
        if ty != *declared {
            return Err(format!(
                "the signature has {what} {number} of {declared}, `main` has {ty} on each device"
            ));
        }
    }
    Ok(())
}

/// The type of the shards of an argument or result, as clients have it.
fn shard_of(ty: &Type, sharding: &HloSharding) -> Result<TensorType, String> {
    let unsupported = || format!("clients have no arrays of type {ty}");
    let tensor = ty.as_tensor().ok_or_else(unsupported)?;
    let shard = shard_type(tensor, sharding).map_err(|error| error.message().to_owned())?;
    shard.tensor_type().ok_or_else(unsupported)
}

/// A digest of what the result of a compilation depends on.
pub(crate) fn program_key(
    program: &Program,
    options: &CompileOptions,
    version: &str,
) -> ProgramKey {
    let Program {
        code,
        signature,
        partitions,
        replicas,
        ..
    } = program;
    let rest = format!("halite {version} {signature:?} {partitions} {replicas} {options:?}");
    let mut digest = Sha256::new();
    digest.update((code.len() as u64).to_le_bytes());
    digest.update(code);
    digest.update(rest);
    ProgramKey(digest.finalize().into())
}
