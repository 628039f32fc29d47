//! The search for the fastest sharding of a step over devices.

use std::fmt;

use super::{
    Plan,
    text::{seconds, si},
};
use crate::{
    Error, MeshShape, Result,
    train::{Strategy, Trainer, TrainerBuilder},
};

const OP: &str = "search";

/// A sharding of a step over devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The axes of the devices.
    pub mesh: MeshShape,
    /// What is split over them.
    pub strategy: Strategy,
}

/// The shardings over this many devices that are worth trying: `dp` and `fsdp`, each alone and with
/// tensor parallelism over 2, 4 and 8 devices; with `strategy`, those of that strategy, which may also
/// be `zero1` or `tp`.
///
/// ```
/// use halite::plan::candidates;
///
/// let meshes = candidates(8, Some(&"fsdp+tp".parse()?))?;
/// let meshes: Vec<String> = meshes.iter().map(|one| one.mesh.to_string()).collect();
/// assert_eq!(meshes, ["fsdp=4,model=2", "fsdp=2,model=4"]);
/// # halite::Result::<()>::Ok(())
/// ```
///
/// # Errors
/// If the strategy has no mesh of `devices` devices.
pub fn candidates(devices: usize, strategy: Option<&Strategy>) -> Result<Vec<Candidate>> {
    let (dp, fsdp, tp) = (
        Strategy::data_parallel,
        Strategy::fsdp,
        Strategy::tensor_parallel,
    );
    let mut all = vec![candidate(&[("data", devices)], dp())];
    if devices > 1 || strategy.is_some() {
        all.push(candidate(&[("fsdp", devices)], fsdp()));
    }
    let parts = [2, 4, 8].into_iter();
    for model in parts.filter(|model| devices.is_multiple_of(*model) && devices > *model) {
        let rest = devices / model;
        all.push(candidate(
            &[("data", rest), ("model", model)],
            dp().and(tp()),
        ));
        all.push(candidate(
            &[("fsdp", rest), ("model", model)],
            fsdp().and(tp()),
        ));
    }
    let Some(strategy) = strategy else {
        return Ok(all);
    };
    all.push(candidate(&[("data", devices)], Strategy::zero1()));
    all.push(candidate(&[("model", devices)], tp()));
    let name = strategy.to_string();
    all.retain(|one| one.strategy.to_string() == name);
    if all.is_empty() {
        let number = match devices {
            1 => "1 device".to_owned(),
            devices => format!("{devices} devices"),
        };
        let message = match &name[..] {
            "dp+tp" | "fsdp+tp" => format!(
                "`{name}` has no mesh of {number} to try: `tp` takes 2, 4 or 8 of them, and the \
                 rest is at least 2; give the mesh, or another strategy"
            ),
            _ => format!(
                "`{name}` has no mesh of {number} to try; those of dp, zero1, fsdp, tp, dp+tp and \
                 fsdp+tp are tried: give the mesh"
            ),
        };
        return Err(Error::invalid(OP, message));
    }
    let with_options = |one: Candidate| Candidate {
        strategy: strategy.clone(),
        ..one
    };
    Ok(all.into_iter().map(with_options).collect())
}

