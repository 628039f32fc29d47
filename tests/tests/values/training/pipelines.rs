//! Runs over random maps, mixes, damaged samples and streams resume to the bit.

use std::sync::Arc;

use halite::{
    ErrorKind,
    data::{
        BadSample, DatasetExt, Field, Mix, Random, Rows, Sample, SampleMut, StreamDataset,
        WeightedSampler,
    },
    prelude::*,
    train::{Fitted, TrainerBuilder, signals::StopFlag},
};

use crate::training::support::{Arms, Net, Watched, client, error_of, spirals, trainer, values};

fn fields() -> Vec<Field> {
    spirals(1).fields().to_vec()
}

fn noise(sample: Sample<'_>, random: &mut Random, into: &mut SampleMut<'_>) -> Result<()> {
    for (to, from) in into
        .values_mut::<f32>(0)?
        .iter_mut()
        .zip(sample.values::<f32>(0)?)
    {
        *to = from + 0.05 * random.normal() as f32;
    }
    into.write(1, sample.bytes(1))
}

/// Noisy samples of a mix, of which those at the center of a spiral are damaged.
fn mixed() -> impl Dataset + 'static {
    let sampler = WeightedSampler::new(&[1.0; 90], 60).unwrap();
    let drawn: Arc<dyn Dataset> = Arc::new(spirals(90).sampled(sampler).unwrap());
    let all: Arc<dyn Dataset> = Arc::new(spirals(120));
    let damaged = |sample: Sample<'_>, into: &mut SampleMut<'_>| {
        let x = sample.values::<f32>(0)?;
        if x[0].hypot(x[1]) < 0.03 {
            return Err(Error::new(ErrorKind::Corrupt, "point", "at the center"));
        }
        into.write(0, x)?;
        into.write(1, sample.bytes(1))
    };
    let mix = Mix::new([(all, 2.0), (drawn, 1.0)], 150).unwrap();
    mix.map(fields(), damaged)
        .version("center")
        .map_random("noise", fields(), noise)
}

/// Noisy samples in order. `on_item` is called at each item.
fn stream(on_item: impl Fn() + Clone + Send + Sync + 'static) -> impl Dataset + 'static {
    let samples = spirals(150);
    let open = move |start| {
        let (samples, on_item) = (samples.clone(), on_item.clone());
        Ok((start..150).map(move |index| {
            on_item();
            let mut rows = Rows::zeros(samples.fields(), 1)?;
            samples.read(index, &mut rows.sample_mut(0))?;
            Ok(rows)
        }))
    };
    let write = |rows: Rows, into: &mut SampleMut<'_>| {
        into.write(0, rows.sample(0).values::<f32>(0)?)?;
        into.write(1, rows.sample(0).bytes(1))
    };
    StreamDataset::new(fields(), 150, open, write).map_random("noise", fields(), noise)
}

fn fit(trainer: TrainerBuilder, data: impl Dataset + 'static) -> Result<Fitted<Arms>> {
    trainer
        .epochs(3)
        .batch_size(12)
        .bad_samples(BadSample::Skip { at_most: 20 })
        .build()?
        .fit(Arms, Net::new(), Adam::new(1e-2), data, spirals(30))
}

fn on(devices: usize) -> TrainerBuilder {
    trainer().devices(client().local_devices().into_iter().take(devices))
}

#[test]
fn random_pipeline_resumes_to_the_bit() {
    for devices in [1, 4] {
        let expected = fit(on(devices), mixed()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        for (attempt, after) in [70, 200].into_iter().enumerate() {
            let stop = StopFlag::new();
            let setter = stop.clone();
            let watched = Watched::new(mixed(), move |reads| {
                if reads == after {
                    setter.stop();
                }
                Ok(())
            });
            let run = on(devices).out(dir.path()).resume(true).workers(attempt);
            let fitted = fit(run.stop_flag(&stop), watched).unwrap();
            assert!(fitted.report.interrupted);
        }
        let fitted = fit(on(devices).out(dir.path()).resume(true).workers(3), mixed()).unwrap();
        assert_eq!(values(&fitted.model), values(&expected.model));
        assert_eq!(fitted.report.steps, 36);
    }
}

#[test]
fn stream_resumes_to_the_bit() {
    let expected = fit(trainer().workers(2), stream(|| ())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let stop = StopFlag::new();
    let setter = stop.clone();
    let items = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = move || {
        if items.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 220 {
            setter.stop();
        }
    };
    let run = trainer().workers(2).out(dir.path()).stop_flag(&stop);
    assert!(fit(run, stream(counted)).unwrap().report.interrupted);
    let run = trainer().workers(1).out(dir.path()).resume(true);
    let fitted = fit(run, stream(|| ())).unwrap();
    assert_eq!(values(&fitted.model), values(&expected.model));
}

#[test]
fn more_bad_samples_than_allowed_end_the_run() {
    let trainer = trainer().bad_samples(BadSample::Skip { at_most: 1 });
    let built = trainer.epochs(3).batch_size(12).build().unwrap();
    let fitted = built.fit(Arms, Net::new(), Adam::new(1e-2), mixed(), spirals(30));
    let error = error_of(fitted);
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error
            .to_string()
            .contains("more than 1 samples cannot be read"),
        "{error}"
    );
}

/// Spirals of which every 25th sample cannot be read.
struct Damaged<D>(D);

impl<D: Dataset> Dataset for Damaged<D> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fields(&self) -> &[Field] {
        self.0.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        match index % 25 {
            3 => Err(Error::new(ErrorKind::Corrupt, "point", "damaged")),
            _ => self.0.read(index, into),
        }
    }
}

#[test]
fn report_counts_skipped_samples() {
    let dir = tempfile::tempdir().unwrap();
    let run = trainer().out(dir.path()).epochs(3).batch_size(12);
    let trainer = run
        .bad_samples(BadSample::Skip { at_most: 10 })
        .build()
        .unwrap();
    let (data, validation) = (Damaged(spirals(60)), Damaged(spirals(30)));
    let fitted = trainer.fit(Arms, Net::new(), Adam::new(1e-2), data, validation);
    let report = fitted.unwrap().report;
    // 3, 28 and 53 of the training data, 3 and 28 of the validation data.
    assert_eq!(report.skipped_samples, 5);
    let line = "5, which cannot be read";
    assert!(report.to_string().contains(line), "{report}");
    let file = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(file("report.json").contains("\"skipped_samples\": 5"));
    assert!(file("report.html").contains(line));
}

fn scaled<'t>(weight: &Tensor<'t>, x: Tensor<'t>) -> Tensor<'t> {
    x * weight.broadcast_to(x.dims())
}

#[test]
fn predictions_have_a_row_for_each_sample() {
    let skipping = trainer().bad_samples(BadSample::Skip { at_most: 10 });
    let trainer = skipping.batch_size(12).build().unwrap();
    let model = Array::from_slice(client(), &[1.0f32, 2.0], [2]).unwrap();
    let whole = trainer.predict_with(&model, scaled, spirals(30));
    assert_eq!(whole.unwrap().ty().dims()[0], 30);
    let damaged = trainer.predict_with(&model, scaled, Damaged(spirals(30)));
    let error = damaged.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("sample 3"), "{error}");
}
