//! SIGKILL at any moment while checkpoints are written: what was reported as saved is there, and is
//! whole.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use halite_core::{DType, HostArray, Pending, TensorType};
use halite_train::checkpoint::{CheckpointStore, RunPosition, Saved, Snapshot};

const DIRECTORY: &str = "HALITE_TEST_KILL_DIRECTORY";
const IN_BACKGROUND: &str = "HALITE_TEST_KILL_IN_BACKGROUND";
const KILLS: u64 = 40;

/// Every byte follows from the step, and so does the number of arrays.
fn arrays(step: u64) -> Vec<(String, HostArray)> {
    let count = 1 + step % 5;
    let array = |index: u64| {
        let mut array = HostArray::zeros(TensorType::new(
            DType::U8,
            [1 + (step as usize * 7919) % 60_000],
        ));
        array
            .bytes_mut()
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = (step + index + at as u64) as u8);
        (format!("layers.{index}"), array)
    };
    (0..count).map(array).collect()
}

fn check(mut saved: Saved) -> u64 {
    let step = saved.position().step;
    assert_eq!(saved.metadata()["step"], step);
    assert!(saved.skipped().is_empty(), "{:?}", saved.skipped());
    let (wanted, arrays): (Vec<_>, Vec<_>) = arrays(step)
        .into_iter()
        .map(|(name, array)| ((name, array.ty().clone()), array))
        .unzip();
    assert_eq!(saved.take_all(&wanted).unwrap(), arrays);
    step
}

/// Not a test: the run that is killed. It resumes from the newest checkpoint and prints each step
/// that is saved.
#[test]
#[ignore = "the other test starts it as a process to kill"]
fn helper_that_saves_until_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let store = CheckpointStore::open(directory, 2).unwrap();
    let mut step = store
        .latest()
        .unwrap()
        .map_or(0, |saved| saved.position().step);
    loop {
        step += 1;
        let (position, metadata) = (
            RunPosition {
                step,
                ..RunPosition::default()
            },
            serde_json::json!({ "step": step }),
        );
        let best = step
            .is_multiple_of(3)
            .then(|| ("score".to_string(), step as f64));
        if std::env::var_os(IN_BACKGROUND).is_some() {
            let arrays = arrays(step)
                .into_iter()
                .map(|(name, array)| (name, Pending::ready(Ok(array))))
                .collect();
            store
                .save_in_background(Snapshot {
                    position,
                    seed: 1,
                    arrays,
                    metadata,
                    best,
                    ..Snapshot::default()
                })
                .unwrap();
            store.finish().unwrap();
        } else {
            store
                .save(Snapshot {
                    position,
                    seed: 1,
                    arrays: arrays(step),
                    metadata,
                    best,
                    ..Snapshot::default()
                })
                .unwrap();
        }
        println!("saved {step}");
    }
}

/// Runs it until `patience` after its first save of this life, and kills it. Returns the last step
/// it reported.
fn run_and_kill(directory: &Path, in_background: bool, patience: Duration) -> Option<u64> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--ignored",
            "--exact",
            "kill::helper_that_saves_until_killed",
            "--nocapture",
        ])
        .env(DIRECTORY, directory);
    if in_background {
        command.env(IN_BACKGROUND, "1");
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let (send, lines) = mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            // The line of the test harness is not ours.
            if let Some(step) = line
                .split("saved ")
                .nth(1)
                .and_then(|step| step.parse::<u64>().ok())
            {
                let _ = send.send(step);
            }
        }
    });
    let first = lines
        .recv_timeout(Duration::from_secs(60))
        .expect("the run saves something");
    std::thread::sleep(patience);
    child.kill().unwrap();
    assert!(
        !child.wait().unwrap().success(),
        "the run was to be killed, not to end"
    );
    reader.join().unwrap();
    Some(lines.try_iter().last().unwrap_or(first))
}

#[test]
fn killed_run_keeps_its_newest_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("checkpoints");
    let (mut before, mut leftovers) = (0, 0);
    for kill in 0..KILLS {
        // Spread over the length of a few saves.
        let patience = Duration::from_micros((kill * 7919) % 61_000);
        let reported =
            run_and_kill(&directory, kill % 2 == 1, patience).expect("it reported a step");

        let reader = CheckpointStore::open_read_only(&directory).unwrap();
        let step = check(reader.latest().unwrap().expect("a checkpoint was reported"));
        assert!(
            step >= reported && step > before,
            "kill {kill}: {step} is there, {reported} was reported, {before} was before"
        );
        // Also when the kill came between a checkpoint and the pointer to it.
        let best = reader.best().unwrap();
        assert_eq!(
            best.as_ref().map(|best| (best.step, best.value)),
            (step >= 3).then(|| (step / 3 * 3, (step / 3 * 3) as f64))
        );
        if let Some(best) = best {
            assert_eq!(check(reader.load_best().unwrap().unwrap()), best.step);
        }
        let hidden = |name: &str| name.starts_with(".tmp") || name.starts_with(".trash");
        let names = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        leftovers += names.filter(|name| hidden(name.to_str().unwrap())).count();
        before = step;
    }
    eprintln!("{KILLS} kills, {before} steps, {leftovers} times in the middle of a save");
    assert!(
        leftovers > 0,
        "no kill came in the middle of a save: it proves nothing"
    );

    let store = CheckpointStore::open(&directory, 2).unwrap();
    assert_eq!(check(store.latest().unwrap().unwrap()), before);
    let names = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(
        names
            .into_iter()
            .all(|name| !name.starts_with(".tmp") && !name.starts_with(".trash"))
    );
}
