//! Metrics of a model over a data set: `validate`, `test`, and the validations of a fit.

use std::{panic::Location, sync::Arc};

use halite_core::{
    Array, HostArray, Result, Sharding,
    tree::{Family, Leaf, Tree},
};
use halite_data::{Dataset, Loader, Position};
use halite_nn::{Optimizer, optim::Averages};

use super::Trainer;
use crate::{
    MetricValues, Task,
    in_flight::InFlight,
    metrics::{Collecting, MetricReport, Scores},
    processes::over_processes,
    programs::{
        Evaluate, ModelArrays, RunState, Statistics, discover_evaluation, evaluate_program,
        means_of_pass,
    },
    waits::{Limits, NextBatch, next_batch, wait},
    window::Window,
};

/// Training batches from which the statistics of averaged weights are computed: of the running averages
/// before, with a momentum of 0.1, a thousandth is left.
const STATISTICS: usize = 64;

impl Trainer {
    /// Computes the metrics of `model` over `dataset`, exactly: padding of the last batch does not
    /// count. [`limit_val_batches`](field@crate::TrainerOptions::limit_val_batches) limits it.
    ///
    /// A [confusion matrix](crate::metrics::Confusion) gives its accuracy, precision, recall and F1;
    /// [`evaluate`](Self::evaluate) returns the matrix, too.
    ///
    /// # Errors
    /// Those of [`fit`](Self::fit).
    #[track_caller]
    pub fn validate<K: Task>(
        &self,
        task: K,
        model: &ModelArrays<K>,
        dataset: impl Dataset + 'static,
    ) -> Result<MetricValues> {
        Ok(self.evaluate(task, model, dataset)?.metrics)
    }

    /// Computes the metrics of `model` over `dataset` as [`validate`](Self::validate), and returns
    /// them with the confusion matrices that the task collects.
    ///
    /// ```
    /// use halite_backends::Accelerator;
    /// use halite_core::HostArray;
    /// use halite_data::InMemory;
    /// use halite_nn::{Adam, Linear, cross_entropy};
    /// use halite_train::{Collect, Trainer, Weighted, metrics::Confusion, task};
    ///
    /// # fn main() -> halite_core::Result<()> {
    /// # let client = Accelerator::cpu().open()?;
    /// # let trainer = Trainer::builder(&client).max_epochs(30).batch_size(4).quiet(true).build()?;
    /// # let x = HostArray::from_slice(&[-3.0f32, -2.0, -1.0, 1.0, 2.0, 3.0, -0.5, 0.5], [8, 1])?;
    /// # let y = HostArray::from_slice(&[0u8, 0, 0, 1, 1, 1, 0, 1], [8])?;
    /// # let train = InMemory::new([("x", x), ("y", y)])?;
    /// # let test = train.clone();
    /// let model = Linear::new(1, 2);
    /// let task = task(&model, |cx, model, batch| {
    ///     let logits = model.forward(batch.input);
    ///     let classes = Confusion::of_classes(&["negative", "positive"]);
    ///     cx.collect("sign", classes, logits, batch.target, batch.weight);
    ///     batch.mean(cross_entropy(logits, batch.target))
    /// });
    /// let task = std::sync::Arc::new(task);
    /// let fitted = trainer.fit(task.clone(), model, Adam::new(0.1), train, ())?;
    /// let report = trainer.evaluate(task, &fitted.model, test)?;
    /// let table = &report.confusion[0];
    /// assert_eq!(table.classes, ["negative", "positive"]);
    /// assert_eq!(table.counts, [[4.0, 0.0], [0.0, 4.0]]); // true classes in rows
    /// assert_eq!(table.matrix()?.class(1).recall(), 1.0);
    /// println!("{table}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`fit`](Self::fit).
    #[track_caller]
    pub fn evaluate<K: Task>(
        &self,
        task: K,
        model: &ModelArrays<K>,
        dataset: impl Dataset + 'static,
    ) -> Result<MetricReport> {
        let loader = self.in_order::<K>(Arc::new(dataset))?;
        let scores = self.scores_of(Location::caller(), task, model, self.limited(loader)?)?;
        Ok(MetricReport {
            metrics: scores.values,
            confusion: scores.confusion,
        })
    }

    /// Computes the metrics of `model` over every sample of `dataset`, as
    /// [`validate`](Self::validate), for data on which nothing was chosen.
    ///
    /// # Errors
    /// Those of [`fit`](Self::fit).
    #[track_caller]
    pub fn test<K: Task>(
        &self,
        task: K,
        model: &ModelArrays<K>,
        dataset: impl Dataset + 'static,
    ) -> Result<MetricValues> {
        let loader = self.in_order::<K>(Arc::new(dataset))?;
        let loader = match self.options.fast_dev_run {
            Some(_) => self.limited(loader)?,
            None => loader,
        };
        let scores = self.scores_of(Location::caller(), task, model, loader)?;
        Ok(scores.values)
    }

