//! Starts jobs with the variables of launchers, some of them damaged: either all processes join as
//! the launcher meant, or an error names the reason within seconds. A process never runs alone, or in
//! another's place, without a word.
//!
//! On the command line: `cargo run -p halite-tests --bin launchers -- --jobs 1000 --seed 1`.

use std::{
    collections::BTreeMap,
    fmt,
    net::TcpListener,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use halite::cluster::Job;
use halite_core::{HostArray, ReduceOp};
use serde::Serialize;

use crate::{
    parallel,
    process::{Ended, Running},
    random::Random,
};

/// Longest time of a member that has joined.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time until all members have to have joined.
const START: Duration = Duration::from_secs(20);

/// What a process prints that waits for another one, after 2.5 s.
const WAITS: &str = " waits for process ";

/// Options of the harness.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of jobs.
    pub cases: u64,
    /// Number of the first job, to repeat a single one.
    pub first: u64,
    /// Seed; each job is a function of the seed and its number.
    pub seed: u64,
    /// Jobs at the same time.
    pub parallel: usize,
    /// Time until an error must have named what is wrong, or a process that it waits.
    pub named_within: Duration,
    /// A process that calls [`member`], without variables that halite reads.
    pub member: fn() -> Command,
}

/// Results of all jobs.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    seed: u64,
    launchers: BTreeMap<&'static str, Counts>,
    /// Failures, each with the seed and number that reproduce it.
    pub failures: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    /// All processes joined.
    joined: u64,
    /// A process reported an error that names a variable, and the job ended.
    rejected: u64,
    /// No variable is left that tells of a job, or a note says that the process is alone.
    alone: u64,
    wrong: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>8} {:>8} {:>8} {:>8}",
            "launcher", "joined", "rejected", "alone", "wrong"
        )?;
        for (name, counts) in &self.launchers {
            let Counts {
                joined,
                rejected,
                alone,
                wrong,
            } = counts;
            writeln!(
                f,
                "{name:<12} {joined:>8} {rejected:>8} {alone:>8} {wrong:>8}"
            )?;
        }
        let wrong = self.failures.len();
        write!(f, "seed {}: {wrong} wrong", self.seed)
    }
}

/// What a process of a job does: joins it, adds the ranks of all, and prints its place.
///
/// # Errors
/// If it cannot join the job that its variables describe.
pub fn member() -> halite::Result<()> {
    let job = Job::from_env()?;
    let mine = HostArray::scalar(job.rank() as u32);
    let sum = (job.group()).all_reduce("ranks", &mine, ReduceOp::Sum, PATIENCE)?;
    let (rank, size) = (job.rank(), job.size());
    println!("process {rank} of {size}: {}", sum.as_slice::<u32>()?[0]);
    job.finish()
}

/// Runs the harness.
pub fn run(options: Options) -> Summary {
    let mut summary = Summary {
        seed: options.seed,
        ..Summary::default()
    };
    let numbers = options.first..options.first + options.cases;
    let results = parallel::map(options.parallel, numbers.clone(), |number| {
        let case = Case::new(options.seed, number);
        let outcome = case.run(&options);
        (case, outcome)
    });
    for (number, (case, outcome)) in numbers.zip(results) {
        let counts = summary.launchers.entry(case.launcher.name()).or_default();
        match outcome {
            Ok(Right::Joined) => counts.joined += 1,
            Ok(Right::Rejected) => counts.rejected += 1,
            Ok(Right::Alone) => counts.alone += 1,
            Err(how) => {
                counts.wrong += 1;
                let seed = options.seed;
                let failure = format!("job {number}, seed {seed}: {case:?}: {how}");
                summary.failures.push(failure);
            }
        }
    }
    summary
}

/// A right reaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Right {
    Joined,
    Rejected,
    Alone,
}

