//! What the processes of a job agree on outside of programs, in the thread of the training loop: all
//! of them call the same functions in the same order.

mod agreement;
mod directory;
mod replicas;
mod resumed;

use std::{collections::BTreeMap, fmt, time::Duration};

use halite_core::{Error, Result};
use halite_data::{Dataset, Loader, digest_of_some};
use halite_nn::Processes;

pub(crate) use self::{
    agreement::{Agreement, Wish},
    directory::shared_store,
    replicas::check_replicas,
    resumed::ResumeFrom,
};
pub(crate) use crate::waits::patience;
use crate::{TrainerOptions, identity::Identity, validation_set::NamedSet, window::WindowMetric};

/// Least limit of a wait for processes that write a checkpoint: disks of hosts differ.
const WRITE: Duration = Duration::from_secs(3600);

/// Longest wait for processes that write their parts of a checkpoint.
pub(crate) fn patience_of_files(processes: &Processes) -> Duration {
    processes.patience().max(WRITE)
}

/// Whether all processes say yes.
pub(crate) fn all_agree(processes: &Processes, what: &str, mine: bool) -> Result<bool> {
    let all = (processes.group()).all_gather(what, &[u8::from(mine)], patience(processes))?;
    Ok(all.iter().all(|one| *one == [1]))
}

/// The sums of metrics over the processes, from those of each.
pub(crate) fn over_processes(
    mine: Vec<WindowMetric>,
    processes: &Processes,
) -> Result<Vec<WindowMetric>> {
    let mut message = Vec::new();
    for metric in &mine {
        let bad = metric.bad_step.unwrap_or(u64::MAX);
        message.extend(metric.total.to_le_bytes());
        message.extend(metric.weight.to_le_bytes());
        message.extend(bad.to_le_bytes());
    }
    let all = (processes.group()).all_gather("metrics", &message, patience(processes))?;
    let mut sums = mine;
    for (index, metric) in sums.iter_mut().enumerate() {
        let mut bad_steps = Vec::new();
        (metric.total, metric.weight) = (0.0, 0.0);
        for bytes in &all {
            let [total, weight, bad] = words(bytes, 3 * index)?;
            metric.total += f64::from_bits(total);
            metric.weight += f64::from_bits(weight);
            bad_steps.extend((bad != u64::MAX).then_some(bad));
        }
        metric.bad_step = bad_steps.into_iter().min();
    }
    Ok(sums)
}

/// Checks that all processes have the same run: options, data and program.
///
/// # Errors
/// The first property that differs, with the values and ranks.
pub(crate) fn check_alike(
    processes: &Processes,
    mine: &Identity,
    options: &TrainerOptions,
    train: &Loader,
    validation: &[NamedSet],
) -> Result<()> {
    let mut facts = mine.facts();
    facts.extend(schedule(options));
    facts.insert("training data".to_string(), sampled(&**train.dataset()));
    let sets = validation.iter();
    facts.extend(sets.map(|set| (set.described(), sampled(&**set.data.dataset()))));
    let text = |(name, value): (&String, &String)| format!("{name}\u{1}{value}\u{2}");
    let message: String = facts.iter().map(text).collect();
    let all = processes.group().all_gather(
        "options of the run",
        message.as_bytes(),
        patience(processes),
    )?;
    let Some(other) = all.iter().position(|other| other != message.as_bytes()) else {
        return Ok(());
    };
    let theirs = String::from_utf8_lossy(&all[other]);
    let theirs: BTreeMap<&str, &str> = (theirs.split('\u{2}'))
        .filter_map(|entry| entry.split_once('\u{1}'))
        .collect();
    let names = facts
        .keys()
        .map(String::as_str)
        .chain(theirs.keys().copied());
    let none = "nothing";
    let values = names.map(|name| {
        let mine = facts.get(name).map_or(none, String::as_str);
        (name, mine, theirs.get(name).copied().unwrap_or(none))
    });
    let differing = values.filter(|(_, mine, theirs)| mine != theirs);
    let differing: Vec<String> = differing
        .map(|(name, mine, theirs)| {
            let rank = processes.rank();
            format!("\n  {name}: {mine} in process {rank}, {theirs} in process {other}")
        })
        .collect();
    let message = format!("the processes do not train the same:{}", differing.concat());
    Err(Error::invalid("processes", message))
}

/// Number of samples, and a digest of a few of them: that of all takes too long before the first step.
fn sampled(data: &dyn Dataset) -> String {
    let digest = digest_of_some(data).unwrap_or_else(|| "one of them cannot be read".to_string());
    format!("{} samples, digest of some {digest}", data.len())
}

/// Options that are not part of the identity, and decide when processes exchange something.
fn schedule(options: &TrainerOptions) -> [(String, String); 17] {
    let observing = &options.observing;
    let facts: [(&str, &dyn fmt::Debug); 17] = [
        ("eval_batch_size", &options.eval_batch_size),
        ("limit_val_batches", &options.limit_val_batches),
        ("fast_dev_run", &options.fast_dev_run),
        ("max_time", &options.max_time),
        ("val_check_interval", &options.val_check_interval),
        ("check_val_every_n_epoch", &options.check_val_every_n_epoch),
        ("num_sanity_val_steps", &options.num_sanity_val_steps),
        ("steps_per_execution", &options.steps_per_execution),
        ("log_every_n_steps", &options.log_every_n_steps),
        ("checkpoint", &options.checkpoint),
        ("checkpoint_mode", &options.checkpoint_mode),
        ("check_replicas", &options.check_replicas),
        ("print_every", &observing.print_every),
        ("early_stopping", &observing.early_stopping),
        ("early_stopping_mode", &observing.early_stopping_mode),
        ("patience", &observing.patience),
        ("min_delta", &observing.min_delta),
    ];
    facts.map(|(name, value)| (name.to_string(), format!("{value:?}")))
}

/// `N` words of a message, from the word `first` on.
fn words<const N: usize>(bytes: &[u8], first: usize) -> Result<[u64; N]> {
    let mut words = [0; N];
    for (index, word) in words.iter_mut().enumerate() {
        let start = 8 * (first + index);
        let bytes = bytes.get(start..start + 8).ok_or_else(short)?;
        *word = u64::from_le_bytes(bytes.try_into().map_err(|_| short())?);
    }
    Ok(words)
}

fn short() -> Error {
    let message = "the processes exchange messages of different lengths: they do not run the same \
                   program";
    Error::invalid("processes", message)
}