fn candidate(axes: &[(&'static str, usize)], strategy: Strategy) -> Candidate {
    let mesh = MeshShape::new(axes.iter().copied()).expect("distinct axes of some devices");
    Candidate { mesh, strategy }
}

/// A sharding with its plan, or the reason why it has none.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The sharding.
    pub candidate: Candidate,
    /// The plan, or the error as text.
    pub plan: Result<Plan, String>,
}

/// Plans of several shardings, compared. Its text is a table, with the details of the best.
#[derive(Clone, Debug)]
pub struct Search {
    rows: Vec<Planned>,
}

/// Plans the step of a trainer with each of these shardings, and compares them. `plan` plans the
/// step, with [`plan_on`](super::plan_on).
///
/// ```
/// use std::sync::Arc;
///
/// use halite::{models::{Classify, Mlp}, plan::{candidates, fastest, plan_on}, prelude::*};
///
/// # fn main() -> Result<()> {
/// let client = Accelerator::cpu().devices(2)?.open()?;
/// let images = Arc::new(InMemory::new([
///     ("image", HostArray::from_slice(&[0u8; 64 * 28 * 28], [64, 28, 28])?),
///     ("label", HostArray::from_slice(&[0u8; 64], [64])?),
/// ])?);
/// let trainer = Trainer::builder(&client).batch_size(32).quiet(true);
/// let model = || Mlp::new(&[784, 32, 10]);
/// let found = fastest(&trainer, candidates(2, None)?, |trainer| {
///     let task = Classify::<Mlp<()>>::new();
///     plan_on(trainer, task, model(), Adam::new(1e-3), images.clone())
/// })?;
/// println!("{found}");
/// let trainer = found.apply(trainer)?.build()?;
/// assert_eq!(trainer.mesh().size(), 2);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If there is no plan for any of them: the first error.
pub fn fastest(
    trainer: &TrainerBuilder,
    candidates: Vec<Candidate>,
    mut plan: impl FnMut(&Trainer) -> Result<Plan>,
) -> Result<Search> {
    let mut errors = Vec::new();
    let rows = candidates.into_iter().map(|candidate| {
        let built = of_candidate(trainer.clone(), &candidate).build();
        let plan = built.and_then(|trainer| plan(&trainer));
        let plan = plan.map_err(|error| {
            let text = error.to_string();
            errors.push(error);
            text
        });
        Planned { candidate, plan }
    });
    let search = Search::new(rows.collect());
    let has_plan = search.rows.iter().any(|row| row.plan.is_ok());
    match errors.into_iter().next() {
        Some(error) if !has_plan => Err(error),
        None if !has_plan => Err(Error::invalid(OP, "no sharding to try")),
        _ => Ok(search),
    }
}

fn of_candidate(
    trainer: TrainerBuilder,
    Candidate { mesh, strategy }: &Candidate,
) -> TrainerBuilder {
    trainer.mesh(mesh.clone()).strategy(strategy.clone())
}

impl Search {
    /// Compares plans of one step on the same devices: first those that fit, fastest first, by the
    /// time without overlap; then those that exceed the memory, by size; then failures. Without an
    /// estimate of the time, those that fit are in the order of the bytes that a device sends.
    pub fn new(mut rows: Vec<Planned>) -> Self {
        rows.sort_by(|a, b| {
            let ((group, number), (other, than)) = (rank(&a.plan), rank(&b.plan));
            group.cmp(&other).then(number.total_cmp(&than))
        });
        Search { rows }
    }

    /// All plans, the best first.
    pub fn rows(&self) -> &[Planned] {
        &self.rows
    }

    /// The fastest sharding that fits, if any does.
    pub fn best(&self) -> Option<&Candidate> {
        let fits = |row: &&Planned| row.plan.as_ref().is_ok_and(Plan::fits);
        self.rows.first().filter(fits).map(|row| &row.candidate)
    }

    /// The trainer with the fastest sharding that fits.
    ///
    /// # Errors
    /// If none fits, with the memory that the smallest needs.
    pub fn apply(&self, trainer: TrainerBuilder) -> Result<TrainerBuilder> {
        match (self.best(), self.rows.first()) {
            (Some(best), _) => Ok(of_candidate(trainer, best)),
            (
                None,
                Some(Planned {
                    candidate,
                    plan: Ok(plan),
                }),
            ) => {
                let message = format!(
                    "no sharding fits: {} on {} needs {} on each device; {}",
                    candidate.strategy,
                    candidate.mesh,
                    si(plan.required() as f64, "B"),
                    plan.advice
                        .first()
                        .map_or("use a smaller batch", |advice| advice)
                );
                Err(Error::invalid(OP, message))
            }
            (
                None,
                Some(Planned {
                    plan: Err(error), ..
                }),
            ) => Err(Error::invalid(OP, error)),
            (None, None) => Err(Error::invalid(OP, "no sharding was tried")),
        }
    }

    /// Which sharding is the fastest, and why, in one line.
    pub fn reason(&self) -> String {
        let measured = |Planned { candidate, plan }: &Planned| {
            let Candidate { mesh, strategy } = candidate;
            let cost = plan
                .as_ref()
                .ok()
                .map_or(String::new(), |plan| match cost(plan) {
                    (cost, Cost::Seconds) => format!(" with {}", seconds(cost)),
                    (cost, Cost::Sent) => format!(" with {}", si(cost, "B")),
                    (_, Cost::Unknown) => String::new(),
                });
            format!("{strategy} on {mesh}{cost}")
        };
        let Some(Planned { plan: Ok(best), .. }) = self.rows.first() else {
            return "no sharding has a plan".into();
        };
        let by = match cost(best).1 {
            Cost::Seconds => "estimated time of a step, without overlap",
            Cost::Sent => {
                "bytes that each device sends in a step; no time estimate for these devices"
            }
            Cost::Unknown => "order; the compiler does not tell what a step costs",
        };
        let tried = self.rows.len();
        let next = self
            .rows
            .get(1)
            .filter(|row| row.plan.as_ref().is_ok_and(Plan::fits));
        let next = next.map_or(String::new(), |row| format!("; then {}", measured(row)));
        format!(
            "{}: first of {tried} by {by}{next}",
            measured(&self.rows[0])
        )
    }
}

/// What plans are compared by.
enum Cost {
    /// Seconds of a step, if nothing overlaps.
    Seconds,
    /// Bytes that each device sends in a step.
    Sent,
    Unknown,
}

fn cost(plan: &Plan) -> (f64, Cost) {
    match (&plan.estimate, &plan.collectives) {
        (Some(estimate), _) => (estimate.step_seconds_without_overlap, Cost::Seconds),
        (None, Some(collectives)) => {
            let sent = collectives.iter().map(|collective| collective.sent);
            (sent.fold(0.0, |sum, sent| sum + sent), Cost::Sent)
        }
        (None, None) => (0.0, Cost::Unknown),
    }
}

/// Returns the group of a plan, and its order in the group.
fn rank(plan: &Result<Plan, String>) -> (u8, f64) {
    match plan {
        Ok(plan) if plan.fits() => (0, cost(plan).0),
        Ok(plan) => (1, plan.required() as f64),
        Err(_) => (2, 0.0),
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10} {:<22} {:>10}  {:<5} {:>12} {:>12}  {:>9}",
            "strategy", "mesh", "peak", "fits", "step, best", "no overlap", "MFU"
        )?;
        for Planned { candidate, plan } in &self.rows {
            let row = plan
                .as_ref()
                .map_or_else(|_| format!("{:>10}  failed, see below", "-"), Plan::row);
            let (mesh, strategy) = (candidate.mesh.to_string(), candidate.strategy.to_string());
            writeln!(f, "{strategy:<10} {mesh:<22} {row}")?;
        }
        for Planned { plan, .. } in &self.rows {
            if let Err(error) = plan {
                writeln!(f, "\nfailed: {error}")?;
            }
        }
        let Some(Planned { plan: Ok(best), .. }) = self.rows.first() else {
            return Ok(());
        };
        let title = match cost(best).1 {
            _ if !best.fits() => "nothing fits; least memory",
            Cost::Seconds => "fastest estimate that fits",
            Cost::Sent => "no time estimate for this target; least traffic between devices",
            Cost::Unknown => "no estimate for this target; the first that fits",
        };
        write!(f, "\n{title}:\n\n{best}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_use_all_devices() {
        for devices in [1, 4, 12, 256] {
            for Candidate { mesh, strategy } in candidates(devices, None).unwrap() {
                assert_eq!(mesh.size(), devices, "{strategy}");
            }
        }
        assert_eq!(candidates(1, None).unwrap().len(), 1);
    }

    #[test]
    fn strategy_restricts_candidates() {
        let meshes = |devices: usize, strategy: &str| {
            let strategy = strategy.parse().unwrap();
            let found = candidates(devices, Some(&strategy));
            let meshes =
                |found: Vec<Candidate>| found.iter().map(|it| it.mesh.to_string()).collect();
            found
                .map(meshes)
                .unwrap_or_else(|error| vec![error.to_string()])
        };
        assert_eq!(meshes(4, "tp"), ["model=4"]);
        assert_eq!(meshes(4, "dp+tp"), ["data=2,model=2"]);
        for (strategy, mesh) in [("dp", "data=1"), ("fsdp", "fsdp=1"), ("tp", "model=1")] {
            assert_eq!(meshes(1, strategy), [mesh]);
        }
        for (devices, strategy, number) in [
            (2, "dp+tp", "of 2 devices"),
            (1, "fsdp+tp", "of 1 device to try: `tp` takes 2"),
            (
                4,
                "dp+fsdp",
                "of 4 devices to try; those of dp, zero1, fsdp",
            ),
        ] {
            let [error] = &meshes(devices, strategy)[..] else {
                panic!("{strategy} has a mesh of {devices} devices")
            };
            let expected = format!("`{strategy}` has no mesh {number}");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
