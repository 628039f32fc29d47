//! Where the time of a training step of the embedded executor goes: for each unit of its plan (a
//! group of elementwise operations, a product, a convolution) the times of a step, in microseconds.
//!
//! `units WORKLOAD [PRECISION] [STEPS]`; the workloads are those of `peer`. The executor has as
//! many threads as processors are available: `taskset -c 0 units w7` has one.
#![forbid(unsafe_code)]

use std::{
    collections::HashMap,
    fmt,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use halite::{DTypePolicy, Result, backends::Accelerator, nn::Optimizer};
use halite_benches::{Bare, Forward, Visitor, Workload, exit_code, visit};
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
};

fn main() -> ExitCode {
    let argument = |at| std::env::args().nth(at);
    let times = Times::default();
    let subscriber = tracing_subscriber::registry().with(times.clone());
    // The only one of the process.
    let _ = tracing::subscriber::set_global_default(subscriber);
    let run = || {
        let precision = argument(2).map_or(Ok(DTypePolicy::F32), |name| name.parse())?;
        let steps = argument(3).and_then(|it| it.parse().ok()).unwrap_or(20);
        let units = Units {
            precision,
            steps,
            times,
        };
        visit(&argument(1).unwrap_or_default(), units)
    };
    exit_code(run())
}

struct Units {
    precision: DTypePolicy,
    steps: usize,
    times: Times,
}

impl Visitor for Units {
    type Output = ();

    fn visit<M: Forward, O: Optimizer + Clone>(self, workload: Workload<M, O>) -> Result<()> {
        let Workload {
            model,
            optimizer,
            x,
            y,
        } = workload;
        let client = "embedded".parse::<Accelerator>()?.open()?;
        let bare = Bare::<M, O>::new(&client, model, optimizer, &x, &y)?;
        let mut bare = bare.precision(self.precision);
        bare.run(3)?;
        bare.loss()?;
        self.times.take();
        let started = Instant::now();
        bare.run(self.steps)?;
        bare.loss()?;
        let whole = started.elapsed().as_secs_f64() * 1e6 / self.steps as f64;
        report(self.times.take(), self.steps, whole);
        Ok(())
    }
}

fn report(times: HashMap<Unit, Vec<f64>>, steps: usize, whole: f64) {
    let mut lines: Vec<_> = times
        .into_iter()
        .map(|(unit, mut times)| {
            times.sort_by(f64::total_cmp);
            let count = times.len() as f64 / steps as f64;
            (
                times[times.len() / 2] * count,
                times[0] * count,
                count,
                unit,
            )
        })
        .collect();
    lines.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut kinds: HashMap<&str, f64> = HashMap::new();
    for (median, _, _, unit) in &lines {
        *kinds.entry(&unit.kind).or_default() += median;
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all: f64 = kinds.iter().map(|(_, median)| median).sum();
    println!("step {whole:.0}, units {all:.0}");
    for (kind, median) in kinds {
        println!("{median:9.0}  {kind}");
    }
    println!("\n   median     least  count        kB  unit");
    for (median, least, count, Unit { kind, sizes, bytes }) in &lines {
        let kilobytes = bytes / 1000;
        println!("{median:9.0} {least:9.0} {count:6.1} {kilobytes:9}  {kind} {sizes}");
    }
}

/// Fields of a span `unit`.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Unit {
    kind: String,
    sizes: String,
    bytes: u64,
}

impl Visit for Unit {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "kind" => self.kind = value.to_owned(),
            "sizes" => self.sizes = value.to_owned(),
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "bytes" {
            self.bytes = value;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// Microseconds of the units so far.
#[derive(Clone, Default)]
struct Times(Arc<Mutex<HashMap<Unit, Vec<f64>>>>);

impl Times {
    fn take(&self) -> HashMap<Unit, Vec<f64>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Times {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() != "unit" {
            return;
        }
        let mut unit = Unit::default();
        attributes.record(&mut unit);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert((unit, Instant::now()));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some((_, entered)) = span.extensions_mut().get_mut::<(Unit, Instant)>()
        {
            *entered = Instant::now();
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let now = Instant::now();
        if let Some(span) = context.span(id)
            && let Some((unit, entered)) = span.extensions_mut().remove::<(Unit, Instant)>()
        {
            let micros = (now - entered).as_secs_f64() * 1e6;
            let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            times.entry(unit).or_default().push(micros);
        }
    }
}
