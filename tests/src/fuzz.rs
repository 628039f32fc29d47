//! Fuzzing of every parser: the targets, a seeded mutator, and campaigns with deadlines and limits
//! of memory.
//!
//! The same targets run under libFuzzer (`fuzz/` in the repository), as bounded tests, and on the
//! command line with any number of inputs: `cargo run --release -p halite-tests --bin fuzz --
//! TARGET --inputs 10000000 --seed 1`.

mod mutate;
mod references;
mod repair;
mod run;
mod targets;

use std::{
    fmt, fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub use references::{Compared, References, formats};
pub use targets::{Target, target, targets};

use crate::random::Random;

/// Number and limits of the inputs for one target.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// Number of inputs.
    pub inputs: u64,
    /// Seed; each input is a function of the seed and its number.
    pub seed: u64,
    /// Longest time that one input may take.
    pub deadline: Duration,
    /// Largest growth of the address space of the process, in bytes.
    pub memory: u64,
}

impl Campaign {
    /// A campaign with limits that no correct parser reaches, however busy the machine is.
    pub fn new(inputs: u64, seed: u64) -> Self {
        Campaign {
            inputs,
            seed,
            deadline: Duration::from_secs(60),
            memory: 1 << 30,
        }
    }
}

/// Result of a campaign without a failure.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Inputs that the parser accepted.
    pub accepted: u64,
    /// Inputs that it rejected.
    pub rejected: u64,
    /// Wall time of the campaign.
    pub elapsed: Duration,
}

/// A failure of a parser, and the input that causes it.
#[derive(Clone, Debug)]
pub struct Failure {
    target: &'static str,
    seed: u64,
    index: u64,
    what: String,
    input: Vec<u8>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            target,
            seed,
            index,
            what,
            input,
        } = self;
        let shown = &input[..input.len().min(2000)];
        write!(
            f,
            "{target}: {what}\n  input {index} of seed {seed}, {} bytes: \"{}\"",
            input.len(),
            shown.escape_ascii()
        )
    }
}

/// Returns the input of a campaign with this number.
pub fn input(target: &Target, seeds: &[Vec<u8>], seed: u64, index: u64) -> Vec<u8> {
    // The first inputs are the seeds themselves, which are valid.
    match usize::try_from(index)
        .ok()
        .and_then(|index| seeds.get(index))
    {
        Some(valid) => valid.clone(),
        None => mutate::mutated(seeds, target.dictionary, &mut Random::new(seed, index)),
    }
}

/// Runs the target on all inputs of a campaign within its limits of time and memory.
///
/// # Errors
/// With the first input that makes it panic, takes longer than the deadline, or grows the process
/// above the limit.
pub fn run(target: &'static Target, campaign: Campaign) -> Result<Passed, Box<Failure>> {
    let began = Instant::now();
    let seeds = Arc::new((target.seeds)());
    let shared = Arc::new(Shared::default());
    let before = address_space().unwrap_or(0);
    let worker = {
        let (shared, seeds) = (shared.clone(), seeds.clone());
        let work = move || work(target, &seeds, campaign, &shared);
        thread::Builder::new()
            .name(format!("fuzz {}", target.name))
            .spawn(work)
            .expect("a thread starts")
    };
    let failure = |index: u64, what: String| {
        let input = input(target, &seeds, campaign.seed, index);
        Box::new(Failure {
            target: target.name,
            seed: campaign.seed,
            index,
            what,
            input,
        })
    };
    watch(&worker, &shared, campaign, before).map_err(|(index, what)| failure(index, what))?;
    worker.join().expect("panics of the target are caught");
    // The peak includes memory that was freed at once.
    let grown = peak_address_space().unwrap_or(0).saturating_sub(before);
    if grown > campaign.memory.saturating_mul(2) {
        return Err(failure(
            0,
            format!("one of the inputs made the process grow by {grown} bytes"),
        ));
    }
    if let Some((index, what)) = shared
        .panicked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
    {
        return Err(failure(index, what));
    }
    let (accepted, rejected) = (shared.accepted.load(Relaxed), shared.rejected.load(Relaxed));
    Ok(Passed {
        accepted,
        rejected,
        elapsed: began.elapsed(),
    })
}

