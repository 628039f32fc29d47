//! Configuration files of `halite train`.

use std::{fs, path::Path};

use halite::{Tree, models::Mlp, train::Checkpoint};
use safetensors::SafeTensors;

use super::support::{
    arrays, assert_contains, fails, halite_alone, newest_step, report, run, succeeds, table,
};

fn train(arguments: &str, out: &Path) -> std::process::Command {
    let mut command = halite_alone(&format!("train {arguments}"));
    command.arg("--out").arg(out);
    command
}

fn file(dir: &Path, text: &str) -> String {
    let path = dir.join("options.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn configuration_of_a_run_repeats_it() {
    let dir = tempfile::tempdir().unwrap();
    let (first, again) = (dir.path().join("first"), dir.path().join("again"));
    let options = "digits --accelerator embedded --model mlp --max-steps 12 --batch-size 16 \
                   --accumulate-grad-batches 2 --learning-rate 5e-3 --seed 7 --last-batch pad \
                   --limit-val-batches 0.5 --quiet";
    succeeds(&mut train(options, &first));
    let config = first.join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    assert_contains(
        &text,
        &[
            "train = \"digits\"\n",
            "model = \"mlp\"\n",
            "max-steps = 12\n",
            "accumulate-grad-batches = 2\n",
            "limit-val-batches = 0.5\n",
            // Defaults, too.
            "log-every-n-steps = 50\n",
        ],
    );
    assert!(
        !text.contains("out =") && !text.contains("max-epochs"),
        "{text}"
    );
    succeeds(&mut train(
        &format!("--config {}", config.display()),
        &again,
    ));
    assert_eq!(newest_step(&again), 12);
    assert_eq!(arrays(&first), arrays(&again));
    // Byte for byte, apart from nothing.
    assert_eq!(fs::read_to_string(again.join("config.toml")).unwrap(), text);
    assert_eq!(report(&first)["metrics"], report(&again)["metrics"]);
}

#[test]
fn flags_replace_options_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let text = "train = \"digits\"\naccelerator = \"embedded\"\nmodel = \"mlp\"\nquiet = true\n\
                epochs = 9\nbatch_size = 32\n";
    let config = file(dir.path(), text);
    let out = dir.path().join("run");
    succeeds(&mut train(
        &format!("digits --config={config} --max-epochs 1"),
        &out,
    ));
    assert_eq!(report(&out)["epochs"], 1);
    assert_contains(
        &fs::read_to_string(out.join("config.toml")).unwrap(),
        &["max-epochs = 1\n", "batch-size = 32\n", "quiet = true\n"],
    );
}

#[test]
fn mistakes_of_a_file_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for (text, parts) in [
        (
            "train = \"digits\"\nmax-epoch = 3\n",
            [
                "unknown key `max-epoch`; did you mean `max-epochs`?",
                "options.toml",
            ],
        ),
        (
            "train = \"digits\"\nseed = 3\nseed = 4\n",
            ["duplicate key", "seed = 4"],
        ),
        (
            "train = \"digits\"\nepochs = 3\nmax_epochs = 4\n",
            [
                "`max_epochs` and `epochs` are the same option",
                "options.toml",
            ],
        ),
        (
            "train = \"digits\"\nquiet = 1\n",
            ["`quiet = 1`; expected true or false", "options.toml"],
        ),
        (
            "train = \"digits\"\nseed = [1, 2]\n",
            ["`seed` is a list; expected one value", "options.toml"],
        ),
        (
            "train = \"letters\"\n",
            [
                "`train = \"letters\"`; expected one of mnist, digits, imagenet, ct, text",
                "options.toml",
            ],
        ),
        (
            "seed = 1\n",
            [
                "no `train = \"NAME\"`; expected one of mnist, digits, imagenet, ct, text",
                "options.toml",
            ],
        ),
    ] {
        let config = file(dir.path(), text);
        let error = fails(&mut halite_alone(&format!("train --config {config}")));
        assert_contains(&error, &parts);
    }
    let config = file(dir.path(), "train = \"digits\"\n");
    let error = fails(&mut halite_alone(&format!("train mnist --config {config}")));
    assert_contains(&error, &["it is of `halite train digits`, not of `mnist`"]);
    let error = fails(&mut halite_alone("train --config no-such-file.toml"));
    assert_contains(&error, &["cannot read no-such-file.toml"]);
    // A value that the flag does not take is the flag's error.
    let config = file(dir.path(), "train = \"digits\"\nmax-epochs = 0\n");
    let ended = run(&mut halite_alone(&format!("train --config {config}")));
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert_contains(&ended.stderr, &["invalid value '0' for '--max-epochs <N>'"]);
}

