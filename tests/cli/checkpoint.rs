//! `halite checkpoint` on the checkpoints of a real run.

use std::{collections::HashMap, fs, path::Path, sync::OnceLock};

use halite::train::checkpoint::{CheckpointInfo, Saved};
use safetensors::SafeTensors;

use super::support::{assert_contains, checkpoints, fails, halite_alone, succeeds};

/// A run of two epochs on digits, on the embedded executor.
fn run() -> &'static Path {
    static RUN: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = RUN.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let train =
            "train digits --epochs 2 --batch-size 512 --quiet --out ./run --accelerator embedded";
        succeeds(halite_alone(train).current_dir(&dir));
        dir
    });
    dir.path()
}

/// A copy of the run, to damage.
fn copy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("cp")
        .args(["-r", "run"])
        .arg(dir.path())
        .current_dir(run())
        .status();
    assert!(status.unwrap().success());
    dir
}

#[test]
fn checkpoints_are_listed_with_the_best() {
    let listed = succeeds(halite_alone("checkpoint ls ./run").current_dir(run())).stdout;
    let rows: Vec<&str> = listed.lines().collect();
    assert_eq!(rows.len(), 3, "{listed}");
    assert_contains(rows[0], &["checkpoint", "step", "trained", "size", "saved"]);
    assert_contains(rows[1], &["step-00000004 ", " 4 ", "2 epochs", "kB"]);
    assert_contains(rows[2], &["step-00000002 ", " 2 ", "1 epoch"]);
    assert_eq!(listed.matches("best: loss ").count(), 1, "{listed}");
}

#[test]
fn checkpoint_shows_options_with_arrays() {
    let command = "checkpoint show ./run/checkpoints/step-00000002";
    let shown = succeeds(halite_alone(command).current_dir(run())).stdout;
    assert_contains(
        &shown,
        &[
            "position     step 2: 1 epoch\n",
            "written by   halite 0.1.0, format 2\n",
            "files        arrays.safetensors, ",
            "  batch_size ",
            "  --model ",
            " arrays, ",
            "f32[3, 3, 1, 32]",
            "  model.",
            "  slots.",
        ],
    );
}

#[test]
fn whole_run_is_verified() {
    let verified = succeeds(halite_alone("checkpoint verify ./run").current_dir(run())).stdout;
    assert_eq!(
        verified.matches("whole    run/checkpoints/step-").count(),
        2,
        "{verified}"
    );
}

