//! Programs on the devices of a client.

mod launch;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use halite_core::{Device, DeviceId, HloSharding, MemoryKind, Result, Signature, TensorType};

use crate::{
    CompiledProgram,
    buffer::Kind,
    device::memory_kind,
    in_flight::Described,
    loaded::Loaded,
    op_sharding::hlo_sharding_of,
    shared_client::Shared,
    signature::{CompiledSignature, check_types},
};

/// A program on the devices of a plugin's client.
pub struct PjrtExecutable {
    loaded: Loaded,
    program: CompiledProgram,
    pub(crate) described: Arc<Described>,
    pub(crate) signature: Signature,
    inputs: Vec<Input>,
    outputs: Vec<Arc<Kind>>,
    /// The bytes that it was loaded from. XLA's CPU plugins lose functions of a program that they
    /// serialize a second time.
    serialized: Option<Vec<u8>>,
    /// True once the results of a launch were checked to be distinct buffers.
    results_checked: AtomicBool,
    client: Arc<Shared>,
}

/// Properties of a parameter that each launch checks.
struct Input {
    kind: Arc<Kind>,
    /// True if the signature lists it as donated.
    donated: bool,
    /// The program may overwrite it, so a borrowed buffer must be protected.
    may_overwrite: bool,
}

impl PjrtExecutable {
    /// The program as the compiler sees it: sizes, costs, optimized form.
    pub fn program(&self) -> &CompiledProgram {
        &self.program
    }

    /// The name it was compiled under.
    pub fn name(&self) -> &str {
        &self.described.name
    }
}

impl fmt::Debug for PjrtExecutable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Signature {
            inputs, outputs, ..
        } = &self.signature;
        let devices: Vec<_> = self
            .described
            .devices
            .iter()
            .map(|device| device.0)
            .collect();
        write!(
            f,
            "PjrtExecutable({}, {} inputs, {} outputs, devices {devices:?})",
            self.described.name,
            inputs.len(),
            outputs.len()
        )
    }
}

impl PjrtExecutable {
    pub(crate) fn new(
        op: &'static str,
        loaded: Loaded,
        name: &Arc<str>,
        signature: &Signature,
        wanted: Option<&[u32]>,
    ) -> Result<PjrtExecutable> {
        let client = loaded.client.clone();
        let refuse = |message: String| client.invalid(op, format!("`{name}`: {message}"));
        let program = loaded.program(op)?;
        let devices = loaded.devices(op)?;
        check_devices(&client, &devices, wanted).map_err(refuse)?;
        let compiled = program.compiled_signature();
        check_types_of(&program, compiled.as_ref(), signature).map_err(refuse)?;
        let results = program.output_count()?;
        if results != signature.outputs.len() {
            return Err(refuse(format!(
                "the program has {results} results, its signature has {}",
                signature.outputs.len()
            )));
        }
        let is_large = client
            .quirks()
            .large_temporary
            .is_some_and(|large| (program.memory()).is_ok_and(|memory| memory.temporary >= large));
        let mut kinds = Kinds::new(&client);
        let input_kinds = kinds.of_all(&signature.inputs, program.parameter_memory_kinds());
        let inputs = input_kinds
            .into_iter()
            .enumerate()
            .map(|(index, kind)| Input {
                kind,
                donated: signature.donated.contains(&index),
                // Without the optimized program, the text alone may donate it.
                may_overwrite: (compiled.as_ref())
                    .is_none_or(|compiled| compiled.donated.contains(&index)),
            });
        Ok(PjrtExecutable {
            inputs: inputs.collect(),
            outputs: kinds.of_all(&signature.outputs, program.output_memory_kinds()),
            loaded,
            program,
            described: Arc::new(Described {
                name: name.clone(),
                devices,
                is_large,
            }),
            signature: signature.clone(),
            serialized: None,
            results_checked: AtomicBool::new(false),
            client,
        })
    }

    /// Keeps the bytes that it was loaded from.
    pub(crate) fn with_serialized(self, serialized: Vec<u8>) -> Self {
        PjrtExecutable {
            serialized: Some(serialized),
            ..self
        }
    }

