//! Disks that are full or read-only.

#[path = "../../train/tests/shared/small_disk.rs"]
mod small_disk;

use std::fs;

use self::small_disk::SmallDisk;
use crate::support::{
    assert_contains, checkpoints, fails, halite, halite_alone, name, newest_step,
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
