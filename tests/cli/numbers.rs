//! Extreme values of every numeric option: an error, never a panic, and never an endless run.

use super::support::{EXTREMES, assert_reported, halite, run};

#[test]
fn mnist_survives_extreme_numbers() {
    let dir = tempfile::tempdir().unwrap();
    // What else these need to be refused, or to be small runs that work.
    let options = [
        ("--batch-size", "--limit 64"),
        // More than there are images, so that nothing is trained.
        ("--limit", "--batch-size 70000"),
        ("--learning-rate", "--limit 64"),
        ("--devices", "--limit 64 --accelerator cpu"),
        ("--workers", "--limit 64"),
        ("--checkpoint-every", "--limit 64"),
    ];
    for (option, others) in options {
        // Of those that are accepted, one is enough.
        let values = EXTREMES
            .into_iter()
            .filter(|value| option == "--batch-size" || !value.starts_with("92"));
        for value in values {
            let arguments =
                format!("train mnist --model mlp --epochs 1 --quiet {others} {option} {value}");
            let out = dir.path().join(format!("{option}{value}"));
            assert_reported(&arguments, &run(halite(&arguments).arg("--out").arg(out)));
        }
    }
    for mesh in [
        "data=18446744073709551615",
        "data=4294967296,model=4294967296",
        "data=0",
    ] {
        let arguments = format!("train mnist --model mlp --limit 64 --batch-size 32 --mesh {mesh}");
        assert_reported(
            &arguments,
            &run(halite(&arguments).arg("--out").arg(dir.path().join("mesh"))),
        );
    }
}

#[test]
fn text_survives_extreme_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let song = dir.path().join("song.txt");
    std::fs::write(&song, "row, row, row your boat\n".repeat(60)).unwrap();
    let options = [
        "--context",
        "--batch-size",
        "--steps",
        "--dropout",
        "--validation",
        "--sample",
        "--temperature",
    ];
    for option in options {
        let values = EXTREMES
            .into_iter()
            .filter(|value| option == "--sample" || !value.starts_with("92"));
        for value in values {
            let defaults = [("--batch-size", "8"), ("--steps", "2"), ("--sample", "3")];
            let others = defaults
                .into_iter()
                .filter(|(name, _)| *name != option)
                .map(|(name, value)| format!("{name} {value}"));
            let others = others.collect::<Vec<_>>().join(" ");
            let arguments =
                format!("train text --model tiny --quiet --prompt row {others} {option} {value}");
            let out = dir.path().join(format!("{option}{value}"));
            assert_reported(
                &arguments,
                &run(halite(&arguments)
                    .arg("--data")
                    .arg(&song)
                    .arg("--out")
                    .arg(out)),
            );
        }
    }
}