    /// The bytes that it was loaded from, or else those that the plugin serializes.
    ///
    /// # Errors
    /// Errors of the plugin.
    pub(crate) fn serialized_bytes(&self) -> Result<Vec<u8>> {
        match &self.serialized {
            Some(bytes) => Ok(bytes.clone()),
            None => self.program.serialize(),
        }
    }

    /// The sharding of each result. `None` where the plugin does not report that of one.
    ///
    /// # Errors
    /// If the plugin reports none.
    pub(crate) fn result_shardings(&self) -> Result<Vec<Option<HloSharding>>> {
        // Those of other processes too.
        let devices = if self.client.spans_processes() {
            self.program.replicas()? * self.program.partitions()?
        } else {
            self.described.devices.len()
        };
        let ranks = self.signature.outputs.iter().map(|ty| ty.rank());
        // Each replica has its own tensors, of which no part belongs to a tensor of another.
        if devices > 1 && self.program.partitions()? != devices {
            return Ok(vec![None; self.signature.outputs.len()]);
        }
        let reported = self.program.output_shardings()?;
        Ok(ranks
            .enumerate()
            .map(|(i, rank)| hlo_sharding_of(reported.get(i)?, rank, devices))
            .collect())
    }
}

/// Checks that a program runs on the `wanted` devices of this process, and on one at least.
fn check_devices(
    client: &Shared,
    devices: &[DeviceId],
    wanted: Option<&[u32]>,
) -> Result<(), String> {
    let ids: Vec<u32> = devices.iter().map(|device| device.0).collect();
    if let Some(wanted) = wanted {
        let local = wanted.iter().copied().filter(|id| is_local(client, *id));
        if !local.eq(ids.iter().copied()) {
            return Err(format!(
                "compiled for devices {wanted:?}, but the plugin assigned it to {ids:?}"
            ));
        }
    }
    if ids.is_empty() {
        return Err("none of its devices belongs to this process".to_owned());
    }
    Ok(())
}

fn is_local(client: &Shared, id: u32) -> bool {
    client
        .device("place", DeviceId(id))
        .is_ok_and(Device::is_local)
}

/// Checks `signature` against the optimized program, or else against the types of the results that
/// the plugin reports, if it does.
fn check_types_of(
    program: &CompiledProgram,
    compiled: Option<&CompiledSignature>,
    signature: &Signature,
) -> Result<(), String> {
    match (compiled, program.output_types()) {
        (Some(compiled), _) => compiled.check(signature),
        (None, Ok(types)) => check_types("result", &types, &signature.outputs),
        (None, Err(_)) => Ok(()),
    }
}

/// Kinds of the buffers of one program. Equal ones share one allocation, so that passing a result
/// as an argument of the next launch compares a pointer.
struct Kinds<'a> {
    client: &'a Arc<Shared>,
    known: Vec<Arc<Kind>>,
}

impl<'a> Kinds<'a> {
    fn new(client: &'a Arc<Shared>) -> Self {
        Kinds {
            client,
            known: Vec::new(),
        }
    }

    /// The kind of each buffer, in the memories that the plugin names, or else in device memory.
    fn of_all(&mut self, types: &[TensorType], memories: Result<Vec<String>>) -> Vec<Arc<Kind>> {
        let memories = memories.ok().filter(|names| names.len() == types.len());
        let memory = |index: usize| {
            let name = memories.as_ref().map(|names| &names[index]);
            name.and_then(|name| memory_kind(name)).unwrap_or_default()
        };
        let kinds = types.iter().enumerate();
        kinds
            .map(|(index, ty)| self.of(ty, memory(index)))
            .collect()
    }

    fn of(&mut self, ty: &TensorType, memory: MemoryKind) -> Arc<Kind> {
        let kind = Kind {
            client: self.client.clone(),
            ty: ty.clone(),
            memory,
        };
        if let Some(known) = self.known.iter().find(|known| ***known == kind) {
            return known.clone();
        }
        let kind = Arc::new(kind);
        self.known.push(kind.clone());
        kind
    }
}
