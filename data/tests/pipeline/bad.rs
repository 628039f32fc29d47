//! Samples that cannot be read: skipped at weight 0, counted, and an error beyond the limit.

use halite_core::{DType, Error, ErrorKind, Result, TensorType};
use halite_data::{
    BadSample, Dataset, Field, HostBatch, Loader, LoaderOptions, Order, SampleMut, Shard,
};

/// Numbers from 1; those of `bad` indices cannot be read, after a part of the sample was written.
struct Damaged {
    bad: Vec<usize>,
    field: [Field; 1],
}

impl Dataset for Damaged {
    fn len(&self) -> usize {
        20
    }

    fn fields(&self) -> &[Field] {
        &self.field
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        into.write(0, &[index as i32 + 1])?;
        if self.bad.contains(&index) {
            into.write(0, &[-1i32])?;
            let message = format!("file {index}.jpg ends early");
            return Err(Error::new(ErrorKind::Corrupt, "jpeg", message));
        }
        Ok(())
    }
}

fn loader(bad: &[usize], options: LoaderOptions) -> Loader {
    let field = [Field::new("number", TensorType::scalar(DType::S32))];
    let bad = bad.to_vec();
    Loader::new(Damaged { bad, field }, options).unwrap()
}

fn skip(at_most: usize) -> LoaderOptions {
    LoaderOptions {
        bad_samples: BadSample::Skip { at_most },
        ..LoaderOptions::new(8)
    }
}

fn content(batch: &HostBatch) -> (Vec<i32>, Vec<f32>) {
    let numbers = batch.arrays[0].as_slice().unwrap().to_vec();
    (numbers, batch.arrays[1].as_slice().unwrap().to_vec())
}

#[test]
fn skipped_row_is_a_sample_at_weight_0() {
    let loader = loader(&[0, 9, 19], skip(3));
    let batches: Vec<HostBatch> = loader.epoch(0).map(Result::unwrap).collect();
    let (numbers, weights) = content(&batches[0]);
    assert_eq!(numbers, [2, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(weights, [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    let (numbers, weights) = content(&batches[2]);
    // Index 19 is skipped; the padding begins with index 0, which is skipped too.
    assert_eq!(numbers, [17, 18, 19, 17, 17, 2, 3, 4]);
    assert_eq!(weights, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(
        [0, 1, 2].map(|batch: usize| batches[batch].count),
        [7, 7, 3]
    );
    let skipped = loader.skipped();
    assert_eq!(
        skipped
            .iter()
            .map(|sample| sample.index)
            .collect::<Vec<_>>(),
        [0, 9, 19]
    );
    assert_eq!(
        skipped[1].reason,
        "loader: sample 9 (epoch 0, batch 1): jpeg: file 9.jpg ends early"
    );
}

#[test]
fn samples_are_counted_once_for_all_epochs() {
    let loader = loader(&[3, 4], skip(2));
    assert!(
        loader
            .endless(Default::default())
            .take(9)
            .all(|batch| batch.is_ok())
    );
    assert_eq!(loader.skipped().len(), 2);
}

#[test]
fn one_too_many_fails_in_the_same_batch() {
    for workers in [0, 1, 3] {
        let options = LoaderOptions {
            workers,
            order: Order::Shuffled { seed: 2 },
            ..skip(2)
        };
        let loader = loader(&[1, 5, 9, 13], options);
        let results: Vec<_> = loader.epoch(0).collect();
        let failed = results.iter().position(Result::is_err);
        assert_eq!(failed, Some(1), "{workers} workers");
        let error = results[1].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = error.to_string();
        assert!(
            text.starts_with("loader: more than 2 samples cannot be read (`bad_samples`, --bad-samples skip:2): loader: sample ")
                && text.ends_with(".jpg ends early"),
            "{text}"
        );
    }
}

#[test]
fn batches_do_not_depend_on_workers_or_processes() {
    let batches = |workers, shard| {
        let options = LoaderOptions {
            workers,
            shard,
            ..skip(10)
        };
        let loader = loader(&[0, 1, 2, 3, 10, 11], options);
        loader
            .epoch(0)
            .map(|batch| content(&batch.unwrap()))
            .collect::<Vec<_>>()
    };
    let whole = batches(0, Shard::default());
    assert_eq!(batches(3, Shard::default()), whole);
    // Rows that count are equal; the others are copies of a row of the same process.
    for index in 0..2 {
        for (part, whole) in batches(2, Shard { index, of: 2 }).iter().zip(&whole) {
            for row in 0..4 {
                let (all, weight) = (whole.0[4 * index + row], whole.1[4 * index + row]);
                assert_eq!(part.1[row], weight);
                assert!(part.0[row] > 0 && (weight == 0.0 || part.0[row] == all));
            }
        }
    }
}

#[test]
fn batch_without_a_sample_is_an_error() {
    let loader = loader(&[0, 1, 2, 3, 4, 5, 6, 7], skip(10));
    let error = loader.epoch(0).next().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "loader: no sample of the batch can be read; a larger batch size needs one of them: \
         loader: sample 7 (epoch 0, batch 0): jpeg: file 7.jpg ends early"
    );
}

#[test]
fn policy_is_parsed() {
    for policy in [BadSample::Fail, BadSample::Skip { at_most: 10 }] {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    for text in ["skip", "skip:", "skip:-1", "skip:x", ""] {
        assert!(text.parse::<BadSample>().is_err(), "{text}");
    }
}
