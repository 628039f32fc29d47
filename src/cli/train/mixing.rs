//! Mixed images of `halite train imagenet` and `halite train ct`.

use std::sync::Arc;

use clap::Args;
use halite::{
    Result,
    data::{Dataset, DatasetExt},
};

/// Mixing of training images.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct MixingArgs {
    /// Mix each training image and its label with those of a random other one (mixup), in shares of
    /// the beta distribution of (ALPHA, ALPHA): 0.2 is usual, larger values mix more
    #[arg(long, value_name = "ALPHA", value_parser = alpha, allow_negative_numbers = true)]
    mixup: Option<f64>,
}

/// Data of a training and its validation.
pub(super) struct Sets {
    pub(super) train: Arc<dyn Dataset>,
    pub(super) validation: Option<Arc<dyn Dataset>>,
}

fn alpha(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(alpha) if (1e-3..=1e6).contains(&alpha) => Ok(alpha),
        _ => Err("expected a number from 0.001 to 1000000, such as 0.2".into()),
    }
}

impl MixingArgs {
    /// The data with mixed training images. A label that is the number of one of `classes` becomes
    /// probabilities, in validation too; other labels are numbers from 0 to 1 already.
    ///
    /// # Errors
    /// If the data has no images and labels.
    pub(super) fn apply(self, sets: Sets, classes: Option<usize>) -> Result<Sets> {
        let Some(alpha) = self.mixup else {
            return Ok(sets);
        };
        let numeric = |data: Arc<dyn Dataset>| -> Result<Arc<dyn Dataset>> {
            Ok(match classes {
                Some(classes) => Arc::new(data.one_hot("label", classes)?),
                None => data,
            })
        };
        let train = numeric(sets.train)?.mixup("image", "label", alpha)?;
        Ok(Sets {
            train: Arc::new(train),
            validation: sets.validation.map(numeric).transpose()?,
        })
    }
}
