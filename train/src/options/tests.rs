//! Flags of the options.

use std::time::Duration;

use clap::Parser;
use halite_nn::schedule::Mode;

use super::*;
use crate::{LoggerName, Measure};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: TrainerOptions,
}

#[test]
fn flags_have_the_defaults_of_the_options() {
    let options = Command::try_parse_from(["train"]).unwrap().options;
    assert_eq!(options, TrainerOptions::default());
}

#[test]
fn every_flag_sets_its_option() {
    let flags = "train --max-epochs 3 --max-steps 70 --max-time 90m --batch-size 8 --eval-batch-size 16 \
                 --last-batch pad --bad-samples skip:4 --limit-train-batches 0.5 --limit-val-batches 7 \
                 --overfit-batches 2 --fast-dev-run 4 --val-check-interval 0.25 \
                 --check-val-every-n-epoch 2 --num-sanity-val-steps 2 --steps-per-execution 4 --seed 5 \
                 --out dir --resume --from 40 --allow-changes seed,batch-size --log-every-n-steps 7 \
                 --checkpoint-every 9 --monitor accuracy --monitor-mode max --save-top-k all \
                 --train-time-interval 30m --every-n-epochs 2 --save-weights-only \
                 --filename {epoch}-{loss:.3} --checkpoint-mode stream --keep-last 6 --gradient-clip-val 0.5 --gradient-clip-algorithm value \
                 --accumulate-grad-batches 3 --precision bf16-mixed --on-not-finite skip \
                 --detect-anomaly --workers 2 --read-ahead 5 --prefetch 3 --pinned-memory --wait-limit 60 --process-timeout 90 --check-replicas --quiet \
                 --logger jsonl,tensorboard --log throughput --print-every 70 --early-stopping loss --early-stopping-mode min --patience 5 \
                 --min-delta 0.25";
    let options = Command::try_parse_from(flags.split(' ').filter(|flag| !flag.is_empty()));
    let expected = TrainerOptions {
        max_epochs: Some(3),
        max_steps: Some(70),
        max_time: Some(Duration::from_secs(5400)),
        batch_size: 8,
        eval_batch_size: Some(16),
        last_batch: LastBatch::Pad,
        bad_samples: BadSample::Skip { at_most: 4 },
        limit_train_batches: Some(Limit::Fraction(0.5)),
        limit_val_batches: Some(Limit::Batches(7)),
        overfit_batches: Some(Limit::Batches(2)),
        fast_dev_run: Some(4),
        val_check_interval: Some(Interval::Epoch(0.25)),
        check_val_every_n_epoch: 2,
        num_sanity_val_steps: 2,
        steps_per_execution: 4,
        seed: 5,
        numerics: NumericsOptions {
            precision: Some("bf16-mixed".parse().unwrap()),
            gradient_clip_val: Some(0.5),
            gradient_clip_algorithm: GradientClipAlgorithm::Value,
            accumulate_grad_batches: 3,
        },
        on_not_finite: OnNotFinite::Skip,
        detect_anomaly: true,
        out: Some("dir".into()),
        resume: true,
        resume_from: Some("40".into()),
        allow_changes: vec!["seed".into(), "batch-size".into()],
        properties: Vec::new(),
        log_every_n_steps: 7,
        checkpoint: ModelCheckpoint {
            monitor: Some("accuracy".into()),
            mode: Some(Mode::Max),
            save_top_k: usize::MAX,
            every_n_train_steps: Some(9),
            train_time_interval: Some(Duration::from_secs(1800)),
            every_n_epochs: 2,
            save_weights_only: true,
            filename: Some("{epoch}-{loss:.3}".parse().unwrap()),
        },
        checkpoint_mode: CheckpointMode::Stream,
        keep_last: 6,
        observing: ObservingOptions {
            logger: vec![LoggerName::JsonLines, LoggerName::TensorBoard],
            log: vec![Measure::Throughput],
            print_every: Some(70),
            early_stopping: Some("loss".into()),
            early_stopping_mode: Some(Mode::Min),
            patience: Some(5),
            min_delta: Some(0.25),
        },
        workers: 2,
        read_ahead: 5,
        prefetch: 3,
        pinned_memory: true,
        wait_limit: Some(Duration::from_secs(60)),
        process_timeout: Some(Duration::from_secs(90)),
        check_replicas: true,
        quiet: true,
        label: None,
    };
    assert_eq!(options.unwrap().options, expected);
}