type Variables = Vec<(&'static str, String)>;

/// What sets the variables. MPICH's and halite's own launchers are in the tests of `halite-cluster`:
/// their processes meet through a pipe.
#[derive(Clone, Copy, Debug)]
enum Launcher {
    Explicit,
    Slurm,
    OpenMpi,
    Torchrun,
    Kubernetes,
}

impl Launcher {
    const ALL: [Launcher; 5] = [
        Launcher::Explicit,
        Launcher::Slurm,
        Launcher::OpenMpi,
        Launcher::Torchrun,
        Launcher::Kubernetes,
    ];

    fn name(self) -> &'static str {
        match self {
            Launcher::Explicit => "explicit",
            Launcher::Slurm => "slurm",
            Launcher::OpenMpi => "openmpi",
            Launcher::Torchrun => "torchrun",
            Launcher::Kubernetes => "kubernetes",
        }
    }

    /// The variables of each process of a job of this number on this machine.
    fn variables(self, rank: usize, size: usize, port: u16) -> Variables {
        let (rank, size) = (rank.to_string(), size.to_string());
        let address = format!("localhost:{port}");
        match self {
            Launcher::Explicit => vec![
                ("HALITE_PROCESS_ID", rank),
                ("HALITE_NUM_PROCESSES", size),
                ("HALITE_COORDINATOR_ADDRESS", address),
            ],
            Launcher::Slurm => vec![
                ("SLURM_JOB_ID", port.to_string()),
                ("SLURM_STEP_ID", "0".to_owned()),
                ("SLURM_PROCID", rank.clone()),
                ("SLURM_LOCALID", rank),
                ("SLURM_STEP_NUM_TASKS", size.clone()),
                ("SLURM_NTASKS", size),
                ("SLURM_STEP_NODELIST", "localhost".to_owned()),
            ],
            Launcher::OpenMpi => vec![
                ("OMPI_COMM_WORLD_RANK", rank.clone()),
                ("OMPI_COMM_WORLD_SIZE", size.clone()),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", size),
                ("PMIX_NAMESPACE", format!("prterun-{port}@1")),
                ("PMIX_RANK", rank),
            ],
            Launcher::Torchrun => vec![
                ("RANK", rank.clone()),
                ("LOCAL_RANK", rank),
                ("WORLD_SIZE", size.clone()),
                ("LOCAL_WORLD_SIZE", size),
                ("MASTER_ADDR", "localhost".to_owned()),
                ("MASTER_PORT", (port - 1).to_string()),
            ],
            Launcher::Kubernetes => vec![
                ("JOB_COMPLETION_INDEX", rank),
                ("HALITE_NUM_PROCESSES", size),
                ("HALITE_COORDINATOR_ADDRESS", address),
            ],
        }
    }
}

