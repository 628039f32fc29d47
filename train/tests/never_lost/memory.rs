//! Memory that cannot be had while a checkpoint is made.

use halite_core::{Client, ErrorKind};
use halite_nn::{Linear, Sgd};
use halite_train::{
    checkpoint::CheckpointStore,
    loggers::{CsvLog, Split},
};

use crate::never_lost::{Model, Plane, faulty::Faulty, fit, on, out_in, points, saved};

#[test]
fn save_without_memory_is_tried_again_at_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    // The first epoch ends with step 5: nothing of it can be copied to the host.
    let client = Client::new(Faulty::new().no_memory_for_weights_until(6));
    let fitted = fit(on(&client).epochs(2).out(&out), points()).unwrap();
    assert_eq!(fitted.report.steps, 10);
    assert_eq!(saved(&out), [10]);
}

#[test]
fn last_save_without_memory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    let client = Client::new(Faulty::new().no_memory_for_weights_until(u64::MAX));
    let error = fit(on(&client).epochs(2).out(&out), points()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(saved(&out).is_empty());
}

#[test]
fn best_is_chosen_among_the_checkpoints_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let out = out_in(&dir);
    // The checkpoint of the first epoch, whose loss is lower, cannot be copied to the host.
    let client = Client::new(Faulty::new().no_memory_for_weights_until(6));
    let trainer = on(&client).epochs(2).out(&out).build().unwrap();
    let model = Model {
        out: Linear::new(2, 1),
    };
    // At this rate the loss grows.
    let fitted = trainer.fit(Plane, model, Sgd::new(3.0), points(), points());
    let report = fitted.unwrap().report;
    let rows = CsvLog::resume(out.join("metrics.csv"), u64::MAX).unwrap();
    let rows = rows.rows().unwrap().into_iter();
    let losses: Vec<f64> = rows
        .filter(|row| row.split == Split::Validation)
        .map(|row| row.get("loss").unwrap())
        .collect();
    assert!(losses[0] < losses[1], "{losses:?}");
    let store = CheckpointStore::open_read_only(out.join("checkpoints")).unwrap();
    let best = store.best().unwrap().expect("a checkpoint is the best");
    assert_eq!((best.step, best.value), (10, losses[1]));
    assert_eq!(report.best_checkpoint, Some(best.path));
}
