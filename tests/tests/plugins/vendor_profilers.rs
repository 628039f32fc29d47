//! The profilers of vendors' plugins, which record the work of the host on machines without the
//! device too.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use halite::{
    data,
    models::{Classify, Mlp},
    nn::Adam,
    profile::ProfileSteps,
    train::{Trainer, TrainerBuilder},
};
use halite_backends::{Accelerator, OpenOptions, Target};
use halite_core::{Code, CompileOptions, DType, Program, Signature, TensorType};
use halite_fetch::Quiet;
use tracing_subscriber::util::SubscriberInitExt;

/// One profiler records at a time.
static RECORDING: Mutex<()> = Mutex::new(());

#[test]
fn compiling_for_an_absent_device_is_recorded() {
    let _alone = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    for target in ["cuda:h100:1x1", "tpu:v5e:1x1"] {
        let open = target
            .parse::<Target>()
            .unwrap()
            .open(&OpenOptions::default(), &mut Quiet)
            .unwrap();
        let profiler = open
            .plugin()
            .profiler()
            .unwrap_or_else(|| panic!("{target}: its plugin has a profiler"));
        let profiling = profiler.start().unwrap();
        let code = "module @f { func.func public @main() -> tensor<f32> {
            %0 = stablehlo.constant dense<1.0> : tensor<f32>
            return %0 : tensor<f32>
        } }";
        let signature = Signature {
            inputs: vec![],
            outputs: vec![TensorType::new(DType::F32, [])],
            donated: vec![],
        };
        let program = Program {
            name: "f".into(),
            code: Code::from(code.as_bytes()),
            signature,
            partitions: 1,
            replicas: 1,
        };
        open.compile(&program, &CompileOptions::default()).unwrap();
        let recorded = profiling.stop().unwrap();
        // The first field of an `XSpace` is a plane; this is the name of the host's.
        assert_eq!(
            recorded.first(),
            Some(&0x0a),
            "{target}: {} bytes",
            recorded.len()
        );
        let name = b"/host:CPU";
        assert!(
            recorded.windows(name.len()).any(|bytes| bytes == name),
            "{target}: {} bytes",
            recorded.len()
        );
    }
}

/// Trains six steps of digits.
fn train(trainer: TrainerBuilder) {
    let (task, model) = (Classify::<Mlp<()>>::new(), Mlp::new(&[64, 16, 10]));
    let images = data::digits::train().unwrap();
    let trainer = trainer.batch_size(256).max_steps(6).quiet(true);
    let trainer = trainer.build().unwrap();
    trainer
        .fit(task, model, Adam::new(1e-3), images, ())
        .unwrap();
}

/// The trace of the steps 3 and 4 of the run in `out`, if there is one.
fn trace_in(out: &Path) -> Option<Vec<u8>> {
    let folder = fs::read_dir(out.join("plugins/profile/steps-3-4")).ok()?;
    let files: Vec<_> = folder.map(|file| file.unwrap().path()).collect();
    let [file] = &files[..] else {
        panic!("one file of this host: {files:?}")
    };
    assert!(file.to_str().unwrap().ends_with(".xplane.pb"), "{file:?}");
    Some(fs::read(file).unwrap())
}

fn has_mark(space: &[u8], step: u64) -> bool {
    let text = format!("step {step}");
    space
        .windows(text.len())
        .any(|bytes| bytes == text.as_bytes())
}

#[test]
fn trace_of_steps_marks_each_step() {
    let _alone = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    let target = "cuda:h100:1x1".parse::<Target>().unwrap();
    let open = target.open(&OpenOptions::default(), &mut Quiet).unwrap();
    let client = Accelerator::embedded().open().unwrap();
    for steps in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let profile = ProfileSteps::new(open.plugin().profiler(), "3..5".parse().unwrap());
        let trainer = Trainer::builder(&client).callback(profile);
        train(trainer.steps_per_execution(steps).out(dir.path()));
        let space = trace_in(dir.path()).unwrap();
        let marks = [2, 3, 4, 5].map(|step| has_mark(&space, step));
        assert_eq!(marks, [false, true, true, false], "{steps}");
    }
}

#[test]
fn run_records_after_one_that_could_not() {
    let _alone = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    let target = "cuda:h100:1x1".parse::<Target>().unwrap();
    let open = target.open(&OpenOptions::default(), &mut Quiet).unwrap();
    let client = Accelerator::embedded().open().unwrap();
    let profile = ProfileSteps::new(open.plugin().profiler(), "3..5".parse().unwrap());
    let trainer = Trainer::builder(&client).callback(profile);
    // It has no directory.
    train(trainer.clone());
    let dir = tempfile::tempdir().unwrap();
    train(trainer.out(dir.path()));
    assert!(trace_in(dir.path()).is_some_and(|space| has_mark(&space, 3)));
}

/// The warnings of a thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<u8>>>);

impl Write for Warnings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn run_without_the_steps_warns() {
    let _alone = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    let target = "cuda:h100:1x1".parse::<Target>().unwrap();
    let open = target.open(&OpenOptions::default(), &mut Quiet).unwrap();
    let client = Accelerator::embedded().open().unwrap();
    let warnings = Warnings::default();
    let written = warnings.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || written.clone())
        .with_ansi(false);
    let dir = tempfile::tempdir().unwrap();
    let profile = ProfileSteps::new(open.plugin().profiler(), "10..15".parse().unwrap());
    let trainer = Trainer::builder(&client).callback(profile).out(dir.path());
    {
        let _subscriber = subscriber.finish().set_default();
        train(trainer);
    }
    let text = String::from_utf8(warnings.0.lock().unwrap().clone()).unwrap();
    let sentence = "no device trace of the steps 10 to 14: the run did the steps 1 to 6";
    assert!(text.contains(sentence), "{text}");
}
