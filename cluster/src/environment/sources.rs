//! The variables of each launcher.

use halite_core::{Error, Result};

use super::{Recognized, Source};

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Port for launchers that name a host only, as torchrun's rendezvous and TorchTPU have it.
const PORT: u16 = 29500;

/// Most processes of a job, far more than `mpiexec` starts.
pub(crate) const MOST: usize = 1 << 20;

/// Jobs that the variables describe, in the order in which they count: the explicit one, or all
/// others.
pub(super) fn all(variable: Variable<'_>) -> Result<Vec<Recognized>> {
    // Whatever is wrong with the variables of others.
    if let Some(job) = explicit(variable)? {
        return Ok(vec![job]);
    }
    let sources = [mpi, slurm, torchrun, kubernetes, tpu];
    let found = sources.into_iter().map(|source| source(variable));
    let found = found.collect::<Result<Vec<_>>>()?;
    let found: Vec<_> = found.into_iter().flatten().collect();
    refuse_unused(variable, &found)?;
    Ok(found)
}

/// Refuses a size or an address that no launcher gives an index to: each process would be alone.
fn refuse_unused(variable: Variable<'_>, found: &[Recognized]) -> Result<()> {
    let names = ["HALITE_NUM_PROCESSES", "HALITE_COORDINATOR_ADDRESS"];
    let set = names
        .into_iter()
        .filter_map(|name| Some((name, variable(name)?)));
    let set: Vec<_> = set.collect();
    let missing_name = match set.first() {
        None => return Ok(()),
        Some((name, _)) if *name == names[0] => {
            "HALITE_PROCESS_ID (in Kubernetes: JOB_COMPLETION_INDEX)"
        }
        Some(_) => names[0],
    };
    let is_used =
        |job: &Recognized| job.size > 1 || job.variables.iter().any(|pair| set.contains(pair));
    if found.iter().any(is_used) {
        return Ok(());
    }
    Err(missing(&set, missing_name))
}

/// Variables of one source that were read.
struct Reader<'a> {
    variable: Variable<'a>,
    read: Vec<(&'static str, String)>,
}

impl<'a> Reader<'a> {
    fn new(variable: Variable<'a>) -> Self {
        let read = Vec::new();
        Reader { variable, read }
    }

    fn text(&mut self, name: &'static str) -> Option<String> {
        let value = (self.variable)(name)?;
        self.read.push((name, value.clone()));
        Some(value)
    }

    fn number(&mut self, name: &'static str) -> Result<Option<usize>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let number = text.parse();
        number.map(Some).map_err(|_| {
            Error::invalid(
                "job",
                format!("{name} is `{text}`; expected a number from 0"),
            )
        })
    }

    /// A number without which the other variables say nothing.
    fn needed(&mut self, name: &'static str) -> Result<usize> {
        let read = self.read.clone();
        self.number(name)?.ok_or_else(|| missing(&read, name))
    }

    fn job(
        self,
        source: Source,
        rank: usize,
        size: usize,
        coordinator: Option<String>,
    ) -> Result<Option<Recognized>> {
        let job = Recognized {
            source,
            rank,
            size,
            coordinator,
            variables: self.read,
        };
        if rank >= size || size > MOST {
            let message = format!(
                "process {rank} of {size}: processes count from 0, and a job has at most {MOST} ({})",
                job.variables()
            );
            return Err(Error::invalid("job", message));
        }
        Ok(Some(job))
    }
}