    /// Computes the metrics of `model` over one pass of `loader`.
    fn scores_of<K: Task>(
        &self,
        line: &'static Location<'static>,
        task: K,
        model: &ModelArrays<K>,
        loader: Loader,
    ) -> Result<Scores> {
        let specs = self.batch_specs::<K>(&loader)?;
        let metrics = discover_evaluation(&task, model, &specs, &loader, self.exchanging())?;
        let (client, task) = (&self.client, Arc::new(task));
        let program = evaluate_program(
            client,
            &self.mesh,
            &self.strategy,
            &task,
            &metrics,
            self.exchanging(),
        )
        .precision(self.precision)
        .of_line(line);
        let scores = self.score::<K>(
            &program,
            &metrics,
            &Tree::leaf_refs(model),
            &loader,
            &|| false,
        )?;
        let scores = scores.expect("it is never asked to stop");
        metrics.collected().warn_undefined(&scores);
        Ok(scores)
    }

    /// The averages of `state`, with statistics of the averaged weights in training batches of this
    /// epoch. It does not end before: a resumed run must have the same.
    pub(crate) fn with_statistics<K: Task, O: Optimizer>(
        &self,
        program: &Statistics<K>,
        state: &RunState<K, O, Array>,
        mut averages: Averages<Array>,
        loader: &Loader,
        epoch: u64,
    ) -> Result<Averages<Array>> {
        let mut limits = Limits::new(self.options.wait_limit);
        let sharding = Sharding::replicated(&self.mesh);
        let upload = |first| Array::upload(&self.client, &HostArray::scalar(first), &sharding);
        let is_first = [upload(true)?, upload(false)?];
        let mut number = 0;
        while number < STATISTICS {
            let start = Position { epoch, batch: 0 };
            let mut prefetch = self.prefetch(loader, start)?;
            let before = number;
            while number < STATISTICS {
                let next = next_batch("statistics", &mut prefetch, &mut limits, &|| false)?;
                let NextBatch::Batch(batch) = next else {
                    break;
                };
                let batch = self.batch_tree::<K>(batch)?;
                let is_first = &is_first[usize::from(number > 0)];
                let inputs = (&state.model, (&batch, (&state.key, is_first)));
                (averages, _) = program.call(averages, inputs)?;
                number += 1;
            }
            if number == before {
                break;
            }
        }
        Ok(averages)
    }

    /// Computes the metrics of `model` over one pass of `loader`; `None` if it is asked to stop
    /// first.
    pub(crate) fn score<K: Task>(
        &self,
        program: &Evaluate<K>,
        metrics: &Window,
        model: &<K::Model as Family>::Of<&Array>,
        loader: &Loader,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Scores>> {
        let mut window = Leaf(metrics.upload(&self.client, &self.mesh)?);
        let limit = self.options.wait_limit;
        let (mut in_flight, mut limits) =
            (InFlight::new("validation step", limit), Limits::new(limit));
        let mut collecting = Collecting::new(metrics.collected());
        let mut prefetch = self.prefetch(loader, Position::default())?;
        for number in 1.. {
            let batch = match next_batch("validation", &mut prefetch, &mut limits, stop)? {
                NextBatch::Batch(batch) => self.batch_tree::<K>(batch)?,
                NextBatch::End => break,
                NextBatch::Stopped => return Ok(None),
            };
            if stop() {
                return Ok(None);
            }
            let (next, rows) = program.run_with((
                Tree::leaf_refs(model).map_leaves(|_, array| *array),
                (Tree::leaf_refs(&batch), Tree::leaf_refs(&window)),
            ))?;
            window = next;
            in_flight.push(number, &window.0, stop)?;
            let rows: Vec<&Array> = rows.iter().map(|Leaf(rows)| rows).collect();
            if !collecting.push(&rows, in_flight.limits(), stop)? {
                return Ok(None);
            }
        }
        if !collecting.settle(in_flight.limits(), stop)? {
            return Ok(None);
        }
        let scores = window.0.fetch()?;
        let name = || "the validation metrics".to_string();
        match wait(name, in_flight.limits(), stop, |slice| {
            scores.wait_ready(slice).then_some(())
        })? {
            Some(()) => {
                let read = metrics.read(&scores.wait()?)?;
                let read = match self.exchanging() {
                    Some(processes) => over_processes(read, processes)?,
                    None => read,
                };
                let means = means_of_pass(metrics, read, loader)?;
                collecting.finish(means, self.exchanging()).map(Some)
            }
            None => Ok(None),
        }
    }
}
