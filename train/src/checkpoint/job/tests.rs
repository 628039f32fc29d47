//! Saves of processes, as threads.

use std::{
    fs,
    path::Path,
    sync::{Barrier, Mutex},
    thread,
};

use halite_core::{DType, ThreadMember};

use super::*;
use crate::checkpoint::{Held, RunPosition, Saved, parts_of};

/// The state of a job: an array that is divided, and one of rows that each process has alone.
fn state(rank: usize, processes: usize) -> Vec<(String, TensorType, Held)> {
    let each = 10usize.div_ceil(processes);
    let rows = (rank * each).min(10)..((rank + 1) * each).min(10);
    let array = |name: &str, dims: &[usize], held| {
        (name.to_string(), TensorType::new(DType::F32, dims), held)
    };
    vec![
        array("model.w", &[5, 7], Held::All),
        array("empty", &[0], Held::All),
        array("slots.w", &[2, 5], Held::Rows(rows)),
    ]
}

/// Elements of an array that count from `first`.
fn counted(first: usize, count: usize, dims: &[usize]) -> HostArray {
    let elements: Vec<f32> = (first..first + count).map(|i| i as f32).collect();
    HostArray::from_slice(&elements, dims).unwrap()
}

/// The array that a process has of an array of the state: rows with padding.
fn local((_, ty, held): &(String, TensorType, Held), processes: usize) -> HostArray {
    match held {
        Held::All => counted(0, ty.elements(), ty.dims()),
        Held::Rows(rows) => {
            let each = 10usize.div_ceil(processes);
            counted(rows.start, each, &[each])
        }
    }
}

/// How long processes wait for one another to come, and to write.
const LONG: [Duration; 2] = [Duration::from_secs(30); 2];

fn store(
    dir: &Path,
    member: impl Collective + 'static,
    [to_come, to_write]: [Duration; 2],
) -> CheckpointStore {
    let store = match member.rank() {
        0 => CheckpointStore::open(dir, 2),
        _ => CheckpointStore::open_read_only(dir),
    };
    let savers = Savers::new(Arc::new(member), to_come, to_write);
    store.unwrap().together(savers)
}

/// Saves at a step in each process, in which `array` gives the local arrays.
fn save(
    store: &CheckpointStore,
    step: u64,
    processes: usize,
    array: impl Fn(HostArray) -> Result<HostArray> + Send + 'static,
) -> Result<Option<PathBuf>> {
    let rank = store.all_savers().lane.rank();
    let state = state(rank, processes);
    let share = Share {
        parts: parts_of(&state, rank, processes),
        arrays: (state.iter().map(|(name, ty, _)| (name.clone(), ty.clone()))).collect(),
    };
    let snapshot = Snapshot {
        position: RunPosition {
            step,
            ..RunPosition::default()
        },
        ..Snapshot::default()
    };
    let chosen = share.of(&state);
    let array = move |index: usize| array(local(&chosen[index], processes));
    store.stream_together(snapshot, share, array)?;
    store.finish()
}