fn missing(read: &[(&'static str, String)], name: &str) -> Error {
    let read: Vec<_> = read
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let message = format!("{} is set, and {name} is missing", read.join(" "));
    Error::invalid("job", message)
}

/// The names are those of JAX (`jax.distributed.initialize`: `JAX_PROCESS_ID`, ..) with our prefix.
fn explicit(variable: Variable<'_>) -> Result<Option<Recognized>> {
    let mut reader = Reader::new(variable);
    let Some(rank) = reader.number("HALITE_PROCESS_ID")? else {
        return Ok(None);
    };
    let size = reader.needed("HALITE_NUM_PROCESSES")?;
    let coordinator = reader.text("HALITE_COORDINATOR_ADDRESS");
    // The processes have met if PMI says the same, as after a start by this very job.
    let has_met = variable("PMI_FD").is_some() || variable("PMI_PORT").is_some();
    if coordinator.is_none() && size > 1 && !has_met {
        return Err(missing(&reader.read, "HALITE_COORDINATOR_ADDRESS"));
    }
    let coordinator = coordinator.filter(|_| !has_met);
    reader.job(Source::Explicit, rank, size, coordinator.map(with_port))
}

/// PMI 1 and 2 (MPICH's Hydra, SLURM's `--mpi=pmi2`): rank, size, and a file descriptor or port of
/// the process manager.
fn mpi(variable: Variable<'_>) -> Result<Option<Recognized>> {
    let mut reader = Reader::new(variable);
    if variable("PMI_FD").is_none() && variable("PMI_PORT").is_none() {
        return Ok(None);
    }
    let Some(rank) = reader.number("PMI_RANK")? else {
        return Ok(None);
    };
    let size = reader.needed("PMI_SIZE")?;
    reader.job(Source::Mpi, rank, size, None)
}

/// A step of SLURM (srun(1), "OUTPUT ENVIRONMENT VARIABLES"). A batch script has SLURM_PROCID too,
/// but no step.
fn slurm(variable: Variable<'_>) -> Result<Option<Recognized>> {
    let mut reader = Reader::new(variable);
    if variable("SLURM_STEP_ID").is_none() {
        return Ok(None);
    }
    let Some(rank) = reader.number("SLURM_PROCID")? else {
        return Ok(None);
    };
    let size = match reader.number("SLURM_STEP_NUM_TASKS")? {
        Some(size) => size,
        None => reader.needed("SLURM_NTASKS")?,
    };
    let nodes = match reader.text("SLURM_STEP_NODELIST") {
        Some(nodes) => Some(nodes),
        None => reader.text("SLURM_JOB_NODELIST"),
    };
    // As JAX does, so that two jobs on a host have two ports.
    let job = reader.number("SLURM_JOB_ID")?.unwrap_or(0);
    let port = 65535 - (1 << 12) + 1 + job % (1 << 12);
    let coordinator = nodes.map(|nodes| format!("{}:{port}", first_node(&nodes)));
    reader.job(Source::Slurm, rank, size, coordinator)
}

/// `torchrun` (PyTorch, "Environment Variables" of torchrun). Its own store listens on MASTER_PORT,
/// so that this job takes the next one.
fn torchrun(variable: Variable<'_>) -> Result<Option<Recognized>> {
    let mut reader = Reader::new(variable);
    if variable("WORLD_SIZE").is_none() {
        return Ok(None);
    }
    let rank = reader.needed("RANK")?;
    let size = reader.needed("WORLD_SIZE")?;
    let host = reader.text("MASTER_ADDR");
    let port = reader.number("MASTER_PORT")?.unwrap_or(PORT.into());
    let Some(port) = u16::try_from(port)
        .ok()
        .and_then(|port| port.checked_add(1))
    else {
        let message = format!("MASTER_PORT is `{port}`; this job needs the next port, up to 65535");
        return Err(Error::invalid("job", message));
    };
    if host.is_none() && size > 1 {
        return Err(missing(&reader.read, "MASTER_ADDR"));
    }
    let coordinator = host.map(|host| format!("{host}:{port}"));
    reader.job(Source::Torchrun, rank, size, coordinator)
}

/// An indexed job (Kubernetes, "Job", "Completion mode"): the index alone is given, and the
/// manifest has to set the other two.
fn kubernetes(variable: Variable<'_>) -> Result<Option<Recognized>> {
    let mut reader = Reader::new(variable);
    let Some(rank) = reader.number("JOB_COMPLETION_INDEX")? else {
        return Ok(None);
    };
    let Some(size) = reader.number("HALITE_NUM_PROCESSES")? else {
        return Ok(None);
    };
    let coordinator = reader.text("HALITE_COORDINATOR_ADDRESS");
    if coordinator.is_none() && size > 1 {
        return Err(missing(&reader.read, "HALITE_COORDINATOR_ADDRESS"));
    }
    reader.job(Source::Kubernetes, rank, size, coordinator.map(with_port))
}

/// A slice of Cloud TPUs, and several slices (libtpu's and JAX's variables).
fn tpu(variable: Variable<'_>) -> Result<Option<Recognized>> {
    let mut reader = Reader::new(variable);
    let Some(hosts) = reader.text("TPU_WORKER_HOSTNAMES") else {
        return Ok(None);
    };
    let hosts: Vec<&str> = hosts.split(',').map(str::trim).collect();
    let worker = match reader.number("CLOUD_TPU_TASK_ID")? {
        Some(worker) => worker,
        None => reader.needed("TPU_WORKER_ID")?,
    };
    let slices = reader.number("MEGASCALE_NUM_SLICES")?.unwrap_or(1);
    let (slice, host) = match slices {
        1 => (0, Some(hosts[0].to_owned())),
        _ => {
            let slice = reader.needed("MEGASCALE_SLICE_ID")?;
            (slice, reader.text("MEGASCALE_COORDINATOR_ADDRESS"))
        }
    };
    if worker >= hosts.len() {
        let message = format!(
            "worker {worker} is not one of the {} of TPU_WORKER_HOSTNAMES",
            hosts.len()
        );
        return Err(Error::invalid("job", message));
    }
    // The port of the address is that of libtpu's own network.
    let host = host.map(|host| host.split(':').next().unwrap_or_default().to_owned());
    let coordinator = host.map(|host| format!("{host}:{PORT}"));
    // What is too large for a number is too large for a job.
    let (rank, size) = (
        slice.saturating_mul(hosts.len()),
        slices.saturating_mul(hosts.len()),
    );
    let rank = rank.saturating_add(worker);
    reader.job(Source::Tpu, rank, size, coordinator)
}

fn with_port(address: String) -> String {
    match address.contains(':') {
        true => address,
        false => format!("{address}:{PORT}"),
    }
}

/// First host of a list of SLURM: `tux001` of `tux[001-004,7],other`.
fn first_node(nodes: &str) -> String {
    match nodes.split_once(['[', ',']) {
        Some((prefix, rest)) if nodes[prefix.len()..].starts_with('[') => {
            let end = rest.find(['-', ',', ']']).unwrap_or(rest.len());
            format!("{prefix}{}", &rest[..end])
        }
        Some((first, _)) => first.to_owned(),
        None => nodes.to_owned(),
    }
}
