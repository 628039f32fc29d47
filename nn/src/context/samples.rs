//! The samples of a process of a job: which rows of the whole batch it has, and the check that they
//! do not meet where those of other processes are missing.

use std::panic::Location;

use halite_core::DType;
use halite_ir::{Call, CustomCall, Place, Samples, samples};

use crate::{Mean, PROCESS_AXIS, Tensor, Trace, process_group::target, trace::Id};

/// Target of the call that marks what is meant for the samples of one process.
const PER_PROCESS: &str = "halite_per_process";

/// What the check reports: an output of a task, with the user's line that gave it.
struct Output {
    what: String,
    ids: Vec<Id>,
    line: Option<&'static Location<'static>>,
}

impl Trace {
    /// The rows of `x` of all processes of a job, those of the first process first: `[rows, ..]` to
    /// `[processes * rows, ..]`. `x` itself in a program that has the whole batch, as without a job.
    ///
    /// A loss that compares the samples of a batch with each other takes all of them:
    ///
    /// ```
    /// use halite_core::{DType, TensorType};
    /// use halite_nn::{Mean, Trace, cross_entropy};
    ///
    /// let cx = Trace::new();
    /// let [a, b] = ["a", "b"].map(|name| cx.input(TensorType::new(DType::F32, [16, 8]), name));
    /// let weight = cx.input(TensorType::new(DType::F32, [16]), "weight");
    ///
    /// let [a, b, weight] = [a, b, weight].map(|x| cx.all_gather(x));
    /// let logits = a.matmul(b.t());
    /// let labels = cx.arange(logits.dims()[0], DType::S32);
    /// let loss = Mean::weighted(cross_entropy(logits, labels), weight);
    /// assert!(cx.check().is_ok());
    /// # let _ = loss;
    /// ```
    ///
    /// Its gradient is that of the sum of the losses of all processes: the rows of this process of
    /// the sum of the cotangents.
    #[track_caller]
    pub fn all_gather<'t>(&'t self, x: Tensor<'t>) -> Tensor<'t> {
        match self.processes() {
            Some(_) => x.all_gather(0, PROCESS_AXIS),
            None => x,
        }
    }

    /// `x`, which is meant for the samples of each process alone: a trainer of a job accepts that
    /// samples of its part of a batch meet in it, and results may depend on the number of processes.
    #[track_caller]
    pub fn per_process<'t>(&'t self, x: Tensor<'t>) -> Tensor<'t> {
        let call = CustomCall {
            target: PER_PROCESS.to_string(),
            ..CustomCall::default()
        };
        let [x] = self.composite(call, [x], |x| x);
        x
    }

    /// Sets the number of samples in the batch of this process. Random numbers with as many rows are
    /// those of its samples in the whole batch.
    pub fn set_samples(&self, count: usize) {
        super::context(self).processes.samples.set(Some(count));
    }

    /// Row-major index of the first of these elements among those of all processes, a `u64` scalar,
    /// if they have a row for each sample of this process.
    #[track_caller]
    pub(crate) fn first_of_samples(&self, dims: &[usize]) -> Option<Tensor<'_>> {
        let samples = super::context(self).processes.samples.get();
        let is_of_samples = samples.is_some() && dims.first().copied() == samples;
        if !is_of_samples || self.processes().is_none_or(|all| all.size() == 1) {
            return None;
        }
        let elements: usize = dims.iter().product();
        Some(self.process_index().convert(DType::U64) * elements as f64)
    }

    /// Records a mistake for the loss, for each metric, for rows that are collected and for each new
    /// state that depends on the number of processes: where samples of the batch meet, the process
    /// does not have those of others. `shared` are inputs that are the same in every process, `batch`
    /// those with a row for each sample.
    pub fn require_separate_samples<'t>(
        &'t self,
        loss: Mean<'t>,
        shared: &[Tensor<'t>],
        batch: &[Tensor<'t>],
    ) {
        let Some(processes) = self.processes().filter(|all| all.size() > 1) else {
            return;
        };
        let Some(count) = batch
            .first()
            .and_then(|field| field.dims().first().copied())
        else {
            return;
        };
        let outputs = checked_outputs(self, loss);
        let ids = outputs.iter().flat_map(|output| &output.ids);
        let tensors: Vec<Tensor<'t>> = ids.map(|&id| self.tensor(id)).collect();
        let inputs = [shared, batch].concat();
        // Its mistakes are reported already.
        let Ok(graph) = self.graph(&inputs, &tensors) else {
            return;
        };
        let row = Samples::Along(Place {
            dim: 0,
            outer: 1,
            inner: 1,
        });
        let given = [vec![Samples::SHARED; shared.len()], vec![row; batch.len()]].concat();
        let mut found = samples(&graph, given, count, &known).into_iter();
        for output in outputs {
            let found: Vec<Samples> = found.by_ref().take(output.ids.len()).collect();
            let Some((what, line)) = problem(&output, &found) else {
                continue;
            };
            let message = format!(
                "{what}. Each of the {} processes has its own part of the batch, so {} would depend on their \
                 number. Give it the samples of all processes, `let x = cx.all_gather(x)`; if those \
                 of one process are meant, mark the result, `let y = cx.per_process(y)`",
                processes.size(),
                output.what
            );
            match line.or(output.line) {
                Some(line) => self.fail_at(line, "samples", message, None),
                None => self.fail("samples", message, None),
            };
        }
    }
}