#[test]
fn damaged_file_is_named() {
    let dir = copy();
    let newest = checkpoints(&dir.path().join("run")).pop().unwrap();
    let file = newest.join("arrays.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    fs::write(newest.with_file_name("step-00000002").join("COMMIT"), "").unwrap();

    let mut verify = halite_alone("checkpoint verify ./run");
    let ended = super::support::run(verify.current_dir(&dir));
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert_contains(&ended.stderr, &["2 of 2 damaged"]);
    assert_contains(
        &ended.stdout,
        &[
            "damaged  run/checkpoints/step-00000004: arrays.safetensors does not have the xxh3_128",
            "(`",
            "step-00000002 cannot be used: COMMIT is not the marker",
        ],
    );
    let listed = succeeds(halite_alone("checkpoint ls ./run").current_dir(&dir)).stdout;
    assert_contains(&listed, &["step-00000002        damaged"]);
    let error = fails(
        halite_alone("checkpoint export ./run/checkpoints/step-00000004 -o ./w").current_dir(&dir),
    );
    assert_contains(&error, &["step-00000004 cannot be used", "xxh3_128"]);
    assert!(!dir.path().join("w").exists());
}

#[test]
fn export_has_the_parameters_of_the_model() {
    let dir = copy();
    let folder = "run/checkpoints/step-00000004";
    for (flags, prefix) in [("", "model."), (" --all", "")] {
        let command = format!("checkpoint export ./{folder} -o ./w.safetensors{flags}");
        let said = succeeds(halite_alone(&command).current_dir(&dir)).stdout;
        assert_contains(&said, &["w.safetensors: ", " arrays of ", "step-00000004"]);
        let bytes = fs::read(dir.path().join("w.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let mut saved = Saved::read(dir.path().join(folder)).unwrap();
        let wanted: Vec<_> = (saved.arrays())
            .filter(|(name, _)| name.starts_with(prefix))
            .map(|(name, ty)| (name.to_string(), ty.clone()))
            .collect();
        assert_eq!(file.len(), wanted.len(), "{flags}");
        let arrays = saved.take_some(&wanted).unwrap();
        for ((name, ty), array) in wanted.iter().zip(&arrays) {
            let exported = file.tensor(name.strip_prefix(prefix).unwrap()).unwrap();
            assert_eq!(exported.shape(), ty.dims(), "{name}");
            assert_eq!(exported.data(), array.bytes(), "{name}");
        }
    }
    assert_eq!(
        fs::read_dir(&dir).unwrap().count(),
        2,
        "no temporary file is left"
    );
}

#[test]
fn export_of_absent_averages_is_an_error() {
    let dir = copy();
    let error = fails(halite_alone("checkpoint export ./run -o ./w --average").current_dir(&dir));
    assert_contains(
        &error,
        &["has no averages of the parameters", "--ema 0.999"],
    );
    assert!(!dir.path().join("w").exists());
}

#[test]
fn files_of_weights_are_listed_with_the_best() {
    let dir = tempfile::tempdir().unwrap();
    let here = |command: &str| {
        let mut command = halite_alone(command);
        command.current_dir(&dir);
        command
    };
    // By the highest loss the first is the best.
    succeeds(&mut here(
        "train digits --model mlp --epochs 3 --batch-size 512 --quiet --out ./run --accelerator embedded \
         --monitor val_loss --monitor-mode max --save-weights-only --ema 0.9 --keep-last 1",
    ));
    let listed = succeeds(&mut here("checkpoint ls ./run")).stdout;
    let rows: Vec<&str> = listed.lines().collect();
    assert_eq!(rows.len(), 3, "{listed}");
    assert_contains(rows[1], &["step-00000006 ", " 6 ", "3 epochs"]);
    let file = "step-00000002.safetensors";
    assert_contains(rows[2], &[file, " 2 ", "weights alone", "best: loss "]);
    assert!(!rows[1].contains("best"), "{listed}");

    let shown = succeeds(&mut here("checkpoint show ./run"));
    assert_contains(&shown.stdout, &["run/checkpoints/step-00000006\n"]);
    assert_contains(&shown.stderr, &[file, "only the weights are kept"]);
    let file = format!("run/checkpoints/{file}");
    let error = fails(&mut here(&format!("checkpoint verify ./{file}")));
    assert_contains(&error, &["is a file", "`halite checkpoint export` takes"]);
    // The options of the run are those of the newest checkpoint.
    succeeds(&mut here("export ./run -o ./w.jax"));

    for (flags, prefix) in [("", "model."), (" --average", "average.")] {
        let export = format!("checkpoint export ./{file} -o ./w.safetensors{flags}");
        succeeds(&mut here(&export));
        let [exported, kept] = ["w.safetensors", &file].map(|name| {
            let bytes = fs::read(dir.path().join(name)).unwrap();
            let file = SafeTensors::deserialize(&bytes).unwrap();
            let tensors = file.tensors().into_iter();
            let tensors = tensors.map(|(name, tensor)| (name, tensor.data().to_vec()));
            tensors.collect::<HashMap<_, _>>()
        });
        assert!(!exported.is_empty());
        for (name, data) in &exported {
            assert_eq!(data, &kept[&format!("{prefix}{name}")], "{name}");
        }
    }
}

#[test]
fn run_stands_for_its_best_checkpoint() {
    let shown = succeeds(halite_alone("checkpoint show ./run").current_dir(run())).stdout;
    let saved = Saved::of_run(run().join("run")).unwrap();
    let name = saved.path().file_name().unwrap().to_str().unwrap();
    assert_contains(shown.lines().next().unwrap(), &[name]);
    assert!(
        CheckpointInfo::read(saved.path())
            .unwrap()
            .best_by()
            .is_some()
    );
}

#[test]
fn directory_without_checkpoints_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["ls", "show", "verify", "export -o ./w"] {
        let error = fails(halite_alone(&format!("checkpoint {command} .")).current_dir(&dir));
        assert_contains(&error, &["no checkpoint in .; give the directory of a run"]);
        let error = fails(halite_alone(&format!("checkpoint {command} ./none")).current_dir(&dir));
        assert_contains(&error, &["cannot read the directory none"]);
    }
}
