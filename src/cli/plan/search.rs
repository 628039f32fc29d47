//! `halite plan --search` and `--largest-batch`: plans of several shardings, or batch sizes.

use std::process::ExitCode;

use halite::{
    Error, Result,
    plan::{Candidate, Fit, Plan, Planned, Search},
    train::BatchSizes,
};

use serde_json::json;

use super::{Compiler, PlanCommand, code_of};

const OP: &str = "plan";

/// No machine has a larger batch.
const MOST_SAMPLES: usize = 1 << 40;

impl PlanCommand {
    /// Compares all candidates, and prints the comparison.
    pub(super) fn search(
        &self,
        compiler: &Compiler,
        candidates: Vec<Candidate>,
    ) -> Result<ExitCode> {
        let count = candidates.len();
        let mut rows = Vec::new();
        for (number, candidate) in candidates.into_iter().enumerate() {
            let progress = format!(" ({} of {count})", number + 1);
            let plan = self.plan_with(compiler, number, &candidate, &progress)?;
            rows.push(Planned { candidate, plan });
        }
        let search = Search::new(rows);
        if self.json {
            let rows = search.rows().iter().map(row_as_json);
            say!("{}", rows.collect::<serde_json::Value>());
        } else {
            say!("{search}")
        }
        let plans = search.rows().iter().map(|row| row.plan.as_ref().ok());
        Ok(code_of(plans.flatten()))
    }

    /// Finds the largest batch that fits, and prints its plan.
    pub(super) fn largest_batch(
        mut self,
        compiler: &Compiler,
        candidate: &Candidate,
    ) -> Result<ExitCode> {
        let Candidate { mesh, strategy } = candidate;
        let sizes = BatchSizes {
            least: strategy.batch_spec(mesh).parts(mesh, 0),
            start: (self.batch_size).unwrap_or_else(|| self.samples_of_device() * mesh.size()),
            most: MOST_SAMPLES,
        };
        let (mut best, mut too_large) = (None::<Plan>, None::<Plan>);
        sizes.largest(|samples| {
            self.batch_size = Some(samples);
            let progress = format!(", {samples} samples");
            let plan = self.plan_with(compiler, 0, candidate, &progress)?;
            let plan = plan.map_err(|error| Error::invalid(OP, error))?;
            if let Fit::Fits {
                available: None, ..
            } = plan.fit
            {
                let message = format!(
                    "{} reports no limit of its memory; give one: --memory-limit 16G",
                    self.target
                );
                return Err(Error::invalid(OP, message));
            }
            let fits = plan.fits();
            *(if fits { &mut best } else { &mut too_large }) = Some(plan);
            Ok(fits)
        })?;
        let Some(plan) = best.as_ref().or(too_large.as_ref()) else {
            return Err(Error::invalid(OP, "no batch size was tried"));
        };
        if self.json {
            say!("{}", json!(plan));
        } else {
            match &best {
                Some(plan) => say!("largest batch: {} samples\n", plan.batch_size),
                None => say!("not even a batch of {} samples fits\n", plan.batch_size),
            }
            say!("{plan}");
        }
        Ok(code_of([plan]))
    }
}

fn row_as_json(Planned { candidate, plan }: &Planned) -> serde_json::Value {
    match plan {
        Ok(plan) => json!(plan),
        Err(error) => json!({
            "mesh": candidate.mesh.to_string(),
            "strategy": candidate.strategy.to_string(),
            "error": error,
        }),
    }
}