/// Waits for the worker; fails with the number of the input at which a limit was exceeded.
fn watch(
    worker: &JoinHandle<()>,
    shared: &Shared,
    campaign: Campaign,
    before: u64,
) -> Result<(), (u64, String)> {
    let mut seen = (u64::MAX, Instant::now());
    while !worker.is_finished() {
        thread::sleep(Duration::from_millis(5));
        let index = shared.index.load(Relaxed);
        if index != seen.0 {
            seen = (index, Instant::now());
        } else if seen.1.elapsed() > campaign.deadline {
            // The worker is abandoned: a thread cannot be ended.
            return Err((index, format!("not done after {:?}", campaign.deadline)));
        }
        let grown = address_space().unwrap_or(0).saturating_sub(before);
        if grown > campaign.memory {
            shared.stop.store(true, Relaxed);
            let what = format!("the process grew by {grown} bytes at about this input");
            return Err((index, what));
        }
    }
    Ok(())
}

/// Runs the target of this name on one input, for libFuzzer.
///
/// # Panics
/// If there is no such target, or one of its properties does not hold.
pub fn run_libfuzzer(name: &str, data: &[u8]) {
    let target = target(name).unwrap_or_else(|| panic!("no fuzz target `{name}`"));
    (target.run)(data);
}

#[derive(Default)]
struct Shared {
    index: AtomicU64,
    accepted: AtomicU64,
    rejected: AtomicU64,
    stop: AtomicBool,
    panicked: Mutex<Option<(u64, String)>>,
}

fn work(target: &Target, seeds: &[Vec<u8>], campaign: Campaign, shared: &Shared) {
    for index in 0..campaign.inputs {
        if shared.stop.load(Relaxed) {
            return;
        }
        shared.index.store(index, Relaxed);
        let input = input(target, seeds, campaign.seed, index);
        match catch_unwind(AssertUnwindSafe(|| (target.run)(&input))) {
            Ok(true) => _ = shared.accepted.fetch_add(1, Relaxed),
            Ok(false) => _ = shared.rejected.fetch_add(1, Relaxed),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text =
                    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                let what = format!("panicked: {}", text.unwrap_or_default());
                *shared
                    .panicked
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Some((index, what));
                return;
            }
        }
    }
}

/// Size of the address space of this process, in bytes; only on Linux.
fn address_space() -> io::Result<u64> {
    status("VmSize:")
}

/// The largest size so far.
fn peak_address_space() -> io::Result<u64> {
    status("VmPeak:")
}

fn status(name: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other(format!("/proc/self/status has no {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a memory limit, as another test here makes the process grow.
    fn campaign(inputs: u64) -> Campaign {
        Campaign {
            deadline: Duration::from_millis(300),
            memory: u64::MAX,
            ..Campaign::new(inputs, 7)
        }
    }

    #[test]
    fn panic_is_reported_with_its_input() {
        static PANICS: Target = Target {
            name: "panics",
            run: |data| data.iter().all(|byte| *byte != b'Z') || panic!("a Z"),
            seeds,
            dictionary: &["Z"],
        };
        let patient = Campaign {
            deadline: Duration::from_secs(60),
            ..campaign(100_000)
        };
        let failure = run(&PANICS, patient).unwrap_err();
        assert!(
            failure.input.contains(&b'Z') && failure.what == "panicked: a Z",
            "{failure}"
        );
    }

    #[test]
    fn hang_is_reported_with_its_input() {
        static HANGS: Target = Target {
            name: "hangs",
            run: |data| {
                if data == b"abcdef" {
                    thread::sleep(Duration::from_secs(3600));
                }
                true
            },
            seeds,
            dictionary: &[],
        };
        let failure = run(&HANGS, campaign(10)).unwrap_err();
        assert_eq!(
            (failure.index, &*failure.input),
            (1, &b"abcdef"[..]),
            "{failure}"
        );
    }

    #[test]
    fn huge_allocation_is_reported() {
        static GROWS: Target = Target {
            name: "grows",
            run: |data| {
                let room = vec![0u8; 8 << 30];
                thread::sleep(Duration::from_millis(50));
                room.len() > data.len()
            },
            seeds,
            dictionary: &[],
        };
        let failure = run(&GROWS, Campaign::new(10, 1)).unwrap_err();
        assert!(failure.what.contains("grew by"), "{failure}");
    }

    #[test]
    fn campaign_is_a_function_of_its_seed() {
        let target = target("pattern").unwrap();
        let inputs = || {
            (0..1000)
                .map(|index| input(target, &seeds(), 3, index))
                .collect::<Vec<_>>()
        };
        assert_eq!(inputs(), inputs());
    }

    fn seeds() -> Vec<Vec<u8>> {
        vec![b"123 abc".to_vec(), b"abcdef".to_vec()]
    }
}
