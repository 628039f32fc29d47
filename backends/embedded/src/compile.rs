//! From a program to an executable: checks of devices, flags, signature and shardings.

use std::sync::Arc;

use halite_core::{
    CompileOptions, Device, DeviceId, Error, ErrorKind, HloSharding, Interpreted, Program,
    ProgramKey, Result, Signature,
};
use halite_stablehlo::{InterfaceTensor, Module, OpKind, Region};
use sha2::{Digest, Sha256};

use crate::{
    EmbeddedExecutable,
    client::Client,
    fast::{Plan, why_interpreted},
    node::Owners,
    oracle::{Partitioning, check_custom_calls, guarded},
    ready::{Ready, Slowness},
    source::Source,
};

/// Estimated nanoseconds of a launch below which the caller's thread runs it.
const SHORT: usize = 50_000;

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
    ) -> Result<EmbeddedExecutable> {
        let refuse = |error: Error| {
            let message = format!("`{}`: {}", self.name, error.message());
            client.on(Error::new(error.kind(), op, message))
        };
        let devices = self
            .assign(client, options)
            .map_err(|m| refuse(Error::invalid(op, m)))?;
        let module = self.read().map_err(refuse)?;
        let interface = module.interface().map_err(refuse)?;
        interface.check_signature(signature).map_err(refuse)?;
        let fast = match &client.threads {
            Some(threads) => guarded(|| Plan::new(&module))
                .map_err(refuse)?
                .map(|plan| (plan, threads.clone())),
            None => None,
        };
        let (local, owners) = self.places(client, &devices).map_err(refuse)?;
        let nanoseconds = fast.as_ref().and_then(|(plan, _)| plan.nanoseconds);
        let has_effects = (module.functions.iter()).any(|function| has_effects(&function.body));
        let interpreted = match (&fast, &client.threads) {
            (Some((plan, _)), _) => plan.interpreted.clone(),
            (None, Some(_)) => vec![all_interpreted(&module)],
            // As requested.
            (None, None) => Vec::new(),
        };
        let digest = match &owners {
            Some(_) => {
                let mut digest = Sha256::new();
                self.code.without_locations(|piece| digest.update(piece));
                digest.finalize()
            }
            None => Default::default(),
        };
        let program = Ready {
            module: Arc::new(module),
            fast,
            partitioning: Partitioning {
                inputs: self.shardings(interface.inputs),
                outputs: self.shardings(interface.outputs),
            },
            replicas: self.replicas,
            partitions: self.partitions,
            name: self.name.clone(),
            digest: std::array::from_fn(|index| digest[index]),
            interpreted,
            slowness: Slowness::default(),
        };
        Ok(EmbeddedExecutable {
            client: client.clone(),
            // Several jobs may wait for each other.
            is_short: program.jobs().len() == 1
                && owners.is_none()
                && nanoseconds.is_some_and(|it| it < SHORT),
            owners,
            has_effects,
            program: Arc::new(program),
            signature: signature.clone(),
            devices: local,
            source: self,
        })
    }

    /// The devices of this process, and the process of each partition if there are others.
    fn places(
        &self,
        client: &Client,
        devices: &[DeviceId],
    ) -> Result<(Vec<DeviceId>, Option<Owners>)> {
        let device = |id: &DeviceId| &client.devices[id.0 as usize];
        let local = devices.iter().filter(|id| device(id).is_local());
        let local: Vec<_> = local.copied().collect();
        if local.is_empty() {
            let message = "none of its devices belongs to this process";
            return Err(Error::invalid("compile", message));
        }
        if local.len() == devices.len() {
            return Ok((local, None));
        }
        if self.replicas > 1 {
            let message = format!(
                "{} replicas on devices of several processes; expected partitions of one",
                self.replicas
            );
            return Err(Error::new(ErrorKind::Unsupported, "compile", message));
        }
        let owners = devices.iter().map(|id| device(id).process()).collect();
        Ok((local, Some(owners)))
    }

    /// Shardings over the partitions; whole where the program has none.
    fn shardings(&self, tensors: Vec<InterfaceTensor>) -> Vec<HloSharding> {
        let of_device: Arc<[usize]> = vec![0; self.partitions].into();
        let whole = |rank| HloSharding {
            parts: vec![1; rank],
            of_device: of_device.clone(),
        };
        let sharding = |tensor: InterfaceTensor| {
            let rank = tensor.ty.rank();
            tensor.sharding.unwrap_or_else(|| whole(rank))
        };
        tensors.into_iter().map(sharding).collect()
    }

    fn read(&self) -> Result<Module> {
        let mut module = Module::from_code(&self.code)?;
        // The client knows how many there are, also where the program does not say it.
        module.set_devices(self.replicas, self.partitions);
        module.verify()?;
        check_custom_calls(&module)?;
        Ok(module)
    }

    /// The devices that the options name, or the first ones.
    fn assign(&self, client: &Client, options: &CompileOptions) -> Result<Vec<DeviceId>, String> {
        if let Some((name, _)) = options.flags.first() {
            return Err(format!(
                "unknown compiler flag `{name}`; the embedded executor has no flags"
            ));
        }
        let (replicas, partitions) = (self.replicas, self.partitions);
        let needed = replicas.checked_mul(partitions).filter(|&count| count > 0);
        let known: Vec<_> = client.device_ids().collect();
        let local = client.devices.iter().filter(|device| device.is_local());
        let local: Vec<_> = local.map(Device::id).collect();
        let (given, source) = match &options.devices[..] {
            [] => (
                &local[..local.len().min(needed.unwrap_or(0))],
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

/// The report of a program without a plan.
fn all_interpreted(module: &Module) -> Interpreted {
    Interpreted {
        operation: "every operation".into(),
        of: why_interpreted(module).into(),
        count: 1,
        nanoseconds: Arc::default(),
    }
}

/// Returns whether a region has calls of functions that are not part of the program.
fn has_effects(region: &Region) -> bool {
    (region.operations.iter()).any(|operation| {
        matches!(operation.kind, OpKind::CustomCall(_)) || operation.regions.iter().any(has_effects)
    })
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
    // The name of the platform in caches that are older than its present one.
    let rest = format!("halite {version} {signature:?} {partitions} {replicas} {options:?}");
    let mut digest = Sha256::new();
    digest.update((rest.len() as u64).to_le_bytes());
    digest.update(rest);
    code.without_locations(|piece| digest.update(piece));
    ProgramKey(digest.finalize().into())
}