fn in_processes<T: Send>(
    dir: &Path,
    processes: usize,
    limits: [Duration; 2],
    run: impl Fn(CheckpointStore) -> T + Sync,
) -> Vec<T> {
    // Process 0 creates the directory before others open it, as at the start of a run.
    fs::create_dir_all(dir).unwrap();
    thread::scope(|scope| {
        let members = ThreadMember::group(processes).into_iter();
        let run = &run;
        let all: Vec<_> = members
            .map(|member| scope.spawn(move || run(store(dir, member, limits))))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn parts_are_read_as_whole_arrays() {
    for processes in [1, 2, 3, 4, 12, 60] {
        let dir = tempfile::tempdir().unwrap();
        let paths = in_processes(dir.path(), processes, LONG, |store| {
            save(&store, 3, processes, Ok).unwrap().unwrap()
        });
        let path = dir.path().join("step-00000003");
        assert!(paths.iter().all(|one| *one == path), "{paths:?}");
        let mut saved = Saved::read(&path).unwrap();
        let wanted = state(0, 1).into_iter().map(|(name, ty, _)| (name, ty));
        let arrays = saved.take_all(&wanted.collect::<Vec<_>>()).unwrap();
        assert_eq!(arrays[0], counted(0, 35, &[5, 7]));
        assert_eq!(arrays[2], counted(0, 10, &[2, 5]));
        // Each process that has a part has one file.
        let files = fs::read_dir(&path).unwrap().count() - 2;
        let has_part =
            |rank: &usize| !parts_of(&state(*rank, processes), *rank, processes).is_empty();
        assert_eq!(
            files,
            (0..processes).filter(has_part).count(),
            "{processes}"
        );
    }
}

/// A member, and what it has told.
#[derive(Debug)]
struct Heard(ThreadMember, Arc<Mutex<String>>);

impl Collective for Heard {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn all_gather(&self, name: &str, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        let told = String::from_utf8_lossy(mine);
        self.1.lock().unwrap().push_str(&told);
        self.0.all_gather(name, mine, patience)
    }
}

#[cfg(unix)]
#[test]
fn each_process_has_its_own_path_of_the_directory() {
    let runs = tempfile::tempdir().unwrap();
    let [dir, mounted] = ["checkpoints", "mounted"].map(|name| runs.path().join(name));
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(&dir, &mounted).unwrap();
    let heard = Arc::<Mutex<String>>::default();
    thread::scope(|scope| {
        for (member, dir) in ThreadMember::group(2).into_iter().zip([&dir, &mounted]) {
            let member = Heard(member, heard.clone());
            scope.spawn(move || {
                let path = save(&store(dir, member, LONG), 3, 2, Ok).unwrap();
                assert_eq!(path, Some(dir.join("step-00000003")));
            });
        }
    });
    // A relative path would be another directory in a process that has begun elsewhere.
    let heard = heard.lock().unwrap();
    assert!(heard.contains(".tmp-step-00000003") && !heard.contains("checkpoints/"));
}

#[test]
fn failed_writer_is_named_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let errors = in_processes(dir.path(), 3, LONG, |store| {
        save(&store, 3, 3, Ok).unwrap();
        let rank = store.all_savers().lane.rank();
        let fails = move |array| match rank {
            1 => Err(Error::new(ErrorKind::Io, OP, "the disk is full")),
            _ => Ok(array),
        };
        let error = save(&store, 6, 3, fails).unwrap_err().to_string();
        // The next one works.
        save(&store, 9, 3, Ok).unwrap();
        error
    });
    for (rank, error) in errors.iter().enumerate() {
        let whose = format!("process 1 on {}: the disk is full", this_host());
        assert_eq!(error.contains(&whose), rank != 1, "{error}");
        for part in ["the disk is full", "step-00000003, is untouched"] {
            assert!(error.contains(part), "{error}");
        }
    }
    let mut names: Vec<_> = (fs::read_dir(dir.path()).unwrap())
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, [".lock", "step-00000003", "step-00000009"]);
}

#[test]
fn absent_process_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (short, ended) = (Duration::from_millis(300), Barrier::new(3));
    let errors = in_processes(dir.path(), 3, [short; 2], |store| {
        if store.all_savers().lane.rank() == 2 {
            // Alive, but it does not save.
            ended.wait();
            return None;
        }
        let error = save(&store, 3, 3, Ok).unwrap_err();
        ended.wait();
        Some(error.to_string())
    });
    // A member that gives up leaves the call, and may be missed too.
    for error in errors.iter().flatten() {
        for part in [
            "waited 300ms for members ",
            "2] of 3",
            "there is no checkpoint before it",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
    assert_eq!(errors.iter().flatten().count(), 2);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the lock");
}

#[test]
fn leftovers_of_a_killed_job_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let killed = dir.path().join(".tmp-step-00000003.1795708216871");
    fs::create_dir(&killed).unwrap();
    fs::write(killed.join("process-00001-arrays.safetensors"), "half").unwrap();
    let token = dir.path().join(".job-12-1795708216871");
    fs::write(&token, "").unwrap();
    let others = [".job-notes", ".job-12", ".job-12-1795x", ".job--1"];
    let others = others.map(|name| dir.path().join(name));
    others.iter().for_each(|path| fs::write(path, "").unwrap());
    drop(CheckpointStore::open(dir.path(), 2).unwrap());
    assert!(!killed.exists() && !token.exists());
    assert!(others.iter().all(|path| path.exists()));
    let left = fs::read_dir(dir.path()).unwrap();
    assert_eq!(
        left.count(),
        1 + others.len(),
        "the lock, and files of others"
    );
}
