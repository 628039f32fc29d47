//! Requests to stop while data, a compiler or a device hangs.

use std::{path::Path, thread, time::Duration};

use halite_backends::Accelerator;
use halite_core::{Client, DType, ErrorKind, Null, Result, tree::Leaf};
use halite_data::{Dataset, Field, InMemory, Labeled, SampleMut};
use halite_nn::{Mean, Tensor, Trace};
use halite_train::{
    CheckpointMode, Task,
    signals::{StopFlag, StopReason},
};

use crate::never_lost::{
    BATCH, SAMPLES, altered,
    faulty::Faulty,
    fit,
    hanging::{Gate, OpenAtEnd, in_time},
    on, out_in, points, saved, watched,
};

/// Sets the flag once a thread hangs at the gate.
fn stop_at(gate: &Gate, stop: &StopFlag) {
    let (gate, stop) = (gate.clone(), stop.clone());
    thread::spawn(move || {
        gate.reached();
        thread::sleep(Duration::from_millis(300));
        stop.stop();
    });
}

#[test]
fn stop_is_seen_while_the_data_hangs() {
    for workers in [0, 1, 2] {
        let client = Accelerator::cpu().open().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let out = out_in(&dir);
        let (gate, stop) = (Gate::default(), StopFlag::new());
        let _open = OpenAtEnd(gate.clone());
        stop_at(&gate, &stop);
        let hangs = gate.clone();
        // In the first epoch's last batch, so that every worker before it has read its own.
        let data = watched(move |reads| {
            if reads >= SAMPLES - BATCH {
                hangs.pass();
            }
        });
        let trainer = on(&client)
            .epochs(2)
            .workers(workers)
            .out(&out)
            .stop_flag(&stop);
        let fitted = in_time(move || fit(trainer, data)).unwrap();
        assert!(fitted.report.interrupted);
        assert_eq!(fitted.stopped_by, Some(StopReason::Asked));
        assert_eq!(saved(&out)[0], fitted.report.steps);
        assert!(
            (1..5).contains(&fitted.report.steps),
            "{workers}: {}",
            fitted.report
        );
    }
}

#[test]
fn stop_is_seen_while_validation_data_hangs() {
    let client = Accelerator::cpu().open().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    let (gate, stop) = (Gate::default(), StopFlag::new());
    let _open = OpenAtEnd(gate.clone());
    stop_at(&gate, &stop);
    let hangs = gate.clone();
    let validation = watched(move |reads| {
        if reads == BATCH {
            hangs.pass();
        }
    });
    let trainer = on(&client)
        .epochs(2)
        .out(&out)
        .stop_flag(&stop)
        .build()
        .unwrap();
    let model = crate::never_lost::Model {
        out: halite_nn::Linear::new(2, 1),
    };
    let optimizer = halite_nn::Adam::new(0.1);
    let work = move || {
        trainer.fit(
            crate::never_lost::Plane,
            model,
            optimizer,
            points(),
            validation,
        )
    };
    let fitted = in_time(work).unwrap();
    assert!(fitted.report.interrupted);
    assert_eq!((fitted.report.steps, saved(&out)), (5, vec![5]));
}

#[test]
fn stop_is_seen_while_the_step_is_compiled() {
    for program in ["init", "train step"] {
        let (gate, stop) = (Gate::default(), StopFlag::new());
        let _open = OpenAtEnd(gate.clone());
        stop_at(&gate, &stop);
        let hangs = gate.clone();
        let client = Client::new(Faulty::new().on_compile(move |name| {
            if name == program {
                hangs.pass();
            }
        }));
        let trainer = on(&client).stop_flag(&stop);
        let error = in_time(move || fit(trainer, points()).map(drop)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("fit: stopped before the first step, while the program "),
            "{text}"
        );
    }
}

#[test]
fn stop_is_seen_while_the_scoring_is_compiled() {
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    let (gate, stop) = (Gate::default(), StopFlag::new());
    let _open = OpenAtEnd(gate.clone());
    stop_at(&gate, &stop);
    let hangs = gate.clone();
    let client = Client::new(Faulty::new().on_compile(move |name| {
        if name == "evaluate" {
            hangs.pass();
        }
    }));
    let trainer = on(&client).out(&out).stop_flag(&stop);
    let fitted = in_time(move || fit(trainer, points())).unwrap();
    assert!(fitted.report.interrupted);
    assert_eq!((fitted.report.steps, saved(&out)), (5, vec![5]));
}

/// [`points`], whose digest hangs at the gate.
struct EndlessDigest(Gate, InMemory);

impl Dataset for EndlessDigest {
    fn len(&self) -> usize {
        self.1.len()
    }

    fn fields(&self) -> &[Field] {
        self.1.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.1.read(index, into)
    }

    fn digest(&self) -> Option<String> {
        self.0.pass();
        self.1.digest()
    }
}

#[test]
fn checkpoint_does_not_wait_for_a_digest_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    let gate = Gate::default();
    let _open = OpenAtEnd(gate.clone());
    let client = Accelerator::cpu().open().unwrap();
    let trainer = on(&client).epochs(2).out(&out);
    let trainer = trainer.wait_limit(Duration::from_secs(3));
    let data = EndlessDigest(gate.clone(), points());
    in_time(move || fit(trainer, data)).unwrap();
    assert_eq!(saved(&out), [10, 5]);
}

