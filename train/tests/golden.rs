//! Checkpoints that earlier versions of halite wrote are read, and runs resume from them.
//!
//! `runs/format-1` is a run of [`helper_that_writes_the_golden_run`] by the last halite that wrote
//! checkpoints of format 1. It is never written again: a new format gets a run of its own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use halite_backends::Accelerator;
use halite_core::{Client, DType, TensorType};
use halite_nn::Adam;
use halite_train::{
    Fitted, Trainer,
    checkpoint::{CheckpointStore, RunPosition, Saved},
};

use crate::shared::plane::{Model, Plane, samples, saved};

const DIRECTORY: &str = "HALITE_GOLDEN_RUN";
/// Steps of an epoch of 20 samples in batches of 4.
const STEPS: u64 = 5;

fn client() -> Client {
    "embedded".parse::<Accelerator>().unwrap().open().unwrap()
}

/// Trains the plane into `out` for this number of epochs; continues the run that is there.
fn train(out: &Path, epochs: u64) -> Fitted<Plane> {
    let trainer = Trainer::builder(&client())
        .batch_size(4)
        .epochs(epochs)
        .seed(7)
        .log_every(2)
        .checkpoint_every(2)
        .out(out)
        .resume(true)
        .quiet(true)
        .build()
        .unwrap();
    let fitted = trainer.fit(Plane, Model::new(), Adam::new(0.1), samples(20), samples(8));
    fitted.unwrap()
}

/// Not a test: writes a golden run to the directory that the variable names.
#[test]
#[ignore = "it writes a golden run, once for each format"]
fn helper_that_writes_the_golden_run() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let directory = PathBuf::from(directory);
    train(&directory, 1);
    // The trainer writes them again.
    for name in ["metrics.svg", "report.json"] {
        fs::remove_file(directory.join(name)).unwrap();
    }
    fs::remove_file(directory.join("checkpoints/.lock")).unwrap();
}

/// A copy of a golden run.
fn copy_of(name: &str) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let to = to.join(path.file_name().unwrap());
            match path.is_dir() {
                true => copy(&path, &to),
                false => drop(fs::copy(&path, &to).unwrap()),
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/runs");
    copy(&golden.join(name), dir.path());
    dir
}

/// The bits of an array of four-byte elements in the checkpoint of step 5.
fn bits(saved: &mut Saved, name: &str, ty: TensorType) -> Vec<u32> {
    let array = saved.take(name, &ty).unwrap();
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    array.bytes().chunks(4).map(word).collect()
}

#[test]
fn format_1_is_read_bit_for_bit() {
    let run = copy_of("format-1");
    let mut saved = Saved::of_run(run.path()).unwrap();
    let position = RunPosition {
        step: STEPS,
        epoch: 1,
        batch: 0,
    };
    assert_eq!((saved.position(), saved.seed()), (position, 7));
    let weight = TensorType::new(DType::F32, [2, 1]);
    assert_eq!(
        bits(&mut saved, "model.out.weight", weight.clone()),
        [0xbe24_3796, 0xbea5_2c6f]
    );
    assert_eq!(
        bits(&mut saved, "slots.out.weight.second", weight),
        [0x3a35_55b7, 0x3c3d_685a]
    );
    assert_eq!(
        bits(&mut saved, "step", TensorType::scalar(DType::U32)),
        [5]
    );
    let store = CheckpointStore::open_read_only(run.path().join("checkpoints")).unwrap();
    let best = store.best().unwrap().unwrap();
    assert_eq!((best.step, best.value), (5, 1.105472445487976));
}

#[test]
fn damaged_format_1_falls_back() {
    let run = copy_of("format-1");
    let file = run
        .path()
        .join("checkpoints/step-00000005/arrays.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let store = CheckpointStore::open_read_only(run.path().join("checkpoints")).unwrap();
    let saved = store.latest().unwrap().unwrap();
    assert_eq!(saved.position().step, 4);
    assert!(
        saved.skipped()[0].contains("sha256"),
        "{:?}",
        saved.skipped()
    );
}

/// The run names its platform `halite`, as the embedded executor was called. The whole training is
/// compared with a tolerance: processors round in different orders.
#[test]
fn run_of_format_1_resumes() {
    let run = copy_of("format-1");
    let manifest = run.path().join("checkpoints/step-00000005/manifest.json");
    let manifest = fs::read_to_string(manifest).unwrap();
    assert!(manifest.contains(r#""plugin": "halite 0.1.0""#));
    assert_eq!(&*client().platform().name, "embedded");
    let rows = |out: &Path| fs::read_to_string(out.join("metrics.csv")).unwrap();
    let before = rows(run.path());
    let resumed = train(run.path(), 2);
    assert_eq!(resumed.report.resumed_from_step, Some(STEPS));
    assert!(rows(run.path()).starts_with(&before), "rows are kept");
    assert_eq!(saved(run.path())[0], 2 * STEPS);

    let new = tempfile::tempdir().unwrap();
    let whole = train(new.path(), 2);
    let weights = |fitted: &Fitted<Plane>| fitted.model.out.weight.to_vec::<f32>().unwrap();
    for (resumed, whole) in weights(&resumed).into_iter().zip(weights(&whole)) {
        assert!((resumed - whole).abs() < 1e-5, "{resumed}, {whole}");
    }
    let losses = [&resumed, &whole].map(|fitted| fitted.report.metrics["loss"]);
    assert!((losses[0] - losses[1]).abs() < 1e-5, "{losses:?}");
}
