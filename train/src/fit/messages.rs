//! Messages at the start of a run.

use halite_data::Loader;

use crate::{TrainerOptions, checkpoint::RunPosition, format::format_seconds};

/// The message of a resumed run.
pub(super) fn resumed(position: RunPosition, seconds: f64, options: &TrainerOptions) -> String {
    let RunPosition { step, epoch, batch } = position;
    if options.max_steps.is_some_and(|most| step >= most) {
        return format!(
            "resumed at step {step}, the last one; give a larger number of steps to continue \
             (`max_steps`, --max-steps)"
        );
    }
    if let Some(most) = options
        .max_time
        .filter(|most| seconds >= most.as_secs_f64())
    {
        return format!(
            "resumed at step {step}: its time of {} is over; give a longer time to continue \
             (`max_time`, --max-time)",
            format_seconds(most.as_secs_f64())
        );
    }
    if epoch < options.epochs() {
        return format!("resumed at step {step}, epoch {}, batch {batch}", epoch + 1);
    }
    format!(
        "resumed at step {step}: all {epoch} epochs are done; give a larger number of epochs to \
         continue (`max_epochs`, --max-epochs)"
    )
}

/// The samples that each epoch leaves out because they do not fill a batch or a step, if there are
/// some.
pub(super) fn left_out(train: &Loader, options: &TrainerOptions) -> Option<String> {
    let (samples, size) = (train.dataset().len(), options.batch_size);
    let is_limited = options.limit_train_batches.is_some();
    let left = samples - (train.batches_per_epoch() * size).min(samples);
    (left > 0 && !is_limited).then(|| not_filled(left, samples, options))
}

fn not_filled(left: usize, samples: usize, options: &TrainerOptions) -> String {
    let (size, batches) = (options.batch_size, options.numerics.accumulate_grad_batches);
    let leaves_out = "an epoch leaves them out, and each epoch leaves out other ones";
    // Whole batches are left out only where a step cannot have fewer.
    if left >= size {
        return format!(
            "{left} of {samples} samples do not fill a step of {batches} batches of {size}: \
             {leaves_out} (a leaf for the weights in the task's batch keeps these batches)"
        );
    }
    format!(
        "{left} of {samples} samples do not fill a batch of {size}: {leaves_out} (`last_batch`, \
         --last-batch pad keeps them)"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn run_whose_time_is_over_says_so() {
        let options = TrainerOptions {
            max_time: Some(Duration::from_secs(90)),
            ..TrainerOptions::default()
        };
        let position = RunPosition {
            step: 7,
            epoch: 0,
            batch: 7,
        };
        assert_eq!(
            resumed(position, 89.0, &options),
            "resumed at step 7, epoch 1, batch 7"
        );
        assert_eq!(
            resumed(position, 90.0, &options),
            "resumed at step 7: its time of 1 min 30 s is over; give a longer time to continue \
             (`max_time`, --max-time)"
        );
    }

    #[test]
    fn whole_batches_that_are_left_out_do_not_fill_a_step() {
        let mut options = TrainerOptions {
            batch_size: 10,
            ..TrainerOptions::default()
        };
        options.numerics.accumulate_grad_batches = 4;
        let text = not_filled(15, 95, &options);
        assert!(
            text.contains("15 of 95 samples do not fill a step of 4 batches of 10")
                && !text.contains("--last-batch"),
            "{text}"
        );
        let text = not_filled(5, 95, &options);
        assert!(text.contains("do not fill a batch of 10"), "{text}");
        assert!(text.contains("--last-batch pad keeps them"), "{text}");
    }
}
