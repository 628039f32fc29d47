//! Help texts, and errors of the command line.

use std::{collections::BTreeSet, fs, path::Path};

use expect_test::expect;

use super::support::{assert_contains, halite_alone, run, succeeds};

#[test]
fn no_arguments_prints_help() {
    let ended = succeeds(&mut halite_alone(""));
    let first: Vec<&str> = ended.stdout.lines().take(27).collect();
    expect![[r#"
        Train models on CPUs, and on accelerators that have a PJRT plugin

        Usage: halite [OPTIONS] [COMMAND]

        Commands:
          train       Train a model
          finetune    Train a published model further, on data of your own
          embed       Embed texts with a sentence encoder: BERT and the models made from it, such as MiniLM
          devices     Show the devices, their memory, and the plugin behind them
          new         Write a project of your own: a model, a task and a `main` that trains it
          classify    Classify images by published weights, or by a model that `halite train` trained
          export      Export a model as a program with its weights, which halite, JAX and Rust programs run
          generate    Generate text with a published model
          predict     Predict the labels or classes of images with a model that `halite train ct` or `imagenet` trained
          launch      Start a job of many processes of one program
          job         Show the job that a launcher started, and every process
          run         Run a StableHLO program: MLIR text, portable bytecode, or an artifact of `jax.export`
          runs        Compare runs: state, length and best metrics
          convert     Convert a StableHLO program between MLIR text and portable bytecode
          plan        Estimate memory, communication and speed of a training step on TPUs or GPUs, without having them
          checkpoint  List, show, verify or export the checkpoints of a run
          plugins     List, install or check PJRT plugins
          data        List, download, generate or look at data sets
          cache       List, verify or remove cached programs and packages
          help        Print this message or the help of the given subcommand(s)

        Options:"#]]
    .assert_eq(&first.join("\n"));
    assert_contains(&ended.stdout, &["Examples:\n  halite train mnist "]);
    assert_eq!(ended.stderr, "");
}

#[test]
fn every_command_documents_its_options() {
    let mut commands = vec![String::new()];
    while let Some(command) = commands.pop() {
        let ended = succeeds(&mut halite_alone(&format!("{command} --help")));
        let usage = format!("Usage: {}", format!("halite {command}").trim_end());
        assert_contains(&ended.stdout, &[&usage]);
        assert!(
            !ended.stdout.starts_with("Usage"),
            "`{command}` has no description: {}",
            ended.stdout
        );
        let lines: Vec<&str> = ended.stdout.lines().collect();
        let is_option = |line: &str| line.starts_with("  -") || line.starts_with("      --");
        for (line, next) in lines
            .iter()
            .zip(lines.iter().skip(1).chain([&""]))
            .filter(|(line, _)| is_option(line))
        {
            // Beside the option, or on the line below.
            let beside = line
                .trim_start()
                .split_once("  ")
                .is_some_and(|(_, text)| !text.trim().is_empty());
            let below = next.starts_with("          ") && !next.trim().is_empty();
            assert!(
                beside || below,
                "`{command}` does not describe `{line}`: {}",
                ended.stdout
            );
        }
        let listed = lines
            .iter()
            .skip_while(|line| **line != "Commands:")
            .skip(1)
            .take_while(|line| !line.is_empty());
        for name in listed
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
        {
            commands.push(format!("{command} {name}").trim_start().to_string());
        }
    }
}

#[test]
fn unknown_names_list_the_known_ones() {
    for (arguments, parts) in [
        (
            "trian mnist",
            vec!["unrecognized subcommand 'trian'", "'train'"],
        ),
        (
            "train cifar",
            vec!["unrecognized subcommand 'cifar'", "Usage: halite train"],
        ),
        (
            "train mnist --epoch 3",
            vec!["unexpected argument '--epoch'", "'--epochs'"],
        ),
        (
            "train text --model gpt5",
            vec!["unknown transformer `gpt5`", "tiny, small, gpt2-124m"],
        ),
        (
            "train text --data no-such-file",
            vec!["'no-such-file'", "expected `books` or a text file"],
        ),
        (
            "data get letters",
            vec!["unknown data set `letters`; expected one of mnist, fashion, books, gpt2"],
        ),
        ("train mnist --model rnn", vec!["'rnn'", "cnn, mlp"]),
        (
            "train mnist --data letters",
            vec!["unknown dataset `letters`", "expected mnist or fashion"],
        ),
        (
            "train mnist --batch-size many",
            vec!["'many'", "--batch-size"],
        ),
        ("train mnist --seed -1", vec!["-1"]),
        ("data get", vec!["NAMES"]),
    ] {
        let ended = run(&mut halite_alone(arguments));
        assert_eq!(ended.status.code(), Some(2), "`{arguments}`: {ended:?}");
        assert_contains(&ended.stderr, &parts);
    }
}

/// The last column of the table names commands as `` `halite COMMAND --option ..` ``.
#[test]
fn commands_in_the_feature_table_exist() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/coming-from-pytorch-xla.md");
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| F"));
    let commands: BTreeSet<&str> = rows
        .filter_map(|row| row.rsplit('|').nth(1)?.trim().strip_prefix("`halite "))
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let words = command.trim_end_matches('`').split(' ');
        let (options, command): (Vec<&str>, Vec<&str>) =
            words.partition(|word| word.starts_with("--"));
        let command = command.join(" ");
        let help = succeeds(&mut halite_alone(&format!("{command} --help"))).stdout;
        // A subcommand that does not exist falls back to the help of its parent.
        assert!(
            help.contains(&format!("Usage: halite {command}")),
            "{command}"
        );
        for option in options {
            let listed = help.split_whitespace().any(|word| word == option);
            assert!(listed, "`halite {command}` has no {option}");
        }
    }
}