#[test]
fn flags_of_old_set_the_same_options() {
    let parse = |flags: &str| {
        let words = ["train"].into_iter().chain(flags.split(' '));
        Command::try_parse_from(words).unwrap().options
    };
    assert_eq!(
        parse("--epochs 3 --log-every 7 --clip-norm 0.5"),
        parse("--max-epochs 3 --log-every-n-steps 7 --gradient-clip-val 0.5")
    );
    assert_eq!(
        parse("--checkpoint-every 9 --save-top-k all"),
        parse("--every-n-train-steps 9 --save-top-k -1")
    );
    assert_eq!(parse("--fast-dev-run"), parse("--fast-dev-run 1"));
}

#[test]
fn steps_of_a_run_are_known_before_it() {
    let options = TrainerOptions {
        batch_size: 10,
        ..TrainerOptions::default()
    };
    let steps = |change: fn(&mut TrainerOptions)| {
        let mut options = options.clone();
        change(&mut options);
        options.total_steps(95)
    };
    assert_eq!(steps(|_| ()), 9);
    assert_eq!(steps(|o| o.last_batch = LastBatch::Pad), 10);
    assert_eq!(steps(|o| o.numerics.accumulate_grad_batches = 4), 3);
    assert_eq!(steps(|o| o.max_epochs = Some(3)), 27);
    assert_eq!(steps(|o| o.max_steps = Some(100)), 100);
    assert_eq!(
        steps(|o| (o.max_steps, o.max_epochs) = (Some(100), Some(2))),
        18
    );
    assert_eq!(
        steps(|o| o.limit_train_batches = Some(Limit::Fraction(0.5))),
        4
    );
    assert_eq!(steps(|o| o.fast_dev_run = Some(2)), 2);
    assert_eq!(
        steps(|o| o.max_time = Some(Duration::from_secs(1))),
        u64::MAX
    );
}

