//! Disks that are full or read-only.

#[path = "../../train/tests/shared/small_disk.rs"]
mod small_disk;

use std::fs;

use self::small_disk::SmallDisk;

use crate::support::{
    assert_contains, checkpoints, fails, halite, halite_alone, name, newest_step, run,
};

const RUN: &str = "train mnist --model mlp --limit 640 --batch-size 64 --epochs 1";

/// Room for one checkpoint of 8 MB and the start of another.
const KILOBYTES: u32 = 12 << 10;

#[test]
fn full_disk_ends_the_run_with_one_error() {
    let test = "disks::full_disk_ends_the_run_with_one_error";
    let Some(disk) = SmallDisk::for_test(KILOBYTES, test) else {
        return;
    };
    let out = disk.path().join("run");
    let error = fails(halite(&format!("{RUN} --checkpoint-every 4 --out")).arg(&out));
    assert_contains(
        &error,
        &[
            "No space left on device",
            "free some space",
            "the last good checkpoint, ",
            "step-00000004, is untouched",
        ],
    );
    assert_eq!((checkpoints(&out).len(), newest_step(&out)), (1, 4));
    let left = fs::read_dir(out.join("checkpoints"))
        .unwrap()
        .map(|entry| name(&entry.unwrap().path()));
    assert!(left.into_iter().all(|name| !name.starts_with(".tmp-")));

    disk.remount("ro");
    let error = fails(halite(&format!("{RUN} --resume --out")).arg(&out));
    assert_contains(
        &error,
        &[
            "it is mounted read-only",
            "give an output directory elsewhere",
        ],
    );
    // A read-only cache can be used; only installation writes.
    let cache = disk.path().join("cache");
    let error = fails(halite_alone("data get mnist").env("HALITE_CACHE_DIR", &cache));
    assert_contains(
        &error,
        &[
            "the cache directory cannot be written",
            "Read-only file system",
        ],
    );
}

#[test]
fn full_disk_ends_a_job_with_one_error() {
    let test = "disks::full_disk_ends_a_job_with_one_error";
    let Some(disk) = SmallDisk::for_test(KILOBYTES, test) else {
        return;
    };
    let (out, logs) = (disk.path().join("run"), tempfile::tempdir().unwrap());
    let mut command = halite("launch -n 2 --log-dir");
    command.arg(logs.path()).args(["--", "halite"]);
    command.args(format!("{RUN} --accelerator embedded --checkpoint-every 4 --out").split(' '));
    let ended = run(command.arg(&out));
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert_contains(
        &ended.stderr,
        &[
            "No space left on device",
            "process-0000",
            "the last good checkpoint, ",
            "step-00000004, is untouched",
        ],
    );
    assert_eq!((checkpoints(&out).len(), newest_step(&out)), (1, 4));
    let mut left: Vec<String> = fs::read_dir(out.join("checkpoints"))
        .unwrap()
        .map(|entry| name(&entry.unwrap().path()))
        .collect();
    left.retain(|name| name.starts_with(".tmp-") || name.starts_with(".job-"));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn full_disk_keeps_the_program() {
    let Some(disk) = SmallDisk::for_test(512, "disks::full_disk_keeps_the_program") else {
        return;
    };
    let program = disk.path().join("p.mlir");
    let constant = "1.0, ".repeat(2000);
    let constant = constant.trim_end_matches(", ");
    let text = format!(
        "func.func @main() -> tensor<2000xf32> {{
           %0 = stablehlo.constant dense<[{constant}]> : tensor<2000xf32>
           return %0 : tensor<2000xf32>
         }}"
    );
    fs::write(&program, &text).unwrap();
    let results = disk.path().join("out");
    fs::create_dir(&results).unwrap();
    fs::write(results.join("0.npy"), vec![7; 9000]).unwrap();
    // What fits of it takes the last block.
    fs::write(disk.path().join("full"), vec![0; 1 << 20]).unwrap_err();
    for arguments in [
        "convert p.mlir p.mlir",
        "run p.mlir -o out --accelerator embedded",
    ] {
        let error = fails(halite_alone(arguments).current_dir(disk.path()));
        assert_contains(&error, &["cannot write ", "No space left on device"]);
    }
    assert!(fs::read_to_string(&program).unwrap() == text);
    assert_eq!(fs::read(results.join("0.npy")).unwrap(), [7; 9000]);
}