/// The values that must not depend on the number of processes.
fn checked_outputs(cx: &Trace, loss: Mean<'_>) -> Vec<Output> {
    let mean = |what: String, [total, weight]: [Id; 2], line| Output {
        what,
        ids: vec![total, weight],
        line,
    };
    let sums = [loss.total.id, loss.weight.id];
    let line = loss.total.origin().or(loss.weight.origin());
    let mut outputs = vec![mean("the loss".to_string(), sums, line)];
    outputs.extend(super::context(cx).metrics.borrow().iter().map(|metric| {
        let what = format!("the metric `{}`", metric.name);
        mean(what, [metric.total, metric.weight], Some(metric.location))
    }));
    outputs.extend(
        super::context(cx)
            .collected
            .borrow()
            .iter()
            .map(|rows| Output {
                what: format!("the metric `{}`", rows.name),
                ids: vec![rows.scores, rows.targets, rows.weight],
                line: Some(rows.location),
            }),
    );
    outputs.extend(super::context(cx).updates.borrow().iter().map(|update| {
        let name = cx.tensor(update.state).name();
        Output {
            what: name.map_or("a new state".into(), |name| {
                format!("the new value of `{name}`")
            }),
            ids: vec![update.value],
            line: Some(update.location),
        }
    }));
    outputs
}

/// The calls of this crate that exchange values.
fn known(call: &CustomCall) -> Option<Call> {
    let exchanges = [
        target::ALL_REDUCE,
        target::REDUCE_SCATTER,
        target::ALL_GATHER,
        target::BROADCAST,
    ];
    match &*call.target {
        PER_PROCESS => Some(Call::Marked),
        target::INDEX => Some(Call::Rank),
        target
            if exchanges
                .iter()
                .any(|exchange| target.starts_with(exchange)) =>
        {
            Some(Call::Exchange)
        }
        _ => None,
    }
}

/// What makes an output depend on the number of processes, and where, if something does.
fn problem(
    output: &Output,
    found: &[Samples],
) -> Option<(String, Option<&'static Location<'static>>)> {
    let met = found.iter().find_map(|one| match one {
        Samples::Met(meeting) => Some(meeting),
        // Nothing adds up the states of processes.
        Samples::Sum(meeting) if found.len() == 1 => Some(meeting),
        _ => None,
    });
    if let Some(meeting) = met {
        return Some((format!("`{}` {}", meeting.op, meeting.how), meeting.origin));
    }
    let text = match found {
        [Samples::Along(_)] => "it is computed from samples",
        [Samples::Shared(_), Samples::Sum(_)] => {
            "its total is the same in every process, and its weight is a sum over the samples of one"
        }
        [Samples::Sum(_), Samples::Shared(weight)] if weight.exchanged => {
            "its total is a sum over the samples of one process, and its weight is that of all"
        }
        _ => return None,
    };
    Some((format!("{}: {text}", output.what), output.line))
}