/// Variables that a shell may have left over, and that mean nothing or one process.
const LEFT_OVER: [&[(&str, &str)]; 6] = [
    &[("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "7")],
    &[("WORLD_SIZE", "1"), ("RANK", "0")],
    &[("MASTER_ADDR", "node7"), ("MASTER_PORT", "29500")],
    &[("PMI_RANK", "1"), ("PMI_SIZE", "3")],
    &[("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0")],
    &[
        ("TPU_WORKER_HOSTNAMES", "localhost"),
        ("TPU_WORKER_ID", "0"),
    ],
];

/// Values that no launcher sets.
const VALUES: [&str; 9] = [
    "",
    " ",
    "-1",
    "x",
    "1.5",
    "4294967296",
    "99999999999999999999",
    "0",
    "1",
];

/// What is wrong with the variables; ranks of `None` are all.
#[derive(Clone, Debug)]
enum Damage {
    None,
    Removed {
        name: &'static str,
        rank: Option<usize>,
    },
    Changed {
        name: &'static str,
        value: &'static str,
        rank: Option<usize>,
    },
    LeftOver(&'static [(&'static str, &'static str)]),
}

#[derive(Debug)]
struct Case {
    launcher: Launcher,
    size: usize,
    damage: Damage,
}

impl Case {
    fn new(seed: u64, number: u64) -> Self {
        let mut random = Random::new(seed, number);
        let launcher = *random.pick(&Launcher::ALL);
        let size = 2 + random.below(3);
        let variables = launcher.variables(0, size, 2);
        let name = random.pick(&variables).0;
        let rank = random.percent(50).then(|| random.below(size));
        let damage = match random.below(5) {
            0 => Damage::None,
            1 => Damage::LeftOver(LEFT_OVER[random.below(LEFT_OVER.len())]),
            2 => Damage::Removed { name, rank },
            _ => Damage::Changed {
                name,
                value: VALUES[random.below(VALUES.len())],
                rank,
            },
        };
        Case {
            launcher,
            size,
            damage,
        }
    }

    fn variables(&self, rank: usize, port: u16) -> Variables {
        let mut variables = self.launcher.variables(rank, self.size, port);
        let is_hit = |of: Option<usize>| of.is_none_or(|of| of == rank);
        match &self.damage {
            Damage::Removed { name, rank } if is_hit(*rank) => {
                variables.retain(|(other, _)| other != name);
            }
            Damage::Changed { name, value, rank } if is_hit(*rank) => {
                let named = variables.iter_mut().filter(|(other, _)| other == name);
                named.for_each(|(_, old)| *old = (*value).to_owned());
            }
            Damage::LeftOver(all) => {
                let all = all.iter().map(|(name, value)| (*name, (*value).to_owned()));
                // What a launcher sets replaces what the shell had.
                let is_new = |name: &str| variables.iter().all(|(other, _)| *other != name);
                let new: Variables = all.filter(|(name, _)| is_new(name)).collect();
                variables.extend(new);
            }
            _ => {}
        }
        variables
    }

    fn run(&self, options: &Options) -> Result<Right, String> {
        let port = free_port().map_err(|error| format!("no port: {error}"))?;
        let start = |rank| {
            let mut command = (options.member)();
            command.env("HALITE_JOB_START", START.as_secs().to_string());
            Running::start(command.envs(self.variables(rank, port)))
        };
        let running: Result<Vec<_>, _> = (0..self.size).map(start).collect();
        let running = running.map_err(|error| format!("not started: {error}"))?;
        self.judge(port, &ended(running), options.named_within)
    }

    fn judge(
        &self,
        port: u16,
        ended: &[(Ended, Duration)],
        named_within: Duration,
    ) -> Result<Right, String> {
        let sum = self.size * (self.size - 1) / 2;
        let places: Vec<_> = (0..self.size)
            .map(|rank| format!("process {rank} of {}: {sum}\n", self.size))
            .collect();
        let all = || {
            let lines = ended.iter().map(|(one, time)| {
                format!("{} after {time:.1?}: {}", one.stdout.trim(), one.summary())
            });
            lines.collect::<Vec<_>>().join("; ")
        };
        if let Some((one, _)) = ended.iter().find(|(one, _)| one.panicked()) {
            return Err(format!("panic: {}", one.summary()));
        }
        let joined = |(place, (one, _)): (&String, &(Ended, Duration))| {
            one.succeeded() && one.stdout.contains(place.as_str())
        };
        if places.iter().zip(ended).all(joined) {
            return Ok(Right::Joined);
        }
        // Errors of processes that were not killed for the error of another.
        let failed = ended.iter().filter(|(one, _)| one.code() == Some(1));
        if let Some((error, time)) = failed.min_by_key(|(_, time)| *time) {
            let names = (0..self.size).flat_map(|rank| self.variables(rank, port));
            let mut names = names.map(|(name, _)| name).chain(match &self.damage {
                Damage::Removed { name, .. } => Some(*name),
                _ => None,
            });
            if *time > named_within && !error.stderr.contains(WAITS) {
                return Err(format!("an error after {time:.1?}: {}", error.summary()));
            }
            return match names.any(|name| error.stderr.contains(name)) {
                true => Ok(Right::Rejected),
                false => Err(format!("no variable is named: {}", error.summary())),
            };
        }
        let alone = |(one, _): &(Ended, Duration)| {
            let is_told = one.stderr.contains("this process is alone");
            one.succeeded()
                && one.stdout.contains("process 0 of 1: 0\n")
                && (is_told || !self.tells_of_a_job(port))
        };
        match ended.iter().all(alone) {
            true => Ok(Right::Alone),
            false => Err(all()),
        }
    }

    /// Whether a variable that is left has the number of processes or a rank.
    fn tells_of_a_job(&self, port: u16) -> bool {
        let is_number = |name: &str| {
            ["RANK", "SIZE", "TASKS", "PROCID", "INDEX", "PROCESS"]
                .iter()
                .any(|part| name.contains(part))
        };
        let left = (0..self.size).flat_map(|rank| self.variables(rank, port));
        let mut numbers = left.filter(|(name, _)| is_number(name));
        numbers.any(|(_, value)| value.trim().parse().is_ok_and(|value: usize| value > 1))
    }
}

/// Waits for all; after the first that fails the others get what launchers give them, a second and a
/// signal.
fn ended(mut running: Vec<Running>) -> Vec<(Ended, Duration)> {
    let began = Instant::now();
    let mut times = vec![None; running.len()];
    let mut first: Option<Instant> = None;
    while times.contains(&None) && began.elapsed() < PATIENCE * 2 {
        for (one, time) in running.iter_mut().zip(&mut times) {
            if time.is_none() && one.has_ended() {
                *time = Some(one.elapsed());
                if one.has_failed() {
                    first.get_or_insert_with(Instant::now);
                }
            }
        }
        if first.is_some_and(|first| first.elapsed() > Duration::from_secs(2)) {
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    let ends = running.into_iter().zip(times).map(|(one, time)| {
        let time = time.unwrap_or_else(|| one.elapsed());
        (one.end(Duration::ZERO), time)
    });
    ends.collect()
}

/// A port that nobody listens on, nor on the one before, which torchrun's store would have.
fn free_port() -> std::io::Result<u16> {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        if TcpListener::bind(("127.0.0.1", port - 1)).is_ok() {
            return Ok(port);
        }
    }
}
