//! Memory that cannot be had while a checkpoint is made.

use halite_core::{Client, ErrorKind};

use crate::{faulty::Faulty, fit, on, out_in, points, saved};

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
