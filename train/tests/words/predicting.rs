//! Inference whose outputs are written as they are computed.

use std::path::Path;

use halite_core::{DType, Error, HostArray, Result, tree::Tree};
use halite_data::{Dataset, DatasetExt, Field, InMemory, Labeled, SampleMut};
use halite_nn::{Tensor, Trace};
use halite_train::Predict;

use super::{error_of, fit, trainer};
use crate::shared::plane::{Model, Plane, samples};

/// Two outputs of a sample.
#[derive(Tree, Debug)]
pub(crate) struct Both<L> {
    value: L,
    sign: L,
}

impl Predict for Plane {
    type Output = Both<()>;

    fn predict<'t>(
        &self,
        _: &'t Trace,
        model: &Model<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Both<Tensor<'t>> {
        let value = model.out.forward(batch.input);
        Both {
            value,
            sign: value.gt(0.0).convert(DType::U8),
        }
    }
}

#[test]
fn outputs_are_written_in_order() {
    let builder = trainer();
    let fitted = fit(builder.clone(), ()).unwrap();
    // Four a batch: the last one has two.
    let (trainer, data) = (builder.build().unwrap(), samples(30));
    let all = trainer.predict(Plane, &fitted.model, data.clone()).unwrap();
    assert_eq!(all.value.ty().dims(), [30, 1]);

    let (mut rows, mut batches) = (Vec::<f32>::new(), 0);
    let each = |outputs: Both<HostArray>| {
        rows.extend(outputs.value.as_slice::<f32>()?);
        batches += 1;
        Ok(())
    };
    let each = trainer.predict_each(Plane, &fitted.model, data.clone(), each);
    each.unwrap();
    assert_eq!(
        (rows.as_slice(), batches),
        (all.value.as_slice().unwrap(), 8)
    );

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outputs.safetensors");
    std::fs::write(&path, "an earlier file").unwrap();
    trainer
        .predict_to(Plane, &fitted.model, data, &path)
        .unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for (name, array) in [("value", &all.value), ("sign", &all.sign)] {
        let tensor = file.tensor(name).unwrap();
        assert_eq!(tensor.shape(), array.ty().dims());
        assert_eq!(tensor.data(), array.bytes());
    }
}

/// Samples of which one cannot be read.
struct Torn(InMemory);

impl Dataset for Torn {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fields(&self) -> &[Field] {
        self.0.fields()
    }

    fn read(&self, index: usize, sample: &mut SampleMut<'_>) -> Result<()> {
        match index {
            20 => Err(Error::invalid("samples", "the disk is torn")),
            index => self.0.read(index, sample),
        }
    }
}

#[test]
fn failed_predictions_leave_the_earlier_file() {
    let builder = trainer();
    let fitted = fit(builder.clone(), ()).unwrap();
    let trainer = builder.build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outputs.safetensors");
    std::fs::write(&path, "an earlier file").unwrap();
    // The first five batches are written.
    let torn = trainer.predict_to(Plane, &fitted.model, Torn(samples(30)), &path);
    let torn = error_of(torn);
    assert!(torn.contains("the disk is torn"), "{torn}");
    let empty = trainer.predict_to(Plane, &fitted.model, samples(0), &path);
    assert!(error_of(empty).contains("no samples"));
    assert_eq!(std::fs::read(&path).unwrap(), b"an earlier file");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn bad_path_is_an_error_before_predictions() {
    let builder = trainer();
    let fitted = fit(builder.clone(), ()).unwrap();
    let trainer = builder.build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    // The first sample that is read would be the error.
    let predict = |path: &Path| {
        let unread = Torn(samples(30)).subset([20]).unwrap();
        error_of(trainer.predict_to(Plane, &fitted.model, unread, path))
    };
    let error = predict(dir.path());
    assert!(
        error.contains("is a directory; give the path of a file"),
        "{error}"
    );
    let error = predict(&dir.path().join("none/outputs.safetensors"));
    assert!(error.contains("cannot write"), "{error}");
}

#[test]
fn error_of_the_closure_ends_predictions() {
    let builder = trainer();
    let fitted = fit(builder.clone(), ()).unwrap();
    let trainer = builder.build().unwrap();
    let mut left = 2;
    let stopped: Result<()> = trainer.predict_each(Plane, &fitted.model, samples(30), |_| {
        left -= 1;
        match left {
            0 => Err(Error::invalid("writer", "enough")),
            _ => Ok(()),
        }
    });
    assert_eq!(error_of(stopped), "writer: enough");
}
