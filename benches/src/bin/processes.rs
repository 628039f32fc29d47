//! Time of a training step in a job: `halite launch -n 2 --threads 1 -- processes w1`.
//!
//! `processes WORKLOAD [ACCELERATOR] [STRATEGY] [EPOCHS] [STEPS]`: the trainer on a workload of
//! `peers/README.md`, without validation; by default on `cpu`, 6 epochs of 50 steps. Each process
//! prints its processor time and the time of a step, in milliseconds, as medians over the epochs
//! after the first. `processes/compare.py` puts it beside PyTorch.
#![forbid(unsafe_code)]

use std::{
    marker::PhantomData,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Instant,
};

use halite::{
    Error, HostArray, Result, TensorType,
    backends::Accelerator,
    cluster::Job,
    data::{InMemory, Labeled},
    nn::{Mean, Optimizer, Trace, Traced, cross_entropy},
    train::{Callback, Strategy, Task, Trainer, Weighted, callback::Run},
};
use halite_benches::{Forward, ProcessorClock, Visitor, Workload, exit_code, visit};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let job = Job::from_env()?;
    let argument = |at| std::env::args().nth(at).filter(|text| text != "-");
    let count = |at, default| match argument(at) {
        Some(text) => text
            .parse()
            .map_err(|_| Error::invalid("processes", format!("`{text}` is not a number"))),
        None => Ok(default),
    };
    let trained = Trained {
        accelerator: argument(2).map_or(Ok(Accelerator::cpu()), |name| name.parse())?,
        strategy: argument(3).map(|name| name.parse()).transpose()?,
        epochs: count(4, 6)?,
        steps: count(5, 50)?,
        job: &job,
    };
    visit(&argument(1).unwrap_or_default(), trained)?;
    job.finish()
}

struct Trained<'a> {
    accelerator: Accelerator,
    strategy: Option<Strategy>,
    epochs: usize,
    steps: usize,
    job: &'a Job,
}

impl Visitor for Trained<'_> {
    type Output = ();

    fn visit<M: Forward, O: Optimizer + Clone>(self, workload: Workload<M, O>) -> Result<()> {
        let client = self.accelerator.open()?;
        let batch = workload.x.ty().dims()[0];
        let data = InMemory::new([
            ("x", repeated(&workload.x, self.steps)?),
            ("y", repeated(&workload.y, self.steps)?),
        ])?;
        let out = tempfile::tempdir()?;
        let times = Times::new(self.steps);
        let mut trainer = Trainer::builder(&client)
            .processes(self.job.group())
            .batch_size(batch)
            .max_epochs(self.epochs as u64)
            .out(out.path().join("run"))
            .quiet(true)
            .callback(times.clone());
        if let Some(strategy) = self.strategy {
            trainer = trainer.strategy(strategy);
        }
        let loss = Loss(PhantomData::<fn() -> M>);
        trainer.build()?.fit(
            loss,
            workload.model,
            workload.optimizer,
            data,
            None::<InMemory>,
        )?;
        let [cpu, wall] = times.medians();
        println!(
            "{{\"rank\": {}, \"cpu_ms\": {cpu:.4}, \"ms\": {wall:.4}}}",
            self.job.rank()
        );
        Ok(())
    }
}

/// The mean cross entropy of the logits.
struct Loss<M>(PhantomData<fn() -> M>);

impl<M: Forward> Task for Loss<M> {
    type Model = M;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Traced<'t, M>,
        batch: &Traced<'t, Labeled<()>>,
    ) -> Mean<'t> {
        let logits = M::logits(model, batch.input);
        batch.mean(cross_entropy(logits, batch.target))
    }
}

/// An array, `count` times along the first dimension.
fn repeated(array: &HostArray, count: usize) -> Result<HostArray> {
    let mut dims = array.ty().dims().to_vec();
    dims[0] *= count;
    let ty = TensorType::new(array.ty().dtype(), dims);
    HostArray::from_bytes(&array.bytes().repeat(count), ty)
}

/// Measures epochs.
#[derive(Clone)]
struct Times {
    steps: usize,
    /// Clocks of the epoch in progress, and milliseconds of a step of each epoch that is done.
    clocks: Arc<Mutex<(ProcessorClock, Instant)>>,
    epochs: Arc<Mutex<Vec<[f64; 2]>>>,
}

impl Times {
    fn new(steps: usize) -> Self {
        Times {
            steps,
            clocks: Arc::new(Mutex::new((ProcessorClock::start(), Instant::now()))),
            epochs: Arc::default(),
        }
    }

    /// Medians over the epochs after the first.
    fn medians(&self) -> [f64; 2] {
        let epochs = self.epochs.lock().expect("no thread panicked");
        [0, 1].map(|which| {
            let mut times: Vec<f64> = epochs[1..].iter().map(|epoch| epoch[which]).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
    }
}

impl Callback for Times {
    fn on_train_epoch_end(&mut self, _: &mut Run) -> Result<()> {
        let mut clocks = self.clocks.lock().expect("no thread panicked");
        let milliseconds = |seconds: f64| 1e3 * seconds / self.steps as f64;
        let times = [clocks.0.seconds(), clocks.1.elapsed().as_secs_f64()].map(milliseconds);
        self.epochs.lock().expect("no thread panicked").push(times);
        *clocks = (ProcessorClock::start(), Instant::now());
        Ok(())
    }
}
