//! The variables of each launcher.

use std::net::{Ipv4Addr, Ipv6Addr};

use halite_core::{Error, Result};

use super::{Recognized, Source};
use crate::{processes::COORDINATOR, record};

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
    let sources = [mpi, open_mpi, slurm, torchrun, kubernetes, tpu];
    let found = sources.into_iter().map(|source| source(variable));
    let found = found.collect::<Result<Vec<_>>>()?;
    let found: Vec<_> = found.into_iter().flatten().collect();
    refuse_unused(variable, &found)?;
    if found.is_empty() {
        refuse_unknown(variable)?;
    }
    Ok(found)
}

/// Refuses the variables of launchers whose jobs halite cannot join: each process would be alone.
fn refuse_unknown(variable: Variable<'_>) -> Result<()> {
    const LAUNCHERS: [(&str, &str, &str); 3] = [
        ("PMIx", "PMIX_RANK", ""),
        ("MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
        ("JSM", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ];
    for (launcher, rank, size) in LAUNCHERS {
        let (Some(value), size) = (variable(rank), variable(size)) else {
            continue;
        };
        if size.as_deref() != Some("1") {
            let message = format!(
                "{rank}={value} is of {launcher}, whose jobs halite does not join; start the \
                 processes by `halite launch`, MPICH's mpiexec or srun --mpi=pmi2, or set \
                 HALITE_PROCESS_ID, HALITE_NUM_PROCESSES and {COORDINATOR}"
            );
            return Err(Error::invalid("job", message));
        }
    }
    Ok(())
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
    identity: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(variable: Variable<'a>) -> Self {
        Reader {
            variable,
            read: Vec::new(),
            identity: Vec::new(),
        }
    }

    /// Reads what the launcher calls the job, the same in all of its processes.
    fn identify(&mut self, names: &[&'static str]) -> &mut Self {
        let values = names.iter().map(|name| (self.variable)(name));
        let named = names.iter().zip(values);
        let named = named.filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        self.identity.extend(named);
        self
    }

    /// The address in a variable, `HOST:PORT`.
    fn address(&mut self, name: &'static str) -> Result<Option<String>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let (host, port) = host(name, &text)?;
        Ok(Some(format!("{host}:{}", port.unwrap_or(PORT))))
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
            identity: self.identity,
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

/// A variable without which those that were read say nothing.
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
    let coordinator = reader.address(COORDINATOR)?;
    // The processes have met if PMI says the same, as after a start by this very job.
    let has_met = variable("PMI_FD").is_some() || variable("PMI_PORT").is_some();
    if coordinator.is_none() && size > 1 && !has_met {
        return Err(missing(&reader.read, COORDINATOR));
    }
    let coordinator = coordinator.filter(|_| !has_met);
    reader.job(Source::Explicit, rank, size, coordinator)
}

/// PMI 1 and 2 (MPICH's Hydra, SLURM's `--mpi=pmi2`): rank, size, and a file descriptor or port of
/// the process manager; the address of `halite launch` on another host.
fn mpi(variable: Variable<'_>) -> Result<Option<Recognized>> {
    let mut reader = Reader::new(variable);
    let has_met = variable("PMI_FD").is_some() || variable("PMI_PORT").is_some();
    let is_remote = variable(record::VARIABLE).is_some() && variable(COORDINATOR).is_some();
    if !has_met && !is_remote {
        return Ok(None);
    }
    let Some(rank) = reader.number("PMI_RANK")? else {
        return Ok(None);
    };
    let size = reader.needed("PMI_SIZE")?;
    let coordinator = if has_met {
        None
    } else {
        reader.address(COORDINATOR)?
    };
    reader.job(Source::Mpi, rank, size, coordinator)
}

/// OpenMPI's `mpirun` (its manual, "Environment Variables"), whose PMIx halite does not speak.
fn open_mpi(variable: Variable<'_>) -> Result<Option<Recognized>> {
    let mut reader = Reader::new(variable);
    let Some(size) = reader.number("OMPI_COMM_WORLD_SIZE")? else {
        return Ok(None);
    };
    let rank = reader.needed("OMPI_COMM_WORLD_RANK")?;
    let job = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"];
    reader.identify(&job);
    let coordinator = match reader.address(COORDINATOR)? {
        None if reader.number("OMPI_COMM_WORLD_LOCAL_SIZE")? == Some(size) => {
            let name = reader.identity.join(" ").into_bytes();
            let sum = name.iter().fold(0, |sum: usize, byte| {
                sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
            });
            Some(format!("localhost:{}", port_of(sum)))
        }
        None if size > 1 => {
            let local = variable("OMPI_COMM_WORLD_LOCAL_SIZE");
            let local = local.as_deref().unwrap_or("missing");
            let message = format!(
                "mpirun of OpenMPI started process {rank} of {size} on several hosts \
                 (OMPI_COMM_WORLD_LOCAL_SIZE is {local}), and does not tell their addresses: set {COORDINATOR} to HOST:PORT of process 0 (mpirun -x \
                 {COORDINATOR}=..), or use `halite launch --hosts`"
            );
            return Err(Error::invalid("job", message));
        }
        coordinator => coordinator,
    };
    reader.job(Source::OpenMpi, rank, size, coordinator)
}

/// A step of SLURM (srun(1), "OUTPUT ENVIRONMENT VARIABLES"). A batch script has SLURM_PROCID too,
/// but no step.
fn slurm(variable: Variable<'_>) -> Result<Option<Recognized>> {
    let mut reader = Reader::new(variable);
    if variable("SLURM_STEP_ID").is_none() {
        return Ok(None);
    }
    let rank = reader.number("SLURM_PROCID")?;
    let size = match reader.number("SLURM_STEP_NUM_TASKS")? {
        Some(size) => Some(size),
        None => reader.number("SLURM_NTASKS")?,
    };
    let (rank, size) = match (rank, size) {
        (Some(rank), Some(size)) => (rank, size),
        (Some(_), None) => return Err(missing(&reader.read, "SLURM_NTASKS")),
        (None, Some(2..)) => return Err(missing(&reader.read, "SLURM_PROCID")),
        (None, _) => return Ok(None),
    };
    let nodes = match reader.text("SLURM_STEP_NODELIST") {
        Some(nodes) => Some(nodes),
        None => reader.text("SLURM_JOB_NODELIST"),
    };
    // Two jobs on a host, and two steps of a job, have two ports.
    let job = reader.number("SLURM_JOB_ID")?.unwrap_or(0);
    let step = reader.number("SLURM_STEP_ID")?.unwrap_or(0);
    let port = port_of(job.wrapping_add(step.wrapping_mul(STEP)));
    reader.identify(&["SLURM_JOB_ID", "SLURM_STEP_ID"]);
    let coordinator = nodes.map(|nodes| {
        if is_one_node(&nodes) {
            format!("localhost:{port}")
        } else {
            format!("{}:{port}", first_node(&nodes))
        }
    });
    reader.job(Source::Slurm, rank, size, coordinator)
}

/// `torchrun` (PyTorch, "Environment Variables" of torchrun). Its own store listens on MASTER_PORT,
/// so that this job takes the next one.
fn torchrun(variable: Variable<'_>) -> Result<Option<Recognized>> {
    let mut reader = Reader::new(variable);
    if variable("WORLD_SIZE").is_none() {
        // Either of them alone may be of another program.
        return match (reader.text("RANK"), reader.text("MASTER_ADDR")) {
            (Some(_), Some(_)) => Err(missing(&reader.read, "WORLD_SIZE")),
            _ => Ok(None),
        };
    }
    if variable("RANK").is_none() {
        return match reader.needed("WORLD_SIZE")? {
            // As for one process without a launcher.
            1 => Ok(None),
            _ => Err(missing(&reader.read, "RANK")),
        };
    }
    let rank = reader.needed("RANK")?;
    let size = reader.needed("WORLD_SIZE")?;
    if size == 1 {
        return reader.job(Source::Torchrun, rank, size, None);
    }
    let address = match reader.text("MASTER_ADDR") {
        Some(address) => host("MASTER_ADDR", &address)?,
        None => return Err(missing(&reader.read, "MASTER_ADDR")),
    };
    if let (_, Some(port)) = address {
        let message = format!("MASTER_ADDR has the port {port}; expected a host, and MASTER_PORT");
        return Err(Error::invalid("job", message));
    }
    let port = reader.number("MASTER_PORT")?.unwrap_or(PORT.into());
    let Some(port) = u16::try_from(port)
        .ok()
        .and_then(|port| port.checked_add(1))
    else {
        let message = format!("MASTER_PORT is `{port}`; this job needs the next port, up to 65535");
        return Err(Error::invalid("job", message));
    };
    reader.identify(&["TORCHELASTIC_RUN_ID", "MASTER_PORT"]);
    let is_one_host = variable("LOCAL_WORLD_SIZE") == variable("WORLD_SIZE");
    let host = if is_one_host {
        "localhost".to_owned()
    } else {
        address.0
    };
    reader.job(Source::Torchrun, rank, size, Some(format!("{host}:{port}")))
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
    let coordinator = reader.address(COORDINATOR)?;
    if coordinator.is_none() && size > 1 {
        return Err(missing(&reader.read, COORDINATOR));
    }
    reader.job(Source::Kubernetes, rank, size, coordinator)
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
    let (slice, name, first) = match slices {
        1 => (0, "TPU_WORKER_HOSTNAMES", Some(hosts[0].to_owned())),
        _ => {
            let slice = reader.needed("MEGASCALE_SLICE_ID")?;
            let name = "MEGASCALE_COORDINATOR_ADDRESS";
            (slice, name, reader.text(name))
        }
    };
    if worker >= hosts.len() {
        let message = format!(
            "worker {worker} is not one of the {} of TPU_WORKER_HOSTNAMES",
            hosts.len()
        );
        return Err(Error::invalid("job", message));
    }
    let coordinator = match first {
        // The port of the address is that of libtpu's own network.
        Some(first) => Some(format!("{}:{PORT}", host(name, &first)?.0)),
        None => None,
    };
    reader.identify(&["TPU_WORKER_HOSTNAMES"][..usize::from(slices == 1)]);
    // What is too large for a number is too large for a job.
    let (rank, size) = (
        slice.saturating_mul(hosts.len()),
        slices.saturating_mul(hosts.len()),
    );
    let rank = rank.saturating_add(worker);
    reader.job(Source::Tpu, rank, size, coordinator)
}

/// The host in the value of a variable, with brackets around an address of IPv6, and its port.
fn host(name: &str, text: &str) -> Result<(String, Option<u16>)> {
    let text = text.trim();
    let is_ipv6 = |host: &str| host.parse::<Ipv6Addr>().is_ok();
    let parts = if is_ipv6(text) {
        Some((format!("[{text}]"), None))
    } else if let Some((host, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']'))
    {
        let port = match rest {
            "" => Some(None),
            _ => rest.strip_prefix(':').map(Some),
        };
        port.filter(|_| is_ipv6(host))
            .map(|port| (format!("[{host}]"), port))
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let is_name = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        // A last label of digits is that of an address, as URLs have it (WHATWG, "Host parsing").
        let last = host
            .trim_end_matches('.')
            .rsplit('.')
            .next()
            .unwrap_or(host);
        let is_address = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
        let is_host = !host.is_empty()
            && !host.starts_with('-')
            && host.chars().all(is_name)
            && (!is_address || host.parse::<Ipv4Addr>().is_ok());
        is_host.then(|| (host.to_owned(), port))
    };
    let checked = parts.and_then(|(host, port)| match port {
        Some(port) => Some((
            host,
            Some(port.parse().ok().filter(|&port: &u16| port > 0)?),
        )),
        None => Some((host, None)),
    });
    checked.ok_or_else(|| {
        let message = format!(
            "{name} is `{text}`; expected a host or an address of IPv4 or IPv6, or one of them with \
             a port: HOST:PORT, [IPV6]:PORT"
        );
        Error::invalid("job", message)
    })
}

/// A port above those that systems give out, as JAX chooses it for a job of SLURM.
fn port_of(job: usize) -> usize {
    const PORTS: usize = 1 << 12;
    65535 - PORTS + 1 + job % PORTS
}

/// Distance of the ports of two steps of a job, so that they differ from those of the next jobs.
const STEP: usize = 521;

/// Whether a list of SLURM has one node.
fn is_one_node(nodes: &str) -> bool {
    let inside = nodes.split_once('[').map_or("", |(_, inside)| inside);
    !nodes.contains(',') && !inside.contains('-')
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
