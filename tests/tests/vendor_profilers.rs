//! The profilers of vendors' plugins, which record the work of the host on machines without the
//! device too.

use std::{
    fs,
    sync::{Arc, Mutex, PoisonError},
};

use halite::{
    data,
    models::{Classify, Mlp},
    nn::Adam,
    profile::ProfileSteps,
    train::Trainer,
};
use halite_backends::{Accelerator, OpenOptions, Target};
use halite_core::{CompileOptions, DType, Program, Signature, TensorType};
use halite_fetch::Quiet;

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
            code: Arc::from(code.as_bytes()),
            signature,
            partitions: 1,
            replicas: 1,
            facts: None,
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

#[test]
fn trace_of_steps_marks_each_step() {
    let _alone = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    let target = "cuda:h100:1x1".parse::<Target>().unwrap();
    let open = target.open(&OpenOptions::default(), &mut Quiet).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let client = Accelerator::embedded().open().unwrap();
    let trainer = Trainer::builder(&client)
        .batch_size(256)
        .max_steps(6)
        .quiet(true)
        .out(dir.path())
        .callback(ProfileSteps::new(
            open.plugin().profiler(),
            "3..5".parse().unwrap(),
        ));
    let (task, model) = (Classify::<Mlp<()>>::new(), Mlp::new(&[64, 16, 10]));
    let images = data::digits::train().unwrap();
    let trainer = trainer.build().unwrap();
    trainer
        .fit(task, model, Adam::new(1e-3), images, ())
        .unwrap();

    let folder = dir.path().join("plugins/profile/steps-3-4");
    let files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    let [file] = &files[..] else {
        panic!("one file of this host: {files:?}")
    };
    assert!(file.to_str().unwrap().ends_with(".xplane.pb"), "{file:?}");
    let space = fs::read(file).unwrap();
    let has = |text: &str| {
        space
            .windows(text.len())
            .any(|bytes| bytes == text.as_bytes())
    };
    let marks = [2, 3, 4, 5].map(|step| has(&format!("step {step}")));
    assert_eq!(marks, [false, true, true, false]);
}