#[test]
fn stop_is_seen_while_the_data_is_digested() {
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    let client = Accelerator::cpu().open().unwrap();
    fit(on(&client).out(&out), points()).unwrap();
    let (gate, stop) = (Gate::default(), StopFlag::new());
    let _open = OpenAtEnd(gate.clone());
    stop_at(&gate, &stop);
    let trainer = on(&client).out(&out).resume(true).stop_flag(&stop);
    let data = EndlessDigest(gate.clone(), points());
    let error = in_time(move || fit(trainer, data).map(drop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    let text = error.to_string();
    assert!(text.contains("step-00000005 stays"), "{text}");
}

#[test]
fn flag_set_before_the_run_ends_it_before_the_first_step() {
    let stop = StopFlag::new();
    stop.stop();
    let client = Client::new(Null::new(1));
    let error = fit(on(&client).stop_flag(&stop), points()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
}

/// The error of a run that saves a checkpoint after every `every` steps, whose device hangs after
/// step `after`, and which is asked to stop then.
fn stopped_while_hanging(out: &Path, after: u64, every: u64) -> String {
    let (gate, stop) = (Gate::default(), StopFlag::new());
    let _open = OpenAtEnd(gate.clone());
    stop_at(&gate, &stop);
    let client = Client::new(Faulty::new().hangs_after(after, &gate));
    let trainer = on(&client)
        .epochs(3)
        .checkpoint_every(every)
        .out(out)
        .stop_flag(&stop);
    let trainer = trainer.wait_limit(Duration::from_secs(2));
    let error = in_time(move || fit(trainer, points()).map(drop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
    error.to_string()
}

#[test]
fn stop_while_a_device_hangs_keeps_the_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    let error = stopped_while_hanging(&out, 7, 2);
    assert!(
        error.contains("step 8") && error.contains("step-00000006 stays"),
        "{error}"
    );
    assert_eq!(saved(&out), [6, 5]);
}

#[test]
fn save_of_a_step_that_hangs_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    // Each save waits for the one before it, and that for the device.
    let error = stopped_while_hanging(&out_in(&dir), 2, 1);
    assert!(error.contains("step-00000002 stays"), "{error}");
}

#[test]
fn device_that_hangs_is_given_up_at_the_limit() {
    let gate = Gate::default();
    let _open = OpenAtEnd(gate.clone());
    let client = Client::new(Faulty::new().hangs_after(3, &gate));
    let trainer = on(&client).wait_limit(Duration::from_millis(500));
    let error = in_time(move || fit(trainer, points()).map(drop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("step 4") && text.contains("`wait_limit`"),
        "{text}"
    );
}

#[test]
fn stream_from_a_device_that_hangs_is_given_up_at_the_limit() {
    let gate = Gate::default();
    let _open = OpenAtEnd(gate.clone());
    let dir = tempfile::tempdir().unwrap();
    let client = Client::new(Faulty::new().hangs_after(3, &gate));
    let trainer = on(&client)
        .checkpoint_every(1)
        .checkpoint_mode(CheckpointMode::Stream)
        .out(out_in(&dir))
        .wait_limit(Duration::from_millis(500));
    let error = in_time(move || fit(trainer, points()).map(drop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
    assert!(error.to_string().contains("step 4"), "{error}");
}

/// [`crate::never_lost::Plane`] with a loop in the loss that never ends when an input is as large as
/// [`ENDLESS`].
struct Endless;

const ENDLESS: f32 = 1e9;

impl Task for Endless {
    type Model = crate::never_lost::Model<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &crate::never_lost::Model<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let loss = crate::never_lost::Plane.loss(cx, model, batch);
        let start = (
            Leaf(cx.scalar(0.0, DType::F32)),
            Leaf(batch.input.max([0, 1])),
        );
        // 2^24 and 1 is 2^24 in f32.
        let (Leaf(turns), _) = cx.while_loop(
            start,
            |(turn, largest)| turn.0.lt(largest.0),
            |(turn, largest)| (Leaf(turn.0 + 1.0), largest),
        );
        // XLA runs programs of fewer than a thousand operations within the call that launches them.
        let work = (cx.arange(4096, DType::F32) + turns).square().sum_all();
        Mean::weighted(loss.total + work.stop_gradient() * 0.0, loss.weight)
    }
}

#[test]
fn endless_step_of_the_plugin_does_not_hold_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    let client = Accelerator::cpu().open().unwrap();
    let stop = StopFlag::new();
    let setter = stop.clone();
    let data = altered(move |reads, x| {
        if reads == 2 * BATCH {
            x.fill(ENDLESS);
            let setter = setter.clone();
            thread::spawn(move || {
                thread::sleep(Duration::from_secs(1));
                setter.stop();
            });
        }
    });
    let trainer = on(&client)
        .checkpoint_every(1)
        .workers(0)
        .out(&out)
        .stop_flag(&stop);
    let trainer = trainer.wait_limit(Duration::from_secs(3)).build().unwrap();
    let model = crate::never_lost::Model {
        out: halite_nn::Linear::new(2, 1),
    };
    let work = move || trainer.fit(Endless, model, halite_nn::Adam::new(0.1), data, points());
    let error = in_time(move || work().map(drop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
    assert!(error.to_string().contains("step-00000002 stays"), "{error}");
    std::mem::forget(client);
}