#[test]
fn schedule_and_average_are_flags() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let options = "digits --model mlp --accelerator embedded --max-epochs 3 --learning-rate 0.01 \
                   --log learning-rate --schedule step:every=1ep,factor=0.5 --ema 0.9 --quiet";
    succeeds(&mut train(options, &out));
    let [head, rows @ ..] = &table(&out)[..] else {
        panic!("the table is empty")
    };
    let column = head
        .iter()
        .position(|name| name == "learning_rate")
        .unwrap();
    for rate in ["0.01", "0.005", "0.0025"] {
        let has = rows
            .iter()
            .any(|row| row.get(column).is_some_and(|value| value == rate));
        assert!(has, "no {rate}: {rows:?}");
    }
    let configuration = fs::read_to_string(out.join("config.toml")).unwrap();
    assert_contains(
        &configuration,
        &["schedule = \"step:every=1ep", "ema = 0.9"],
    );
    let mut show = halite_alone("checkpoint show");
    assert_contains(&succeeds(show.arg(&out)).stdout, &["average"]);
    averages_are_exported(&out);
}

/// Checks that `checkpoint export --average` writes the averages by the names of the parameters.
fn averages_are_exported(out: &Path) {
    let exported = |flags: &str, file: &str| {
        let file = out.join(file);
        let mut export = halite_alone(&format!("checkpoint export{flags}"));
        succeeds(export.arg(out).arg("-o").arg(&file));
        fs::read(file).unwrap()
    };
    let (all, model, average) = (
        exported(" --all", "all.safetensors"),
        exported("", "model.safetensors"),
        exported(" --average", "average.safetensors"),
    );
    let [all, model, average] =
        [&all, &model, &average].map(|bytes| SafeTensors::deserialize(bytes).unwrap());
    assert_eq!(average.len(), model.len());
    for (name, array) in average.iter() {
        let averaged = all.tensor(&format!("average.{name}")).unwrap();
        assert_eq!(array.data(), averaged.data(), "{name}");
        assert_ne!(array.data(), model.tensor(name).unwrap().data(), "{name}");
    }
    let like = Mlp::new(&[64, 512, 512, 10]);
    let loaded = Checkpoint::load_average(&like, out).unwrap();
    for (name, array) in loaded.named() {
        assert_eq!(
            array.bytes(),
            average.tensor(&name).unwrap().data(),
            "{name}"
        );
    }
}

#[test]
fn mistakes_of_schedules_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for (flags, expected) in [
        (
            "--schedule cosin",
            "expected one of constant, linear, cosine",
        ),
        (
            "--schedule cosine:warm=3",
            "unknown key `warm`; `cosine` has end, warmup",
        ),
        (
            "--schedule cosine:warmup=9ep",
            "--schedule cosine:warmup=9ep: ",
        ),
        ("--ema 1", "expected a number from 0 to below 1"),
    ] {
        let options = format!("digits --accelerator embedded --max-epochs 2 --quiet {flags}");
        let refused = run(&mut train(&options, dir.path()));
        assert!(!refused.succeeded(), "{flags}");
        assert_contains(&refused.stderr, &[expected]);
    }
}

#[test]
fn default_of_epochs_does_not_limit_a_longer_run() {
    let dir = tempfile::tempdir().unwrap();
    let (first, again) = (dir.path().join("first"), dir.path().join("again"));
    let options = "digits --accelerator embedded --model mlp --limit-train-batches 1 \
                   --limit-val-batches 1 --quiet";
    succeeds(&mut train(options, &first));
    let done = newest_step(&first);
    let config = first.join("config.toml");
    let more = format!("--config {} --max-steps {}", config.display(), done + 3);
    succeeds(&mut train(&more, &again));
    assert_eq!(newest_step(&again), done + 3);
}