#[test]
fn values_that_cannot_work_are_named() {
    let check = |change: fn(&mut TrainerOptions), expected: &str| {
        let mut options = TrainerOptions::default();
        change(&mut options);
        let error = options.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    for interval in [Interval::Steps(50), Interval::Time(Duration::from_secs(60))] {
        let mut options = TrainerOptions {
            val_check_interval: Some(interval),
            check_val_every_n_epoch: 2,
            ..TrainerOptions::default()
        };
        let error = options.check().unwrap_err().to_string();
        assert!(
            error.contains("and `check_val_every_n_epoch` is 2"),
            "{error}"
        );
        options.check_val_every_n_epoch = 1;
        options.check().unwrap();
    }
    check(
        |o| o.max_steps = Some(0),
        "`max_steps` is 0; it must be at least 1",
    );
    check(
        |o| o.limit_train_batches = Some(Limit::Batches(0)),
        "`limit_train_batches` is 0: there would be nothing to train on",
    );
    check(
        |o| o.limit_train_batches = Some(Limit::Fraction(1.5)),
        "`limit_train_batches` is 1.5; a fraction is above 0 and at most 1",
    );
    check(
        |o| o.val_check_interval = Some(Interval::Steps(0)),
        "`val_check_interval` is 0; give at least 1 step",
    );
    check(
        |o| {
            o.overfit_batches = Some(Limit::Batches(1));
            o.limit_train_batches = Some(Limit::Fraction(0.5));
        },
        "`overfit_batches` (1) and `limit_train_batches` (0.5) both limit the training data",
    );
    check(
        |o| (o.fast_dev_run, o.resume) = (Some(1), true),
        "`fast_dev_run` begins a new run that writes nothing",
    );
    check(
        |o| o.checkpoint.every_n_train_steps = Some(0),
        "`checkpoint_every` is 0",
    );
    check(
        |o| o.checkpoint.save_top_k = 3,
        "`checkpoint` needs `out`: the directory to write checkpoints to",
    );
    check(
        |o| {
            o.out = Some("dir".into());
            (o.checkpoint.save_top_k, o.checkpoint.save_weights_only) = (0, true);
        },
        "`save_weights_only` is of the best checkpoints, and `save_top_k` is 0",
    );
    check(
        |o| o.observing.patience = Some(2),
        "`patience` needs `early_stopping`",
    );
    check(
        |o| o.observing.min_delta = Some(0.5),
        "`min_delta` needs `early_stopping`",
    );
    check(
        |o| {
            o.observing.early_stopping = Some("loss".into());
            o.observing.patience = Some(0);
        },
        "`patience` is 0; it must be at least 1",
    );
    check(
        |o| o.numerics.gradient_clip_algorithm = GradientClipAlgorithm::Value,
        "`gradient_clip_algorithm` is value, and nothing is clipped",
    );
    check(
        |o| o.numerics.accumulate_grad_batches = 0,
        "`accumulate_grad_batches` is 0; it must be at least 1",
    );
}

#[test]
fn invalid_flags_say_what_is_expected() {
    for (flag, expected) in [
        ("--max-epochs 0", "expected a whole number of at least 1"),
        ("--max-time 0", "expected a time above 0"),
        ("--limit-train-batches 1.5", "expected a number of batches"),
        ("--val-check-interval never", "expected a number of steps"),
        ("--last-batch keep", "expected `pad` or `drop`"),
        (
            "--on-not-finite rewind",
            "unknown choice `rewind`; expected stop, skip",
        ),
        ("--batch-size -1", "expected a whole number of at least 1"),
        ("--wait-limit 0", "expected a positive number of seconds"),
        ("--gradient-clip-val -1", "expected a norm"),
    ] {
        let words = ["train"].into_iter().chain(flag.split(' '));
        let error = Command::try_parse_from(words).err().unwrap().to_string();
        assert!(error.contains(expected), "{flag}: {error}");
    }
}

#[test]
fn launches_are_not_longer_than_log_every_n_steps() {
    let flags = ["train", "--steps-per-execution=64"];
    let options = Command::try_parse_from(flags).unwrap().options;
    let error = options.check().unwrap_err().to_string();
    assert!(
        error.contains("`steps_per_execution` is 64 and `log_every_n_steps` is 50"),
        "{error}"
    );
}

#[test]
fn clip_norm_of_0_turns_clipping_off() {
    for (flag, clipping) in [
        ("--clip-norm=0", None),
        ("--clip-norm=0.5", Some(GradientClip::Norm(0.5))),
    ] {
        let options = Command::try_parse_from(["train", flag]).unwrap().options;
        options.check().unwrap();
        assert_eq!(options.numerics.clipping(), clipping, "{flag}");
    }
}

#[test]
fn large_states_are_streamed() {
    let auto = CheckpointMode::Auto;
    for (bytes, available, copies) in [
        (10, None, true),
        (75, Some(100), true),
        (76, Some(100), false),
        (u64::MAX, Some(u64::MAX), false),
    ] {
        assert_eq!(
            auto.copies(bytes, available),
            copies,
            "{bytes} {available:?}"
        );
    }
    assert!(CheckpointMode::Copy.copies(100, Some(1)));
    assert!(!CheckpointMode::Stream.copies(1, Some(100)));
}

#[test]
fn overfitting_keeps_validation_off() {
    let val = |limit: Option<Limit>| {
        let options = TrainerOptions {
            overfit_batches: Some(Limit::Batches(2)),
            limit_val_batches: limit,
            ..TrainerOptions::default()
        };
        options.resolved().limit_val_batches
    };
    assert_eq!(val(Some(Limit::Batches(0))), Some(Limit::Batches(0)));
    assert_eq!(val(Some(Limit::Batches(9))), Some(Limit::Batches(2)));
    assert_eq!(val(None), Some(Limit::Batches(2)));
}
